"""The paper's tables: accuracies of the base head and of each degree, natural and under attack, and proofs beside."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from benchmarks.report import Column, Section, number

from berncert.attacks.methods import Fgsm, Pgd
from berncert.certification.methods import Exact
from experiments.paper.subject import MAX_SECONDS, Subject
from experiments.paper.work import Experiment, Record, Work

BASE = "base"
TRAINED = "trained"
"""The polynomial of a model that was trained as one: the model itself. Smoothing it again makes another of it."""
TOY_DEGREES = (1, 3)
LARGEST_GRID = 50_000
"""Points of the grid of a degree, at most: seven degrees of five features, five of six."""


class Table(NamedTuple):
    """A table of the paper: its figures, and the models here that are set beside it."""

    data_set: str
    title: str
    epsilon: float
    """The l-inf radius of the attacks."""
    published: Mapping[int | str, tuple[float | None, ...]]
    """Degree, or base -> natural accuracy, FGSM (if the paper has it) and PGD, in percent."""
    subjects: Mapping[str, str]
    """What a model is called in the table -> its name in the plan, or among the shipped models."""
    images: int = 125
    """Test images of the small size."""

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degrees in the paper's table."""
        return tuple(degree for degree in self.published if isinstance(degree, int))


TABLES = {
    "table-cifar10": Table(
        "cifar10", "Table 1: CIFAR-10, base and n = 1 to 7", 2 / 255,
        {"base": (87.6, None, 63.6), 1: (87.4, None, 63.2), 2: (86.8, None, 63.0), 3: (87.2, None, 62.6),
         4: (87.4, None, 62.6), 5: (87.4, None, 62.6), 6: (87.4, None, 63.0), 7: (87.4, None, 63.2)},
        {"the paper's construction": "cifar10-paper", "ours, six features": "cifar10-ours-d6"},
        images=500,
    ),
    "table-mnist": Table(
        "mnist", "Table of MNIST, base and n = 1 to 7", 0.1,
        {"base": (98.50, 61.46, 52.25), 1: (57.09, 43.79, 42.63), 2: (77.51, 48.67, 45.99), 3: (98.29, 64.37, 61.33),
         4: (98.45, 64.55, 60.67), 5: (98.51, 63.26, 59.16), 6: (98.51, 62.82, 58.06), 7: (98.50, 61.76, 57.03)},
        {"the paper's construction": "mnist-paper", "ours, for l2": "mnist", "ours, for l-inf": "mnist-linf"},
        images=250,
    ),
    "table-svhn": Table(
        "svhn", "Table of SVHN, base and n = 1 to 7", 0.01,
        {"base": (95.07, 56.85, 38.66), 1: (78.31, 47.80, 34.60), 2: (94.03, 55.80, 39.13), 3: (94.59, 56.63, 39.55),
         4: (94.71, 57.00, 39.42), 5: (94.82, 57.28, 39.40), 6: (94.88, 57.39, 39.49), 7: (94.91, 57.54, 39.48)},
        {"the paper's construction": "svhn-paper", "ours, six features": "svhn-ours"},
    ),
    "table-cifar100": Table(
        "cifar100", "Table of CIFAR-100, base and n = 1 to 6", 2 / 255,
        {"base": (61.6, 33.6, 38.4), 1: (33.8, 16.2, 17.4), 2: (52.8, 27.8, 31.0), 3: (59.0, 32.4, 36.4),
         4: (59.4, 33.4, 38.4), 5: (60.6, 34.2, 38.6), 6: (60.0, 33.8, 38.2)},
        {"the paper's construction": "cifar100-paper"},  # ours has more features than seven degrees have room for
    ),
}  # fmt: skip


def measured(table: Table, work: Work) -> Record:
    """All rows of all models of this table."""
    wanted = TOY_DEGREES if work.size == "toy" else table.degrees
    models = []
    for label, name in table.subjects.items():
        subject = Subject(work, name, table.images)
        dim = subject.features.shape[1]
        degrees: list[int | str] = [TRAINED, BASE] if subject.is_polynomial else [BASE]
        degrees += [degree for degree in wanted if (degree + 1) ** dim <= LARGEST_GRID]
        models.append(
            {
                "label": label, "model": name, "sha256": subject.checkpoint.sha256, "dim": dim,
                "images": len(subject.labels), "skip": subject.skip, "part": subject.images.part,
                "lipschitz_bound": subject.lipschitz_bound,
                "bend": subject.bend,
                "rows": [degree_row(subject, degree, table.epsilon) for degree in degrees],
            }
        )  # fmt: skip
    return {"epsilon": table.epsilon, "data_set": table.data_set, "models": models}


def degree_row(subject: Subject, degree: int | str, epsilon: float) -> Record:
    """Accuracies of the base head, of one degree or of a trained polynomial, and what is proven of the latter two."""
    chosen = None if degree == TRAINED else degree
    fgsm, pgd = (
        subject.run(kind(norm=math.inf, radii=(epsilon,), loss="cross_entropy"), chosen) for kind in (Fgsm, Pgd)
    )
    row: Record = {
        "degree": degree, "natural": float(pgd.correct.mean()),
        "fgsm": float(fgsm.standing(epsilon)[0]), "pgd": float(pgd.standing(epsilon)[0]),
    }  # fmt: skip
    if isinstance(chosen, str):
        return row
    pixels = {
        norm: subject.run(Exact(norm=norm, max_seconds=MAX_SECONDS, routes="global"), chosen)
        for norm in (2.0, math.inf)
    }
    proven = subject.proven(chosen)
    correct = proven.predicted == subject.labels
    whole = np.array([status == "WHOLE_CUBE" for status in proven.status])
    return row | {
        "proven": float(pixels[math.inf].standing(epsilon)[0]),
        "mean_pixel_radius": _mean(pixels[2.0].radius, correct),
        "mean_feature_radius": _mean(proven.radius, correct & ~whole),
        "whole_cube": float(whole.mean()),
        "classes_predicted": len(set(proven.predicted.tolist())),
        "unfinished": sum(status not in ("PROVEN", "WHOLE_CUBE", "TIE") for status in proven.status),
    }


def _mean(radius: Any, counted: Any) -> float:
    """The mean radius over all images, in which those that are not counted have 0."""
    return float(np.where(counted & np.isfinite(radius), radius, 0.0).mean())


def sections(table: Table, record: Record) -> list[Section]:
    """A table for each model; the paper's own figures are beside those of its construction."""
    return [_section(table, record, entry) for entry in record["models"]]


def _section(table: Table, record: Record, entry: Record) -> Section:
    part = f" ({entry['part']})" if entry["part"] else ""
    note = f"""{entry["images"]} test images{part}, {entry["dim"]} features, proven Lipschitz bound of the extractor
        {number(entry["lipschitz_bound"])} in l2. Attacks and proofs at l-inf {number(record["epsilon"])}. The
        best affine function leaves {percent(entry["bend"])} % of the base head's spread over the cube: that is how far
        it bends, and what a low degree can take away. Percent;
        radii are means in l2 in which wrong images count 0, and so do those whose class holds in the whole cube, where
        the radius is infinite.{_unfinished(entry["rows"])}{_trained(entry["rows"])}"""
    columns = [
        Column("degree", "n", lambda r: r["degree"]),
        Column("natural", "natural", lambda r: r["natural"], percent),
        Column("fgsm", "FGSM", lambda r: r["fgsm"], percent),
        Column("pgd", "PGD-20", lambda r: r["pgd"], percent),
        Column("proven", "proven", lambda r: r.get("proven"), percent),
        Column("pixel", "radius, pixels", lambda r: r.get("mean_pixel_radius"), number),
        Column("feature", "radius, features", lambda r: r.get("mean_feature_radius"), number),
        Column("whole", "whole cube", lambda r: r.get("whole_cube"), percent),
    ]
    if entry["label"].startswith("the paper"):
        columns += [
            Column(f"paper_{name.lower()}", f"paper: {name}", partial(_published, table, place), _plain)
            for place, name in enumerate(("natural", "FGSM", "PGD"))
        ]
    return Section.of(entry["model"], f"{entry['label'].capitalize()}: {entry['model']}", note, columns, entry["rows"])


def _unfinished(rows: Sequence[Mapping[str, Any]]) -> str:
    count = sum(row.get("unfinished", 0) for row in rows)
    if not count:
        return ""
    return f" {count} searches in features were cut off: their radii are proven, and may not be the largest."


def _trained(rows: Sequence[Mapping[str, Any]]) -> str:
    if all(row["degree"] != TRAINED for row in rows):
        return ""
    return """ The model itself is the row `trained`, a polynomial whose coefficients were trained. `base` is the same
        function, taken as any head; n smooths it again, which makes another function of it."""


def _published(table: Table, place: int, row: Mapping[str, Any]) -> float | None:
    figures: Sequence[float | None] = table.published.get(row["degree"], (None,) * 3)
    return figures[place]


def percent(share: float | None) -> str:
    """A share as a percentage with one decimal; a dash for what is not known."""
    return "-" if share is None else f"{100 * share:.1f}"


def _plain(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


ABOUT = """\
The paper compares its base classifier with the smoothed one for each degree n, under attack in l-inf. Here the same is
done for a reproduction of its construction and for ours, and a proof is added: `proven` is the share of images that are
correct and whose class no image within the same l-inf radius changes. The larger the bound on how far a network
stretches distances, which is above each table, the less is proven in pixels, and the paper's construction does not
keep it small; its own radius lives in feature space, where the column `radius, features` proves one."""

EXPERIMENTS = [
    Experiment(name, table.title, ABOUT, partial(measured, table), partial(sections, table), trained=True)
    for name, table in TABLES.items()
]
