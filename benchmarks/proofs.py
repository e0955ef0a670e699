"""What proofs cost to write, to keep and to check; changed proofs; and the paper's estimates written as proofs."""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console

import berncert
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin, shown
from berncert.certification.proof_file import block, write_proofs
from berncert.certification.proof_rows import first_box
from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, Verdict, check_file
from berncert_check.proof_file import UnusableError, read_blocks

HERE = Path(__file__).parent
SIZES = ((2, 3), (3, 3), (4, 3), (5, 1), (5, 2), (5, 3), (5, 4), (6, 2))
HIGH = ((1, 280), (1, 1000), (2, 60), (3, 25), (3, 40))
ROWS, FEW, CLASSES, ROUNDS = 128, 2, 10, 11
DTYPES = {"tags": np.uint8, "hints": np.float32}
WAYS = (
    "tag", "tag dropped", "hint", "hint dropped", "coefficient, last bit", "coefficient", "class", "radius", "box",
    "x0",
)  # fmt: skip


def bending_head(dim: int, degree: int) -> berncert.SmoothedHead:
    """Ten classes, whose boundaries bend."""
    torch.manual_seed(dim)
    layers = (torch.nn.Linear(dim, 32), torch.nn.Tanh(), torch.nn.Linear(32, CLASSES))
    with torch.no_grad():
        layers[0].weight *= 4
    return berncert.smooth(torch.nn.Sequential(*layers).double(), dim=dim, degree=degree)


def seconds(call: Any) -> tuple[float, Any]:
    """How long a call keeps the processor, and what it returns."""
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


def cost(model: Any, inputs: Any, path: Path, **options: Any) -> dict[str, Any]:
    """Certificates without and with proofs, in turn; the file; its check."""
    plain, written = [], []
    for turn in range(ROUNDS + 1):  # the first one compiles
        path.unlink(missing_ok=True)
        times = [
            seconds(lambda: berncert.certify(model, inputs, threads=1, **options))[0],
            seconds(lambda: berncert.certify(model, inputs, threads=1, proof=path))[0],
        ]
        if turn:
            plain.append(times[0])
            written.append(times[1])
    took, verdicts = seconds(lambda: list(check_file(path)))
    counts = Counter(verdict.verdict for verdict in verdicts)
    return {
        "rows": len(verdicts), "ratio": float(np.median(np.array(written) / np.array(plain))),
        "certify_ms": 1e3 * min(plain) / len(verdicts), "bytes": path.stat().st_size / len(verdicts), "seconds": took,
        "check": took / len(verdicts), "nodes": sum(v.nodes for v in verdicts) / len(verdicts),
        "accepted": counts[ACCEPTED], "rejected": counts[REJECTED], "unsupported": counts[UNSUPPORTED],
    }  # fmt: skip


def growth(path: Path, sizes: Sequence[tuple[int, int]], rows: int) -> Iterator[dict[str, Any]]:
    """Heads of several sizes."""
    for dim, degree in shown("heads", sizes):
        x = np.random.default_rng(0).random((rows, dim))
        yield {"what": f"d={dim}, n={degree}, K={CLASSES}"} | cost(bending_head(dim, degree), x, path)


def shipped(path: Path, mnist: int, data_dir: str | None) -> Iterator[dict[str, Any]]:
    """Images of shipped models, from pixels on; by the global route with and without proofs."""
    for name, limit in shown("shipped models", (("digits", None), ("mnist", mnist))):
        test = berncert.data.load(name, limit=limit, data_dir=data_dir)
        yield {"what": name} | cost(berncert.load(name), test.images, path, routes="global")


Blocks = list[tuple[str, dict[str, Any], dict[str, np.ndarray]]]


def blocks_of(path: Path) -> Blocks:
    """The blocks of a file, to be changed."""
    return [
        (b.kind, dict(b.fields), {n: np.array(list(v), DTYPES.get(n, np.float64)) for n, v in b.arrays.items()})
        for b in read_blocks(path)
    ]


def verdict_of(blocks: Blocks, path: Path) -> Verdict | None:
    """That of the only row, with checksums that are right; None if the file cannot be used."""
    write_proofs(path, [block(kind, fields, **arrays) for kind, fields, arrays in blocks])
    try:
        return next(check_file(path))
    except UnusableError:
        return None


def change(blocks: Blocks, way: str, chance: np.random.Generator) -> None:
    """One change."""
    (_, _, head), (_, fields, row) = blocks
    if way in ("tag dropped", "hint dropped"):
        name = "tags" if way == "tag dropped" else "hints"
        row[name] = np.delete(row[name], chance.integers(row[name].size))
    elif way == "tag":
        row["tags"][chance.integers(row["tags"].size)] = chance.choice([0, 1, 2, 9, 251, 252, 253, 254, 255])
    elif way == "hint":
        row["hints"][chance.integers(row["hints"].size)] *= np.float32(chance.choice([-1, 0, 0.5, 1.01, 2]))
    elif way == "class":
        fields["predicted"] = (fields["predicted"] + int(chance.integers(1, CLASSES))) % CLASSES
    elif way == "radius":
        fields["radius"] = (float.fromhex(fields["radius"]) * float(chance.uniform(1.0002, 2))).hex()
    elif way.startswith("coefficient"):
        at, values = chance.integers(head["coefficients"].size), head["coefficients"]
        last = way.endswith("bit")
        values[at] = np.nextafter(values[at], math.inf) if last else values[at] + chance.choice([-1, 1])
    else:
        values = row[way]
        values[chance.integers(values.size)] += chance.choice([-1, 1]) * 2.0 ** float(chance.integers(-12, -3))


def mutations(path: Path, count: int) -> Iterator[dict[str, Any]]:
    """Single changes to a valid proof; what is accepted all the same is compared with a counterexample."""
    x = np.array([[0.4, 0.6, 0.3]])
    berncert.certify(bending_head(3, 3), x, proof=path)
    valid, chance, counts = blocks_of(path), np.random.default_rng(0), Counter()
    changed = path.with_suffix(".changed")
    whole = verdict_of(valid, changed)
    assert whole is not None
    for i in shown("changes", range(count)):
        way = WAYS[i % len(WAYS)]
        blocks = blocks_of(path)
        change(blocks, way, chance)
        found = verdict_of(blocks, changed)
        counts[way, "unusable" if found is None else found.verdict] += 1
        if found is not None and found.verdict == ACCEPTED:
            counts[way, "false"] += not _holds(blocks, found)
            counts[way, "other"] += found.subject.fingerprint != whole.subject.fingerprint
    for way in WAYS:
        kept = {name: counts[way, name] for name in (REJECTED, "unusable", ACCEPTED, "other", "false")}
        yield {"way": way, "changes": kept[REJECTED] + kept["unusable"] + kept[ACCEPTED]} | kept


def _holds(blocks: Blocks, found: Verdict) -> bool:
    """Whether no counterexample that `certify` finds is within the radius that was accepted."""
    (_, head, arrays), (_, _, row) = blocks
    shape = (head["classes"], *(n + 1 for n in head["degrees"]))
    smoothed = berncert.SmoothedHead(torch.from_numpy(arrays["coefficients"].reshape(shape)))
    c = berncert.certify(smoothed, np.clip(row["x0"], 0, 1)[None], threads=1)
    return bool(c.predicted[0] == found.predicted and (found.radius is not None and c.upper[0] >= found.radius))


def estimates(path: Path, count: int) -> Iterator[dict[str, Any]]:
    """The paper's estimates of the shipped digits model in feature space, claimed as radii, with its proven trees."""
    model, test = berncert.load("digits"), berncert.data.load("digits", limit=count)
    with torch.no_grad():
        features = berncert.certify(model, test.images).features
    for norm, solver in ((2.0, "lm"), (math.inf, "dogbox")):
        plain = berncert.certify(model.head, features, norm=norm)
        berncert.certify(model.head, features, norm=norm, proof=path)
        head, *rows = blocks_of(path)
        claimed = berncert.estimate(model.head, features, norm=norm, solver=solver).distance_estimate
        false, counts = claimed > plain.upper, Counter()
        for i, (kind, fields, arrays) in enumerate(shown(f"estimates, {solver}", rows)):
            if claimed[i] > plain.radius[i]:
                limits = np.split(arrays["limits"], 2)
                arrays["box"] = np.concatenate(first_box(arrays["x0"], arrays["weight"], *limits, claimed[i]))
            changed = fields | {"radius": float(claimed[i]).hex()}
            found = verdict_of([head, (kind, changed, arrays)], path.with_suffix(".claimed"))
            counts["false" if false[i] else "open", found.verdict if found else "unusable"] += 1
        yield {
            "what": f"{solver}, l{norm:g}", "rows": count, "false": int(false.sum()),
            "false_rejected": counts["false", REJECTED], "false_accepted": counts["false", ACCEPTED],
            "other_accepted": counts["open", ACCEPTED], "other_rejected": counts["open", REJECTED],
        }  # fmt: skip


COST = [
    Column("what", "what", lambda r: r["what"]),
    Column("rows", "rows", lambda r: r["rows"]),
    Column("certify_ms", "certify, ms a row", lambda r: r["certify_ms"], number),
    Column("ratio", "with proofs, times", lambda r: r["ratio"], number),
    Column("bytes", "kB a row", lambda r: r["bytes"], lambda value: number(value / 1000)),
    Column("nodes", "nodes a row", lambda r: r["nodes"], number),
    Column("check", "check, s a row", lambda r: r["check"], number),
    Column("seconds", "check, s in all", lambda r: r["seconds"], number),
    Column("accepted", "accepted", lambda r: r["accepted"]),
    Column("rejected", "rejected", lambda r: r["rejected"]),
    Column("unsupported", "unsupported", lambda r: r["unsupported"]),
]
CHANGES = [
    Column("way", "one change to", lambda r: r["way"]),
    Column("changes", "changes", lambda r: r["changes"]),
    Column("rejected", "rejected", lambda r: r[REJECTED]),
    Column("unusable", "unusable", lambda r: r["unusable"]),
    Column("accepted", "accepted", lambda r: r[ACCEPTED]),
    Column("other", "accepted, another fingerprint", lambda r: r["other"]),
    Column("false", "accepted, with a counterexample", lambda r: r["false"]),
]
PAPER = [
    Column("what", "solver, norm", lambda r: r["what"]),
    Column("rows", "images", lambda r: r["rows"]),
    Column("false", "estimates beyond a counterexample", lambda r: r["false"]),
    Column("false_rejected", "of them rejected", lambda r: r["false_rejected"]),
    Column("false_accepted", "of them accepted", lambda r: r["false_accepted"]),
    Column("other_accepted", "others accepted", lambda r: r["other_accepted"]),
    Column("other_rejected", "others rejected", lambda r: r["other_rejected"]),
]
COSTS = "Radii with proofs are lower by 2^-13 of themselves. Every row has to be accepted."
HINTS = """Whoever changes a coefficient writes a proof about another polynomial, which has another fingerprint; if the
coefficient matters little, the claim is true of that one, too, and follows from the same tree. A changed hint or tag
may prove the same claim with less room to spare. Accepted claims are compared with the nearest counterexample that
`certify` finds for the polynomial in the file."""
TREES = """An estimate beyond a counterexample is false. The trees are those of the proven radii: a radius above what
they prove is rejected whether it is true or not."""
ABOUT: list[tuple[str, str, str, list[Column]]] = [
    ("heads", "Heads, l2: how cost grows with d and n", COSTS, COST),
    ("high", "High degrees, l2", "Two rows each. " + COSTS, COST),
    ("shipped", "Shipped models, l2, end to end", COSTS, COST),
    ("changes", "Changed proofs (d=3, n=3, K=10), checksums recomputed", HINTS, CHANGES),
    ("estimates", "The paper's estimates as proofs: digits, feature space", TREES, PAPER),
]
INTRODUCTION = """\
Proofs of random heads that bend (a tanh network with ten classes, smoothed) and of shipped models from pixels on; the
checker is pure Python, one core. Times are those of the processor; without and with proofs they are taken in turn. The
sizes of the shipped models include the network. Small scale: 128 rows for each head."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.proofs", description=__doc__)
    parser.add_argument("--mnist", type=int, default=20, help="images of mnist (20)")
    parser.add_argument("--changes", type=int, default=3000, help="changed proofs (3000)")
    parser.add_argument("--estimates", type=int, default=100, help="images with an estimate (100)")
    parser.add_argument("--data-dir", help="where data sets are (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (here)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "proof.bin"
        found = [
            growth(path, SIZES, ROWS), growth(path, HIGH, FEW), shipped(path, chosen.mnist, chosen.data_dir),
            mutations(path, chosen.changes), estimates(path, chosen.estimates),
        ]  # fmt: skip
        sections = [Section.of(*about, rows) for about, rows in zip(ABOUT, found, strict=True)]
    for section in sections:
        show(Console(), section)
    source = origin("benchmarks.proofs")
    record = source | {section.key: section.rows for section in sections}
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "proofs.json").write_text(json.dumps(record, indent=1) + "\n")
    text = markdown("Proofs, measured", f"{INTRODUCTION}\n\n{made_by(source)}", sections)
    (chosen.out / "proofs.md").write_text(text)


if __name__ == "__main__":
    main()
