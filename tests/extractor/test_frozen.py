"""Frozen networks: plain data that computes what torch does, is written and read back, and refuses what is not one."""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from networks import Block, random_statistics, seeded
from operation_examples import EXAMPLES, Example, names, network_of
from torch import Tensor, nn

from berncert.extractor import FrozenNetwork, MaxMin, Normalise, UnitCube, freeze, lipschitz_table
from berncert.extractor.frozen import Step, interpret
from berncert.extractor.operations import (
    OPERATIONS,
    Activation,
    Add,
    AveragePool,
    Celu,
    Clamp,
    Convolution,
    Elu,
    Gather,
    Linear,
    MaximumPool,
    Mean,
    Operation,
    PotentialStep,
    Reshape,
    Scale,
    Shift,
    Softplus,
)
from berncert.extractor.operations.entrywise import CURVES

SINGLE = 2.0**-24
every_operation = pytest.mark.parametrize("example", EXAMPLES, ids=names(EXAMPLES))


def images(network: FrozenNetwork, count: int = 6, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(count)
    return scale * torch.randn(count, *network.input_shape, dtype=torch.float64, generator=generator)


def sample() -> FrozenNetwork:
    """One of many kinds of operations."""
    network = nn.Sequential(
        Normalise([0.5], [0.25]), nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), MaxMin(), Block(4),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 5), nn.Tanh(), nn.Linear(5, 3), UnitCube(4.0),
    )  # fmt: skip
    return freeze(random_statistics(network, 0), (1, 6, 6))


# ---- every operation ----


def test_every_operation_has_an_example_and_only_operations_can_be_in_a_file() -> None:
    assert {type(example.operation) for example in EXAMPLES} == set(OPERATIONS.values())
    assert {e.operation.function for e in EXAMPLES if isinstance(e.operation, Activation)} == set(CURVES)
    assert all(name == kind.__name__ for name, kind in OPERATIONS.items())


@every_operation
def test_an_operation_computes_what_torch_does_in_the_shape_that_it_says(example: Example) -> None:
    operation, shapes, reference = example
    operation.check()
    for count in (1, 4):
        for scale in (0.1, 1.0, 30.0):
            values = [scale * seeded(count, *shape) for shape in shapes]
            before = copy.deepcopy(values)
            result = operation.evaluate(*values)
            assert result.shape == (count, *operation.output_shape(*shapes))
            assert result.dtype == torch.float64
            torch.testing.assert_close(result, reference(*values), rtol=1e-12, atol=1e-12)
            assert all(map(torch.equal, values, before))
    assert operation.evaluate(*(seeded(0, *shape) for shape in shapes)).shape == (0, *operation.output_shape(*shapes))


@every_operation
def test_each_row_depends_on_the_same_image_only(example: Example) -> None:
    network = network_of(example)
    x = images(network)
    everything = network(x)
    for rows in ([2], [5, 0], [1, 1, 3]):
        torch.testing.assert_close(network(x[rows]), everything[rows], rtol=1e-12, atol=1e-13)
    spoilt = x.clone()
    spoilt[0] = math.nan
    assert network(spoilt)[1:].isfinite().all()
    torch.testing.assert_close(network(spoilt)[1:], everything[1:], rtol=1e-12, atol=1e-13)


@every_operation
def test_single_precision_stays_within_the_proven_error(example: Example) -> None:
    network = network_of(example)
    value = lipschitz_table(network, network.input_shape, unit=SINGLE).value
    assert value.shape == network.output_shape
    for scale in (1e-12, 1e-3, 1.0, 1e3):
        x = images(network, scale=scale)
        computed, exact = network(x.float()), network(x)
        assert computed.dtype == torch.float32
        error = (computed.double() - exact).reshape(len(x), -1).norm(dim=1)
        assert (error <= value.error[0] * x.norm(dim=1) + value.error[1]).all()


@every_operation
def test_an_operation_is_differentiable_in_its_values(example: Example) -> None:
    network = network_of(example)
    x = images(network).requires_grad_()
    network(x).square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


@every_operation
def test_an_operation_written_and_read_back_is_the_same(example: Example) -> None:
    assert_same(network_of(example), written_and_read(network_of(example)))


@every_operation
def test_the_digest_differs_when_any_number_or_setting_does(example: Example) -> None:
    network = network_of(example)
    changed = [copy.deepcopy(example.operation)]
    for name, tensor in example.operation.tensors().items():
        other = tensor.clone().flatten()
        last = other[-1]
        other[-1] = 0 if tensor.dtype == torch.int64 else torch.nextafter(last, torch.full_like(last, math.inf))
        if not torch.equal(other.view(tensor.shape), tensor):
            changed.append(replace(example.operation, **{name: other.view(tensor.shape)}))
    for name, setting in example.operation.settings().items():
        changed.extend(replace(example.operation, **{name: other}) for other in others(name, setting))
    digests = [network.digest(), *(with_last(network, operation) for operation in changed[1:])]
    assert len(set(digests)) == len(changed)
    assert with_last(network, changed[0]) == digests[0]


def others(name: str, setting: Any) -> list[Any]:
    """Values of a setting that are not this one; None where it would have to be a tensor."""
    if isinstance(setting, bool):
        return [not setting]
    if isinstance(setting, int | float):
        return [setting + 1]
    if isinstance(setting, tuple) and name != "shape":
        return [] if isinstance(setting[0], tuple) else [tuple(n + 1 for n in setting)]
    words = {"function": ["relu", "tanh"], "mode": ["replicate", "circular"]}
    return [word for word in words.get(name, []) if word != setting]


def with_last(network: FrozenNetwork, operation: Operation) -> str:
    """The digest of the network with another last operation, whether or not that fits."""
    other = copy.copy(network)
    other.steps = (*network.steps[:-1], replace(network.steps[-1], operation=operation))
    return other.digest()


# ---- whole networks ----


def assert_same(a: FrozenNetwork, b: FrozenNetwork) -> None:
    assert b.digest() == a.digest()
    assert (b.input_shape, b.output_shape, b.shapes, b.about) == (a.input_shape, a.output_shape, a.shapes, a.about)
    assert [(s.name, s.layer, s.inputs) for s in b.steps] == [(s.name, s.layer, s.inputs) for s in a.steps]
    for x in (images(a), images(a).float()):
        torch.testing.assert_close(b(x), a(x), rtol=1e-6, atol=1e-6)
    assert lipschitz_table(b, b.input_shape).bound == pytest.approx(lipschitz_table(a, a.input_shape).bound, rel=1e-9)


def written_and_read(network: FrozenNetwork) -> FrozenNetwork:
    data, tensors = network.as_data()
    return FrozenNetwork.from_data(json.loads(json.dumps(data)), {k: t.clone() for k, t in tensors.items()})


@pytest.mark.parametrize(
    "again",
    [written_and_read, copy.deepcopy, lambda n: pickle.loads(pickle.dumps(n))],
    ids=["as data", "copied", "pickled"],
)
def test_a_network_written_and_read_back_is_the_same(again: Callable[[FrozenNetwork], FrozenNetwork]) -> None:
    network = sample()
    network(images(network).float())  # with a copy in single precision
    assert_same(network, again(network))


def test_numbers_of_single_precision_in_a_file_are_the_same_numbers() -> None:
    network = sample().rounded()
    data, tensors = network.as_data()
    narrow = {k: t.float() if t.is_floating_point() else t.int() for k, t in tensors.items()}
    assert FrozenNetwork.from_data(data, narrow).digest() == network.digest()


def test_a_rounded_network_has_numbers_of_single_precision_and_is_another() -> None:
    network = sample()
    rounded = network.rounded()
    assert rounded.digest() != network.digest()
    assert rounded.rounded().digest() == rounded.digest()
    for step in rounded.steps:
        for tensor in step.operation.tensors().values():
            assert torch.equal(tensor, tensor.float().double())
    torch.testing.assert_close(rounded(images(network)), network(images(network)), rtol=1e-4, atol=1e-4)
    huge = FrozenNetwork((2,), [Step(Shift(torch.full((2,), 1e40, dtype=torch.float64)), (0,), "shift", "add")])
    with pytest.raises(ValueError, match="finite"):
        huge.rounded()


def test_the_digest_is_of_what_is_computed_and_not_of_names() -> None:
    network = sample()
    renamed = FrozenNetwork(network.input_shape, [replace(s, name="x", layer="y") for s in network.steps], {"a": 1})
    assert renamed.digest() == network.digest()
    step = Step(Activation("relu"), (0,), "relu", "ReLU")
    digests = {FrozenNetwork(shape, [step]).digest() for shape in ((4,), (2, 2), (2, 2, 1), (5,))}
    digests.add(FrozenNetwork((4,), []).digest())
    digests.add(FrozenNetwork((4,), [step, replace(step, inputs=(1,))]).digest())
    digests.add(FrozenNetwork((4,), [step, replace(step, inputs=(0,))]).digest())
    assert len(digests) == 7


def test_images_are_neither_changed_nor_shared_with_what_is_computed_later() -> None:
    network = sample()
    for x in (images(network), images(network).float(), torch.randint(0, 255, (3, 1, 6, 6), dtype=torch.uint8)):
        before = x.clone()
        network(x)
        assert torch.equal(x, before)


def test_whole_numbers_are_taken_as_they_are() -> None:
    network = sample()
    x = torch.randint(0, 255, (3, 1, 6, 6), dtype=torch.uint8)
    torch.testing.assert_close(network(x), network(x.double()))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(2, 1, 6, 5), r"images of shape \(N, 1, 6, 6\), got \(2, 1, 6, 5\)"),
        (torch.zeros(1, 6, 6), r"images of shape \(N, 1, 6, 6\)"),
        (torch.zeros(2, 1, 6, 6).half(), "float64 or float32, got torch.float16"),
        (torch.zeros(2, 1, 6, 6, dtype=torch.complex64), "float64 or float32, got torch.complex64"),
    ],
)
def test_images_that_do_not_fit_are_refused(x: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sample()(x)


def test_a_number_that_is_changed_in_place_is_seen_in_every_precision() -> None:
    network = freeze(nn.Linear(2, 2), (2,))
    x = torch.rand(3, 2)
    single, double = network(x), network(x.double())
    network.steps[0].operation.weight.mul_(2)
    for before, after in ((single, network(x)), (double, network(x.double()))):
        assert float((after - before).abs().max()) > 1e-3


def test_a_network_whose_numbers_do_not_fit_single_precision_is_run_in_double_only() -> None:
    x = torch.full((2, 2), 1e-20)
    for operation in (
        Shift(torch.tensor(1e50, dtype=torch.float64)),
        Linear(torch.full((2, 2), 1e60, dtype=torch.float64)),
        Scale(torch.tensor(1e-42, dtype=torch.float64), divide=True),
        Scale(torch.tensor(1e-60, dtype=torch.float64), divide=True),
        Elu(1e39),
        Clamp(None, 1e39),
    ):
        network = FrozenNetwork((2,), [Step(operation, (0,), "layer", "Layer")])
        assert network(x.double()).isfinite().all()
        with pytest.raises(ValueError, match=r"can be run in torch.float32.*run the network in float64"):
            network(x)


def test_mixed_precision_around_a_network_does_not_reach_it() -> None:
    network = sample()
    x = images(network).float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mixed = network(x)
    assert mixed.dtype == torch.float32
    torch.testing.assert_close(mixed, network(x), rtol=1e-5, atol=1e-5)


def test_the_interpreter_carries_anything_and_forgets_what_is_not_needed() -> None:
    steps = [
        Step(Activation("relu"), (0,), "a", ""),
        Step(Activation("relu"), (0,), "unused", ""),
        Step(Add(), (1, 0), "b", ""),
        Step(Add(), (3, 3), "c", ""),
    ]
    assert interpret(steps, "x", lambda step, values: f"{step.name}({','.join(values)})") == "c(b(a(x),x),b(a(x),x))"
    assert interpret([], "x", lambda step, values: "never") == "x"


def test_a_network_says_how_large_it_is() -> None:
    network = freeze(nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(8, 3)), (1, 4, 4))
    assert network.numbers == 2 * 9 + 2 + 8 * 3 + 3
    assert network.dim == 3
    assert network.shapes == ((1, 4, 4), (2, 2, 2), (8,), (3,))
    assert "(1, 4, 4) -> (3,), 3 steps, 47 numbers" in repr(network)


# ---- what is not a network ----


def linear_data() -> tuple[dict[str, Any], dict[str, Tensor]]:
    return freeze(nn.Sequential(nn.Linear(3, 2), nn.ELU(2.0)), (3,)).as_data()


def test_the_data_that_is_spoilt_below_is_fine_as_it_is() -> None:
    FrozenNetwork.from_data(*linear_data())


def step(**changes: Any) -> Callable[[Any, Any], None]:
    return lambda data, tensors: data["steps"][0].update(changes)


def tensor(name: str, value: Any) -> Callable[[Any, Any], None]:
    return lambda data, tensors: tensors.update({name: value})


WRONG: dict[str, Callable[[Any, Any], Any]] = {
    "no steps": lambda data, tensors: data.pop("steps"),
    "no shape": lambda data, tensors: data.pop("input_shape"),
    "steps that are a number": lambda data, tensors: data.update(steps=5),
    "steps that are a word": lambda data, tensors: data.update(steps="Linear"),
    "a step that is a word": lambda data, tensors: data["steps"].append("Linear"),
    "a step that is nothing": lambda data, tensors: data["steps"].append(None),
    "a shape that is a word": lambda data, tensors: data.update(input_shape="3"),
    "a shape that is a number": lambda data, tensors: data.update(input_shape=3),
    "an empty shape": lambda data, tensors: data.update(input_shape=[]),
    "a shape of 0": lambda data, tensors: data.update(input_shape=[0]),
    "a negative shape": lambda data, tensors: data.update(input_shape=[-3]),
    "a shape of fractions": lambda data, tensors: data.update(input_shape=[3.0]),
    "a shape of truths": lambda data, tensors: data.update(input_shape=[True]),
    "a shape in a shape": lambda data, tensors: data.update(input_shape=[[3]]),
    "another shape": lambda data, tensors: data.update(input_shape=[4]),
    "a shape that is too large": lambda data, tensors: data.update(input_shape=[2**20, 2**20, 3]),
    "a shape of too many axes": lambda data, tensors: data.update(input_shape=[*[1] * 16, 3]),
    "an unknown operation": step(operation="Exp"),
    "an abstract operation": step(operation="Layer"),
    "an operation that runs code": step(operation="Registered"),
    "an operation that is a list": step(operation=["Linear"]),
    "an operation that is nothing": step(operation=None),
    "an input of the future": step(inputs=[1]),
    "a negative input": step(inputs=[-1]),
    "no inputs": step(inputs=[]),
    "two inputs": step(inputs=[0, 0]),
    "an input that is a word": step(inputs=["0"]),
    "an input that is true": step(inputs=[False]),
    "inputs that are a number": step(inputs=0),
    "inputs that are missing": lambda data, tensors: data["steps"][0].pop("inputs"),
    "a setting too many": step(settings={"bias": None, "alpha": 1.0}),
    "a tensor as a setting": step(settings={"weight": [[1.0, 2.0, 3.0]]}, tensors=[]),
    "settings that are a list": step(settings=[1]),
    "a tensor too many": step(tensors=["weight", "bias", "more"]),
    "a tensor that is missing": lambda data, tensors: tensors.pop("1.weight"),
    "tensors that are nothing": step(tensors=None),
    "a weight too few": step(tensors=["bias"]),
    "a weight that is no tensor": tensor("1.weight", [[1.0]]),
    "a weight of whole numbers": tensor("1.weight", torch.ones(2, 3).long()),
    "a weight of half precision": tensor("1.weight", torch.ones(2, 3).half()),
    "a weight of truths": tensor("1.weight", torch.ones(2, 3).bool()),
    "a complex weight": tensor("1.weight", torch.ones(2, 3).to(torch.complex128)),
    "a weight with a NaN": tensor("1.weight", torch.full((2, 3), math.nan)),
    "an infinite weight": tensor("1.weight", torch.full((2, 3), -math.inf)),
    "a weight of another shape": tensor("1.weight", torch.ones(3, 2)),
    "a weight of no rows": tensor("1.weight", torch.ones(0, 3)),
    "a weight that is a vector": tensor("1.weight", torch.ones(3)),
    "a bias of another length": tensor("1.bias", torch.ones(3)),
    "a bias with a NaN": tensor("1.bias", torch.tensor([0.0, math.nan])),
    "a factor that is a word": lambda data, tensors: data["steps"][1]["settings"].update(alpha="2"),
    "a factor that is a NaN": lambda data, tensors: data["steps"][1]["settings"].update(alpha=math.nan),
    "a factor that is infinite": lambda data, tensors: data["steps"][1]["settings"].update(alpha=math.inf),
    "a factor that is true": lambda data, tensors: data["steps"][1]["settings"].update(alpha=True),
    "a factor that is too large for a float": lambda data, tensors: data["steps"][1]["settings"].update(alpha=10**400),
    "a factor that is a tensor": lambda data, tensors: (
        data["steps"][1].update(settings={}, tensors=["alpha"]),
        tensors.update({"2.alpha": torch.tensor(2.0)}),
    ),
    "a story that is a number": lambda data, tensors: data.update(about=5),
}


@pytest.mark.parametrize("name", WRONG)
def test_data_that_is_no_network_is_refused(name: str) -> None:
    data, tensors = copy.deepcopy(linear_data())
    WRONG[name](data, tensors)
    with pytest.raises(ValueError, match="expected"):
        FrozenNetwork.from_data(data, tensors)


@pytest.mark.parametrize("data", [None, 5, "steps", [], {}, {"steps": []}])
def test_what_is_no_data_at_all_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="expected"):
        FrozenNetwork.from_data(data, {})


MATRIX, KERNEL, ONES = torch.ones(2, 2).double(), torch.ones(1, 1, 2, 2).double(), torch.ones(3).double()
IMPOSSIBLE: list[tuple[Operation, tuple[int, ...]]] = [
    (Shift(ONES), (2,)),
    (Shift(ONES), (3, 1)),
    (Shift(torch.ones(1, 3).double()), (3,)),  # it would add an axis
    (Shift(torch.ones(0).double()), (3,)),
    (Shift(1.0), (3,)),
    (Scale(torch.zeros(3).double(), divide=True), (3,)),
    (Scale(ONES * 1e-320, divide=True), (3,)),
    (Scale(ONES, divide=1), (3,)),
    (Clamp(1.0, 0.0), (3,)),
    (Clamp(math.nan, None), (3,)),
    (Clamp(ONES, None), (3,)),
    (Clamp("0", None), (3,)),
    (Activation("exp"), (3,)),
    (Activation(None), (3,)),
    (Activation(["relu"]), (3,)),
    (Celu(0.0), (3,)),
    (Celu(-1.0), (3,)),
    (Celu(1e-46), (3,)),
    (Celu(1e300), (3,)),
    (Softplus(0.0), (3,)),
    (Softplus(-1.0), (3,)),
    (Softplus(math.inf), (3,)),
    (Convolution(MATRIX), (1, 3, 3)),
    (Convolution(KERNEL), (2, 3, 3)),
    (Convolution(KERNEL), (3, 3)),
    (Convolution(KERNEL), (1, 1, 3)),
    (Convolution(KERNEL, ONES), (1, 3, 3)),
    (Convolution(KERNEL, stride=(0, 1)), (1, 3, 3)),
    (Convolution(KERNEL, stride=(1, 1, 1)), (1, 3, 3)),
    (Convolution(KERNEL, stride=2), (1, 3, 3)),
    (Convolution(KERNEL, dilation=(1, -1)), (1, 3, 3)),
    (Convolution(KERNEL, groups=2), (2, 3, 3)),
    (Convolution(KERNEL, groups=0), (1, 3, 3)),
    (Convolution(KERNEL, padding=(1, 1)), (1, 3, 3)),
    (Convolution(KERNEL, padding=((1, 1),)), (1, 3, 3)),
    (Convolution(KERNEL, padding=((-1, 1), (0, 0))), (1, 3, 3)),
    (Convolution(KERNEL, padding=((3, 3), (0, 0)), mode="reflect"), (1, 3, 3)),
    (Convolution(KERNEL, padding=((4, 4), (0, 0)), mode="circular"), (1, 3, 3)),
    (Convolution(KERNEL, mode="mirror"), (1, 3, 3)),
    # values that would not fit into memory on the way, though what comes out is small
    (Convolution(KERNEL, stride=(2**30, 1), padding=((2**30, 2**30), (0, 0)), mode="replicate"), (1, 3, 3)),
    (PotentialStep(KERNEL, padding=(2**30, 2**30)), (1, 3, 3)),
    (PotentialStep(KERNEL, padding=(1,)), (1, 3, 3)),
    (PotentialStep(MATRIX, ONES), (2,)),
    (Mean(()), (3,)),
    (Mean((0, 0)), (3,)),
    (Mean((1,)), (3,)),
    (Mean((-1,)), (3,)),
    (Mean(0), (3,)),
    (Mean((0,), keep=None), (3,)),
    (MaximumPool((2, 2), (1, 1), (2, 2)), (1, 4, 4)),
    (MaximumPool((2, 2), (0, 1)), (1, 4, 4)),
    (MaximumPool((2,), (1, 1)), (1, 4, 4)),
    (MaximumPool((5, 5), (1, 1)), (1, 4, 4)),
    (MaximumPool((2, 2), (1, 1), ceil=1), (1, 4, 4)),
    (MaximumPool((2, 2), (1, 1)), (4, 4)),
    (AveragePool((2, 2), (1, 1), divisor=0), (1, 4, 4)),
    (AveragePool((2, 2), (1, 1), divisor=(2,)), (1, 4, 4)),
    (AveragePool((2, 2), (1, 1), count_padding=None), (1, 4, 4)),
    (Linear(MATRIX), (3,)),
    (Reshape((2,)), (3,)),
    (Gather(torch.tensor([3])), (3,)),
]  # fmt: skip


@pytest.mark.parametrize("i", range(len(IMPOSSIBLE)), ids=lambda i: f"{i} {type(IMPOSSIBLE[i][0]).__name__}")
def test_an_operation_that_cannot_be_is_refused(i: int) -> None:
    operation, shape = IMPOSSIBLE[i]
    own = {field.name: getattr(operation, field.name) for field in fields(operation)}
    held = {name: value for name, value in own.items() if isinstance(value, Tensor)}
    told = {
        "operation": type(operation).__name__, "inputs": [0], "name": "layer", "layer": "Layer",
        "settings": {name: value for name, value in own.items() if name not in held}, "tensors": list(held),
    }  # fmt: skip
    with pytest.raises(ValueError, match="expected"):
        FrozenNetwork.from_data(
            {"input_shape": list(shape), "steps": [told]}, {f"1.{name}": value for name, value in held.items()}
        )


def test_more_steps_than_anyone_needs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("berncert.extractor.frozen.MOST_STEPS", 3)
    steps = [Step(Activation("relu"), (i,), str(i), "ReLU") for i in range(4)]
    FrozenNetwork((3,), steps[:3])
    with pytest.raises(ValueError, match="at most 3 steps"):
        FrozenNetwork((3,), steps)


def test_the_error_names_the_step() -> None:
    steps = [Step(Activation("relu"), (0,), "fine", "ReLU"), Step(Linear(MATRIX), (1,), "layers.7", "Linear")]
    with pytest.raises(ValueError, match=r"^layers\.7: expected 2 numbers along the last axis"):
        FrozenNetwork((3,), steps)
