"""Runs as they are named on a command line, `[LABEL=]RUN`, and the published rows that have names of their own."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, count
from os import PathLike
from pathlib import Path
from typing import NamedTuple

from berncert.certification.status import Claim
from berncert.foundation.safe_reading import DATA_VARIABLE, data_folders, given_folder
from berncert.runs.records import RUN, Run, read

LEVELS = ("0.12", "0.25", "0.50", "1.00")
"""The noise of the published classifiers, in training and in certification."""


class Published(NamedTuple):
    """Rows that others published: a table for each level of noise, and where they come from."""

    label: str
    table: str
    home: str


PUBLISHED = {
    "cohen2019": Published(
        "Cohen 2019",
        "published/cohen2019/cifar10/resnet110_noise_{0}_test_sigma_{0}.tsv",
        "https://github.com/locuslab/smoothing",
    ),
    "salman2019": Published(
        "Salman 2019",
        "published/salman2019/cifar10/PGD_2steps_eps_64_resnet110_noise_{0}_test_sigma_{0}.tsv",
        "https://github.com/Hadisalman/smoothing-adversarial",
    ),
}


class Named(NamedTuple):
    """A run, and the label that was given to it, or an empty one."""

    given: str
    run: Run


def named_runs(words: Iterable[str], data_dir: str | PathLike[str] | None = None) -> list[tuple[str, Run]]:
    """The runs of `[LABEL=]RUN` words, with labels that differ.

    RUN is the folder of a run, a table in the field's format, or published rows: `cohen2019` for all levels of noise,
    `cohen2019:0.25` for one. Those are looked for in `published/` in data_dir and in what BERNCERT_DATA names.
    """
    given_folder(data_dir)  # or an error, whether it is needed or not
    found = [each for word in words for each in _found(word, data_dir)]
    return list(zip(_labels(found), (each.run for each in found), strict=True))


def _found(word: str, data_dir: str | PathLike[str] | None) -> Iterator[Named]:
    label, target = _split(word)
    name, colon, level = target.partition(":")
    path = Path(target).expanduser()
    if name in PUBLISHED and not (path.is_file() or (path / RUN).is_file()):
        for noise in [_level(name, level)] if colon else LEVELS:
            run = read(_published_table(name, noise, data_dir), claim=Claim.PROBABLE)
            yield Named(label if label and colon else f"{label or PUBLISHED[name].label}, sigma {noise}", run)
        return
    yield Named(label, read(path))


def _split(word: str) -> tuple[str, str]:
    """The label, or nothing, and the run; where `=` leaves a choice, such that the run is there."""
    cuts = [place for place, letter in enumerate(word) if letter == "="]
    if _there(word) or not cuts:
        return "", word
    cut = next((cut for cut in cuts if _there(word[cut + 1 :])), cuts[0])
    return _printable(word[:cut]), word[cut + 1 :]


def _there(target: str) -> bool:
    with suppress(UnicodeEncodeError):  # what the file system cannot spell is not there
        return target.partition(":")[0] in PUBLISHED or os.path.exists(os.path.expanduser(target))
    return False


def _level(name: str, text: str) -> str:
    with suppress(ValueError, StopIteration):
        return next(noise for noise in LEVELS if math.isclose(float(noise), float(text)))
    raise ValueError(f"expected {name} or {', '.join(f'{name}:{noise}' for noise in LEVELS)}, got {name}:{text}")


def _published_table(name: str, noise: str, data_dir: str | PathLike[str] | None) -> Path:
    published = PUBLISHED[name]
    table = published.table.format(noise)
    places = data_folders(data_dir)
    found = next((path for place in places if (path := place / table).is_file()), None)
    if found is None:
        looked = f"it is not in {' or '.join(map(str, places))}" if places else "neither is given"
        raise FileNotFoundError(
            f"expected the rows of {name}:{noise} as {table} in the folder that data_dir or {DATA_VARIABLE} names; "
            f"{looked}. They were published at {published.home}"
        )
    return found


def _printable(text: str) -> str:
    """On one line, without what steers a terminal."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())


def _labels(found: Sequence[Named]) -> list[str]:
    """Equal names of different places get as much of their paths as it takes; what is equal still is numbered."""
    paths = [each.run.path.resolve() for each in found]
    names = [_name(each.run) for each in found]
    labels = [each.given or name for each, name in zip(found, names, strict=True)]
    for double in [label for label, times in Counter(labels).items() if times > 1]:
        mine = [k for k, each in enumerate(found) if not each.given and labels[k] == double]
        places = {paths[k] for k in mine}
        depth = next(depth for depth in count(1) if len({place.parts[-depth:] for place in places}) == len(places))
        for k in mine:
            labels[k] = _printable("/".join([*paths[k].parts[-depth:-1], names[k]]))
    told: list[str] = []
    for label in labels:
        told.append(next(x for x in chain([label], (f"{label} ({n})" for n in count(2))) if x not in told))
    return told


def _name(run: Run) -> str:
    return _printable(run.label) or "run"
