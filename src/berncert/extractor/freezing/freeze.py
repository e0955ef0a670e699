"""`freeze`: a user's network becomes plain data, and is compared with it."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from berncert.extractor.arithmetic import on_cpu, plain_arithmetic
from berncert.extractor.bounds.layer_bound import Shape
from berncert.extractor.evaluation import layer_name, require_evaluation
from berncert.extractor.freezing.tracing import refuse_stale_values, trace
from berncert.extractor.freezing.translation import Translator
from berncert.extractor.frozen import FrozenNetwork, Step, interpret
from berncert.extractor.parametrizations import export

PROBES = (5, 3)
"""The sizes of the two batches that steps are tried with: what differs between them depends on the batch."""
BATCHES = (1, 4)
SCALES = (0.0, 1.0, 1e-3, 1e5)
"""The scales of the images that both networks are run on, one for each row of the largest batch."""
TOLERANCES = {torch.float64: 1e-7, torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.3}
"""How far the user's network may be from the frozen one, relative to the greatest output."""


def freeze(network: nn.Module, input_shape: Sequence[int]) -> FrozenNetwork:
    """The network as plain data: a list of operations with float64 numbers, for images of this shape (without batch).

    Its forward is traced, so it may add, concatenate and reshape; weights that are computed (parametrisations) are
    computed once, in float64; batch normalisation becomes part of the layer before it. Steps that are random, mix the
    batch, depend on its size, change in place what is used later, or are not known are a TypeError. The result is run
    beside the network, on batches of several sizes and images of several scales, and must agree up to rounding.

    From then on only the frozen network is run and certified. Evaluation mode only.

    Example:
        >>> import torch, berncert
        >>> network = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU()).eval()
        >>> frozen = berncert.freeze(network, (1, 8, 8))
        >>> image = torch.rand(1, 1, 8, 8)
        >>> torch.allclose(frozen(image), network(image), atol=1e-5)
        True
    """
    if isinstance(network, FrozenNetwork):
        if tuple(input_shape) != network.input_shape:
            raise ValueError(f"expected the shape that it was frozen for, {network.input_shape}, got {input_shape!r}")
        return network
    if not isinstance(network, nn.Module):
        raise TypeError(f"expected a torch module, got {type(network).__name__}")
    shape = checked_shape(input_shape)
    require_evaluation(network)
    with _isolated():
        same, exact = _copies(network)
        frozen = FrozenNetwork(shape, _steps(exact, shape, PROBES[0]), _about(network))
        if not _same_steps(frozen.steps, _steps(exact, shape, PROBES[1])):
            raise TypeError(
                "the network is not the same each time it is followed, or not for batches of another size: something "
                "random, or a state that changes; take it out, or register a bound for that part with "
                "berncert.register_bound"
            )
        try:
            _compare(frozen, exact, same, shape)
        except TypeError as error:
            hint = "; it is in training mode: call .eval() on it" if network.training else ""
            raise TypeError(f"{error}{hint}") from error
    return frozen


@contextmanager
def _isolated() -> Iterator[None]:
    """Change nothing of the caller's: no generator is drawn from, no gradient taken, no tensor made on a device."""
    generators = torch.random.fork_rng(devices=[])
    with torch.inference_mode(False), torch.no_grad(), on_cpu(), plain_arithmetic(), generators:
        yield


def _about(network: nn.Module) -> dict[str, Any]:
    """What the network says of itself, if that is plain JSON."""
    about = getattr(network, "description", None)
    try:
        return dict(json.loads(json.dumps(about)))
    except (TypeError, ValueError, RecursionError):
        return {"name": layer_name(network)}


def checked_shape(input_shape: Sequence[int]) -> Shape:
    """The shape of one image, as whole numbers >= 1; raises a ValueError for anything else."""
    try:
        shape = tuple(int(n) for n in input_shape)
    except (TypeError, ValueError):
        shape = ()
    if not shape or min(shape) < 1:
        raise ValueError(f"expected input_shape like (3, 32, 32), without the batch, got {input_shape!r}")
    return shape


def _copies(network: nn.Module) -> tuple[nn.Module, nn.Module]:
    """The network as it is, to be run; and in float64 on the CPU, its computed weights as plain ones, to be traced."""
    try:
        same, exact = copy.deepcopy(network), export(network).cpu()
    except (AttributeError, RuntimeError, TypeError, pickle.PicklingError) as error:  # whatever a user's module holds
        raise TypeError(f"expected a network that can be copied, got {type(network).__name__}: {error}") from error
    original, copied = ({k: v for k, v in n.state_dict().items() if torch.is_tensor(v)} for n in (network, same))
    if original.keys() != copied.keys() or not all(_same_numbers(original[key], copied[key]) for key in original):
        raise TypeError(f"expected a network whose copy is the same, got {type(network).__name__}, whose copy differs")
    return same, exact


def _same_numbers(a: Tensor, b: Tensor) -> bool:
    """Whether all entries agree, NaN with NaN: what is not finite is an error later, which names its layer."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _steps(exact: nn.Module, shape: Shape, batch: int) -> list[Step]:
    root = nn.Sequential(exact)  # so that a single layer is traced as a layer
    graph = trace(root)
    steps = Translator(root, shape, batch).translate(graph)
    if batch == min(PROBES):
        image = torch.rand(2, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        refuse_stale_values(root, graph, image)
        if len(shape) == 3:  # in another order in memory other steps give a view of what they take
            image = image[:1].contiguous(memory_format=torch.channels_last)
            refuse_stale_values(root, graph, image, must_run=False)
    return steps


def _same_steps(a: Sequence[Step], b: Sequence[Step]) -> bool:
    def same(one: Step, two: Step) -> bool:
        x, y = one.operation, two.operation
        settings = type(x) is type(y) and (not x.in_files or x.settings() == y.settings())
        tensors = x.tensors().keys() == y.tensors().keys()
        return bool(
            settings and tensors and one.inputs == two.inputs
            and all(torch.equal(t, y.tensors()[name]) for name, t in x.tensors().items())
        )  # fmt: skip

    return len(a) == len(b) and all(map(same, a, b))


def _compare(frozen: FrozenNetwork, exact: nn.Module, network: nn.Module, shape: Shape) -> None:
    """Raise a TypeError if the network computes something else than its frozen form, in float64 or in its own dtype."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(max(BATCHES), *shape, generator=generator, dtype=torch.float64)
    images = noise * torch.tensor(SCALES, dtype=torch.float64).view(-1, *(1,) * len(shape))
    images[1] = images[1].abs().clamp(0, 1)  # as pixels are
    expected = interpret(frozen.steps, images, lambda step, values: step.operation.evaluate(*values))
    usual = float(expected[1].abs().max())
    for size in BATCHES:
        _require_close(_run(exact, images[-size:]), expected[-size:], usual, "in float64")
    # in less than float64 functions of the last image, which is large, may have no correct digit
    like = next((t for t in (*network.parameters(), *network.buffers()) if t.is_floating_point()), images)
    if like.dtype in (torch.float32, torch.float64) or like.device.type != "cpu":  # not all compute in half precision
        _require_close(_run(network, images[:-1].to(like)), expected[:-1], usual, f"in {like.dtype}")


def _run(network: nn.Module, images: Tensor) -> Tensor:
    try:
        result = network(images.clone())
    except Exception as error:  # whatever the user's forward does
        raise TypeError(f"the network cannot be run on {len(images)} images of its shape: {error}") from error
    if not isinstance(result, Tensor):
        raise TypeError(f"expected the network to return one tensor, got {type(result).__name__}")
    return result


def _require_close(found: Tensor, expected: Tensor, usual: float, where: str) -> None:
    """Raise a TypeError if a row differs too much, relative to the greatest output of the row or of a usual image."""
    tolerance = TOLERANCES.get(found.dtype, 0.3)
    least = 1e-300 if found.dtype == torch.float64 else 1e-30  # what is less may be flushed to zero
    found = found.detach().cpu().double()
    if found.shape == expected.shape:
        found, expected = (value.reshape(len(value), -1) for value in (found, expected))  # also of one number each
        rows = expected.abs().amax(dim=1).clamp_min(max(usual, least))
        gap = (found - expected).abs().amax(dim=1) / rows
        whole = found.isfinite().all(dim=1) & expected.isfinite().all(dim=1)
        if bool((gap[whole] <= tolerance).all()) and bool(whole[: len(whole) // 2 + 1].any()):
            return
        got = f"a difference of {float(gap[whole].max()):.2g} of its output" if whole.any() else "no finite numbers"
    else:
        got = f"shape {tuple(found.shape)} instead of {tuple(expected.shape)}"
    raise TypeError(
        f"the network does not compute what its forward says when it is followed: {got}, {where}, on a batch of "
        f"{len(expected)}; something random, a state that changes, a test of the type or the number of its images; "
        "take it out, or register a bound for that part with berncert.register_bound"
    )
