"""The exact certificate beside the paper's algorithm, in one process on one thread.

    python -m benchmarks.exact            # some minutes; writes benchmarks/exact.json and benchmarks/exact.md
    python -m benchmarks.exact --quick    # few samples, to see that it works; writes to out/benchmarks/

The heads are trained here, always the same ones. Certifying is deterministic, so boxes, gaps and statuses are the same
at every run; times are medians of rounds in which every configuration has its turn, and only their ratios travel from
one machine to another.
"""

from __future__ import annotations

import argparse
import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console

import berncert
from benchmarks import heads
from benchmarks.memory import peak_memory
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import Job, Timed, made_by, measure, origin, shown, usable_cores
from berncert import Status

PAPER, FASTER = "as the paper ran it: finite differences", "with exact derivatives"
JACOBIANS = {PAPER: "2-point", FASTER: "exact"}


@dataclass(frozen=True)
class Case:
    dim: int
    degree: int
    classes: int = 10
    tolerance: float = 1e-3
    norm: float = 2
    compared: bool = False
    """Whether the paper's algorithm runs too."""

    @cached_property
    def trained(self) -> heads.Trained:
        return heads.digits(self.dim) if self.classes == 10 else heads.prototypes(self.dim)

    @cached_property
    def smoothed(self) -> berncert.SmoothedHead:
        return berncert.smooth(self.trained.head, dim=self.dim, degree=self.degree)


D3 = [Case(3, n, compared=True) for n in (1, 7)]
D5_N1, D5_N3, D5_N7 = (Case(5, n, compared=True) for n in (1, 3, 7))
K1000 = Case(5, 3, classes=1000)
D6_N7 = Case(6, 7)
D8, D10, D12 = (Case(d, 1, tolerance=1e-2) for d in (8, 10, 12))
OTHER_NORMS = [Case(5, 3, norm=p) for p in (1, 1.5, 3, math.inf)]
CASES = [*D3, D5_N1, D5_N3, D5_N7, *OTHER_NORMS, K1000, D6_N7, D8, D10, D12]


class Size(NamedTuple):
    samples: int
    estimates: int
    repeats: int
    thread_rows: int
    thread_repeats: int


FULL = Size(samples=360, estimates=20, repeats=3, thread_rows=2000, thread_repeats=7)
QUICK = Size(samples=20, estimates=2, repeats=1, thread_rows=400, thread_repeats=3)


class Exact(NamedTuple):
    case: Case
    exact: Timed


class Compared(NamedTuple):
    case: Case
    exact: Timed
    estimate: Timed

    @property
    def ratio(self) -> float:
        return self.estimate.ms / self.exact.ms

    @property
    def excess(self) -> np.ndarray:
        """estimate / upper where that is above 1: there the witness, which is closer, refutes the estimate."""
        factors = self.estimate.result.distance_estimate / self.exact.result.upper
        return factors[factors > 1]


class Decided(NamedTuple):
    case: Case
    exact: Timed
    decided: Timed

    @property
    def share(self) -> float:
        """Of the boxes of the whole certificate."""
        return float(self.decided.result.boxes.sum() / self.exact.result.boxes.sum())


def jobs(case: Case, size: Size) -> Iterator[tuple[tuple[Case, str], Job]]:
    """`all` samples by the exact search, and decided at `one radius`; a `few` by it and by the paper's algorithm."""
    settings = {"norm": case.norm, "tolerance": case.tolerance, "threads": 1, "progress": False}
    certify = partial(berncert.certify, case.smoothed, **settings)
    every = case.trained.features[: size.samples]
    yield (case, "all"), Job(certify, every)
    yield (case, "one radius"), Job(partial(certify, radius=float(np.median(certify(every).radius))), every)
    if case.compared:
        few = case.trained.features[: size.estimates]
        yield (case, "few"), Job(certify, few)
        for variant, jacobian in JACOBIANS.items():
            estimate = partial(berncert.estimate, case.smoothed, solver="lm", jacobian=jacobian, progress=False)
            yield (case, variant), Job(estimate, few)


def two_threads(case: Case, size: Size) -> dict[str, Any] | None:
    """The best round on two threads beside the best on one: the cores are shared, so the least disturbed counts."""
    if usable_cores() < 2:
        return None
    features = case.trained.features
    rows = features.repeat(math.ceil(size.thread_rows / len(features)), 1)[: size.thread_rows]
    certify = partial(berncert.certify, case.smoothed, progress=False)
    timed = measure({n: Job(partial(certify, threads=n), rows) for n in (1, 2)}, size.thread_repeats, "threads")
    one, two = timed[1].rounds, timed[2].rounds
    return {"rows": len(rows), "one_ms": one, "two_ms": two, "speed_up": min(one) / min(two)}


def largest_gap(c: berncert.Certificates) -> float | None:
    """The largest (upper - radius) / upper of the rows that have a witness at some distance."""
    known = np.isfinite(c.upper) & (c.upper > 0)
    return float(((c.upper - c.radius)[known] / c.upper[known]).max()) if known.any() else None


def unproven(c: berncert.Certificates) -> dict[str, int]:
    return dict(Counter(status.name for status in c.status if status is not Status.PROVEN))


CASE_COLUMNS = [
    Column("dim", "d", lambda m: m.case.dim),
    Column("degree", "n", lambda m: m.case.degree),
    Column("classes", "K", lambda m: m.case.classes),
    Column("norm", "norm", lambda m: str(m.case.norm)),  # as text: JSON has no infinity
    Column("tolerance", "tolerance", lambda m: m.case.tolerance, number),
    Column("samples", "samples", lambda m: len(m.exact.result)),
    Column("exact_ms", "exact, ms/sample", lambda m: m.exact.ms, number),
    Column("exact_rounds_ms", "", lambda m: m.exact.rounds),
]
EXACT_COLUMNS = [
    *CASE_COLUMNS,
    Column("median_boxes", "median boxes", lambda m: float(np.median(m.exact.result.boxes)), number),
    Column("max_boxes", "max boxes", lambda m: int(m.exact.result.boxes.max())),
    Column("largest_gap", "largest gap", lambda m: largest_gap(m.exact.result), number),
    Column(
        "unproven",
        "not PROVEN",
        lambda m: unproven(m.exact.result),
        lambda counts: ", ".join(f"{count} {name}" for name, count in counts.items()) or "none",
    ),
    Column("accuracy", "", lambda m: m.case.trained.accuracy),
]
DECIDED_COLUMNS = [
    *CASE_COLUMNS,
    Column("decided_ms", "one radius, ms/sample", lambda m: m.decided.ms, number),
    Column("ratio", "exact / one radius", lambda m: m.exact.ms / m.decided.ms, lambda ratio: f"{ratio:.1f}x"),
    Column("boxes", "boxes", lambda m: m.share, "{:.0%}".format),
    Column("unknown", "UNKNOWN", lambda m: sum(status is Status.UNKNOWN for status in m.decided.result.status)),
]
COMPARED_COLUMNS = [
    *CASE_COLUMNS,
    Column("estimate_ms", "estimate, ms/sample", lambda m: m.estimate.ms, number),
    Column("estimate_rounds_ms", "", lambda m: m.estimate.rounds),
    Column("ratio", "estimate / exact", lambda m: m.ratio, lambda ratio: f"{ratio:.0f}x"),
    Column("refuted", "refuted", lambda m: len(m.excess) / len(m.exact.result), "{:.0%}".format),
    Column("median_excess", "median factor", lambda m: float(np.median(m.excess)) if m.excess.size else None, number),
    Column("max_excess", "max factor", lambda m: float(m.excess.max()) if m.excess.size else None, number),
]


class Target(NamedTuple):
    name: str
    wanted: str
    limit: float
    measured: float | None

    @property
    def met(self) -> bool | None:
        if self.measured is None:
            return None
        return self.measured >= self.limit if self.wanted == ">=" else self.measured <= self.limit


TARGET_COLUMNS = [
    Column("name", "quantity", lambda t: t.name),
    Column("target", "target", lambda t: f"{t.wanted} {number(t.limit)}"),
    Column("measured", "measured", lambda t: t.measured, number),
    Column("met", "met", lambda t: t.met, {True: "yes", False: "no", None: "not measured"}.__getitem__),
]


def targets(exact: dict[Case, Timed], ratio: dict[Case, float], threads: Any, memory: dict[str, int]) -> list[Target]:
    ms = {case: timed.ms for case, timed in exact.items()}
    closed = [status in (Status.PROVEN, Status.WHOLE_CUBE) for status in exact[D12].result.status]
    return [
        Target("d=5 n=1: the paper's time / exact time", ">=", 300, ratio[D5_N1]),
        Target("d=5 n=3: the paper's time / exact time", ">=", 100, ratio[D5_N3]),
        Target("d=5: time at n=7 / at n=1", "<=", 40, ms[D5_N7] / ms[D5_N1]),
        Target("n=1: time at d=10, tolerance 1e-2 / at d=5, 1e-3", "<=", 20, ms[D10] / ms[D5_N1]),
        Target(f"d=12 n=1: samples of {len(closed)} not closed to 1e-2 by default", "<=", 0, closed.count(False)),
        Target("d=5 n=3: time at K=1000 / at K=10", "<=", 15, ms[K1000] / ms[D5_N3]),
        Target("d=5 n=3: rate of two threads / of one", ">=", 1.8, threads and threads["speed_up"]),
        Target("d=6 n=7 K=10, two threads: peak MiB of a process", "<=", 1024, memory["certified"] / 2**20),
    ]


def sections(size: Size) -> tuple[list[Section], dict[str, Any]]:
    """Measure everything: the tables, and what else belongs in the record."""
    timed = measure(dict(job for case in shown("training", CASES) for job in jobs(case, size)), size.repeats, "timing")
    exact = {case: timed[case, "all"] for case in CASES}
    decided = [Decided(case, exact[case], timed[case, "one radius"]) for case in CASES]
    paper, faster = (
        [Compared(case, timed[case, "few"], timed[case, variant]) for case in CASES if case.compared]
        for variant in (PAPER, FASTER)
    )
    threads = two_threads(D5_N3, size)
    memory = peak_memory(D6_N7.smoothed, D6_N7.trained.features[: size.samples])
    met = targets(exact, {row.case: row.ratio for row in paper}, threads, memory)
    return [
        Section.of("exact", "The exact certificate", EXACT_NOTE, EXACT_COLUMNS, map(Exact, exact, exact.values())),
        Section.of("one_radius", "Deciding at one radius", DECIDED_NOTE, DECIDED_COLUMNS, decided),
        Section.of("finite_differences", f"The paper's algorithm, {PAPER}", PAPER_NOTE, COMPARED_COLUMNS, paper),
        Section.of("exact_derivatives", f"The paper's algorithm, {FASTER}", FASTER_NOTE, COMPARED_COLUMNS, faster),
        Section.of("targets", "Targets", TARGETS_NOTE.format(memory["imported"] / 2**20), TARGET_COLUMNS, met),
    ], {"two_threads": threads, "peak_memory_bytes": memory}


EXACT_NOTE = """One thread, max_boxes at its default. K=10: heads d-32-10 of networks trained on scikit-learn's digits,
    one network per d; K=1000: a head 5-64-1000 that tells random prototypes apart. Samples are test samples. The gap
    is (upper - radius) / upper."""
DECIDED_NOTE = """`certify(..., radius=r)` at the median radius of the samples, beside the whole certificate of the same
    samples. Boxes: as a share of those of the whole certificate."""
PAPER_NOTE = """`berncert.estimate(solver="lm")` beside the exact search, on the same samples: few, as it is slow, so
    that the fixed cost of a call weighs more on the exact one. Refuted: the share of samples whose estimate, the
    paper's "certified radius", exceeds the proven upper bound: a point of another class is known to be closer. The
    factors are estimate / upper over those samples."""
FASTER_NOTE = """The same with `jacobian="exact"`, our speed-up of the paper's algorithm, on the same samples."""
TARGETS_NOTE = """The paper's time is that with finite differences. Threads: the best round of each, as the cores are
    shared. Memory: a fresh process; importing berncert alone takes {:.0f} MiB of it."""


def count(text: str) -> int:
    """A whole number >= 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number >= 1, got {value}")
    return value


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.exact", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    meanings = {
        "samples": "samples certified per configuration; there are 360",
        "estimates": "samples per configuration for the paper's algorithm, which takes about half a second for each",
        "repeats": "rounds, of which the median counts",
    }
    for name, meaning in meanings.items():
        defaults = f"default {getattr(FULL, name)}, quick {getattr(QUICK, name)}"
        parser.add_argument(f"--{name}", type=count, metavar="N", help=f"{meaning} ({defaults})")
    parser.add_argument("--quick", action="store_true", help="few samples, one round: shows that it works")
    folders = "default benchmarks, quick out/benchmarks, which git ignores"
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"folder for exact.json and exact.md ({folders})")
    chosen = parser.parse_args()
    given = {name: getattr(chosen, name) for name in meanings if getattr(chosen, name) is not None}
    chosen.size = (QUICK if chosen.quick else FULL)._replace(**given)
    chosen.out = chosen.out or Path("out/benchmarks" if chosen.quick else "benchmarks")
    return chosen


def introduction(source: dict[str, Any]) -> str:
    return (
        f"{made_by(source)} "
        f"Times are medians of {source['size']['repeats']} interleaved rounds on a shared machine: read their ratios. "
        "Full precision is in `exact.json`, beside this file."
    )


def main() -> None:
    chosen = options()
    torch.set_num_threads(1)
    source = origin("benchmarks.exact") | {"size": chosen.size._asdict()}
    tables, further = sections(chosen.size)
    record = source | {table.key: table.rows for table in tables} | further
    console = Console()
    for table in tables:
        show(console, table)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "exact.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    (chosen.out / "exact.md").write_text(markdown("Exact certificates, measured", introduction(source), tables))
    console.print(f"written: {chosen.out / 'exact.json'}, {chosen.out / 'exact.md'}")


if __name__ == "__main__":
    main()
