"""The plan: every model that an experiment names is in it, at every size, and its recipe is valid."""

from __future__ import annotations

import pytest
from experiments.paper import plan
from experiments.paper.degree_tables import TABLES
from experiments.paper.work import SIZES

from berncert.models.checkpoint import shipped_models
from berncert.training.recipes import load_recipe


@pytest.mark.parametrize("size", SIZES)
def test_every_recipe_of_the_plan_is_valid(size: str) -> None:
    for recipe, changes in plan.models(size).values():
        load_recipe(recipe, **changes)


@pytest.mark.parametrize("size", SIZES)
def test_every_table_finds_its_models(size: str) -> None:
    known = {*plan.models(size), *shipped_models()}
    assert all(name in known for table in TABLES.values() for name in table.subjects.values())


def test_models_that_are_compared_differ_in_what_is_compared_only() -> None:
    small = plan.models("small")
    for dim in plan.DIMS:
        (recipe, changes), (first, others) = small[f"cifar10-plain-d{dim}"], small["cifar10-plain-d3"]
        assert recipe == first
        assert {**changes, "dim": 0} == {**others, "dim": 0}
    for name in plan.NETWORKS:
        changes, others = small[f"cifar10-{name}"][1], small["cifar10-resnet"][1]
        differ = {key for key in changes if changes[key] != others[key]}
        assert differ <= {"architecture", "options"}


def test_the_full_size_is_the_papers() -> None:
    recipe, changes = plan.models("full")["cifar10-paper"]
    chosen = load_recipe(recipe, **changes)
    assert (chosen.model.architecture, chosen.model.dim, chosen.training.epochs) == ("resnet110", 5, 150)
    assert (chosen.training.attack_steps, chosen.training.radius) == (20, 0.1)
