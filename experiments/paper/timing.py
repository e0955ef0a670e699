"""Seconds per image: ours, the paper's root finder, and randomized smoothing, on one machine in one run."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from benchmarks.report import Column, Section, number

from berncert.certification.methods import Batch, Estimate, Exact, Method, Randomized
from berncert.foundation.progress import Bar
from experiments.paper.subject import Subject
from experiments.paper.work import Experiment, Record, Work

DEGREES = (1, 3, 5)
PUBLISHED = {("estimate", 1): 6.48, ("randomized", 1): 15.0}
"""Method and degree -> seconds per image, as the paper reports them, on a GPU with ResNet-110."""
ROUNDS = {"exact": 50, "estimate": 10, "randomized": 1}
"""Images in each of three rounds."""


def measured(work: Work) -> Record:
    """Each method takes its turn, round after round, so that a disturbance hits all alike."""
    subject = Subject(work, "cifar10-paper")
    votes, degrees = (200, (1,)) if work.size == "toy" else (100_000, DEGREES)
    methods: dict[tuple[str, int], Method] = {}
    for degree in degrees:
        methods |= {("exact", degree): Exact(norm=2.0, routes="global"), ("estimate", degree): Estimate(norm=2.0)}
    methods["randomized", 1] = Randomized(n=votes, sigma=0.25)
    images, threads = subject.images.images, torch.get_num_threads()
    prepared = {
        key: method.prepare(subject.checkpoint.smoothed(key[1]), images.shape[1:], threads=threads, progress=False)
        for key, method in methods.items()
    }
    seconds: dict[tuple[str, int], list[float]] = {key: [] for key in methods}
    rounds = 1 if work.size == "toy" else 3
    with Bar("timing", total=rounds * len(prepared)) as bar:
        for turn in range(rounds):
            for place, (key, call) in enumerate(prepared.items()):
                bar.update(turn * len(prepared) + place, key[0])
                seconds[key].append(_seconds_per_image(call, images, ROUNDS[key[0]], turn))
    rows = [
        {"method": key[0], "degree": key[1], "rounds": seconds[key], "seconds": float(np.median(seconds[key]))}
        for key in methods
    ]
    return {
        "rows": rows,
        "votes": votes,
        "model": "cifar10-paper",
        "dim": subject.features.shape[1],
        "threads": threads,
    }


def _seconds_per_image(call: Callable[[Batch], Any], images: Any, count: int, turn: int) -> float:
    chosen = [(turn * count + k) % len(images) for k in range(count)]
    if turn == 0 and count > 1:
        call(Batch(images[:1]))  # whatever is done once
    began = time.perf_counter()
    call(Batch(images[chosen], numbers=chosen))
    return (time.perf_counter() - began) / count


def sections(record: Record) -> list[Section]:
    """Seconds per image, and how often ours fits into each."""
    ours = {row["degree"]: row["seconds"] for row in record["rows"] if row["method"] == "exact"}
    names = {
        "exact": "ours: proven", "estimate": "the paper's root finder: an estimate",
        "randomized": f"randomized smoothing, {record['votes']:,} votes: probable",
    }  # fmt: skip
    columns = [
        Column("method", "method", lambda row: names[row["method"]]),
        Column("degree", "n", lambda row: row["degree"]),
        Column("seconds", "seconds per image", lambda row: row["seconds"], number),
        Column("ratio", "times ours", lambda row: row["seconds"] / ours[row["degree"]], number),
        Column("paper", "as published, on a GPU", lambda row: PUBLISHED.get((row["method"], row["degree"])), number),
    ]
    note = f"""Threads: {record.get("threads", 1)}; {record["dim"]} features, the network of the paper's construction.
        The median of the rounds, in which the methods take turns; extraction of the features is included. The published
        figures are of ResNet-110 on a GPU, so only the ratios within this run compare methods."""
    return [Section.of("timing", "Seconds per image", note, columns, record["rows"])]


EXPERIMENTS = [
    Experiment(
        "timing", "Timing", "The paper: 6.48 s per image, 15 s for randomized smoothing. Here all three in one run.",
        measured, sections, trained=True,
    )
]  # fmt: skip
