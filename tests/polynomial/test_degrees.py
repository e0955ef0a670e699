"""The least degree that agrees with a head: known answers, and what is said when there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_fidelity import POINTS, Counted, hump
from torch import Tensor, nn

import berncert
from berncert import choose_degree, smooth
from berncert.estimators.degrees import candidates
from berncert.polynomial.degrees import LARGEST_GRID, highest_degree


@pytest.mark.parametrize(("agreement", "degree"), [(0.5, 1), (0.6, 1), (0.7, 7), (0.8, 7), (0.81, 8), (1, 8)])
def test_it_is_the_least_degree_with_the_agreement_that_is_asked_for(agreement: float, degree: int) -> None:
    assert choose_degree(hump, 1, POINTS, agreement=agreement) == degree


def test_outputs_may_be_asked_to_be_close() -> None:
    def square(x: Tensor) -> Tensor:
        return x**2  # differs by x (1 - x) / n

    assert choose_degree(square, 1, [[0.5], [0.9]], difference=0.03) == 9
    assert choose_degree(hump, 1, POINTS, agreement=0.6, difference=0.03) == 9
    with pytest.raises(ValueError, match="expected a difference with a head of one output"):
        choose_degree(square, 1, [[0.5]])


@pytest.mark.parametrize("scale", [1.0, 4.0])
def test_every_lower_degree_agrees_less_and_the_chosen_one_does_not_warn(scale: float) -> None:
    head = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    with torch.no_grad():
        head[0].weight *= scale * 4
    features = torch.rand(400, 2)
    chosen = choose_degree(head, 2, features, agreement=0.95)
    shares = [smooth(head, 2, n, points=features).fidelity for n in range(max(1, chosen - 2), chosen + 1)]
    assert all(found is not None and found.agreement is not None for found in shares)
    assert shares[-1].agreement >= 0.95  # type: ignore[union-attr, operator]
    assert all(found.agreement < 0.95 for found in shares[:-1])  # type: ignore[union-attr, operator]


def test_affine_heads_need_degree_one_on_points_that_are_drawn() -> None:
    head = Counted(nn.Linear(6, 4).double())
    assert choose_degree(head, 6) == 1
    assert head.points == 1000 + 2**6


def test_the_head_is_asked_once_about_its_points() -> None:
    head = Counted(hump)
    assert choose_degree(head, 1, POINTS) == 8
    assert head.points == len(POINTS) + sum(n + 1 for n in range(1, 9))


def test_none_that_agrees_is_an_error_with_the_best_there_is() -> None:
    said = r"expected a degree up to 7 .* on 99\.0 % of the points, got none; the best is degree 7: .* at 80\.0 % of 5"
    with pytest.raises(ValueError, match=said):
        choose_degree(hump, 1, POINTS, max_degree=7)
    with pytest.raises(ValueError, match=r"the best is degree 5: at 1 given point outputs differ by at most 0\.05;"):
        choose_degree(lambda x: x**2, 1, [[0.5]], difference=0.01, max_degree=5)


def test_what_does_not_fit_in_memory_is_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berncert.polynomial.grid.available_bytes", lambda device: 2 * 2 * 6 * 8)
    with pytest.raises(ValueError, match=r"expected a degree up to 5 .* the best is degree 5"):
        choose_degree(hump, 1, POINTS, max_degree=10**6)
    with pytest.raises(MemoryError, match="expected coefficients that fit"):
        choose_degree(Counted(), 12, 1)


@pytest.mark.parametrize("dim", range(1, 20))
def test_degrees_are_tried_as_far_as_their_grid_is_small(dim: int) -> None:
    highest = highest_degree(dim)
    assert highest in (1, 32) or (highest + 1) ** dim <= LARGEST_GRID < (highest + 2) ** dim
    assert candidates(dim)[0] == 1
    assert candidates(dim)[-1] <= highest


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"agreement": 0}, "expected an agreement above 0"),
        ({"agreement": 1.01}, "expected an agreement above 0"),
        ({"agreement": float("nan")}, "expected an agreement above 0"),
        ({"agreement": "all"}, "expected an agreement above 0"),
        ({"difference": -1}, "expected a difference >= 0"),
        ({"max_degree": 0}, "expected a whole number max_degree >= 1"),
        ({"points": 0}, "expected at least one point"),
        ({"dim": 0}, "expected a whole number dim >= 1"),
        ({"dim": 2.5}, "expected a whole number dim >= 1"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        choose_degree(**{"head": hump, "dim": 1, **options})


def test_it_is_found_where_the_docs_look_for_it() -> None:
    assert {"choose_degree", "Fidelity", "SmoothingWarning"} <= set(berncert.__all__)
    with pytest.raises(TypeError, match="expected a callable head"):
        choose_degree(3, 2)  # type: ignore[arg-type]
