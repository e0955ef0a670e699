"""Norms of convolutions beside the truth and beside other ways to compute them; bounds of whole networks; peers.

    python -m benchmarks.layers            # some minutes; writes benchmarks/layers.json and benchmarks/layers.md
    python -m benchmarks.layers --quick    # few cases, to see that it works; writes to out/benchmarks/

The last table needs two more packages, and is left out without them:

    pip install orthogonium==0.0.4 deel-torchlip==1.0.5

All weights are made here, always the same ones. Ratios to the truth do not depend on the machine; times are medians of
rounds in which everything has its turn, on one thread, and are given as ratios.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean, median
from typing import Any, NamedTuple

import torch
from rich.console import Console

from benchmarks import peers
from benchmarks.convolutions import LARGE, SMALL, Case, Measured, Summary, measure
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin, shown
from berncert import lipschitz_table

BELOW = 1 - 1e-9
"""A value under this share of the truth is below it: the truth itself is rounded."""
NETWORKS = ("mlp", "vgg11", "resnet20", "resnet110", "densenet")
IMAGE, DIM = (3, 32, 32), 8


class Size(NamedTuple):
    every: int
    """Of how many convolutions one is looked at."""
    rounds: int
    networks: tuple[str, ...]
    steps: int
    seeds: int
    step_rounds: int


FULL = Size(every=1, rounds=3, networks=NETWORKS, steps=30, seeds=2, step_rounds=20)
QUICK = Size(every=13, rounds=1, networks=("mlp",), steps=3, seeds=1, step_rounds=2)


def ratio(value: float) -> str:
    return f"{value:.4f}" if value < 10 else number(value)


def excess(value: float) -> str:
    return f"{value:+.1e}"


NORM_COLUMNS = [
    Column("method", "method", lambda s: s.method),
    Column("convolutions", "convolutions", lambda s: len(s.ratios)),
    Column("mean_ratio", "mean ratio", lambda s: fmean(s.ratios), ratio),
    Column("least_ratio", "least ratio", lambda s: min(s.ratios), ratio),
    Column("greatest_ratio", "greatest ratio", lambda s: max(s.ratios), ratio),
    Column("below", "below the truth", lambda s: fmean(r < BELOW for r in s.ratios), "{:.0%}".format),
    Column("relative_time", "time", lambda s: median(s.relative_times), "{:.2g}x".format),
]
KIND_COLUMNS = [
    Column("kind", "weights", lambda row: row[0]),
    Column("kernel", "kernel", lambda row: row[1]),
    *(
        Column(key, title, lambda row, method=method: fmean(m.ratio(method) for m in row[2]), ratio)
        for key, title, method in (
            ("any_size", "any map size", "`conv_norm_bound`, any map size"),
            ("frequencies", "frequencies only", "frequencies only, map size given"),
            ("gram", "Gram iteration", "Gram iteration, n x n frequencies"),
            ("power_10", "power iteration, 10", "power iteration, 10 steps"),
            ("miyato", "Miyato", "Miyato's reshaped matrix"),
        )
    ),
]
CASE_COLUMNS = [
    *(
        Column(name, "", lambda m, name=name: getattr(m.case, name))
        for name in ("kind", "kernel", "stride", "mode", "inputs", "outputs", "map")
    ),
    Column("truth", "", lambda m: m.truth),
    Column("values", "", lambda m: m.values),
    Column("seconds", "", lambda m: m.seconds),
]


class Bounded(NamedTuple):
    """One architecture in both constructions."""

    name: str
    parameters: int
    steps: int
    lipschitz: float
    paper: float
    seconds: float
    paper_seconds: float


NETWORK_COLUMNS = [
    Column("name", "network", lambda b: b.name),
    Column("parameters", "parameters", lambda b: b.parameters, "{:,}".format),
    Column("steps", "steps", lambda b: b.steps),
    Column("claimed", "the paper's claim", lambda b: 1),
    Column("paper", "proven, `paper`", lambda b: b.paper, "{:.3g}".format),
    Column("lipschitz", "proven, `lipschitz`", lambda b: b.lipschitz, "{:.7f}".format),
    Column("paper_seconds", "seconds, `paper`", lambda b: b.paper_seconds, number),
    Column("lipschitz_seconds", "seconds, `lipschitz`", lambda b: b.seconds, number),
]
PEER_COLUMNS = [
    Column("layer", "layer", lambda t: t.peer.name),
    Column("package", "package", lambda t: t.peer.package),
    Column("geometry", "kernel", lambda t: t.peer.geometry),
    Column("least_norm", "least norm", lambda t: min(t.norms), ratio),
    Column("greatest_excess", "greatest norm - 1", lambda t: max(t.norms) - 1, excess),
    Column("proven", "proven bound / norm - 1, at most", lambda t: max(map(_gap, t.proven, t.norms)), excess),
    Column("float64", "float64", lambda t: t.float64),
    Column("repeat", "two evaluations", lambda t: t.repeat, number),
    Column("stale", "evaluated after a step", lambda t: t.stale, number),
    Column("exported", "exported", lambda t: t.exported, number),
    Column("relative_step", "training step", lambda t: t.step, "{:.2g}x".format),
    Column("norms", "", lambda t: t.norms),
    Column("bounds", "", lambda t: t.proven),
]


def _gap(bound: float, norm: float) -> float:
    return bound / norm - 1


def networks(names: tuple[str, ...]) -> Iterator[Bounded]:
    """Fresh ones: batch normalisation has its first statistics, mean 0 and variance 1."""
    from berncert.extractor.architectures import build

    for name in shown("bounding networks", names):
        parameters, tables, seconds = [], [], []
        for construction in ("lipschitz", "paper"):
            torch.manual_seed(0)
            network = build(name, IMAGE, DIM, construction=construction).eval()
            start = time.perf_counter()
            tables.append(lipschitz_table(network, IMAGE, progress=False))
            seconds.append(time.perf_counter() - start)
            parameters.append(sum(p.numel() for p in network.parameters()))
        yield Bounded(name, parameters[0], len(tables[0]), tables[0].bound, tables[1].bound, *seconds)


def by_kind(measured: list[Measured]) -> list[tuple[str, int, list[Measured]]]:
    """Zero padding, stride 1: where the kinds of weights differ."""
    rows: dict[tuple[str, int], list[Measured]] = {}
    for m in measured:
        if m.case.mode == "zeros" and m.case.stride == 1:
            rows.setdefault((m.case.kind, m.case.kernel), []).append(m)
    return [(*key, group) for key, group in rows.items()]


def sections(size: Size) -> tuple[list[Section], dict[str, Any]]:
    """Measure everything: the tables, and what else belongs in the record."""
    cases: list[Case] = [*SMALL[:: size.every], *LARGE[:: size.every]]
    measured = [measure(case, size.rounds) for case in shown("convolutions", cases)]
    small = [m for m in measured if not m.case.large]
    zeros, circular = ([m for m in small if m.case.mode == mode] for mode in ("zeros", "circular"))
    large = [m for m in measured if m.case.large]
    tables = [
        Section.of("zeros", "Norms of convolutions, zero padding", NORMS_NOTE, NORM_COLUMNS, Summary.all_of(zeros)),
        Section.of("circular", "Circular padding", CIRCULAR_NOTE, NORM_COLUMNS, Summary.all_of(circular)),
        Section.of("large", "Large convolutions", LARGE_NOTE, NORM_COLUMNS, Summary.all_of(large)),
        Section.of("kinds", "By the kind of weights", KINDS_NOTE, KIND_COLUMNS, by_kind(small)),
    ]
    if find_spec("berncert.extractor.architectures"):
        rows = networks(size.networks)
        tables.append(Section.of("networks", "Whole networks", NETWORKS_NOTE, NETWORK_COLUMNS, rows))
    if peers.versions():
        rows = peers.compare(size.steps, size.seeds, size.step_rounds)
        note = PEERS_NOTE.format(steps=size.steps, seeds=size.seeds)
        tables.append(Section.of("peers", "Layers of other packages", note, PEER_COLUMNS, rows))
    further = Section.of("cases", "", "", CASE_COLUMNS, measured)
    return tables, {"cases": further.rows, "peers_installed": peers.versions()}


NORMS_NOTE = """Value / true norm over convolutions of every combination of kernel 1, 3, 5, 7 (padded by half), stride
    1, 2, 8 -> 8 channels at 8 x 8 and 4 -> 4 at 16 x 16, and four kinds of weights (Gaussian; two smooth filters of
    rank one and noise, as training makes them; all ones; a wave between the map's frequencies). The truth is the
    largest singular value of the explicit matrix, in float64; a ratio under 1 - 1e-9 counts as below it. Such maps
    are small enough that `conv_norm_bound` writes the matrix out too. Time is relative to its first row's, the median
    over the convolutions. Power iteration runs on the convolution itself, from one random start. Gram iteration has 6
    steps on the grid of the map's own n x n frequencies, as published for circular padding; strides are ignored,
    which leaves it a bound there."""
CIRCULAR_NOTE = "The same with circular padding."
LARGE_NOTE = """64 -> 64 channels, 3 x 3, stride 1 and 2, and 32 -> 64, 5 x 5, at 16 x 16, zero and circular padding,
    Gaussian and trained-like weights. No matrix is written out; the truth is approximate: the largest of three
    Lanczos iterations from random starts, converged to 1e-12."""
KINDS_NOTE = """Mean ratios for zero padding and stride 1. With the map's size `conv_norm_bound` has ratio 1 here,
    from the explicit matrix."""
NETWORKS_NOTE = """Fresh networks for 3 x 32 x 32 images with 8 features, in l2. `paper`: Miyato's normalisation,
    skips, and batch normalisation with the statistics it starts with; the paper takes such a network to be
    1-Lipschitz. `lipschitz`: the same architecture from layers with a constant of 1. Parameters and steps are those
    of `lipschitz`. One run each, fresh weights, on one thread."""
PEERS_NOTE = """After {steps} Adam steps (learning rate 0.01) that reward large output differences, in float32: 3 -> 8
    channels at 8 x 8, 8 -> 8 at 6 x 6, 16 -> 32 at 4 x 4, {seeds} seeds each, zero padding. Norms are largest
    singular values of the explicit matrix of what the layer computes in evaluation. Proven: `lipschitz_bound` of its
    plain torch layer. The next three columns are largest differences relative to the largest output: between two
    evaluations of one input, between evaluating right after a step and after another forward in training, between the
    layer and its export to a plain torch layer. A training step is forward and backward of 16 -> 32 channels at 16 x
    16, 32 images, relative to a plain Conv2d of the same kernel."""


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.layers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few cases, one round: shows that it works")
    folders = "default benchmarks, quick out/benchmarks, which git ignores"
    parser.add_argument("--out", type=Path, metavar="DIR", help=f"folder for layers.json and layers.md ({folders})")
    chosen = parser.parse_args()
    chosen.size = QUICK if chosen.quick else FULL
    chosen.out = chosen.out or Path("out/benchmarks" if chosen.quick else "benchmarks")
    return chosen


def introduction(source: dict[str, Any]) -> str:
    found = peers.versions()
    missing = sorted(peers.PACKAGES.keys() - found)
    left_out = f" Not installed, and so not compared: {', '.join(missing)}." if missing else ""
    return (
        f"{made_by(source, found)}{left_out} "
        f"Times are medians of interleaved rounds on one thread of a shared machine: read their ratios. "
        "Every case at full precision is in `layers.json`, beside this file."
    )


def main() -> None:
    chosen = options()
    torch.set_num_threads(1)
    source = origin("benchmarks.layers") | {"size": chosen.size._asdict()}
    start = time.perf_counter()
    tables, further = sections(chosen.size)
    record = source | {"seconds": math.ceil(time.perf_counter() - start)} | {t.key: t.rows for t in tables} | further
    console = Console()
    for table in tables:
        show(console, table)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "layers.json").write_text(json.dumps(record, indent=1, allow_nan=False) + "\n")
    (chosen.out / "layers.md").write_text(
        markdown("Lipschitz bounds of layers, measured", introduction(source), tables)
    )
    console.print(f"written: {chosen.out / 'layers.json'}, {chosen.out / 'layers.md'}")


if __name__ == "__main__":
    main()
