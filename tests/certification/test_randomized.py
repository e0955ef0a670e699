"""Randomized smoothing: the same votes counted again in numpy, classifiers whose smoothing is known, and the laws."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom, binomtest, kstest, norm
from torch import Tensor, nn

import berncert
from berncert.certification.methods import Randomized
from berncert.certification.randomized import lower_confidence_bound, winner
from berncert.certification.results import RandomizedCertificates


def certify_randomized(
    model: Any, images: Any, *, first_index: Any = 0, progress: bool | None = None, **options: Any
) -> RandomizedCertificates:
    return Randomized(**options).certify(model, images, first_index=first_index, progress=progress)


def predict_randomized(model: Any, images: Any, *, first_index: Any = 0, **options: Any) -> Any:
    return Randomized(**options).predict(model, images, first_index=first_index)


class Recorded(nn.Module):
    """A model that keeps all it was asked, after the look at the shape."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.asked: list[Tensor] = []

    def forward(self, images: Tensor) -> Tensor:
        self.asked.append(images.clone())
        return self.model(images)

    def samples(self) -> np.ndarray:
        return torch.cat(self.asked[1:]).numpy()


class Constant(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return torch.tensor([0.0, 2.0, 1.0]).expand(len(images), 3)


class Half(nn.Module):
    """Class 0 where direction . x > 0, else class 1: smoothed, it is the same, and its probabilities are known."""

    def __init__(self, direction: Tensor) -> None:
        super().__init__()
        self.register_buffer("direction", direction)

    def forward(self, images: Tensor) -> Tensor:
        margin = images.flatten(1) @ self.direction
        return torch.stack([margin, torch.zeros_like(margin)], dim=1)


def network(pixels: int = 12, classes: int = 4) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(pixels, 8), nn.ReLU(), nn.Linear(8, classes)).double().eval()


def numpy_classes(model: nn.Module, samples: np.ndarray) -> np.ndarray:
    w1, b1, w2, b2 = (p.detach().numpy() for p in model.parameters())
    return (np.maximum(samples.reshape(len(samples), -1) @ w1.T + b1, 0) @ w2.T + b2).argmax(axis=1)


def same(a: RandomizedCertificates, b: RandomizedCertificates) -> bool:
    return all(np.array_equal(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(a))


def test_certify_agrees_with_a_plain_loop_over_the_same_samples() -> None:
    model, images = Recorded(network()), torch.randn(24, 3, 2, 2, dtype=torch.float64)
    sigma, n0, n, alpha = 1.5, 20, 300, 0.01
    found = certify_randomized(model, images, sigma=sigma, n0=n0, n=n, alpha=alpha, vote_batch=70)
    classes = numpy_classes(model.model, model.samples()).reshape(len(images), n0 + n)
    for row, votes in zip(found, classes, strict=True):
        candidate = np.bincount(votes[:n0]).argmax()
        successes = int((votes[n0:] == candidate).sum())
        interval = binomtest(successes, n, alternative="greater").proportion_ci(1 - alpha, "exact")
        assert row.candidate == candidate
        assert row.counts[candidate] == successes
        assert row.probability_limit == pytest.approx(interval.low, abs=1e-9)
        if interval.low < 0.5:
            assert (row.predicted, row.probable_radius, row.abstained) == (-1, 0, True)
        else:
            assert (row.predicted, row.abstained) == (candidate, False)
            assert row.probable_radius == pytest.approx(sigma * norm.ppf(interval.low), abs=1e-9)
    assert 0 < found.abstained.sum() < len(images)
    assert (found.counts.sum(axis=1) == n).all()


def test_predict_agrees_with_a_plain_loop_over_the_same_samples() -> None:
    model, images = Recorded(network()), torch.randn(24, 12, dtype=torch.float64)
    n, alpha = 60, 0.05
    found = predict_randomized(model, images, sigma=1.5, n=n, alpha=alpha, vote_batch=25)
    for predicted, votes in zip(found, numpy_classes(model.model, model.samples()).reshape(-1, n), strict=True):
        counts = np.bincount(votes, minlength=4)
        second, best = np.sort(counts)[-2:]
        p_value = min(1.0, 2 * binom.sf(best - 1, best + second, 0.5))
        assert predicted == (counts.argmax() if p_value <= alpha else -1)
    assert 0 < (found == -1).sum() < len(images)


@pytest.mark.parametrize(("n", "alpha"), [(1, 0.3), (10, 0.001), (9, 0.001), (20_000, 0.001)])
def test_a_constant_classifier_gets_the_largest_radius_that_its_votes_allow(n: int, alpha: float) -> None:
    found = certify_randomized(Constant(), [[0.5, 0.5]], sigma=0.25, n0=3, n=n, alpha=alpha)
    bound = alpha ** (1 / n)
    assert found.probability_limit == pytest.approx(bound, rel=1e-12)
    assert found.predicted == (1 if bound >= 0.5 else -1)
    assert found.probable_radius == pytest.approx(max(0.25 * norm.ppf(bound), 0.0), rel=1e-9)
    assert found.counts.tolist() == [[0, n, 0]]


def test_the_paper_s_largest_radius_is_3_8_sigma() -> None:
    largest = norm.ppf(lower_confidence_bound(np.array([100_000]), 100_000, 0.001))
    assert largest == pytest.approx(3.8, abs=0.02)


def test_of_a_half_space_the_radius_stays_below_the_distance_and_comes_close_to_it() -> None:
    direction = torch.randn(6, dtype=torch.float64)
    unit = direction / direction.norm()
    distances = torch.linspace(-0.6, 0.6, 13, dtype=torch.float64)
    across = torch.randn(13, 6, dtype=torch.float64)
    images = across - (across @ unit)[:, None] * unit + distances[:, None] * unit
    found = certify_randomized(Half(direction), images, sigma=0.3, n0=1000, n=10_000, alpha=1e-9, vote_batch=5000)
    true = distances.abs().numpy()
    assert (found.probable_radius <= true).all()
    assert (true - found.probable_radius).max() < 0.06
    assert np.abs(found.counts[:, 0] / 10_000 - norm.cdf(distances.numpy() / 0.3)).max() < 0.03
    clear = true > 0.05
    assert (found.predicted[clear] == (distances.numpy() < 0)[clear]).all()


def test_on_a_tie_both_abstain() -> None:
    model, image = Half(torch.ones(4)), torch.zeros(3, 4)
    found = certify_randomized(model, image, sigma=1.0, n=2000)
    assert found.abstained.all()
    assert (found.probable_radius == 0).all()
    assert (found.predicted == -1).all()
    assert (predict_randomized(model, image, sigma=1.0, n=2000) == -1).all()


def test_bounds_are_false_as_rarely_as_alpha_says() -> None:
    model, images = Half(torch.ones(1)), torch.full((400, 1), 0.5)
    found = certify_randomized(model, images, sigma=1.0, n0=1, n=60, alpha=0.2)
    right = found.candidate == 0
    false = (found.probability_limit > norm.cdf(0.5))[right].sum()
    assert binomtest(int(false), int(right.sum()), 0.2, alternative="greater").pvalue > 1e-6
    assert false > 0  # nor is the bound needlessly low


def test_on_a_tie_predict_names_a_class_as_rarely_as_alpha_says() -> None:
    named = predict_randomized(Half(torch.ones(1)), torch.zeros(400, 1), sigma=1.0, n=60, alpha=0.2) >= 0
    assert named.sum() > 0
    assert binomtest(int(named.sum()), 400, 0.2, alternative="greater").pvalue > 1e-6


@given(n=st.integers(1, 10**6), share=st.floats(0, 1), alpha=st.floats(1e-9, 0.5))
def test_the_lower_bound_is_the_probability_that_reaches_the_votes_with_chance_alpha(
    n: int, share: float, alpha: float
) -> None:
    successes = np.array([round(share * n), n])
    bound = lower_confidence_bound(successes, n, alpha)
    assert bound[0] <= bound[1] == pytest.approx(alpha ** (1 / n), rel=1e-9)
    if successes[0] == 0:
        assert bound[0] == 0
    else:
        assert 0 < bound[0] <= successes[0] / n
        assert binom.sf(successes[0] - 1, n, bound[0]) == pytest.approx(alpha, rel=1e-5)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=5).filter(any), st.floats(1e-6, 0.5))
def test_a_winner_has_most_votes_and_none_is_named_on_equal_votes(counts: list[int], alpha: float) -> None:
    named = winner(np.array(counts), alpha)
    second, best = sorted(counts)[-2:]
    assert named == (counts.index(best) if 2 * binom.sf(best - 1, best + second, 0.5) <= alpha else -1)
    if second == best:
        assert named == -1


def test_more_votes_give_larger_radii_on_average_and_never_more_than_all_votes_can() -> None:
    model, images = network(), torch.rand(20, 12, dtype=torch.float64)
    means = []
    for n in (30, 300, 3000):
        radius = certify_randomized(model, images, sigma=0.2, n0=30, n=n).probable_radius
        assert (radius <= 0.2 * norm.ppf(0.001 ** (1 / n)) * (1 + 1e-9)).all()
        means.append(radius.mean())
    assert 0 < means[0] < means[1] < means[2]


@pytest.mark.parametrize("pixels", [3, 16, 50])
@pytest.mark.parametrize("vote_batch", [1, 7, 64, 1000])
def test_the_vote_batch_changes_no_bit_and_bounds_what_is_in_memory(pixels: int, vote_batch: int) -> None:
    model, images = network(pixels), torch.rand(2, pixels, dtype=torch.float64)
    small, large = Recorded(model), Recorded(model)
    a = certify_randomized(small, images, sigma=0.3, n0=10, n=90, vote_batch=vote_batch)
    b = certify_randomized(large, images, sigma=0.3, n0=10, n=90, vote_batch=33)
    assert np.array_equal(small.samples(), large.samples())
    assert same(a, b)
    assert max(map(len, small.asked[1:])) <= vote_batch


def test_a_run_in_parts_gives_the_rows_of_the_whole() -> None:
    model, images = network(), torch.rand(5, 12, dtype=torch.float64)
    whole = certify_randomized(model, images, sigma=0.3, n=100, seed=3)
    assert same(whole[2:], certify_randomized(model, images[2:], sigma=0.3, n=100, seed=3, first_index=2))
    assert same(whole[4:], certify_randomized(model, images[4:], sigma=0.3, n=100, seed=3, first_index=4))
    classes = predict_randomized(model, images, sigma=0.3, n=100, seed=3)
    part = predict_randomized(model, images[2:], sigma=0.3, n=100, seed=3, first_index=2)
    assert np.array_equal(classes[2:], part)


def test_noise_is_normal_not_clipped_and_differs_by_image_and_seed() -> None:
    images = torch.full((3, 5), 0.5, dtype=torch.float64)
    noise = {}
    for seed in (0, 1):
        model = Recorded(network(5))
        certify_randomized(model, images, sigma=0.7, n0=100, n=900, seed=seed)
        noise[seed] = ((model.samples() - 0.5) / 0.7).reshape(3, -1)
    rows = np.concatenate([noise[0], noise[1]])
    assert kstest(rows.ravel(), norm.cdf).pvalue > 1e-6
    assert np.abs(np.corrcoef(rows) - np.eye(6)).max() < 0.1
    votes = noise[0].reshape(3, 1000, 5)
    assert not np.isin(votes[:, :100], votes[:, 100:]).any()  # the n votes are fresh


def test_neither_the_global_generator_nor_the_model_is_touched() -> None:
    model, images = network(), torch.rand(2, 12, dtype=torch.float64)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    a = certify_randomized(model, images, sigma=0.3, n=50)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert same(a, certify_randomized(model, images, sigma=0.3, n=50))
    assert all(p.grad is None for p in model.parameters())


def test_the_dtype_is_the_model_s() -> None:
    model = Recorded(network().float())
    certify_randomized(model, torch.rand(1, 12, dtype=torch.float64), sigma=0.3, n=50)
    assert {asked.dtype for asked in model.asked} == {torch.float32}


def test_a_smoothed_classifier_can_be_smoothed_once_more() -> None:
    extractor = nn.Sequential(nn.Linear(4, 2), nn.Sigmoid())
    model = berncert.Classifier(extractor, nn.Linear(2, 3)).smooth(2, dim=2)
    found = certify_randomized(model, torch.rand(2, 4), sigma=0.1, n=50)
    assert found.counts.sum(axis=1).tolist() == [50, 50]


def test_many_rows_print_as_a_summary_and_one_row_in_full() -> None:
    found = certify_randomized(network(), torch.rand(4, 12), sigma=0.4, n=100)
    assert len(repr(found)) < 300
    assert repr(found).startswith("RandomizedCertificates(4 rows: probable radius ")
    assert f"confidence 0.999; {found.abstained.sum()} abstained;" in repr(found)
    assert f"probable_radius={found[1].probable_radius!r}" in repr(found[1])
    assert not hasattr(found, "radius")  # that word is kept for what is proven
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.predicted = found.candidate  # type: ignore[misc]


def test_no_images_give_no_rows() -> None:
    found = certify_randomized(network(), torch.rand(0, 12), sigma=0.4)
    assert len(found) == len(predict_randomized(network(), torch.rand(0, 12), sigma=0.4)) == 0
    assert found.counts.shape == (0, 4)
    assert repr(found).startswith("RandomizedCertificates(no rows;")


def test_a_bar_counts_the_votes(capsys: pytest.CaptureFixture[str]) -> None:
    certify_randomized(network(), torch.rand(2, 12), sigma=0.4, n0=10, n=40, progress=True)
    err = capsys.readouterr().err
    assert "voting" in err
    assert "100/100" in err


@pytest.mark.parametrize(
    ("option", "value"),
    [("sigma", v) for v in (0, -0.1, math.inf, math.nan, 10**400, "0.25", True, None)]
    + [("alpha", v) for v in (0, 1, -0.1, 1.5, math.nan, "0.001", True)]
    + [(name, v) for name in ("n0", "n", "vote_batch") for v in (0, -1, 2.5, True, None)]
    + [(name, v) for name in ("seed", "first_index") for v in (-1, 0.5, True, None)],
)
def test_an_option_out_of_range_is_an_error_that_names_it(option: str, value: Any) -> None:
    options: dict[str, Any] = {"sigma": 0.25, "n": 10} | {option: value}
    with pytest.raises(ValueError, match=rf"expected .*\b{option}\b.*, got .*; "):
        certify_randomized(network(), torch.rand(1, 12), **options)
    if option != "n0":
        with pytest.raises(ValueError, match=rf"expected .*\b{option}\b.*, got .*; "):
            predict_randomized(network(), torch.rand(1, 12), **options)


class Broken(nn.Module):
    """Gives NaN for a few pixels that are far from the image."""

    def forward(self, images: Tensor) -> Tensor:
        return torch.stack([(3 - images[:, 0]).sqrt(), images[:, 1]], dim=1)


@pytest.mark.parametrize(
    ("model", "images", "message"),
    [
        (network(), torch.rand(12), r"shape \(N, ...\)"),
        (network(), torch.rand(2, 11), r"images that the model takes, got shape \(N, 11\)"),
        (network(), torch.full((1, 12), math.nan), "finite pixels"),
        (network(classes=1), torch.rand(1, 12), "at least 2 classes, got 1"),
        (nn.Identity(), torch.rand(1, 3, 4, 4), r"\(N, K\) logits from the model, got shape \(2, 3, 4, 4\)"),
        (nn.Sequential(network(), nn.Dropout()), torch.rand(1, 12), "evaluation mode, got Dropout"),
        (Broken(), torch.rand(1, 2), "got NaN under noise of sigma 1.0"),
    ],
)
def test_what_cannot_be_smoothed_is_an_error_that_says_what_to_do(
    model: nn.Module, images: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        certify_randomized(model, images, sigma=1.0, n=5000)
    with pytest.raises(ValueError, match=f"expected .*{message}"):
        predict_randomized(model, images, sigma=1.0, n=5000)


def test_a_function_is_not_taken_for_a_module() -> None:
    with pytest.raises(TypeError, match="expected a torch module from images to logits, got function"):
        certify_randomized(lambda x: x, torch.rand(1, 2), sigma=1.0)  # type: ignore[arg-type]
