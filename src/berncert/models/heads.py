"""Heads to train, from features in [0,1]^dim to logits."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from itertools import combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from berncert.extractor import FrozenNetwork
from berncert.extractor import operations as ops
from berncert.foundation.arguments import guess
from berncert.polynomial import PolynomialHead, SmoothedHead, smooth
from berncert.polynomial.sum_head import DENSE_FEATURES, SumHead, smoothed_head

MOST_REPELLED, REPULSIONS = 256, 500
"""Points up to which `_spread` works, as every pair counts, and its steps."""
MOST_OF_A_GROUP = 2**12
"""The most numbers of a class that a group of features has."""
NETWORK = "network"
"""The kind of a head that is a frozen network."""
Start = Callable[[int, int], Tensor]
"""(classes, dim) -> the directions (classes, dim) in which the classes start."""


class Sizes(NamedTuple):
    """What some kinds of heads need to know besides."""

    width: int
    degree: int
    group: int


class Head(nn.Module):
    """A head that remembers how it was built: `build_head(**description)` builds it again."""

    def __init__(self, layers: nn.Module, description: Mapping[str, Any]) -> None:
        super().__init__()
        self.layers = layers
        self.description = dict(description)  # plain JSON

    @property
    def classes(self) -> int:
        """The number of classes, K."""
        return int(self.description["classes"])

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return int(self.description["dim"])

    @property
    def affine_layer(self) -> nn.Linear | None:
        """The layer that it is, if the head is affine."""
        return self.layers if isinstance(self.layers, nn.Linear) else None

    def forward(self, features: Tensor) -> Tensor:
        return self.layers(features)  # type: ignore[no-any-return]


class NetworkHead(Head):
    """A head that is a frozen network, of an ONNX file or of layers of the user's own."""

    def __init__(self, network: FrozenNetwork) -> None:
        if len(network.input_shape) != 1 or len(network.output_shape) != 1:
            raise ValueError(f"expected a head from (N, d) features to (N, K) logits, got {network}")
        sizes = {"dim": math.prod(network.input_shape), "classes": network.dim}
        super().__init__(network, {"kind": NETWORK, **sizes, "steps": len(network.steps)})
        self.network = network

    @property
    def affine_layer(self) -> nn.Linear | None:
        """The layer that it is, if the head is affine."""
        return affine_layer(self.network)


def affine_layer(network: FrozenNetwork) -> nn.Linear | None:
    """The linear layer, in float64, that computes what the network computes, if all of its steps are affine."""
    chain = all(step.inputs == (before,) for before, step in enumerate(network.steps))
    if not chain or not all(isinstance(s.operation, ops.Linear | ops.Scale | ops.Shift) for s in network.steps):
        return None
    layer = nn.Linear(math.prod(network.input_shape), network.dim).double()
    one = torch.ones((), dtype=torch.float64)
    steps = [
        ops.Scale(one) if isinstance(s.operation, ops.Shift)
        else ops.Linear(s.operation.weight) if isinstance(s.operation, ops.Linear) else s.operation
        for s in network.steps
    ]  # fmt: skip
    with torch.no_grad():
        layer.bias.copy_(network(torch.zeros(1, layer.in_features, dtype=torch.float64))[0])
        linear = FrozenNetwork(network.input_shape, []).followed_by(*steps)
        layer.weight.copy_(linear(torch.eye(layer.in_features, dtype=torch.float64)).T)
    return layer.requires_grad_(False)


def identity(dim: int, classes: int, scale: float, start: Start, sizes: Sizes) -> nn.Module:
    """logits = scale * (features - 1/2), without parameters to train: the features themselves are the logits."""
    if dim != classes:
        raise ValueError(f"expected dim = {classes}, as many features as classes, with the identity head, got {dim}")
    return affine(dim, classes, scale, start, sizes).requires_grad_(False)


def affine(dim: int, classes: int, scale: float, start: Start, sizes: Sizes) -> nn.Module:
    """A linear layer whose weights start as these directions, one for each class, times the scale."""
    layer = nn.Linear(dim, classes)
    with torch.no_grad():
        layer.weight.copy_(scale * start(classes, dim))
        layer.bias.copy_(-layer.weight.sum(dim=1) / 2)  # 0 in the middle of the cube
    return layer


def directions(classes: int, dim: int) -> Tensor:
    """Unit vectors (classes, dim), at angles of 90 degrees or more if dim >= classes / 2, otherwise spread out.

    They are the axes, or, with fewer dimensions than classes, the corners of simplices in orthogonal subspaces. The n
    corners of a simplex take n - 1 dimensions, so that classes - dim simplices share the classes.
    """
    if dim >= classes:
        return torch.eye(classes, dim)
    simplices = classes - dim
    if 2 * simplices > classes:
        return _spread(classes, dim)
    sizes = [len(part) for part in torch.arange(classes).tensor_split(simplices)]
    blocks: Tensor = torch.block_diag(*(_simplex(size) for size in sizes))  # type: ignore[no-untyped-call]
    return blocks


def _spread(points: int, dim: int) -> Tensor:
    """Unit vectors (points, dim) that repel each other until the least angle hardly grows, from a fixed start.

    They minimise the sum of distance^-power over all pairs; a growing power counts near pairs more and more.
    """
    x = nn.functional.normalize(torch.randn(points, dim, generator=torch.Generator().manual_seed(0)).double())
    if points > MOST_REPELLED:
        return x.float()
    powers, steps = torch.logspace(0.3, 2, REPULSIONS), torch.logspace(-1, -3, REPULSIONS)
    for power, step in zip(powers.tolist(), steps.tolist(), strict=True):
        apart = x[:, None] - x
        squares = apart.square().sum(dim=2) + 4 * torch.eye(points)
        nearness = (squares.min() / squares) ** (power / 2 + 1)  # 1 for the nearest pair: no power overflows
        push = (nearness[:, :, None] * apart).sum(dim=1)
        x = nn.functional.normalize(x + step * push / push.norm(dim=1).max().clamp_min(1e-9))
    return x.float()


def feature_sets(classes: int, dim: int) -> Tensor:
    """Directions (classes, dim) for l-inf: minus the sum of the axes of a set of features, another set for each class.

    All sets have the same size, the least that has enough sets, and use the features evenly. Features that are low
    where one of their classes is can be learnt by one distance layer from how close each class is, and the difference
    of two classes that share all but one feature is that of two features, as in the identity. With as many features as
    classes, each class has a feature of its own, which is high.
    """
    if dim >= classes:
        return torch.eye(classes, dim)
    size = next((size for size in range(2, dim) if math.comb(dim, size) >= classes), None)
    if size is None:
        return directions(classes, dim)
    used = [0] * dim
    chosen: list[tuple[int, ...]] = []
    free = list(combinations(range(dim), size))
    while len(chosen) < classes:
        chosen.append(min(free, key=lambda features: (sum(used[i] for i in features), features)))
        free.remove(chosen[-1])
        for i in chosen[-1]:
            used[i] += 1
    return torch.stack([-torch.eye(dim)[list(features)].sum(dim=0) for features in chosen])


def _simplex(corners: int) -> Tensor:
    """Unit vectors (corners, corners - 1) that sum to 0, every two at the same angle."""
    centred = torch.eye(corners, dtype=torch.float64) - 1 / corners
    basis = torch.linalg.qr(centred[:, :-1]).Q  # of their subspace
    return nn.functional.normalize(centred @ basis).float()


def mlp(dim: int, classes: int, scale: float, start: Start, sizes: Sizes) -> nn.Module:
    """A network with one hidden layer of tanh units."""
    return nn.Sequential(nn.Linear(dim, sizes.width), nn.Tanh(), nn.Linear(sizes.width, classes))


def polynomial(dim: int, classes: int, scale: float, start: Start, sizes: Sizes) -> nn.Module:
    """A Bernstein polynomial whose coefficients are trained, and start as those of the affine head."""
    straight = smooth(affine(dim, classes, scale, start, sizes), dim, sizes.degree, points=0)
    return SmoothedHead(nn.Parameter(straight.coefficients))


def groups(dim: int, classes: int, scale: float, start: Start, sizes: Sizes) -> nn.Module:
    """An affine head plus a Bernstein polynomial in each group of neighbouring features, which starts at 0.

    Bent within the groups only, it needs no grid in all features: classes * (degree + 1)^group numbers for each group.
    """
    straight = affine(dim, classes, scale, start, sizes)
    assert isinstance(straight, nn.Linear)
    terms = [
        (axes, nn.Parameter(torch.zeros(classes, *[sizes.degree + 1] * len(axes))))
        for axes in feature_groups(dim, sizes.group)
    ]
    return SumHead(straight.weight, straight.bias, terms)


def feature_groups(dim: int, group: int) -> list[tuple[int, ...]]:
    """The features 0 to dim - 1 in groups of so many neighbours; the last has what is left."""
    return [tuple(range(first, min(first + group, dim))) for first in range(0, dim, group)]


HEADS: dict[str, Callable[..., nn.Module]] = {
    "identity": identity, "affine": affine, "mlp": mlp, "polynomial": polynomial, "groups": groups,
}  # fmt: skip

AFFINE_HEADS = ("identity", "affine")
OWN_POLYNOMIALS = ("polynomial", "groups")
"""The kinds of heads that are polynomials themselves: nothing is sampled when they are smoothed."""


def is_dense(kind: str, dim: int) -> bool:
    """Whether its polynomial is dense, on a grid; that of groups is not, nor that of affine heads in many features."""
    return kind != "groups" and (kind not in AFFINE_HEADS or dim <= DENSE_FEATURES)


def build_head(
    kind: str, dim: int, classes: int, *, scale: float = 1.0, width: int = 32, degree: int = 1, group: int = 2,
    norm: float = 2.0,
) -> Head:  # fmt: skip
    """A new head of this kind; `scale` undoes the extractor's division by the side of its cube.

    Classes start as `directions` to train in l2, as `feature_sets` to train in l-inf.
    """
    if kind not in HEADS:
        raise ValueError(f"expected a head out of {', '.join(HEADS)}, got {kind!r}{guess(str(kind), HEADS)}")
    if not (classes >= 2 and min(dim, width, degree, group) >= 1 and 0 < scale < math.inf):
        raise ValueError(
            "expected classes >= 2, dim, width, degree and group >= 1, and a finite scale > 0, got classes="
            f"{classes}, dim={dim}, width={width}, degree={degree}, group={group}, scale={scale}"
        )
    if kind == "groups" and (degree + 1) ** min(group, dim, 64) > MOST_OF_A_GROUP:
        raise ValueError(
            f"expected groups with at most {MOST_OF_A_GROUP:,} numbers (degree + 1)^group for each class, got degree "
            f"{degree} and {group} features; lower one of the two"
        )
    description = {"kind": kind, "dim": dim, "classes": classes, "scale": scale, "width": width, "degree": degree}
    if kind == "groups":  # others have none, as in files of before
        description["group"] = group
    start = feature_sets if norm == math.inf else directions
    return Head(HEADS[kind](dim, classes, scale, start, Sizes(width, degree, group)), description)


def head_size(
    kind: str, dim: int, classes: int, *, scale: float = 1.0, width: int = 32, degree: int = 1, group: int = 2
) -> int:
    """The number of parameters of such a head, without building it."""
    if not all(type(n) is int and 1 <= n <= 2**20 for n in (dim, classes, width, degree, group)):
        raise ValueError(
            f"expected whole numbers >= 1, got dim={dim}, classes={classes}, width={width}, degree={degree}, "
            f"group={group}"
        )
    if kind == "polynomial":
        return int(classes * (degree + 1) ** min(dim, 64))
    if kind == "groups":
        sizes = [group] * (dim // group) + [dim % group] * (dim % group > 0)
        return int(classes * (dim + 1 + sum((degree + 1) ** min(size, 64) for size in sizes)))
    return width * (dim + 1) + classes * (width + 1) if kind == "mlp" else classes * (dim + 1)


def smoothed(head: Head, *, differentiable: bool = False, points: Any = None) -> PolynomialHead:
    """The Bernstein polynomial of the head, of the degree in its description, in float64.

    It is dense, but for heads that are their own polynomial, a `SumHead`: groups, and affine ones in more than 16
    features.

    With `differentiable` it keeps the head's dtype, and gradients reach the head's parameters: for training. `points`
    are those of `smooth`.
    """
    if isinstance(head.layers, PolynomialHead):
        return head.layers if differentiable else head.layers.in_float64()
    source = head if differentiable else copy.deepcopy(head).double()
    return smoothed_head(source, head.dim, head.description["degree"], differentiable=differentiable, points=points)
