"""Sums of small polynomials: heads in many features, whose dense polynomial would have too many coefficients."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import index
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from berncert.polynomial import bernstein
from berncert.polynomial.head import SmoothedHead, smooth
from berncert.polynomial.norms import row_norms
from berncert.polynomial.polynomial_head import PolynomialHead, Term, check_coefficients, check_finite, check_numbers
from berncert.polynomial.sampling import Head

DENSE_FEATURES = 16
"""Affine heads in more features are smoothed to a `SumHead`: 2^d coefficients for each class are too many."""


class SumHead(PolynomialHead):
    """features (N, d) in [0,1]^d -> logits (N, K): an affine part plus terms, each a polynomial in few features.

        SumHead(weight, bias)                                                     # affine, in any number of features
        SumHead(weight, bias, [((0,), first), ((3, 7), pair)])                    # and bent along x_0, and x_3 with x_7

    weight, bias: (K, d) and (K,). terms: pairs of the features that a term takes and its coefficients (K, n_1+1, ...),
    one axis for each of them; features may be in several terms. All tensors are kept as buffers, or as parameters if
    they are ones. The Bernstein polynomial of a sum is the sum of those of its terms.

    >>> import torch, berncert
    >>> square = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])  # x_0 squared for the first class
    >>> head = berncert.SumHead(torch.eye(2), torch.zeros(2), [((0,), square)])
    >>> head(torch.tensor([[0.5, 0.5]]))
    tensor([[0.7500, 0.5000]])
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, weight: Tensor, bias: Tensor, terms: Iterable[tuple[Sequence[int], Tensor]] = ()) -> None:
        super().__init__()
        chosen = [_term(number, term) for number, term in enumerate(terms)]
        _check(weight, bias, chosen)
        self._keep("weight", weight)
        self._keep("bias", bias)
        self._axes = tuple(term.axes for term in chosen)
        for number, term in enumerate(chosen):
            self._keep(f"term{number}", term.coefficients)

    @property
    def classes(self) -> int:
        """The number of classes, K; 1 for a regression."""
        return self.weight.shape[0]

    @property
    def dim(self) -> int:
        """The number of features, d."""
        return self.weight.shape[1]

    @property
    def degree(self) -> tuple[int, ...]:
        """The greatest degree along each axis: 1 where only the affine part takes the feature."""
        greatest = [1] * self.dim
        for axes, coefficients in self.terms:
            for axis, size in zip(axes, coefficients.shape[1:], strict=True):
                greatest[axis] = max(greatest[axis], size - 1)
        return tuple(greatest)

    @property
    def affine(self) -> tuple[Tensor, Tensor]:
        """The weight (K, d) and bias (K,) of the affine part."""
        return self.weight, self.bias

    @property
    def terms(self) -> tuple[Term, ...]:
        """The features and the coefficients of each term."""
        return tuple(Term(axes, getattr(self, f"term{number}")) for number, axes in enumerate(self._axes))

    @property
    def description(self) -> dict[str, Any]:
        """The shape of its weight, and the features and shape of each term."""
        terms = [{"features": list(term.axes), "coefficients": list(term.coefficients.shape)} for term in self.terms]
        return {"weight": list(self.weight.shape), "terms": terms}

    @property
    def kind(self) -> str:
        """What it is, in a few words for people."""
        count = len(self._axes)
        terms = f" plus {count} Bernstein polynomial{'s' if count > 1 else ''} in few features each" if count else ""
        return f"affine{terms}"

    @property
    def layout(self) -> str:
        """How its numbers are arranged."""
        sizes: dict[str, int] = {}
        for term in self.terms:
            size = " x ".join(map(str, term.coefficients.shape[1:]))
            sizes[size] = sizes.get(size, 0) + 1
        parts = [f"{self.dim} + 1", *(f"{count} of {size}" for size, count in sizes.items())]
        return f"{self.classes} x ({' + '.join(parts)})"

    @classmethod
    def from_data(cls, description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Self:
        """The head with this description and these tensors, as in its state_dict."""
        axes = [tuple(term["features"]) for term in description["terms"]]
        terms = [(features, tensors[f"term{number}"]) for number, features in enumerate(axes)]
        head = cls(tensors["weight"], tensors["bias"], terms)
        if head.description != dict(description) or len(tensors) != 2 + len(terms):
            raise ValueError(f"expected a sum as its description says, {dict(description)}, got {head.description}")
        return head

    @classmethod
    def of_linear(cls, layer: nn.Linear, *, differentiable: bool = False) -> Self:
        """The affine head of a linear layer, in float64; if differentiable, with the layer's own parameters."""
        bias = layer.weight.new_zeros(len(layer.weight)) if layer.bias is None else layer.bias
        head = cls(layer.weight, bias)
        return head if differentiable else head.in_float64()

    def forward(self, features: Tensor) -> Tensor:
        """The logits (N, K).

        For features in [0,1]^d the float64 result differs from the exact one, whatever the order of summation, by at
        most 1.01 * 2^-53 times the sum of (d + T + 2) (|bias| + the sum of |weight|) of the class and, for each of its
        T terms, of (m (4 max(n) + 3) + T + 4) max|coefficients|, for a term in m features of degrees n.
        """
        x = self._checked(features)
        total = F.linear(x, self.weight.to(x.dtype), self.bias.to(x.dtype))
        for axes, coefficients in self.terms:
            total = total + bernstein.evaluate(coefficients.to(x.dtype), x[:, axes])
        return total

    def linearise(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, K) and derivatives (N, K, d) together; the latter share memory where the head is affine."""
        x = self._checked(features)
        weight, bias = self.weight.to(x.dtype), self.bias.to(x.dtype)
        values, slopes = F.linear(x, weight, bias), weight.expand(len(x), -1, -1)
        if not self._axes:
            return values, slopes
        parts = [bernstein.linearise(coefficients.to(x.dtype), x[:, axes]) for axes, coefficients in self.terms]
        where = torch.tensor([axis for axes in self._axes for axis in axes], device=x.device)
        for value, _ in parts:
            values = values + value
        return values, slopes.index_add(2, where, torch.cat([slope for _, slope in parts], dim=2))

    def steepness(self, features: Tensor, labels: Tensor, dual: float) -> tuple[Tensor, Tensor]:
        """As of every head; one that is affine has the same slopes everywhere, so pairs of classes are enough."""
        if self._axes:
            return super().steepness(features, labels, dual)
        x = self._checked(features)
        weight = self.weight.to(x.dtype)
        present, which = torch.unique(labels, return_inverse=True)
        if dual in (1.0, 2.0, math.inf):
            # not through products of matrices, which would lose the difference of classes that are nearly the same
            apart = torch.cdist(weight[present], weight, p=dual, compute_mode="donot_use_mm_for_euclid_dist")
        else:  # in which powers would overflow or vanish
            apart = torch.stack([row_norms(weight - own, dual) for own in weight[present]])
        return self(x), apart[which]

    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The head whose tensors are what `change` makes of these."""
        terms = [(axes, change(coefficients)) for axes, coefficients in self.terms]
        return type(self)(change(self.weight), change(self.bias), terms)

    def extra_repr(self) -> str:
        return f"classes={self.classes}, dim={self.dim}, terms={len(self._axes)}, dtype={self.weight.dtype}"

    def _checked(self, features: Tensor) -> Tensor:
        if features.ndim != 2 or features.shape[1] != self.dim:
            raise ValueError(
                f"expected points of shape (N, {self.dim}), got {tuple(features.shape)}; one number for each feature"
            )
        return features.to(reduce(torch.promote_types, (tensor.dtype for tensor in self.tensors), features.dtype))


def smoothed_head(
    head: Head, dim: int, degree: int | Sequence[int], *, differentiable: bool = False, points: Any = None
) -> PolynomialHead:
    """The polynomial of a head: dense, as by `smooth`, but for affine heads in more than 16 features.

    The Bernstein polynomial of an affine head is the head itself, of any degree: nothing needs to be sampled. A head
    that is not an `nn.Linear` says that it is affine by an attribute `affine_layer` that is one.
    """
    layer = head if isinstance(head, nn.Linear) else getattr(head, "affine_layer", None)
    if isinstance(layer, nn.Linear) and dim > DENSE_FEATURES:
        return SumHead.of_linear(layer, differentiable=differentiable)
    return smooth(head, dim, degree, differentiable=differentiable, points=points)


def head_from_data(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> PolynomialHead:
    """The polynomial head with this description, of either kind, and these tensors."""
    return SumHead.from_data(description, tensors) if "terms" in description else SmoothedHead(tensors["coefficients"])


def _term(number: int, term: Any) -> Term:
    """A pair of features, whole numbers of any kind, and coefficients."""
    try:
        axes, coefficients = term
        return Term(tuple(index(axis) for axis in axes), coefficients)
    except (TypeError, ValueError) as error:
        kinds = [type(part).__name__ for part in term] if isinstance(term, (tuple, list)) else type(term).__name__
        raise TypeError(
            f"expected a pair of features, such as (0, 3), and coefficients in each term, got {kinds} in term {number};"
            " write ((0,), coefficients) for a term in the first feature"
        ) from error


def _check(weight: Tensor, bias: Tensor, terms: Sequence[Term]) -> None:
    for name, tensor, axes in (("weight", weight, 2), ("bias", bias, 1)):
        check_numbers(name, tensor)
        if tensor.ndim != axes or not tensor.numel() or len(tensor) != len(weight):
            raise ValueError(
                f"expected a weight of shape (K, d) and a bias of shape (K,), got {tuple(weight.shape)} and "
                f"{tuple(bias.shape)}; zeros make a sum without an affine part"
            )
        check_finite(name, tensor)
    for axes_of_term, coefficients in terms:
        check_coefficients(coefficients)
        chosen = all(0 <= axis < weight.shape[1] for axis in axes_of_term)
        if not chosen or not len(set(axes_of_term)) == len(axes_of_term) == coefficients.ndim - 1:
            raise ValueError(
                f"expected terms in different features from 0 to {weight.shape[1] - 1}, one for each axis of their "
                f"coefficients, got {axes_of_term} with coefficients of shape {tuple(coefficients.shape)}"
            )
        if len(coefficients) != len(weight):
            raise ValueError(f"expected {len(weight)} classes in every term, as in the weight, got {len(coefficients)}")
