"""The device and the number of threads that torch computes with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from berncert.foundation.arguments import checked_count


def chosen_device(name: torch.device | str | None) -> torch.device:
    """The device of that name; None is a GPU if there is one, else the CPU."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        first = str(error).splitlines()[0]
        raise ValueError(
            f"expected a device that torch knows and sees here, e.g. cpu, got {name!r}: {first}"
        ) from error
    return device


def use_threads(count: int | None) -> None:
    """Let torch use so many threads on the CPU; None leaves the choice to torch."""
    if count is None:
        return
    threads, most = checked_count("threads", count), 4 * (os.cpu_count() or 1)
    if threads > most:
        raise ValueError(f"expected at most {most} threads on this machine, got {threads}")
    torch.set_num_threads(threads)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads of torch, for a while."""
    before = torch.get_num_threads()
    if count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if count != before:
            torch.set_num_threads(before)


def has_bfloat16(device: torch.device) -> bool:
    """Whether the device multiplies numbers of 16 bits faster than those of 32."""
    return device.type == "cuda" or torch.cpu._is_avx512_bf16_supported()
