"""Models of recipes: fresh ones follow from the seed, others start from the weights of another training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from berncert.training.loop import train
from berncert.training.model import build_model, smoothed_classifier, warm_start
from berncert.training.recipes import Recipe, load_recipe


def recipe(**changes: object) -> Recipe:
    return load_recipe("moons", width=8, depth=1, epochs=1, train_limit=100, test_limit=50, **changes)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    train(recipe(), tmp_path / "first", progress=False)
    return str(tmp_path / "first")


def test_the_seed_decides_the_weights() -> None:
    points = torch.rand(5, 2)
    first, again, other = (build_model(recipe(seed=seed), (2,), 2)(points) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_building_a_model_draws_no_random_numbers_of_ours() -> None:
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    build_model(recipe(), (2,), 2)
    assert torch.equal(torch.rand(1), expected)


@pytest.mark.parametrize(("head", "degree"), [("identity", 1), ("polynomial", 1), ("polynomial", 3), ("groups", 2)])
def test_a_warm_start_computes_what_the_checkpoint_does(head: str, degree: int, checkpoint: str) -> None:
    fresh = build_model(recipe(head=head, degree=degree, seed=7), (2,), 2)
    start = build_model(recipe(), (2,), 2)
    warm_start(start, checkpoint)
    warm_start(fresh, checkpoint)  # another degree changes nothing: the head there is affine
    points = torch.rand(20, 2)
    before, after = (smoothed_classifier(model)(points) for model in (start, fresh))
    torch.testing.assert_close(after, before, rtol=1e-5, atol=1e-5)


def test_fine_tuning_starts_where_the_checkpoint_ended(checkpoint: str, tmp_path: Path) -> None:
    tuned = recipe(start=checkpoint, lr=1e-9, schedule="constant")
    points = torch.rand(20, 2)
    start = build_model(recipe(), (2,), 2)
    warm_start(start, checkpoint)
    after = train(tuned, tmp_path / "second", progress=False)
    torch.testing.assert_close(after(points), smoothed_classifier(start)(points), rtol=1e-4, atol=1e-4)


def test_a_start_of_another_shape_is_refused_and_says_what_differs(checkpoint: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a start with the extractor .* width \(8 there, 16 here\)"):
        train(recipe(start=checkpoint).change(width=16), tmp_path / "second", progress=False)


def test_a_start_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="expected the folder of a training"):
        train(recipe(start="nowhere"), tmp_path, progress=False)
