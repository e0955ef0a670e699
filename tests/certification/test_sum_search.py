"""Sums of small polynomials: the same as the dense search where both fit, and never wrong where it does not."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch

import berncert
from berncert import Status, SumHead, certify
from berncert.certification.bounds import ranges
from berncert.certification.box_search import Questions
from berncert.certification.feature_space import posed
from berncert.certification.methods import Exact

NORMS = [1, 1.5, 2, 3, math.inf]


def random_sum(
    rng: np.random.Generator, dim: int, classes: int, ones: int, pairs: int, degree: int = 3, triples: int = 0
) -> SumHead:
    """An affine part and terms in one, two and three features, which overlap."""
    weight = rng.normal(size=(classes, dim))
    bias = 0.3 * rng.normal(size=classes) - weight.sum(axis=1) / 2
    terms = []
    for axes, count in ((1, ones), (2, pairs), (3, triples)):
        for _ in range(count):
            chosen = tuple(rng.choice(dim, axes, replace=False).tolist())
            sizes = rng.integers(2, degree + 2, size=axes).tolist()
            terms.append((chosen, torch.tensor(rng.normal(size=(classes, *sizes)))))
    return SumHead(torch.tensor(weight), torch.tensor(bias), terms)


def elevated(c: np.ndarray, axis: int, size: int) -> np.ndarray:
    """The same polynomial, with more coefficients along an axis."""
    while c.shape[axis] < size:
        n = c.shape[axis]
        part = (np.arange(n + 1) / n).reshape([-1 if i == axis else 1 for i in range(c.ndim)])
        zero = np.zeros_like(np.take(c, [0], axis))
        c = part * np.concatenate([zero, c], axis) + (1 - part) * np.concatenate([c, zero], axis)
    return c


def dense(head: SumHead) -> berncert.SmoothedHead:
    """The sum as one polynomial in all features."""
    dim, sizes = head.dim, [n + 1 for n in head.degree]
    total = np.zeros((head.classes, *sizes)) + head.bias.numpy().reshape(-1, *[1] * dim)
    straight = [((j,), torch.stack([torch.zeros(head.classes), head.weight[:, j]], dim=1)) for j in range(dim)]
    for axes, coefficients in [*straight, *head.terms]:
        order = np.argsort(axes)
        c = coefficients.numpy().transpose(0, *(order + 1))
        for i, axis in enumerate(sorted(axes)):
            c = elevated(c, i + 1, sizes[axis])
        total = total + c.reshape(-1, *[sizes[j] if j in axes else 1 for j in range(dim)])
    return berncert.SmoothedHead(torch.tensor(total))


def exact_logits(head: SumHead, x: np.ndarray) -> list[Fraction]:
    """In rationals."""
    point = [Fraction(v) for v in x.tolist()]
    out = []
    for k in range(head.classes):
        total = Fraction(head.bias[k].item())
        total += sum(Fraction(w) * v for w, v in zip(head.weight[k].tolist(), point, strict=True))
        for axes, coefficients in head.terms:
            bases = []
            for axis, size in zip(axes, coefficients.shape[1:], strict=True):
                n, s = size - 1, point[axis]
                bases.append([math.comb(n, i) * s**i * (1 - s) ** (n - i) for i in range(size)])
            for index in product(*(range(len(b)) for b in bases)):
                weight = math.prod((b[i] for b, i in zip(bases, index, strict=True)), start=Fraction(1))
                total += Fraction(coefficients[(k, *index)].item()) * weight
        out.append(total)
    return out


@pytest.mark.parametrize("norm", NORMS)
def test_radii_are_those_of_the_dense_search(norm: float) -> None:
    for seed in range(6):
        rng = np.random.default_rng(seed)
        dim, classes = int(rng.integers(3, 5)), int(rng.integers(2, 4))
        head, x = random_sum(rng, dim, classes, 3, 2, triples=seed % 2), rng.uniform(size=(6, dim))
        options = {}
        if seed % 2:
            lower = np.where(rng.uniform(size=x.shape) < 0.2, np.minimum(x + 0.1, 1), np.maximum(x - 0.4, 0))
            upper = np.where(rng.uniform(size=x.shape) < 0.2, lower, 1.0)
            options = {"weights": 10 ** rng.uniform(-1, 1, x.shape), "lower": lower, "upper": upper}
        mine = certify(head, x, norm=norm, max_boxes=2000, **options)
        theirs = certify(dense(head), x, norm=norm, max_boxes=2000, **options)
        np.testing.assert_array_equal(mine.predicted, theirs.predicted)
        assert (mine.radius <= theirs.upper * (1 + 1e-9)).all()
        assert (theirs.radius <= mine.upper * (1 + 1e-9)).all()
        done = mine.status != Status.BUDGET
        assert done.mean() >= 0.8
        assert set(mine.status[done]) <= {Status.PROVEN, Status.WHOLE_CUBE}
        proven = mine.status == Status.PROVEN
        assert (mine.radius[proven] >= (1 - 1e-3) * mine.upper[proven]).all()


@pytest.mark.parametrize("norm", [1, 2, math.inf])
def test_no_point_within_the_radius_flips_and_witnesses_do_in_exact_rationals(norm: float) -> None:
    rng = np.random.default_rng(11)
    head = random_sum(rng, 30, 3, 25, 6, degree=4)
    x = rng.uniform(0.2, 0.8, size=(5, 30))
    c = certify(head, x, norm=norm, max_boxes=300)
    assert (c.radius > 0).all()
    for start, row in zip(x, c, strict=True):
        steps = rng.normal(size=(7000, 30))
        steps[::2] = (row.witness - start) * (1 + 0.1 * steps[::2])
        steps *= (row.radius * (1 - 1e-12) / np.linalg.norm(steps, ord=norm, axis=1))[:, None]
        points = np.clip(start + steps, 0, 1)
        assert (head(torch.tensor(points)).argmax(dim=1) == row.predicted).all()
        for point in points[:2]:
            logits = exact_logits(head, point)
            assert max(range(3), key=logits.__getitem__) == row.predicted
        logits = exact_logits(head, row.witness)
        assert logits[row.rival] > logits[row.predicted]
        assert ((row.witness >= 0) & (row.witness <= 1)).all()


@pytest.mark.parametrize("norm", [1e5, 1e7, 1e15])
def test_huge_norms_are_nearly_the_greatest_difference(norm: float) -> None:
    rng = np.random.default_rng(4)
    head, x = random_sum(rng, 12, 3, 8, 4), rng.uniform(size=(3, 12))
    found, limit = (certify(head, x, norm=p, max_boxes=500) for p in (norm, math.inf))
    assert set(found.status) == {Status.PROVEN}
    np.testing.assert_allclose(found.radius, limit.radius, rtol=2e-3)
    assert (found.radius <= limit.upper * 12 ** (1 / norm)).all()
    around = Questions.plain(x, np.full(3, 0.2))
    one, other = (ranges(head, around, Exact(norm=p, max_boxes=500)) for p in (norm, math.inf))
    assert (one.status == Status.PROVEN).all()
    assert (one.lower <= other.least_found + 1e-4).all()
    assert (one.upper >= other.greatest_found - 1e-4).all()


def test_one_bent_feature_has_its_root_as_the_distance() -> None:
    square = torch.zeros(2, 40).double(), torch.tensor([0.0, 0.25]).double()
    head = SumHead(*square, [((7,), torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]).double())])  # x^2 against 1/4
    x = np.full((3, 40), 0.3)
    x[:, 7] = [0.1, 0.4, 0.9]
    for norm in NORMS:
        c = certify(head, x, norm=norm)
        np.testing.assert_array_equal(c.predicted, [1, 1, 0])
        np.testing.assert_allclose(c.radius, [0.4, 0.1, 0.4], rtol=1e-3)
        assert (c.radius <= np.abs(x[:, 7] - 0.5)).all()


def test_a_row_gets_the_same_bits_in_any_batch_and_any_number_of_threads() -> None:
    rng = np.random.default_rng(7)
    head, x = random_sum(rng, 12, 4, 10, 4), rng.uniform(size=(9, 12))
    whole = certify(head, x, threads=2, max_boxes=200)
    for i in (0, 4, 8):
        alone = certify(head, x[i : i + 1], threads=1, max_boxes=200)
        for name in ("predicted", "radius", "upper", "witness", "rival", "boxes"):
            np.testing.assert_array_equal(getattr(alone, name)[0], getattr(whole, name)[i])


def test_decisions_budgets_and_times_leave_valid_radii() -> None:
    rng = np.random.default_rng(8)
    head, x = random_sum(rng, 8, 3, 6, 6), rng.uniform(size=(6, 8))
    c = certify(head, x)
    assert (certify(head, x, radius=0.9 * c.radius.min()).status == Status.HOLDS).all()
    assert (certify(head, x, radius=1.1 * c.upper.max()).status == Status.FALLS).all()
    for options in ({"max_boxes": 1}, {"max_boxes": 5}, {"max_seconds": 1e-9}):
        short = certify(head, x, **options)
        assert (short.radius <= c.upper).all()
        assert (c.radius <= short.upper).all()


def test_ties_and_constant_classes_say_what_they_are() -> None:
    same = torch.tensor([[0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]).double()
    zero = torch.zeros(2, 20).double()
    tie = certify(SumHead(zero, torch.zeros(2).double(), [((3,), same)]), np.full((1, 20), 0.5))[0]
    assert tie.status is Status.TIE
    apart = certify(SumHead(zero, torch.tensor([0.0, 1.0]).double(), [((3,), same)]), np.full((1, 20), 0.5))[0]
    assert apart.status is Status.WHOLE_CUBE
    assert apart.radius == apart.upper == math.inf


def test_numbers_at_the_ends_of_float64_are_certified_or_refused() -> None:
    rng = np.random.default_rng(9)
    head, x = random_sum(rng, 10, 3, 5, 2), rng.uniform(size=(3, 10))
    plain = certify(head, x)
    for power in (-900, 900):
        scaled = certify(head.mapped(lambda tensor, power=power: torch.ldexp(tensor, torch.tensor(power))), x)
        np.testing.assert_array_equal(scaled.radius, plain.radius)
    with pytest.raises(ValueError, match="2\\^1000"):
        certify(head.mapped(lambda tensor: tensor * 1e305), x)


def test_most_of_many_rivals_are_never_looked_at() -> None:
    rng = np.random.default_rng(10)
    classes = 200
    weight = torch.tensor(rng.normal(size=(classes, 20)))
    bend = torch.tensor(0.05 * rng.normal(size=(classes, 4)))
    head = SumHead(weight, -weight.sum(dim=1) / 2, [((j,), bend) for j in range(5)])
    c = certify(head, rng.uniform(size=(4, 20)))
    assert set(c.status) <= {Status.PROVEN}
    assert (c.boxes < 60).all()


def test_ranges_are_those_of_the_dense_search_over_boxes_and_within_balls() -> None:
    for seed in range(3):
        rng = np.random.default_rng(seed)
        head = random_sum(rng, 3, 2, 2, 2)
        lower = rng.uniform(0, 0.5, (2, 3))
        upper = lower + rng.uniform(0, 0.5, (2, 3))
        upper[0, 0] = lower[0, 0]
        asked = [berncert.bounds(h, lower, upper) for h in (head, dense(head))]
        around = Questions.plain(rng.uniform(size=(2, 3)), np.full(2, 0.3))
        for norm in NORMS:
            asked += [ranges(h, around, Exact(norm=norm, max_boxes=2000)) for h in (head, dense(head))]
        for mine, theirs in zip(asked[::2], asked[1::2], strict=True):
            assert (mine.lower <= theirs.least_found + 1e-12).all()
            assert (theirs.lower <= mine.least_found + 1e-12).all()
            assert (mine.upper >= theirs.greatest_found - 1e-12).all()
            assert (theirs.upper >= mine.greatest_found - 1e-12).all()
            assert (mine.status == Status.PROVEN).all()
            values = head(torch.tensor(mine.argmin.reshape(-1, 3))).reshape(2, 2, 2).diagonal(dim1=1, dim2=2)
            np.testing.assert_allclose(values, mine.least_found, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
def test_ranges_in_many_features_are_proven_within_balls_and_hold_at_all_points(norm: float) -> None:
    rng = np.random.default_rng(3)
    head, x = random_sum(rng, 20, 2, 10, 15, degree=4), rng.uniform(0.2, 0.8, size=(2, 20))
    radius = {1: 0.5, 1.5: 0.4, 2: 0.3, 3: 0.2, math.inf: 0.1}[norm]
    found = ranges(head, Questions.plain(x, np.full(2, radius)), Exact(norm=norm, max_boxes=300, tolerance=1e-2))
    assert (found.status == Status.PROVEN).all()
    steps = rng.normal(size=(4000, 20)) ** rng.choice([1, 3, 5], (4000, 1))
    steps *= radius * (1 - 1e-12) / np.linalg.norm(steps, ord=norm, axis=1)[:, None]
    for i, start in enumerate(x):
        values = head(torch.tensor(np.clip(start + steps, 0, 1))).numpy()
        assert (found.lower[i] <= found.least_found[i]).all()
        assert (found.lower[i] <= values.min(axis=0)).all()
        assert (found.upper[i] >= values.max(axis=0)).all()
        assert (found.upper[i] >= found.greatest_found[i]).all()
        for points in (found.argmin[i], found.argmax[i]):
            assert (np.linalg.norm(points - start, ord=norm, axis=1) <= radius * (1 + 1e-12)).all()


def test_the_range_of_an_affine_sum_is_at_the_corners() -> None:
    head = SumHead(torch.tensor([[1.0, -2.0, 0.5]]).double(), torch.tensor([0.25]).double())
    b = berncert.bounds(head, [0.0, 0.5, 0.2], [1.0, 1.0, 0.2])
    np.testing.assert_allclose([b.lower[0, 0], b.upper[0, 0]], [-1.65, 0.35], rtol=1e-12)


def test_a_wanted_class_is_found_as_the_dense_search_finds_it() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        head, x = random_sum(rng, 3, 3, 2, 1), rng.uniform(size=(4, 3))
        wanted = rng.integers(3, size=4)
        for norm in (1.0, 2.0, math.inf):
            method, questions = Exact(norm=norm, max_boxes=2000), Questions.plain(x)
            mine = posed(head, method).solve_wanted(questions, wanted)
            theirs = posed(dense(head), method).solve_wanted(questions, wanted)
            assert (mine.radius <= theirs.upper * (1 + 1e-9)).all()
            assert (theirs.radius <= mine.upper * (1 + 1e-9)).all()
            np.testing.assert_array_equal(mine.upper == math.inf, theirs.upper == math.inf)
            known = mine.upper < math.inf
            if known.any():
                assert (head(torch.tensor(mine.witness[known])).argmax(dim=1).numpy() == wanted[known]).all()
