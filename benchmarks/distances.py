"""Distances of a batch to the points of a layer, with gradients: the compiled loops beside torch.cdist."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from torch import Tensor

from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import origin
from berncert.extractor.distances import distances
from berncert.foundation.progress import Bar

HERE = Path(__file__).parent
ROWS, INPUTS, OUTPUTS = 64, 784, 512
NORMS = (9.0, 65.0, 1025.0, math.inf)
WAYS: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "berncert": distances,
    "torch.cdist": lambda x, weight, p: torch.cdist(x, weight, p=p),
}


def seconds(way: Callable[[Tensor, Tensor, float], Tensor], p: float) -> tuple[float, float]:
    """The processor time of one forward and of one backward: others use the machine too."""
    chance = torch.Generator().manual_seed(0)
    x = torch.rand(ROWS, INPUTS, generator=chance).requires_grad_()
    weight = (0.3 * torch.randn(OUTPUTS, INPUTS, generator=chance)).requires_grad_()
    began = time.thread_time()
    total = way(x, weight, p).sum()
    between = time.thread_time()
    torch.autograd.grad(total, (x, weight))
    return between - began, time.thread_time() - between


def measured(rounds: int) -> list[dict[str, Any]]:
    """Both ways and all norms in turn, round after round."""
    times: dict[tuple[float, str], list[tuple[float, float]]] = {(p, name): [] for p in NORMS for name in WAYS}
    with Bar("distances", total=(rounds + 1) * len(times)) as bar:
        for turn in range(rounds + 1):  # the first is to warm up
            for done, (p, name) in enumerate(times):
                found = seconds(WAYS[name], p)
                if turn:
                    times[p, name].append(found)
                bar.update(turn * len(times) + done + 1)
    return [{"p": p, "ours": times[p, "berncert"], "theirs": times[p, "torch.cdist"]} for p in NORMS]


def speed(pairs: list[tuple[float, float]], part: int) -> float:
    """Billions of differences in a second, forward (0) or backward (1), in the median round."""
    return ROWS * INPUTS * OUTPUTS / median(pair[part] for pair in pairs) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.distances", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="measurements of each kind (9)")
    parser.add_argument(
        "--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (beside this file)"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    columns = [Column("p", "p", lambda r: str(r["p"]))]
    for part, name in enumerate(("forward", "backward")):
        columns += [
            Column(f"{name}", f"{name}, G/s", lambda r, part=part: speed(r["ours"], part), number),
            Column(f"{name}_torch", "torch.cdist", lambda r, part=part: speed(r["theirs"], part), number),
            Column(
                f"{name}_ratio",
                "ratio",
                lambda r, part=part: speed(r["ours"], part) / speed(r["theirs"], part),
                number,
            ),
        ]
    note = f"{ROWS} rows of {INPUTS} numbers, {OUTPUTS} points, float32, one thread; G/s: 10^9 differences a second."
    section = Section.of("distances", "Distances", note, columns, measured(chosen.rounds))
    show(Console(), section)
    source = origin("benchmarks.distances")
    intro = (
        f"Made by `{source['command']}` on {source['date'][:10]}, one thread of a shared machine, by processor time: "
        "read the ratios. The p-norms of torch.cdist overflow where p is large; its arithmetic is the same."
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "distances.json").write_text(json.dumps(source | {"distances": section.rows}, indent=1) + "\n")
    (chosen.out / "distances.md").write_text(markdown("Distances, measured", intro, [section]))


if __name__ == "__main__":
    main()
