"""Why a low degree ruins some heads and not others: on the same features, heads that bend more and more."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from benchmarks.report import Column, Section
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier
from sklearn.svm import SVC
from torch import Tensor

import berncert
from berncert import data
from berncert.foundation.arrays import Floats, Ints
from berncert.foundation.progress import Bar
from experiments.paper.degree_tables import TABLES, TOY_DEGREES, percent
from experiments.paper.subject import Subject, bend_of
from experiments.paper.work import Experiment, Record, Work, degrees_may_be_low

TRAINING = {"small": 3000, "full": 3000, "toy": 100}
"""Size -> training images whose features the other heads are fitted to."""
HEADS: dict[str, Callable[[], Any]] = {
    "support vectors, broad": lambda: SVC(gamma=1.0, C=10.0, decision_function_shape="ovr"),
    "support vectors, narrow": lambda: SVC(gamma=30.0, C=10.0, decision_function_shape="ovr"),
    "neural network, over-trained": lambda: MLPClassifier((64, 64), max_iter=300, alpha=0.0, random_state=0),
    "random forest": lambda: RandomForestClassifier(50, random_state=0),
}


def measured(work: Work) -> Record:
    """The accuracy of each head, as it is and smoothed to each degree, on the features of the same test images."""
    subject = Subject(work, "mnist-paper", small=250)
    degrees = TOY_DEGREES if work.size == "toy" else TABLES["table-mnist"].degrees
    train = data.load(subject.data_set, "train", data_dir=work.data_dir, limit=TRAINING[work.size])
    features = subject.extracted(train)
    own = subject.checkpoint.base
    assert own is not None
    heads: dict[str, Any] = {"the model's own": own.double()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # over-trained or not: it is a head
        heads |= {name: _outputs(make().fit(features, train.labels.numpy())) for name, make in HEADS.items()}
    rows = []
    with Bar("heads", total=len(heads)) as bar:
        for done, (name, head) in enumerate(heads.items()):
            bar.update(done, name)
            rows.append(_row(name, head, degrees, subject.features, subject.labels))
    return {"model": "mnist-paper", "images": len(subject.labels), "training_images": len(train), "rows": rows}


def _outputs(model: Any) -> Callable[[Tensor], Tensor]:
    """One output for each class: a scikit-learn model's decision function, or its probabilities."""
    ask = getattr(model, "decision_function", None) or model.predict_proba

    def head(points: Tensor) -> Tensor:
        return torch.from_numpy(np.asarray(ask(points.numpy()), dtype=np.float64))

    return head


def _row(name: str, head: Any, degrees: tuple[int, ...], features: Floats, labels: Ints) -> Record:
    points = torch.from_numpy(features)

    def accuracy(function: Any) -> float:
        with torch.no_grad():
            return float((function(points).argmax(dim=1).numpy() == labels).mean())

    with degrees_may_be_low():
        smoothed = {degree: berncert.smooth(head, features.shape[1], degree) for degree in degrees}
    return {
        "head": name, "bend": bend_of(head, features.shape[1]), "base": accuracy(head),
        "degrees": {str(degree): accuracy(polynomial) for degree, polynomial in smoothed.items()},
    }  # fmt: skip


def sections(record: Record) -> list[Section]:
    """A row for each head, a column for each degree."""

    def at(degree: str) -> Any:
        return lambda row: row["degrees"][degree]

    columns = [
        Column("head", "head", lambda row: row["head"]),
        Column("bend", "bend", lambda row: row["bend"], percent),
        Column("base", "base", lambda row: row["base"], percent),
        *(Column(degree, f"n = {degree}", at(degree), percent) for degree in record["rows"][0]["degrees"]),
    ]
    note = f"""Natural accuracy in percent of {record["images"]} test images of MNIST, on the five features of
        `{record["model"]}`; heads other than its own are fitted to the features of {record["training_images"]:,}
        training images. `bend`: the share of a head's spread over the cube that no affine function explains."""
    return [Section.of("heads", "Heads that bend, and what each degree leaves of them", note, columns, record["rows"])]


EXPERIMENTS = [
    Experiment(
        "bent-heads", "Why n = 1 ruins one classifier and not another", """\
In the paper's tables n = 1 costs 41 points of natural accuracy on MNIST and none on CIFAR-10. A polynomial of degree 1
in each feature is made of the head's values at the corners of the cube alone, so it is exact for a head that does not
bend, and wrong for one that does. Here: several heads on the same features.""",
        measured, sections, trained=True,
    )
]  # fmt: skip
