"""Sweeps: one recipe, trained with several values of its settings and several seeds, on any engine, resumable."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch

from berncert.foundation.arguments import checked_count
from berncert.foundation.folders import claimed, write_whole
from berncert.foundation.progress import Bar
from berncert.runs.dispatch import Dispatcher, check_timeout
from berncert.runs.engine import Pool, engine_of
from berncert.runs.execute import PACKAGES
from berncert.runs.sweep_job import TICKET, SweepJob, Trained, Trial
from berncert.runs.versions import origin, versions_of
from berncert.training.loop import check_recipe
from berncert.training.recipes import SECTION_OF, Recipe, load_recipe
from berncert.training.state import MODEL, check_folder, read_log

FORMAT = "berncert sweep 1"
TABLE = "sweep.tsv"
MOST_TRIALS = 10_000
LONGEST_NAME = 200
"""Letters of a folder's name."""
MEASURES = re.compile(r"loss|(?:\w+_)?accuracy|(?:\w+_)?certified_estimate|seconds")
"""Columns of a log that a sweep's table keeps: of the last epoch, and of all epochs the seconds."""


@dataclass(frozen=True)
class Sweep:
    """A sweep, done: a row for each training, with its settings, its folder, and the last line of its log."""

    folder: Path
    settings: tuple[str, ...]
    """Those that were swept over; each row has their values, and its seed."""
    rows: list[dict[str, Any]]

    @property
    def failures(self) -> dict[str, str]:
        """Folder of a training that came to nothing -> why."""
        return {row["folder"]: row["failure"] for row in self.rows if row["failure"]}

    def averages(self) -> list[dict[str, Any]]:
        """For each choice of settings the mean and the standard deviation over its seeds, of those that ended."""
        groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault(tuple(row[name] for name in self.settings), []).append(row)
        return [_average(dict(zip(self.settings, values, strict=True)), rows) for values, rows in groups.items()]


def execute_sweep(
    recipe: Recipe | str | PathLike[str],
    folder: str | PathLike[str],
    over: Mapping[str, Sequence[Any]] | None = None,
    *,
    seeds: int = 1,
    data_dir: str | PathLike[str] | None = None,
    device: str | None = None,
    threads: int | None = None,
    engine: str | Executor | Pool = "serial",
    timeout: float | None = None,
    command: str = "",
    progress: bool | None = None,
    on_trained: Callable[[dict[str, Any]], None] | None = None,
) -> Sweep:
    """Train a recipe with every choice of some settings, and so many seeds each, from the recipe's own on.

        execute_sweep("digits", "runs/radii", {"radius": [0.5, 1, 1.58]}, seeds=3, engine="processes:2")

    Each training has a folder of its own in `folder`, as `berncert.train` writes it, and a line in sweep.tsv. Called
    again, a sweep that was cut off goes on: trainings that ended are kept, others resume after their last epoch. Wrong
    settings, and folders with other trainings, are refused before anything is trained. A training that diverges is a
    row without numbers, and the others go on.

    engine, timeout: as in `berncert.runs.execute.execute`, with a training in place of a batch. Workers that do not see
    the folder train in one of their own, and send the files when they are done. threads: of one training; None is 1, or
    with "serial" what torch uses. on_trained is called with each row, in the order of the table.
    """
    place, pool = Path(folder), engine_of(engine)
    check_timeout(timeout)
    base = recipe if isinstance(recipe, Recipe) else load_recipe(recipe)
    trials = trials_of(base, over or {}, checked_count("seeds", seeds))
    with claimed(place, "sweep"):
        _check_trials(trials, place, data_dir=data_dir, progress=progress)
        job = SweepJob(
            folder=str(place.resolve()), ticket_sha256=_write_ticket(place, base, trials, command, pool.name),
            data_dir=None if data_dir is None else str(Path(data_dir).resolve()), device=device,
            threads=threads or (torch.get_num_threads() if pool.here else 1), wait=not pool.here,
            versions=versions_of(PACKAGES),
        )  # fmt: skip
        sweep = Sweep(place, tuple(name for name in trials[0].changes if name != "seed"), [])
        for trial, result in _results(trials, place, pool, job, timeout, progress):
            for name, content in result.files.items():
                (place / trial.name).mkdir(exist_ok=True)
                write_whole(place / trial.name / name, content)
            sweep.rows.append(_row(trial, result))
            _write_table(sweep)
            if on_trained is not None:
                on_trained(sweep.rows[-1])
    return sweep


def trials_of(base: Recipe, over: Mapping[str, Sequence[Any]], seeds: int) -> list[Trial]:
    """The trainings: every choice of the settings, in the order in which they are written, and each with every seed."""
    for name, values in over.items():
        if isinstance(values, str) or not isinstance(values, Sequence) or not values:
            raise ValueError(f"expected some values of {name} to sweep over, got {values!r}; pass a list, e.g. [1, 2]")
        if len({repr(value) for value in values}) < len(values):
            raise ValueError(f"expected different values of {name} to sweep over, got {list(values)}")
    if "seed" in over and seeds > 1:
        raise ValueError("expected either seed to be swept over or a number of seeds, got both; leave out one")
    names = dict(over) if "seed" in over else {**over, "seed": range(base.training.seed, base.training.seed + seeds)}
    count = math.prod(map(len, names.values()))
    if count > MOST_TRIALS:
        raise ValueError(
            f"expected at most {MOST_TRIALS} trainings in a sweep, got {count}; take fewer values or seeds"
        )
    choices = [dict(zip(names, values, strict=True)) for values in itertools.product(*names.values())]
    trials = [_trial(base, choice) for choice in choices]
    if len({trial.name for trial in trials}) < len(trials):
        raise ValueError("expected values whose folders have different names, got some that have the same; rename them")
    return trials


def _trial(base: Recipe, choice: Mapping[str, Any]) -> Trial:
    """The recipe with this choice, and the choice as the recipe takes it: 1 as 1.0, where fractions are taken."""
    recipe = base.change(**choice)
    values = {
        name: getattr(getattr(recipe, SECTION_OF[name]), name) if name in SECTION_OF else recipe.model.options[name]
        for name in choice
    }
    parts = (
        f"{k.replace('_', '')}{v:.12g}" if isinstance(v, float) else f"{k.replace('_', '')}{v}"
        for k, v in values.items()
    )
    return Trial(re.sub(r"[^\w.+-]+", "_", "-".join(parts))[:LONGEST_NAME], values, recipe)


def _check_trials(trials: Sequence[Trial], place: Path, **options: Any) -> None:
    """Raise what any of them would begin with; those that differ in the seed only begin alike."""
    seen = set()
    for trial in trials:
        check_folder(place / trial.name, trial.recipe)
        alike = repr(trial.recipe.change(seed=0))
        if alike not in seen and not _is_done(trial, place):
            try:
                check_recipe(trial.recipe, **options)
            except ValueError as error:
                raise ValueError(f"{error} (in {trial.name}; nothing was trained)") from error
        seen.add(alike)


def _is_done(trial: Trial, place: Path) -> bool:
    log = read_log(place / trial.name)
    return bool(log) and log[-1]["epoch"] == trial.recipe.training.epochs and (place / trial.name / MODEL).exists()


def _write_ticket(place: Path, base: Recipe, trials: Sequence[Trial], command: str, engine: str) -> str:
    about = {
        "format": FORMAT,
        "recipe": base.as_dict(),
        "trials": {trial.name: trial.changes for trial in trials},
        "versions": versions_of(PACKAGES),
        "origin": origin(base.name, command, engine=engine, device=None, threads=None),
    }
    content = (json.dumps(about, indent=1) + "\n").encode()
    write_whole(place / TICKET, content)
    return hashlib.sha256(content).hexdigest()


def _results(
    trials: Sequence[Trial], place: Path, pool: Pool, job: SweepJob, timeout: float | None, progress: bool | None
) -> Iterator[tuple[Trial, Trained]]:
    """What came of each training, in their order; those that are missing are handed out, and no pool for none."""
    missing = [trial for trial in trials if not _is_done(trial, place)]
    waiting = {trial.name for trial in missing}
    with Bar("training", total=len(trials), progress=progress) as bar, pool if missing else nullcontext():
        groups = Dispatcher(pool, job, timeout=timeout, at_once=1).results(missing)
        found = itertools.chain.from_iterable(groups)
        for count, trial in enumerate(trials, 1):
            yield trial, next(found) if trial.name in waiting else Trained(read_log(place / trial.name))
            bar.update(count)


def _row(trial: Trial, result: Trained) -> dict[str, Any]:
    row: dict[str, Any] = {**trial.changes, "folder": trial.name, "failure": result.failure}
    if result.log and not result.failure:
        last = {name: value for name, value in result.log[-1].items() if MEASURES.fullmatch(name)}
        row |= last | {"seconds": math.fsum(line["seconds"] for line in result.log)}
    return row


def _average(settings: dict[str, Any], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    ended = [row for row in rows if not row["failure"]]
    found: dict[str, Any] = {**settings, "seeds": len(ended), "failures": len(rows) - len(ended)}
    for name in ended[0] if ended else ():
        if MEASURES.fullmatch(name):
            values = [float(row[name]) for row in ended]
            found[name] = mean(values)
            found[f"{name}_deviation"] = stdev(values) if len(values) > 1 else math.nan
    return found


def _write_table(sweep: Sweep) -> None:
    """All rows so far, all digits."""
    columns = list(dict.fromkeys(name for row in sweep.rows for name in row))
    lines = [columns, *([_cell(row.get(name, "")) for name in columns] for row in sweep.rows)]
    write_whole(sweep.folder / TABLE, "".join("\t".join(line) + "\n" for line in lines).encode())


def _cell(value: Any) -> str:
    return re.sub(r"\s+", " ", repr(value) if isinstance(value, float) else str(value))
