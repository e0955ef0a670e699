"""One axis: the least value that is proven is that of a dense scan, and never above it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from berncert.certification.kernels import line
from berncert.certification.kernels.compiled import kernel
from berncert.certification.kernels.line import MOST_HALVINGS
from berncert.polynomial import evaluate

add_elevated, restrict_axis = kernel(line.add_elevated), kernel(line.restrict_axis)
least_on_line = kernel(line.least_on_line)


def value(c: np.ndarray, s: np.ndarray) -> np.ndarray:
    return evaluate(torch.tensor(c)[None], torch.tensor(s)[:, None])[:, 0].numpy()


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_the_bound_is_below_every_point_and_close_to_the_least(p: float) -> None:
    rng = np.random.default_rng(1)
    cells, ends, work = np.empty((MOST_HALVINGS + 6, 20)), np.empty((MOST_HALVINGS + 6, 3)), np.empty(24)
    for _ in range(60):
        n = int(rng.integers(1, 13))
        c = np.zeros(20)
        c[: n + 1] = rng.normal(size=n + 1)
        low, high = np.sort(rng.uniform(size=2))
        bend, about = rng.uniform(0, 3), rng.uniform(low, high)
        x0, w, pull, price = rng.uniform(), rng.uniform(0.1, 3), rng.choice([0.0, 1.0]), rng.uniform(0, 2)
        bound, where, cost, part = least_on_line(
            c, n, low, high, bend, about, x0, w, p, pull, price, 1e-9, cells, ends, work
        )
        s = np.linspace(0, 1, 4001)
        x = low + s * (high - low)
        scan = pull * np.abs(w * (x - x0)) ** p + price * (value(c[: n + 1], s) - bend * (x - about) ** 2)
        assert bound <= scan.min() + 1e-12
        assert bound >= scan.min() - 1e-4
        assert low <= where <= high
        assert pull * cost + price * part <= bound + 2e-9
        assert cost == pytest.approx(abs(w * (where - x0)) ** p)


def test_restricting_and_elevating_keep_the_values() -> None:
    rng = np.random.default_rng(2)
    for low, high in [(0.0, 1.0), (0.2, 0.7), (0.0, 0.3), (0.6, 1.0), (0.4, 0.4), (0.0, 0.0)]:
        c = rng.normal(size=6)
        cut = c.copy()
        restrict_axis(cut, 6, 1, low, high)
        s = np.linspace(0, 1, 11)
        np.testing.assert_allclose(value(cut, s), value(c, low + s * (high - low)), atol=1e-13)
        raised, work = np.zeros(10), np.empty(12)
        add_elevated(c, 6, raised, 10, work)
        np.testing.assert_allclose(value(raised, s), value(c, s), atol=1e-13)
