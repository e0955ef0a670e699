"""Layers of the user's own, which get their bound from `register_bound`."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from truth import INF, assert_smooth_bounded

import berncert
from berncert.extractor import LayerBound, MaxMin, freeze, lipschitz_bound, lipschitz_table, register_bound
from berncert.extractor.freezing.registration import RULES, Registered


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(3 * x) + 0.5


def test_registering_is_part_of_the_package() -> None:
    assert berncert.register_bound is register_bound


def test_a_layer_of_ones_own_is_an_error_until_it_is_registered(registry: None) -> None:
    network = nn.Sequential(nn.Linear(3, 3), Sine()).double()
    with pytest.raises(TypeError, match=r"sin.*register"):
        lipschitz_bound(network, (3,))
    register_bound(Sine, lambda module, shape: 3.0)
    assert lipschitz_bound(network, (3,)) == pytest.approx(3 * lipschitz_bound(network[0], (3,)), rel=1e-9)
    for p in (1, 1.5, 3, INF):  # only l2 is known: the others follow by conversion
        assert_smooth_bounded(network, (3,), p)


def test_a_rule_may_say_more_than_a_number(registry: None) -> None:
    seen = []

    @register_bound(Sine)
    def rule(module: Sine, shape: tuple[int, ...]) -> LayerBound:
        seen.append(shape)
        known = {(p, p): 3.0 for p in (1, 2, INF)}
        return LayerBound(known, offset=0.5 * math.sqrt(math.prod(shape)), roundings=8, limits=(-0.5, 1.5))

    table = lipschitz_table(Sine(), (2, 3), 1.5)
    assert set(seen) == {(2, 3)}
    assert table.bound == pytest.approx(3.0, rel=1e-9)
    assert table.value.limits == (-0.5, 1.5)
    register_bound(Sine, lambda module, shape: {(1, 1): 3.0, (INF, INF): 3})
    assert lipschitz_bound(Sine(), (4,)) == pytest.approx(3.0, rel=1e-9)


def test_a_registered_layer_that_is_only_a_number_does_not_pretend_to_vanish_at_zero(registry: None) -> None:
    register_bound(Sine, lambda module, shape: 3.0)
    size = lipschitz_table(Sine(), (4,)).value.size
    assert size[1] >= float(Sine()(torch.zeros(4)).norm()) * (1 - 1e-6)


@pytest.mark.parametrize("answer", [math.nan, -1.0, "much", None, {}, {(2, 2): math.nan}, {(0.5, 2): 1.0}])
def test_a_rule_that_answers_nonsense_is_an_error(answer: object, registry: None) -> None:
    register_bound(Sine, lambda module, shape: answer)
    with pytest.raises((TypeError, ValueError)):
        lipschitz_bound(Sine(), (3,))


def test_a_rule_may_say_that_there_is_no_bound(registry: None) -> None:
    register_bound(Sine, lambda module, shape: INF)
    for p in (1, 1.5, 2, INF):
        assert lipschitz_bound(nn.Sequential(nn.Linear(3, 3), Sine(), nn.Linear(3, 3)), (3,), p) == INF


def test_only_classes_and_callables_can_be_registered(registry: None) -> None:
    with pytest.raises(TypeError, match="class of torch modules"):
        register_bound(Sine(), lambda module, shape: 1.0)
    with pytest.raises(TypeError, match="class of torch modules"):
        register_bound(int, lambda module, shape: 1.0)
    with pytest.raises(TypeError, match="rule"):
        register_bound(Sine, 3.0)


def test_a_registered_layer_is_bounded_wherever_it_stands(registry: None) -> None:
    class Wrapper(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.ModuleList([Sine(), Sine()])

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.inner:
                x = layer(x)
            return x

    register_bound(Sine, lambda module, shape: 3.0)
    assert lipschitz_bound(Wrapper(), (3,)) == pytest.approx(9.0, rel=1e-9)


@pytest.mark.parametrize(
    "wrong",
    [None, "3", True, [3.0], {2: 1.0}, {(0.5, 2): 1.0}, {(2, 2): math.nan}, {}],
)
def test_a_rule_that_gives_anything_else_is_an_error_that_says_what_to_give(wrong: object, registry: None) -> None:
    class Mine(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    register_bound(Mine, lambda module, shape: wrong)
    with pytest.raises(TypeError, match=r"rule that was registered for Mine.*expected"):
        lipschitz_bound(Mine(), (2,))


class Base(nn.Module):
    def act(self, x: Tensor) -> Tensor:
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


class Louder(Base):
    def act(self, x: Tensor) -> Tensor:
        return 10 * x


def test_the_rule_of_a_class_does_not_hold_for_its_subclasses(registry: None) -> None:
    register_bound(Base, lambda module, shape: 1.0)
    assert lipschitz_bound(Base(), (3,)) == pytest.approx(1.0)
    assert lipschitz_bound(Louder(), (3,)) == pytest.approx(10.0)


class InPlaceSine(nn.Module):
    def __init__(self, factor: float = 2.0) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(factor))

    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x.mul_(self.factor))  # in place


def test_a_registered_layer_is_run_as_it_is_and_changes_nothing_else(registry: None) -> None:
    register_bound(InPlaceSine, lambda module, shape: float(module.factor.detach().abs()))
    network = nn.Sequential(nn.Linear(3, 4), InPlaceSine(), nn.Linear(4, 2))
    frozen = freeze(network, (3,))
    assert isinstance(frozen.steps[1].operation, Registered)
    for dtype in (torch.float64, torch.float32):
        x = torch.rand(5, 3, dtype=dtype)
        with torch.no_grad():
            torch.testing.assert_close(frozen(x), copy.deepcopy(network).to(dtype)(x))
    network[1].factor.data.fill_(9.0)  # the frozen network has its own
    assert lipschitz_table(frozen, (3,)).rows[1].factor == pytest.approx(2.0, rel=1e-9)
    for refused in (frozen.digest, frozen.as_data):
        with pytest.raises(TypeError, match="of your own"):
            refused()


@pytest.mark.parametrize("layer_type", [nn.ReLU, nn.Flatten, nn.Dropout, nn.BatchNorm1d, MaxMin])
def test_a_type_that_has_a_proof_of_its_own_cannot_be_registered(layer_type: type[nn.Module], registry: None) -> None:
    for register in (lambda: register_bound(layer_type), lambda: register_bound(layer_type, lambda module, shape: 3.0)):
        with pytest.raises(ValueError, match=rf"{layer_type.__name__}, which has a proven bound already"):
            register()
    assert layer_type not in RULES


def test_a_subclass_of_a_proven_type_can_be_registered_and_a_second_rule_replaces_the_first(registry: None) -> None:
    class Mine(nn.ReLU):
        pass

    assert lipschitz_bound(Mine(), (3,)) == pytest.approx(1.0)
    for factor in (3.0, 2.0):
        register_bound(Mine, lambda module, shape, factor=factor: factor)
        assert lipschitz_bound(Mine(), (3,)) == pytest.approx(factor)


@pytest.mark.parametrize("mistake", [ValueError("no such factor"), KeyError("factor"), RuntimeError("no factor")])
def test_an_error_in_a_rule_names_the_rule_and_not_the_images(mistake: Exception, registry: None) -> None:
    @register_bound(Sine)
    def rule(module: Sine, shape: tuple[int, ...]) -> float:
        raise mistake

    head = berncert.SmoothedHead(torch.eye(2, dtype=torch.float64))
    model = berncert.Classifier(nn.Sequential(Sine(), nn.Sigmoid()), head).eval()
    for prove in (lambda: lipschitz_bound(Sine(), (1,)), lambda: berncert.certify(model, torch.zeros(1, 1))):
        with pytest.raises(TypeError, match=r"^[^()]+: the rule that was registered for Sine.*\(1,\).*Error: .*factor"):
            prove()


def test_a_registered_layer_that_does_not_take_its_input_or_mixes_the_batch_is_refused(registry: None) -> None:
    class Picky(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.view(len(x), 7)

    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum(0)

    for kind in (Picky, Mixing):
        register_bound(kind, lambda module, shape: 1.0)
    with pytest.raises(ValueError, match=r"Picky does not take an input of shape \(5,\).*check input_shape"):
        lipschitz_bound(Picky(), (5,))
    with pytest.raises(TypeError, match="Mixing to keep the batch apart"):
        lipschitz_bound(Mixing(), (5,))
