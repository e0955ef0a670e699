"""What each training objective costs: time per step beside plain training of the same network, in one run."""

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

from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import origin
from berncert.foundation.progress import Bar
from berncert.hardware import has_bfloat16
from berncert.training.model import build_model
from berncert.training.objectives import batch_loss
from berncert.training.recipes import Recipe, load_recipe

HERE = Path(__file__).parent
OBJECTIVES: dict[str, dict[str, Any]] = {
    "plain, base head": {"objective": "plain", "through": "base"},
    "plain, smoothed head": {"objective": "plain"},
    "certified, linearised margins": {"objective": "certified", "attack_steps": 0},
    "certified, linearised margins, bfloat16": {"objective": "certified", "attack_steps": 0, "precision": "bfloat16"},
    "certified, 5 steps in feature space": {"objective": "certified", "attack_steps": 5},
    "certified, intervals through the layers": {"objective": "certified", "route": "local", "norm": math.inf},
    "gaussian, base head": {"objective": "gaussian", "through": "base"},
    "adversarial, 20 steps in pixel space": {"objective": "adversarial", "through": "base", "attack_steps": 20},
}
NETWORKS: dict[str, tuple[str, tuple[int, ...], dict[str, Any]]] = {
    "mnist: mlp, d=6 n=2": ("mnist", (1, 28, 28), {"batch_size": 256}),
    "mnist: mlp, d=5 n=3": ("mnist", (1, 28, 28), {"batch_size": 256, "dim": 5, "degree": 3, "head": "mlp"}),
    "mnist: cnn of ordinary layers, d=10": ("mnist-local", (1, 28, 28), {"batch_size": 256}),
    "cifar10: patchnet, d=10 n=1": ("cifar10", (3, 32, 32), {}),
}
PLAIN = "plain, base head"


def steps(recipe: Recipe, shape: tuple[int, ...]) -> Callable[[], None]:
    """One training step on random images, as often as it is called."""
    model = build_model(recipe, shape, 10).train()
    if len(shape) == 3 and recipe.model.architecture != "mlp":
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], 1e-4)
    images = torch.rand(recipe.training.batch_size, *shape).contiguous()
    labels, chance = torch.arange(len(images)) % 10, torch.Generator().manual_seed(0)

    def step() -> None:
        loss = batch_loss(recipe.training, model, images, labels, recipe.training.radius, chance).loss
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    return step


def _applies(recipe: str, objective: dict[str, Any]) -> bool:
    """Whether a network of this recipe is trained so: intervals are for ordinary layers, which have no other proof."""
    local, certified = recipe == "mnist-local", objective["objective"] == "certified"
    if "precision" in objective and not has_bfloat16(torch.device("cpu")):
        return False
    if objective["objective"] == "adversarial":
        return recipe == "mnist"  # twenty passes: minutes for a larger network
    return not certified or local == ("route" in objective)


def measured(rounds: int) -> list[dict[str, Any]]:
    """Every objective on every network, in turn, round after round; milliseconds of each step."""
    jobs = {
        (network, name): steps(load_recipe(recipe, **changes, **objective), shape)
        for network, (recipe, shape, changes) in NETWORKS.items()
        for name, objective in OBJECTIVES.items()
        if _applies(recipe, objective)
    }
    times: dict[tuple[str, str], list[float]] = {key: [] for key in jobs}
    with Bar("training steps", total=(rounds + 1) * len(jobs)) as bar:
        for turn in range(rounds + 1):  # the first is to warm up
            for done, (key, step) in enumerate(jobs.items()):
                began = time.perf_counter()
                step()
                if turn:
                    times[key].append(1e3 * (time.perf_counter() - began))
                bar.update(turn * len(jobs) + done + 1)
    return [
        {"network": network, "objective": name, "ms": times[network, name], "plain": median(times[network, PLAIN])}
        for network, name in jobs
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="steps of each kind (15)")
    parser.add_argument(
        "--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (beside this file)"
    )
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    columns = [
        Column("network", "network", lambda r: r["network"]),
        Column("objective", "objective", lambda r: r["objective"]),
        Column("ms", "ms per step, median", lambda r: median(r["ms"]), number),
        Column("ratio", "to plain", lambda r: median(r["ms"]) / r["plain"], number),
        Column("all_ms", "", lambda r: r["ms"]),
    ]
    note = "Batches of 256 random images; the steps of all kinds take turns in one process, on one thread."
    section = Section.of("steps", "Steps", note, columns, measured(chosen.rounds))
    show(Console(), section)
    source = origin("benchmarks.training")
    intro = (
        f"Made by `{source['command']}` on {source['date'][:10]}, one thread of a shared machine: read the ratios. "
        "Feature-space training through the smoothed head is to cost at most 1.3 times plain training."
    )
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "training.json").write_text(json.dumps(source | {"steps": section.rows}, indent=1) + "\n")
    (chosen.out / "training.md").write_text(markdown("Training objectives, measured", intro, [section]))


if __name__ == "__main__":
    main()
