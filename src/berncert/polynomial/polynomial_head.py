"""What every polynomial head is: a sum of an affine part and of terms, each a Bernstein polynomial in some features."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from berncert.polynomial.bernstein import enclose, restrict_rows
from berncert.polynomial.fidelity import Fidelity
from berncert.polynomial.norms import row_norms


class Term(NamedTuple):
    """A Bernstein polynomial in some of the features, for every class."""

    axes: tuple[int, ...]
    """The features that it takes, each once."""
    coefficients: Tensor
    """(K, n_1+1, ..., n_m+1), one axis for each of these features."""


class PolynomialHead(nn.Module):
    """features (N, d) in [0,1]^d -> logits (N, K), each a polynomial: what is certified, trained through and saved.

    A `SmoothedHead` is one term in all features, a `SumHead` an affine part and terms in few features each. The first
    axis of every tensor of a head is the classes'.

    >>> import torch, berncert
    >>> isinstance(berncert.SumHead(torch.eye(2), torch.zeros(2)), berncert.PolynomialHead)
    True
    """

    fidelity: Fidelity | None = None
    """How far it agrees with the head that was smoothed; None where nothing was compared. Not in its state_dict."""

    @property
    @abstractmethod
    def classes(self) -> int:
        """The number of classes, K; 1 for a regression."""

    @property
    @abstractmethod
    def dim(self) -> int:
        """The number of features, d."""

    @property
    @abstractmethod
    def degree(self) -> tuple[int, ...]:
        """The degree along each axis, (n_1, ..., n_d)."""

    @property
    @abstractmethod
    def affine(self) -> tuple[Tensor, Tensor] | None:
        """The weight (K, d) and bias (K,) of the affine part, if there is one."""

    @property
    @abstractmethod
    def terms(self) -> tuple[Term, ...]:
        """The other terms."""

    @property
    @abstractmethod
    def description(self) -> dict[str, Any]:
        """The shapes of its tensors, as plain JSON: with its state_dict it makes the head again."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """What it is, in a few words for people."""

    @property
    @abstractmethod
    def layout(self) -> str:
        """How its numbers are arranged, as a product or a sum."""

    @abstractmethod
    def forward(self, features: Tensor) -> Tensor:
        """The logits (N, K)."""

    @abstractmethod
    def linearise(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (N, K) and derivatives (N, K, d) together, faster than one after the other."""

    @abstractmethod
    def mapped(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The head whose tensors are what `change` makes of this one's."""

    def gradient(self, features: Tensor) -> Tensor:
        """The derivative of every logit by every feature, (N, K, d), in closed form."""
        return self.linearise(features)[1]

    @property
    def tensors(self) -> list[Tensor]:
        """All its tensors: the affine part's, if there is one, and the coefficients of the terms."""
        return [*(self.affine or ()), *(term.coefficients for term in self.terms)]

    @property
    def numbers(self) -> int:
        """How many numbers it has, coefficients and weights: a measure of what it costs."""
        return sum(tensor.numel() for tensor in self.tensors)

    def enclosed(self) -> tuple[Tensor, Tensor]:
        """Of each class, (K,), two values between which its logits lie on the whole cube, but for rounding."""
        low, high = (torch.zeros(self.classes, dtype=torch.float64) for _ in range(2))
        if self.affine is not None:
            weight, bias = (part.detach().double().cpu() for part in self.affine)
            low, high = bias + weight.clamp(max=0).sum(dim=1), bias + weight.clamp(min=0).sum(dim=1)
        for _, coefficients in self.terms:
            least, greatest = enclose(coefficients.detach().double().cpu())
            low, high = low + least, high + greatest
        return low, high

    def in_float64(self) -> Self:
        """A copy in float64 on the CPU, through which no gradient flows."""
        return self.mapped(lambda tensor: tensor.detach().to("cpu", torch.float64, copy=True))

    def detached(self) -> Self:
        """The same numbers, through which no gradient flows."""
        return self.mapped(Tensor.detach)

    def of_classes(self, chosen: Sequence[int]) -> Self:
        """The logits of these classes only, in this order."""
        return self.mapped(lambda tensor: tensor[list(chosen)])

    def steepness(self, features: Tensor, labels: Tensor, dual: float) -> tuple[Tensor, Tensor]:
        """Logits (N, K), and how fast each gains on the label's, (N, K): the dual norm of the difference of slopes."""
        logits, slopes = self.linearise(features)
        own = slopes.gather(1, labels[:, None, None].expand(-1, 1, slopes.shape[2]))
        return logits, row_norms(slopes - own, dual)

    def greatest_lead(self, lower: Tensor, upper: Tensor, labels: Tensor) -> Tensor:
        """(N, K): no logit exceeds the label's by more on its row's box [lower, upper], (N, d) each, in the cube.

        Each term is enclosed by its Bernstein coefficients on the box; affine heads attain the bound.
        """
        total: Tensor | None = None
        if self.affine is not None:
            weight, bias = (part.to(lower.dtype) for part in self.affine)
            apart = weight - weight[labels][:, None]  # (N, K, d)
            reach = torch.where(apart > 0, upper[:, None], lower[:, None])
            total = (apart * reach).sum(dim=2) + bias - bias[labels][:, None]
        for axes, coefficients in self.terms:
            on_box = restrict_rows(coefficients.to(lower.dtype), lower[:, axes], upper[:, axes]).flatten(2)
            own = on_box.gather(1, labels[:, None, None].expand(-1, 1, on_box.shape[2]))
            lead = (on_box - own).amax(dim=2)
            total = lead if total is None else total + lead
        assert total is not None
        return total

    def _keep(self, name: str, tensor: Tensor) -> None:
        """Register the tensor as a parameter if it is one, else as a buffer."""
        if isinstance(tensor, nn.Parameter):
            self.register_parameter(name, tensor)
        else:
            self.register_buffer(name, tensor)


def check_coefficients(coefficients: Tensor) -> None:
    """Raise an error unless it is a floating, finite (K, n_1+1, ..., n_d+1) tensor."""
    check_numbers("coefficients", coefficients)
    shape = tuple(coefficients.shape)
    if len(shape) < 2 or min(shape[1:]) < 2 or shape[0] < 1:
        raise ValueError(
            f"expected coefficients of shape (K, n_1+1, ..., n_d+1) with K >= 1 outputs, at least one axis and every "
            f"degree n_j >= 1, got {shape}; every size after the first must be 2 or more"
        )
    check_finite("coefficients", coefficients)


def check_numbers(name: str, tensor: Tensor) -> None:
    """Raise a TypeError unless it is a floating tensor."""
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"expected {name} as a torch tensor, got {type(tensor).__name__}; "
            "convert an array with torch.as_tensor, sample a callable with smooth(head, dim, degree)"
        )
    if not tensor.is_floating_point():
        raise TypeError(f"expected floating {name}, got {tensor.dtype}; convert them with .double()")


def check_finite(name: str, tensor: Tensor) -> None:
    """Raise a ValueError if one of its numbers is infinite or NaN."""
    finite = tensor.isfinite()
    if not finite.all():
        index = tuple((~finite).nonzero()[0].tolist())
        raise ValueError(
            f"expected finite {name}, got {tensor[index].item()} at {index}; "
            "look for an overflow in the head that was sampled"
        )
