"""Training images that are set aside, so that settings can be chosen without a look at test images.

Of each class one in ten, the same ones for every training and on every machine: seeds and settings are compared on the
same images, and a training that starts from the weights of another has not seen them through it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from berncert.data.dataset import Dataset
from berncert.data.splits import drawn_rows
from berncert.foundation.arrays import Ints

HOLDOUT = "holdout"
"""The split that contains the training images that are set aside."""
ONE_IN = 10
PART = f"one in {ONE_IN} training images of each class, which a training with holdout sets aside"


def hold_out(training: Dataset) -> tuple[Dataset, Dataset]:
    """All other training images, and those that are set aside; `training` is a whole training split."""
    labels = training.labels.numpy()
    names = [f"{HOLDOUT} {index}" for index in training.indices.tolist()]
    aside = np.zeros(len(labels), dtype=bool)
    aside[drawn_rows(names, labels, ONE_IN)] = True
    if not aside.any():
        raise ValueError(
            f"expected two training images or more of some class, of which one can be set aside, got at most one of "
            f"each in {training.name}; train without holdout"
        )
    return subset(training, np.flatnonzero(~aside)), replace(
        subset(training, np.flatnonzero(aside)), split=HOLDOUT, part=PART
    )


def subset(whole: Dataset, rows: Ints) -> Dataset:
    """Those rows of a data set."""
    return replace(whole, images=whole.images[rows], labels=whole.labels[rows], indices=whole.indices[rows])
