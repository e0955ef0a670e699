"""A run on disk: `run.json` with all that decides the result, and a table with one line for each image.

The table is `certificates.tsv`. It begins with the columns of the field's reference code, `idx label predict radius
correct time`, so that scripts written for that code read it; numbers are in full precision. That of an attack is
`attacks.tsv`, with `fallen_at` instead of `radius`, which it is none. `time` is the mean over the images of a batch.
`table.py` writes them, row by row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from berncert.certification.status import CLAIMS, STATUSES, Claim
from berncert.foundation.arrays import Flags, Floats
from berncert.foundation.safe_reading import parsed_json
from berncert.runs.rows import TABLES, read_rows
from berncert.runs.settings import BASE

FORMAT = "berncert run 1"
RUN = "run.json"
PROOF = "proof.bin"
"""What `berncert-check` reads, of runs with proofs."""
ALIKE = ("name", "split", "part", "shape")
"""Entries that records of the same data share, whatever images were chosen of it."""
FIELD_DATA = ("cifar10", "cifar100", "imagenet", "mnist", "svhn")
"""Tables without a record do not name their data; the folders that they are in may."""


@dataclass(frozen=True, eq=False)
class Run:
    """The rows of a run, finished or not, or of a published table."""

    path: Path
    """The run's folder, or the lone table."""
    about: Mapping[str, Any]
    """run.json; empty for a lone table."""
    rows: Mapping[str, npt.NDArray[Any]]
    """Column -> its values: int64, float64 (`time` in seconds) or text."""
    stated: Claim = Claim.UNKNOWN
    """What a lone table is known to claim: it does not say so itself."""

    def __len__(self) -> int:
        return len(self.rows["idx"])

    @property
    def label(self) -> str:
        """A short name; it says so if the head is the one before smoothing."""
        name = self.path.resolve().name.removesuffix(".tsv")
        base = bool(self.about) and self.about["settings"].get("degree") == BASE
        return f"{name} ({BASE})" if base and BASE not in re.split(r"[\W_]+", name) else name

    @property
    def claim(self) -> Claim:
        """What the radii say."""
        return Claim[self.about["claim"]] if self.about else self.stated

    @property
    def norm(self) -> float:
        """The p of the radii's norm; lone tables do not say it, and the field's are l2."""
        return float(self.about["settings"]["norm"]) if self.about else 2.0

    @property
    def complete(self) -> bool:
        """Whether every image has its row."""
        return not self.about or len(self) == self.about["data"]["images"]

    @cached_property
    def correct(self) -> Flags:
        """Where the class is the label; never where the classifier abstained."""
        return np.asarray(self.rows["correct"] == 1)

    @cached_property
    def abstained(self) -> Flags:
        """Where randomized smoothing abstained."""
        return np.asarray(self.rows["predict"] == -1)

    @cached_property
    def radius(self) -> Floats:
        """For each image, as the claim says; of an attack where the image fell: 0 if it was wrong, inf if it stood."""
        name = "fallen_at" if self.claim is Claim.ATTACK else "radius"
        return self.rows[name].astype(np.float64)

    def standing(self, at: npt.ArrayLike) -> Floats:
        """The share of images that are correct and hold at each of these radii: the certified, or attacked, accuracy.

        Of an attack that tried some radii this is the least tried limit that holds at each: certified accuracy at any
        radius is below it.
        """
        self._require_rows()
        radii = np.atleast_1d(np.asarray(at, dtype=np.float64))[:, None]
        holds = self.radius > radii if self.claim is Claim.ATTACK else self.radius >= radii
        shares: Floats = (self.correct & holds).mean(axis=1)
        return shares

    @property
    def mean_radius(self) -> float:
        """The average certified radius: images that are wrong count 0."""
        self._require_rows()
        return float(np.where(self.correct, self.radius, 0.0).mean())

    def _require_rows(self) -> None:
        if not len(self):
            raise ValueError(f"expected a run with rows, got {self.path}, which has none yet; run its command again")

    @property
    def decided_at(self) -> float | None:
        """The only radius that the run decided at, if it did: at others it states less than could be proven."""
        radius = self.about["settings"].get("radius") if self.about else None
        return None if radius is None else float(radius)

    @property
    def data(self) -> str:
        """The data set and its part, e.g. "mnist test"; empty if nothing says so."""
        if self.about:
            record = self.about["data"]
            return f"{record['name']} {record.get('split') or ''}".strip()
        folders = (part.lower() for part in reversed(self.path.resolve().parent.parts))
        name = next((part for part in folders if part in FIELD_DATA), None)
        return f"{name} test" if name else ""

    @property
    def numbered_in(self) -> str:
        """What the numbers of the images, idx, count in: a part of a data set, or all of one that was divided here."""
        if not self.about:
            return self.data
        record = self.about["data"]
        split = "" if record.get("division") else record.get("split") or ""
        split = "train" if split == "holdout" else split  # its images keep the numbers that they have there
        return f"{os.path.normpath(record['name'])} {split}".strip()

    def same_task(self, other: Run) -> bool:
        """Whether both are about the same classifier, on images of the same data, in the same norm.

        They may have chosen other images of it; a table without a record does not say enough.
        """
        if not (self.about and other.about) or self.norm != other.norm:
            return False
        models = [(run.about["model"].get("sha256"), run.about["settings"].get("degree")) for run in (self, other)]
        return models[0] == models[1] and self._same_data(other)

    def _same_data(self, other: Run) -> bool:
        a, b = self.about["data"], other.about["data"]
        same_images = self._chosen != other._chosen or a.get("sha256") == b.get("sha256")
        divisions = [(record.get("division") or {}).get("sha256") for record in (a, b)]
        if divisions[0] and divisions[0] == divisions[1]:  # whichever of its parts: their images have different numbers
            return same_images
        files = [record.get("files", {}).items() for record in (a, b)]
        read = files[0] <= files[1] or files[1] <= files[0]  # who needs few images reads the first files only
        return read and same_images and all(a.get(key) == b.get(key) for key in ALIKE)

    @property
    def _chosen(self) -> tuple[object, ...]:
        """What decides which images of the data a run is over."""
        data, settings = self.about["data"], self.about["settings"]
        return data.get("split"), data["images"], settings.get("skip")

    def vectors(self, name: str) -> Floats:
        """A column that has a vector in each row, e.g. `features` or `witness`: (N, d)."""
        return np.array([text.split(" ") for text in self.rows[name]], dtype=np.float64).reshape(len(self), -1)


def read(path: str | PathLike[str], *, claim: Claim = Claim.UNKNOWN) -> Run:
    """The run in that folder, or the table at that path in the field's format; of a table, `claim` is what is known."""
    place = Path(path)
    if place.is_dir():
        about = read_about(place)
        table = place / TABLES[about["kind"]]
        rows = read_rows(table)
        _check_rows(table, Claim[about["claim"]], rows)
        if len(rows["idx"]) > about["data"]["images"]:
            raise ValueError(f"expected at most {about['data']['images']} rows in {table}, got {len(rows['idx'])}")
        return Run(place, about, rows)
    if place.is_file():
        if place.name in TABLES.values() and (place.parent / RUN).is_file():
            return read(place.parent)
        rows = read_rows(place)
        if "status" in rows or "radius" not in rows:
            raise ValueError(
                f"expected the folder of a run, got {place} alone; what its rows claim, and in which norm, is in {RUN}"
            )
        _check_rows(place, claim, rows)
        return Run(place, {}, rows, claim)
    raise FileNotFoundError(
        f"expected the folder of a run, or a table of certificates, got {place}, which is not there"
    )


def read_about(folder: Path) -> dict[str, Any]:
    path = folder / RUN
    try:
        about = parsed_json(path.read_text("utf-8"))
    except FileNotFoundError:
        hint = "it is a training's folder" if (folder / "recipe.json").exists() else f"it has no {RUN}"
        raise ValueError(
            f"expected the folder of a run, as certify and attack write it, got {folder}: {hint}"
        ) from None
    except ValueError as error:
        raise ValueError(f"expected the record of a run in {path}, got something else: {error}") from error
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        got = about.get("format") if isinstance(about, dict) else about
        raise ValueError(f"expected the record of a run ({FORMAT}) in {path}, got {got!r}")
    try:
        whole = (
            about["kind"] in TABLES
            and Claim[about["claim"]] in CLAIMS[about["kind"]]
            and float(about["settings"]["norm"]) >= 1
            and int(about["data"]["images"]) >= 0
        )
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise ValueError(
            f"expected kind, claim, settings.norm and data.images in {path}, got a record in which one of them is "
            "missing or makes no sense; it was changed since it was written"
        )
    return about


def _check_rows(path: Path, claim: Claim, rows: Mapping[str, npt.NDArray[Any]]) -> None:
    """Refuse rows that no run writes: they were changed since."""
    radius = rows["fallen_at" if claim is Claim.ATTACK else "radius"]
    wrong = {
        "a radius that is no number, or below 0": ~(radius >= 0),
        "another correct than predict and label say": rows["correct"] != (rows["predict"] == rows["label"]),
        "an idx that is not above the one before": np.diff(rows["idx"], prepend=-1) <= 0,
    }
    if "status" in rows:
        wrong[f"a status that {claim.name.lower()} rows do not have"] = ~np.isin(rows["status"], STATUSES[claim])
    for what, where in wrong.items():
        if where.any():
            raise ValueError(
                f"expected rows as they were written in {path}, got {what}, in line {int(where.argmax()) + 2}; get the "
                "file again, or delete the folder and run its command again"
            )
