"""The nearest point of a chosen class: brute force, and the law that no closer point is given it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from random_heads import random_head

from berncert.certification.box_search import Questions
from berncert.certification.feature_space import posed
from berncert.certification.kernels import search
from berncert.certification.methods import Exact


@pytest.mark.parametrize("norm", [1, 2, 3, math.inf])
def test_no_closer_point_is_given_the_wanted_class_and_the_witness_is(norm: float) -> None:
    rng = np.random.default_rng(4)
    for classes, degrees in [(3, (3, 3)), (4, (2, 3, 2)), (2, (3, 2))]:
        head = random_head(rng, classes, degrees, bend=0.5)
        problem = posed(head, Exact(norm=norm))
        x = rng.uniform(size=(24, len(degrees)))
        wanted = rng.integers(0, classes, len(x))
        weight = rng.uniform(0.3, 3.0, x.shape)
        low = np.where(rng.uniform(size=x.shape) < 0.2, x, 0.0)
        high = np.where(rng.uniform(size=x.shape) < 0.2, x, 1.0)
        questions = Questions.plain(x)._replace(low=low, high=high, weight=weight)
        a = problem.solve_wanted(questions, wanted, threads=1)
        for i in range(len(x)):
            points = rng.uniform(low[i], high[i], size=(20000, len(degrees)))
            if math.isfinite(a.upper[i]):
                near = a.witness[i] + 0.1 * rng.normal(size=points.shape) * np.abs(a.witness[i] - x[i])
                points = np.concatenate([points, np.clip(near, low[i], high[i])])
                assert head(torch.tensor(a.witness[[i]])).argmax() == wanted[i]
                length = np.linalg.norm(weight[i] * (a.witness[i] - x[i]), ord=norm)
                assert length == pytest.approx(a.upper[i], rel=1e-12)
            given = head(torch.tensor(points)).argmax(dim=1).numpy() == wanted[i]
            far = np.linalg.norm(weight[i] * (points - x[i]), ord=norm, axis=1)
            assert far[given].min(initial=math.inf) >= a.radius[i] * (1 - 1e-12)
            if a.status[i] == search.WHOLE_CUBE:
                assert not given.any()
            else:
                assert a.status[i] == search.PROVEN
                assert a.upper[i] <= far[given].min(initial=math.inf) * (1 + 1.1e-3)
