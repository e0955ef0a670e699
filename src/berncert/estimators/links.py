"""From scores to probabilities, as the base model does it: found by comparing the two on rows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, softmax

from berncert.foundation.arrays import Floats

SAME = 1e-6
"""How far probabilities may be apart, at any row, for a link to be the model's."""


def _shares(values: Floats) -> Floats:
    found: Floats = values / values.sum(axis=1, keepdims=True)
    return found


LINKS: dict[str, Callable[[Floats], Floats]] = {
    "softmax": lambda scores: softmax(scores, axis=1),
    "sigmoids": lambda scores: _shares(expit(scores) + 1e-300),
    "shares": lambda scores: _shares(np.clip(scores, 1e-300, 1.0)),
}
"""Name -> scores (N, K) to probabilities: of all classes together, of each against the others, or they are some."""


def find_link(scores: Floats, probabilities: Floats) -> tuple[str, float] | None:
    """(name, factor): probabilities are those of factor * scores; None if no link gives them."""
    for name in LINKS:
        for factor in (1.0, _factor(scores, probabilities) if name == "softmax" else 1.0):
            with np.errstate(all="ignore"):
                apart = np.abs(LINKS[name](factor * scores) - probabilities).max()
            if apart <= SAME:
                return name, factor
    return None


def _factor(scores: Floats, probabilities: Floats) -> float:
    """By which scores are to be multiplied so that their differences are those of log-probabilities."""
    logs = np.log(np.clip(probabilities, 1e-6, None))
    logs, own = (values - values.mean(axis=1, keepdims=True) for values in (logs, scores))
    certain = (probabilities > 1e-5).all(axis=1)
    size = float((own[certain] ** 2).sum())
    return float((own[certain] * logs[certain]).sum()) / size if size > 0 else 1.0
