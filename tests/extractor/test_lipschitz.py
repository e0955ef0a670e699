"""The public face of the bound: its arguments and its table."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from truth import INF

import berncert
from berncert.extractor import LayerBound, lipschitz_bound, lipschitz_table


def test_the_bound_is_part_of_the_package() -> None:
    assert berncert.lipschitz_bound is lipschitz_bound


@pytest.mark.parametrize("shape", [(), (0,), (3, -1), None, 5, "ab", (2.5, "x")])
def test_a_shape_that_is_none_is_explained(shape: object) -> None:
    with pytest.raises(ValueError, match="input_shape"):
        lipschitz_bound(nn.Identity(), shape)


@pytest.mark.parametrize("norm", [0, 0.5, -1, math.nan, "2", None, True])
def test_a_norm_that_is_none_is_explained(norm: object) -> None:
    with pytest.raises(ValueError, match="norm p with 1 <= p <= inf"):
        lipschitz_bound(nn.Identity(), (3,), norm=norm)


@pytest.mark.parametrize("module", [lambda x: x, torch.relu, nn.Linear, None])
def test_what_is_not_a_module_is_refused(module: object) -> None:
    with pytest.raises(TypeError, match="torch module"):
        lipschitz_bound(module, (3,))


def test_the_table_prints_every_step_and_the_bound() -> None:
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    table = lipschitz_table(network, (1, 4, 4), INF)
    text = str(table)
    assert len(table) == 4
    for row in table:
        assert row.layer in text
        assert f"{row.running:.6g}" in text
    assert "norm inf" in text
    assert f"{table.bound:.6g}" in text
    assert [row.shape for row in table] == [(2, 2, 2), (2, 2, 2), (8,), (3,)]
    assert table.bound == table.rows[-1].running


def test_a_step_that_joins_values_has_no_factor_of_its_own() -> None:
    class Skip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.layer(x)

    rows = lipschitz_table(Skip(), (3,)).rows
    assert math.isnan(rows[-1].factor)
    assert rows[-1].running == pytest.approx(1 + rows[0].running, rel=1e-9)
    assert "nan" not in str(lipschitz_table(Skip(), (3,)))


def test_dtype_and_device_of_the_weights_do_not_matter() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3))
    single = pytest.approx(lipschitz_bound(network, (1, 4, 4)), rel=1e-9)
    assert lipschitz_bound(network.double(), (1, 4, 4)) == single
    assert lipschitz_bound(network.requires_grad_(False), (1, 4, 4)) == single
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert lipschitz_bound(network, (1, 4, 4)) == single


@pytest.mark.parametrize("name", ["[red]", "[/]", ":smile:", "a" * 200])
def test_a_name_that_looks_like_markup_is_printed_as_it_is(name: str) -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts = nn.ModuleDict({name: nn.Linear(2, 2)})

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.parts[name](x)

    printed = str(lipschitz_table(Named(), (2,)))
    assert f"parts.{name}" in "".join(line.split("│")[1].strip() for line in printed.splitlines() if "│" in line)


@pytest.mark.parametrize(
    "wrong", [{"roundings": -1.0}, {"offset": math.nan}, {"limits": (1, 0)}, {"limits": 3}, {"roundings": "8"}]
)
def test_facts_of_a_layer_that_cannot_be_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="of a LayerBound"):
        LayerBound({(2, 2): 1.0}, **wrong)
