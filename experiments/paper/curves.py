"""The paper's certified curves: its estimate, what is proven of the same model, and what an attack leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from benchmarks.report import Column, Section, number

from berncert.attacks.methods import Pgd
from berncert.certification.methods import Exact
from berncert.foundation.arrays import Flags, Floats
from berncert.runs.lookup import named_runs
from experiments.paper import plan
from experiments.paper.degree_tables import TABLES, TOY_DEGREES, percent
from experiments.paper.plots import curves_figure
from experiments.paper.subject import MAX_SECONDS, Subject, accuracy_at
from experiments.paper.work import Experiment, Record, Work

RADII = np.linspace(0, 1.5, 61)
SHOWN = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Radii of the tables."""
SOME, FEW = 250, 100
"""Test images of the small size where several models or degrees want a root search each."""
PAPER_DEGREE = 1
"""That of all curves of the paper, unless it says otherwise."""
ATTACKED = (0.1, 0.2, 0.3, 0.5, 1.0, 1.2, 1.4, 1.5)
PUBLISHED = ("cohen2019:0.12", "cohen2019:0.25", "salman2019:0.12", "salman2019:0.25")
ESTIMATE, FEATURES, PIXELS, ATTACK, PROBABLE = (
    "estimate",
    "proven in features",
    "proven in pixels",
    "attack",
    "probable",
)


def curve(label: str, kind: str, correct: Flags, radius: Floats) -> Record:
    """A line of a picture: the share of images that are correct and hold, at each of the radii."""
    return {"label": label, "kind": kind, "images": len(correct), "accuracy": accuracy_at(correct, radius, RADII)}


def model_curves(label: str, subject: Subject, degree: int | None, kinds: Sequence[str]) -> list[Record]:
    """The curves of one model, with its Lipschitz bound: by it a radius in features is one in pixels.

    In the paper's construction the estimate in features counts as one in pixels.
    """
    proven = subject.proven(degree)
    correct = proven.predicted == subject.labels
    lines: list[Record] = []
    if ESTIMATE in kinds:
        lines.append(curve(label, ESTIMATE, correct, subject.estimated(degree)))
    if FEATURES in kinds:
        lines.append(curve(label, FEATURES, correct, proven.radius))
    if PIXELS in kinds:
        run = subject.run(Exact(norm=2.0, max_seconds=MAX_SECONDS, routes="global"), degree)
        lines.append(curve(label, PIXELS, run.correct, run.radius))
    return [line | {"bound": subject.lipschitz_bound} for line in lines]


def refuted(subject: Subject, degree: int | None, conservatism: float | None = None, *, stretch: float = 1.0) -> Record:
    """On how many images the estimate is above what is proven or found, image by image.

    In feature space `upper` is the distance of a point that is given another class. In pixels the estimate is divided
    by `stretch`, the Lipschitz constant, which the paper takes to be 1; where an attack succeeds closer than that, the
    estimate is refuted.
    """
    estimate, proven = subject.estimated(degree, conservatism), subject.proven(degree)
    attack = subject.run(Pgd(norm=2.0, radii=ATTACKED), degree)
    exact = subject.run(Exact(norm=2.0, max_seconds=MAX_SECONDS, routes="global"), degree)
    correct = attack.correct
    return {
        "images": len(correct),
        "correct": int(correct.sum()),
        "estimate_above_upper": int((estimate > proven.upper).sum()),
        "estimate_above_attack": int((correct & (estimate / stretch > attack.radius)).sum()),
        "proven_above_attack": int((correct & (exact.radius > attack.radius)).sum()),
        "mean_estimate": float(estimate.mean()),
        "mean_upper": _finite_mean(proven.upper),
        "mean_radius_in_features": _finite_mean(proven.radius),
        "mean_radius_in_pixels": _finite_mean(exact.radius),
    }


def _finite_mean(values: Floats) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def measured_4(work: Work) -> Record:
    """CIFAR-10 beside randomized smoothing."""
    theirs = Subject(work, "cifar10-paper", small=SOME)
    size = "" if work.size == "full" else ", small"
    lines = model_curves(f"the paper's{size} (d=5, n=1)", theirs, PAPER_DEGREE, (ESTIMATE, FEATURES, PIXELS))
    lines += model_curves(f"ours{size} (d=6)", Subject(work, "cifar10-ours-d6", small=SOME), None, (PIXELS,))
    if work.size != "toy":
        lines += model_curves("ours, as shipped (d=10)", Subject(work, "cifar10", small=SOME), None, (PIXELS,))
        for label, run in named_runs(PUBLISHED, work.data_dir):
            lines.append(curve(label, PROBABLE, run.correct, run.radius))
    return {"panels": [{"title": "CIFAR-10", "curves": lines}], "bound": theirs.lipschitz_bound}


def measured_5(work: Work) -> Record:
    """The estimate beside PGD's upper bound."""
    panels, crossings = [], []
    subjects = (("the paper's construction", "cifar10-paper", PAPER_DEGREE), ("ours", "cifar10-ours-d6", None))
    for label, name, degree in subjects:
        subject = Subject(work, name, small=SOME)
        kinds = (ESTIMATE, FEATURES, PIXELS) if degree else (PIXELS,)
        lines = model_curves(label, subject, degree, kinds)
        attack = subject.run(Pgd(norm=2.0, radii=ATTACKED), degree)
        radii = [0.0, *ATTACKED]
        left = [float(attack.correct.mean()), *attack.standing(ATTACKED).tolist()]
        lines.append({"label": label, "kind": ATTACK, "images": len(attack), "radii": radii, "accuracy": left})
        panels.append({"title": label, "curves": lines})
        stretch = 1.0 if degree else subject.lipschitz_bound
        crossings.append(
            {"label": label, "bound": subject.lipschitz_bound, **refuted(subject, degree, stretch=stretch)}
        )
    return {"panels": panels, "crossings": crossings}


def measured_6(work: Work) -> Record:
    """With and without adversarial training; the number of features."""
    kinds = (ESTIMATE, FEATURES)
    attacked = {"adversarial training": "cifar10-resnet", "plain training": "cifar10-plain-d5"}
    left = [
        line
        for label, name in attacked.items()
        for line in model_curves(label, Subject(work, name, small=FEW), PAPER_DEGREE, kinds)
    ]
    middle, right = (
        [
            line
            for dim in plan.DIMS
            for line in model_curves(f"d = {dim}", Subject(work, name.format(dim), small=FEW), degree, chosen)
        ]
        for name, degree, chosen in (("cifar10-plain-d{}", PAPER_DEGREE, kinds), ("cifar10-ours-d{}", None, (PIXELS,)))
    )
    panels = [
        {"title": "adversarial training, d = 5", "curves": left},
        {"title": "number of features, plain training", "curves": middle},
        {"title": "ours: certified training, proven in pixels", "curves": right},
    ]
    return {"panels": panels}


def measured_8(work: Work) -> Record:
    """Four architectures."""
    lines, bounds = [], []
    for name in plan.NETWORKS:
        subject = Subject(work, f"cifar10-{name}", small=FEW)
        lines += model_curves(name.replace("_", " "), subject, PAPER_DEGREE, (ESTIMATE, FEATURES))
        bounds.append({"label": name.replace("_", " "), "bound": subject.lipschitz_bound,
                       **refuted(subject, PAPER_DEGREE)})  # fmt: skip
    return {"panels": [{"title": "architectures in the paper's construction", "curves": lines}], "crossings": bounds}


def measured_9(work: Work) -> Record:
    """MNIST for each degree."""
    subject = Subject(work, "mnist-paper", small=FEW)
    degrees = TOY_DEGREES if work.size == "toy" else TABLES["table-mnist"].degrees
    estimates, proven = (
        [line for degree in degrees for line in model_curves(f"n = {degree}", subject, degree, (kind,))]
        for kind in (ESTIMATE, FEATURES)
    )
    panels = [
        {"title": "the paper's estimate", "curves": estimates},
        {"title": "proven in feature space", "curves": proven},
    ]
    return {"panels": panels, "bound": subject.lipschitz_bound}


CONSERVATISM = (1.5, 2.0, 3.0, 5.0, 10.0, 100.0, None)


def measured_10(work: Work) -> Record:
    """The conservatism C."""
    subject = Subject(work, "cifar10-paper", small=FEW)
    chosen = (2.0, None) if work.size == "toy" else CONSERVATISM
    proven = subject.proven(PAPER_DEGREE)
    correct = proven.predicted == subject.labels
    lines = [curve(_c_name(c), ESTIMATE, correct, subject.estimated(PAPER_DEGREE, c)) for c in chosen]
    lines.append(curve("proven", FEATURES, correct, proven.radius))
    rows = [
        {"label": _c_name(c), "bound": subject.lipschitz_bound, **refuted(subject, PAPER_DEGREE, c)} for c in chosen
    ]
    return {"panels": [{"title": "CIFAR-10, the paper's construction", "curves": lines}], "crossings": rows}


def _c_name(conservatism: float | None) -> str:
    return "no C: the boundary" if conservatism is None else f"C = {conservatism:g}"


def sections(record: Record) -> list[Section]:
    """The curves at some radii; on how many images an estimate is refuted."""
    found = [_curve_section(panel) for panel in record["panels"]]
    return [*found, _crossing_section(record["crossings"])] if "crossings" in record else found


def _curve_section(panel: Record) -> Section:
    def at(radius: float) -> Any:
        return lambda line: _accuracy(line, radius)

    columns = [
        Column("label", "curve", lambda line: line["label"]),
        Column("kind", "what", lambda line: line["kind"]),
        Column("images", "images", lambda line: line["images"]),
        Column("bound", "Lipschitz bound", lambda line: line.get("bound"), number),
        *(Column(f"{radius:g}", f"{radius:g}", at(radius), percent) for radius in SHOWN),
    ]
    note = """Percent of all images: those that are correct and hold, over the l2 radius. For `estimate` and `proven in
        features` that is a distance in feature space, for the others one in pixels. A proven one in features, divided
        by the Lipschitz bound, is proven in pixels; both are on one scale only where the bound is 1, which the paper
        takes it to be."""
    return Section.of(panel["title"], panel["title"], note, columns, panel["curves"])


def _accuracy(line: Record, radius: float) -> float | None:
    """The accuracy at one radius; of an attack only where it was tried."""
    radii = np.asarray(line.get("radii", RADII))
    place = int(np.abs(radii - radius).argmin())
    return float(line["accuracy"][place]) if abs(radii[place] - radius) < 1e-9 else None


def _crossing_section(rows: list[Record]) -> Section:
    def share(name: str) -> Any:
        return lambda row: row[name] / row["images"]

    columns = [
        Column("label", "model", lambda row: row["label"]),
        Column("bound", "Lipschitz bound", lambda row: row["bound"], number),
        Column("estimate", "mean estimate, features", lambda row: row["mean_estimate"], number),
        Column("upper", "mean proven upper limit, features", lambda row: row["mean_upper"], number),
        Column("above_upper", "estimate above that limit", share("estimate_above_upper"), percent),
        Column("above_attack", "estimate above an attack in pixels", share("estimate_above_attack"), percent),
        Column("proven_above", "proof above an attack", share("proven_above_attack"), percent),
        Column("pixels", "mean proven radius in pixels", lambda row: row["mean_radius_in_pixels"], number),
    ]
    note = """Percent of all images. The upper limit is the distance, in feature space, of a point that is given another
        class: an estimate above it is too large. An attack in pixels that succeeds closer than the estimate refutes it
        as a radius in pixels: in the paper's construction as it is, as the paper uses it; in ours divided by the
        Lipschitz bound. In the two columns about attacks, images that are classified wrongly never count."""
    return Section.of("crossings", "Where the estimate is too large", note, columns, rows)


def _figure(message: str | Callable[[Record], str]) -> Any:
    """A picture under this message, or under the one that its record gives."""
    return lambda record: curves_figure(
        message if isinstance(message, str) else message(record), record["panels"], RADII
    )


def _message_4(record: Record) -> str:
    line = next(line for line in record["panels"][0]["curves"] if line["kind"] == PIXELS)
    return (
        f"The paper's curve is an estimate in feature space; proven in pixels: {percent(_accuracy(line, 0.1))} % at 0.1"
    )


def _message_5(record: Record) -> str:
    """Whether the estimate's curve is below PGD's, and on how many images it is refuted all the same."""
    estimate, attack = (
        next(line for line in record["panels"][0]["curves"] if line["kind"] == kind) for kind in (ESTIMATE, ATTACK)
    )
    tried = [
        (_accuracy(estimate, radius), left) for radius, left in zip(attack["radii"], attack["accuracy"], strict=True)
    ]
    place = "below" if all(share is None or share <= left for share, left in tried) else "not below"
    row = record["crossings"][0]
    where = f"{row['estimate_above_upper']} of {row['images']} images"
    return f"The estimate is {place} PGD's curve as a whole; it is too large on {where}"


def _message_10(record: Record) -> str:
    least = record["crossings"][0]
    share = least["estimate_above_upper"] / least["images"]
    return f"With {least['label']} the estimate is too large on {percent(share)} % of the images"


EXPERIMENTS = [
    Experiment(
        "figure4", "Figure 4: CIFAR-10 beside randomized smoothing", """\
The paper compares its certified curve (d = 5, n = 1, adversarial training) with randomized smoothing. Here: the same
estimate for a reproduction, what is proven of that model in feature space and in pixels, the published rows of
randomized smoothing, and our own shipped model, proven in pixels.""",
        measured_4, sections, _figure(_message_4), trained=True,
    ),
    Experiment(
        "figure5", "Figure 5: the curve under PGD's upper bound", """\
The paper draws its certified curve under the accuracy that PGD leaves, and concludes that it is conservative. Curves
can lie that way although single certificates are false: here the two are compared image by image.""",
        measured_5, sections, _figure(_message_5), trained=True,
    ),
    Experiment(
        "figure6", "Figure 6: adversarial training, number of features", """\
The paper finds that adversarial training raises its curve, and that five or six features are best. Here with the proof
of each; on the right the same numbers of features with certified training, proven in pixels.""",
        measured_6, sections, _figure("Adversarial training and the number of features, estimated and proven"),
        trained=True,
    ),
    Experiment(
        "figure8", "Figure 8: architectures", """\
The paper's curves of ResNet, Wide ResNet, VGG and DenseNet differ. Here with the proof of each and its proven Lipschitz
bound, which says what its radius in feature space is worth in pixels.""",
        measured_8, sections, _figure("Four architectures: estimates, and what is proven in feature space"),
        trained=True,
    ),
    Experiment(
        "figure9", "Figure 9: MNIST, a curve for each degree", """\
The paper finds larger radii and lower accuracy with a lower degree n. Here beside the proof of each.""",
        measured_9, sections, _figure("MNIST at each degree: the paper's estimate, and what is proven"), trained=True,
    ),
    Experiment(
        "figure10", "Figure 10: the conservatism C", """\
C asks the root finder for a point at which 1/C of the margin is left, so that a small C gives smaller radii. Here: on
what share of the images each C is still above the proven upper limit of the true distance.""",
        measured_10, sections, _figure(_message_10), trained=True,
    ),
]  # fmt: skip
