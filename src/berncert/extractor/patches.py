"""Values with many entries, of which each depends on few others: affine bounds of them, along these only.

What a bent function takes is affine in the image and in the results of such functions before it, with sparse rows that
are the same for all images: they are written out once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from berncert.extractor.bounds.local import AffineBounds, LocalValue, flat, gamma, maximum_lines, rounded_lines
from berncert.extractor.frozen import FrozenNetwork
from berncert.extractor.line_kernels import COLUMNS, Bends, Rows, Windows, pull_patches
from berncert.extractor.operations.base import Affine
from berncert.extractor.operations.entrywise import Relaxed
from berncert.extractor.operations.pooling import Maximum
from berncert.foundation.arguments import dual_norm
from berncert.foundation.arrays import Ints

AT_ONCE = 2**22
"""Numbers in the dense rows that are made sparse together."""
MOST_NUMBERS = 2**26
"""In all dense rows of a value."""
MOST_PRODUCTS = 2**26
"""For one image, where all entries of a value are pulled back."""
WORTHWHILE = 0.25
"""Of the products of rows along everything, at most so many may be left."""


WIDER = 1 + 1e-9


@dataclass(frozen=True)
class AffineRows:
    """A value as an affine function of the image and of results of bent functions: its rows, and their size."""

    matrix: Any
    """(entries, numbers of all of these together), sparse."""
    bias: Tensor
    gain: Tensor
    """What an entry is at most in magnitude, on the way, for each 1 of those that it comes from."""
    offset: Tensor
    """And what the constants on the way add."""
    terms: int
    """The most numbers that are added up for an entry, on the way here or back."""

    def rounding(self, largest: Tensor) -> Tensor:
        """(N, entries): how far this is off, and what is pulled back through it, for numbers of these magnitudes."""
        return 4 * gamma(self.terms) * (largest[:, None] * self.gain + self.offset)

    def kernel_rows(self) -> Rows:
        """As the kernel takes them."""
        return _kernel_rows(self.matrix, self.bias.numpy())


class Patches:
    """The values of a network that are bounded along what each entry depends on: those for which that is little."""

    def __init__(self, network: FrozenNetwork, wanted: Iterable[int]) -> None:
        """`wanted`: the numbers of the values that may be bounded so; `in` says which are."""
        self.network = network
        bent = [i for i, step in enumerate(network.steps, start=1) if not isinstance(step.operation, Affine)]
        # what maxima take counts as the result of a function that changes nothing
        maxima = [step for step in network.steps if isinstance(step.operation, Maximum)]
        self.plain = {i for step in maxima for i in step.inputs} - {0, *bent}
        self.sources = sorted({0, *bent, *self.plain})
        sizes = [math.prod(network.shapes[i]) for i in self.sources]
        self.offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self.rows: dict[int, AffineRows] = {}
        self.groups = {number: _alike(self.rows[number].matrix) for number in sorted(wanted) if self._is_sparse(number)}

    def __contains__(self, number: int) -> bool:
        return number in self.groups

    def bounds(self, number: int, values: Sequence[LocalValue], wanted: Tensor, known: AffineBounds) -> AffineBounds:
        """Of the entries of the value with this number, and of their negatives: (N, 2, entries).

        For the wanted entries they are found; for the others they are what is known.
        """
        value, image = values[number], flat(values[0].centre, 1)
        starts, rates = (part.clone() for part in known)
        count = self._before(number)
        value_of = np.repeat(np.arange(count), np.diff(self.offsets[: count + 1]))
        pull_patches(
            *self._jobs(number, flat(wanted, 1).numpy()),
            self.rows[number].kernel_rows(), self._rounding(number, values).numpy(), self._kernel_rows,
            self._bends(values, count), self._windows(values, count), self.offsets[:count], value_of,
            dual_norm(value.norm),
            image.numpy(), starts.numpy(), rates.numpy(),
        )  # fmt: skip
        return AffineBounds(starts, rates)

    def _before(self, number: int) -> int:
        """How many of the sources this value is written in: the last may be the value itself, if it was bent."""
        return sum(source < number or (source == number and source not in self.plain) for source in self.sources)

    def _jobs(self, number: int, wanted: Any) -> tuple[Ints, Ints]:
        """(images, from, to) of the members, entries that depend on the same: at most so many together."""
        order, group = self.groups[number]
        images, places = np.nonzero(wanted[:, order])
        keys = images * len(order) + group[places]
        fresh = np.flatnonzero(np.diff(keys, prepend=-1))
        since = np.arange(len(keys)) - np.repeat(fresh, np.diff(fresh, append=len(keys)))
        begins = np.flatnonzero(since % COLUMNS == 0)
        ends = np.append(begins[1:], len(keys))
        return np.stack([images[begins], begins, ends[: len(begins)]], axis=1), order[places]

    def _rounding(self, number: int, values: Sequence[LocalValue]) -> Tensor:
        sizes = [values[i].interval.size for i in self.sources[: self._before(number)]]
        return self.rows[number].rounding(torch.stack(sizes).amax(dim=0))

    def _bends(self, values: Sequence[LocalValue], count: int) -> Bends:
        """For the entries of the first sources: those of the image have none."""
        pixels = flat(values[0].centre, 1)
        parts = [[torch.zeros_like(pixels)] * 5]
        for source in self.sources[1:count]:
            step, value = self.network.steps[source - 1], values[source]
            if source in self.plain:
                one, zero = torch.ones_like(flat(value.centre, 1)), torch.zeros_like(flat(value.centre, 1))
                parts.append([one, zero, one, zero, self._rounding(source, values)])
            elif isinstance(step.operation, Maximum):
                (taken,) = step.inputs
                most = maximum_lines(self.indices[source], values[taken])
                slack = gamma(self.indices[source].numel() + math.prod(values[taken].shape)) * most.largest
                zero = torch.zeros_like(most.at_zero)
                parts.append([zero + 1, zero - slack[:, None], zero + 1, most.at_zero + slack[:, None], zero])
            elif isinstance(step.operation, Relaxed):
                (taken,) = step.inputs
                lines, slack = step.operation.lines(values[taken]), self._rounding(taken, values)
                parts.append([*rounded_lines(lines, values[taken]), slack])
            else:
                low, high = (flat(side, 1) for side in value.interval)
                zero = torch.zeros_like(low)
                parts.append([zero, low, zero, high, zero])
        return Bends(*(torch.cat([part[k] for part in parts], dim=1).numpy() for k in range(5)))

    def _windows(self, values: Sequence[LocalValue], count: int) -> Windows:
        """The weights of maxima, for the entries of the first sources."""
        first, at = np.full(int(self.offsets[count]), -1, np.int64), 0
        nothing = torch.zeros(len(values[0].centre), 0, dtype=torch.float64)
        lower, upper = [nothing], [nothing]
        for source in self.sources[1:count]:
            if source not in self.indices:
                continue
            index = self.indices[source]
            lines = maximum_lines(index, values[self.network.steps[source - 1].inputs[0]])
            taken = index >= 0
            a, b = self._span(source)
            ends = taken.sum(dim=1).cumsum(dim=0).numpy()
            first[a:b] = at + ends - taken.sum(dim=1).numpy()
            at += int(ends[-1])
            lower.append(lines.lower[:, taken])
            upper.append(lines.upper[:, taken])
        return Windows(first, torch.cat(lower, dim=1).numpy(), torch.cat(upper, dim=1).numpy())

    @cached_property
    def indices(self) -> dict[int, Tensor]:
        """For the sources that are maxima: the entries of what they take."""
        found = {}
        for source in self.sources[1:]:
            step = self.network.steps[source - 1]
            if isinstance(step.operation, Maximum):
                found[source] = step.operation.index(self.network.shapes[step.inputs[0]])
        return found

    def _matrix(self, source: int) -> Any:
        """The sparse rows of what the function with this result takes; None where it counts as a constant."""
        if source in self.indices:
            index, (a, _) = self.indices[source], self._span(self.network.steps[source - 1].inputs[0])
            taken = (index >= 0).numpy()
            ends = np.concatenate([[0], taken.sum(axis=1).cumsum()])
            columns = index.numpy()[taken] + a
            shape = (len(index), int(self.offsets[-1]))
            return sparse.csr_array((np.ones(len(columns)), columns, ends), shape=shape)
        rows = self.rows.get(self._taken(source))
        return None if rows is None else rows.matrix

    @cached_property
    def _kernel_rows(self) -> Rows:
        """For each entry of the sources, the row of what its function takes; none where it counts as a constant."""
        columns = int(self.offsets[-1])
        matrices, biases = [], []
        for source, size in zip(self.sources, np.diff(self.offsets), strict=True):
            matrix, rows = self._matrix(source), self.rows.get(self._taken(source))
            matrices.append(sparse.csr_array((int(size), columns)) if matrix is None else matrix)
            biases.append(np.zeros(size) if rows is None else rows.bias.numpy())
        return _kernel_rows(sparse.vstack(matrices, format="csr"), np.concatenate(biases))

    def _taken(self, source: int) -> int:
        """The value that the function with this result takes, if lines enclose it; else -1."""
        if source in self.plain:
            return source
        if source == 0 or not isinstance(self.network.steps[source - 1].operation, Relaxed):
            return -1
        return self.network.steps[source - 1].inputs[0]

    def _is_sparse(self, number: int) -> bool:
        """Whether the rows of a value, and of those that it depends on, are few enough; they are written out then."""
        needed, taken = [number], {self._taken(source) for source in self.sources[1 : self._before(number)]} - {-1}
        needed += sorted(taken)
        if any(self._dense_size(i) > MOST_NUMBERS for i in needed):
            return False
        for i in needed:
            if i not in self.rows:
                self.rows[i] = self._written_out(i)
        along = {i: _pattern(self.rows[i].matrix) for i in needed}
        whole, products = sum(along[i].nnz for i in needed), 0
        found = along[number]
        for source in reversed(self.sources[1 : self._before(number)]):
            a, b = self._span(source)
            here, matrix = found[:, a:b], self._matrix(source)
            if matrix is not None:
                products += int(here.sum(axis=0) @ np.diff(matrix.indptr))
                if products > MOST_PRODUCTS:
                    return False
                found = _pattern(found + here @ matrix)
        return bool(products + along[number].nnz <= WORTHWHILE * along[number].shape[0] * whole)

    def _span(self, source: int) -> tuple[int, int]:
        at = self.sources.index(source)
        return int(self.offsets[at]), int(self.offsets[at + 1])

    def _dense_size(self, number: int) -> int:
        shapes = self.network.shapes[: number + 1]
        return math.prod(shapes[number]) * max(map(math.prod, shapes))

    def _written_out(self, number: int) -> AffineRows:
        """A value as an affine function of the sources before it."""
        shapes, entries = self.network.shapes, math.prod(self.network.shapes[number])
        unit = torch.eye(entries, dtype=torch.float64).view(entries, *shapes[number])
        parts, biases = [], []
        for rows in torch.split(unit, max(1, AT_ONCE * entries // self._dense_size(number))):
            pending, bias = {number: rows}, rows.new_zeros(len(rows))
            for i in range(number, 0, -1):
                if i not in pending or (i in self.sources and (i != number or i not in self.plain)):
                    continue
                step, own = self.network.steps[i - 1], pending.pop(i)
                assert isinstance(step.operation, Affine)
                taken = [shapes[k] for k in step.inputs]
                bias += flat(own, 1) @ step.operation.at_zero(*taken).flatten()
                for k, part in zip(step.inputs, step.operation.pull_rows(own, *taken), strict=True):
                    pending[k] = pending[k] + part if k in pending else part
            blocks = [
                sparse.csr_array(flat(pending[source], 1).numpy())
                if source in pending
                else sparse.csr_array((len(rows), int(size)))
                for source, size in zip(self.sources, np.diff(self.offsets), strict=True)
            ]
            parts.append(sparse.hstack(blocks, format="csr"))
            biases.append(bias)
        gain, offset, terms = self._sizes[1][number]
        matrix = sparse.vstack(parts, format="csr")
        return AffineRows(matrix, torch.cat(biases), gain.flatten(), offset.flatten(), terms + int(self.offsets[-1]))

    @cached_property
    def _sizes(self) -> tuple[list[tuple[Tensor, Tensor, int]], list[tuple[Tensor, Tensor, int]]]:
        """Of each value: its size for numbers of magnitude 1, what constants add, and how many terms are added up.

        As those who take it see it, where a source counts as such numbers itself; and as it is written out.
        """
        found: list[tuple[Tensor, Tensor, int]] = []
        own: list[tuple[Tensor, Tensor, int]] = []
        for number, shape in enumerate(self.network.shapes):
            size = (torch.ones(1, *shape, dtype=torch.float64), torch.zeros(1, *shape).double(), 1)
            step = self.network.steps[number - 1]
            if number not in self.sources or number in self.plain:
                assert isinstance(step.operation, Affine)
                taken = [self.network.shapes[i] for i in step.inputs]
                gains, offsets, terms = zip(*(found[i] for i in step.inputs), strict=True)
                gain, offset = step.operation.absolute(*gains), step.operation.absolute(*offsets)
                offset = offset + step.operation.at_zero(*taken).abs()
                size = (gain * WIDER, offset * WIDER, sum(terms) + step.operation.terms(*taken))
            own.append(size)
            source = number in self.sources
            found.append((torch.ones_like(size[0]), torch.zeros_like(size[1]), 1) if source else size)
        return found, own


def _kernel_rows(matrix: Any, bias: Any) -> Rows:
    return Rows(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), matrix.data, bias)


def _pattern(matrix: Any) -> Any:
    return sparse.csr_array((np.ones(matrix.nnz), matrix.indices, matrix.indptr), shape=matrix.shape)


def _alike(matrix: Any) -> tuple[Ints, Ints]:
    """The entries in an order in which those that depend on the same stand together, and the group of each place.

    Which entries are pulled back together changes no bound: a group may be wrong.
    """
    if not matrix.nnz:
        return np.arange(matrix.shape[0]), np.zeros(matrix.shape[0], np.int64)
    first, last = matrix.indptr[:-1], matrix.indptr[1:] - 1
    some = last >= first
    ends = [np.where(some, matrix.indices[np.where(some, at, 0)], -1) for at in (first, last)]
    order = np.lexsort(ends)
    fresh = (np.diff(ends[0][order], prepend=-2) != 0) | (np.diff(ends[1][order], prepend=-2) != 0)
    return order, np.cumsum(fresh)
