"""The grid k/n on which a head is sampled: its points, batch by batch, and the memory its samples take."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from berncert.foundation.arguments import checked_count


def degrees_per_axis(dim: int, degree: int | Sequence[int]) -> tuple[int, ...]:
    """One degree >= 1 for each of the dim axes, from one for all of them or one for each."""
    dim = checked_count("dim", dim)
    if isinstance(degree, Sequence) and not isinstance(degree, str):
        degrees = tuple(checked_count("degree", n) for n in degree)
        if len(degrees) != dim:
            raise ValueError(f"expected one degree or {dim} (one for each axis), got {len(degrees)}: {degree!r}")
        return degrees
    return (checked_count("degree", degree),) * dim


def grid_batches(degrees: Sequence[int], batch_size: int) -> Iterator[Tensor]:
    """The points k/n in float64, rows in the order of a row-major net; never more than batch_size at once."""
    count = math.prod(n + 1 for n in degrees)
    for start in range(0, count, batch_size):
        flat = torch.arange(start, min(start + batch_size, count))
        columns = []
        for n in reversed(degrees):
            columns.append((flat % (n + 1)).double() / n)
            flat = flat // (n + 1)
        yield torch.stack(columns[::-1], dim=1)


def check_fits(classes: int, degrees: Sequence[int], dtype: torch.dtype, device: torch.device) -> None:
    """Raise a MemoryError that names the size if the coefficients would not fit, before they are allocated."""
    count = classes * math.prod(n + 1 for n in degrees)
    size = count * dtype.itemsize
    available = available_bytes(device)
    if 2 * size > available:  # twice: once as batches, once joined
        raise MemoryError(
            f"expected coefficients that fit in memory, got {_readable(count)} of them (at least {classes} classes, "
            f"{len(degrees)} axes, degree at most {max(degrees)}): {_gib(size)}, and twice that while they are "
            f"gathered, with {_gib(available)} available on {device}; lower the degree or the number of features"
        )


def available_bytes(device: torch.device) -> int:
    """How many bytes can still be allocated on the device; 2^63 where the system does not say."""
    if device.type == "cuda":
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0]) + cached
    meminfo, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    if not meminfo.exists():
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**63
    lines = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    available = int(lines["MemAvailable"].split()[0]) * 1024
    # a container may be allowed less than its host has
    allowed = limit.read_text().strip() if limit.exists() else "max"
    return available if allowed == "max" else min(available, int(allowed))


def _gib(size: int) -> str:
    return f"{size / 2**30:.3g} GiB" if size < 2**39 else f"{_readable(size >> 30)} GiB"


def _readable(count: int) -> str:
    return f"{count:,}" if count < 10**15 else f"about 10^{math.log10(count):.0f}"
