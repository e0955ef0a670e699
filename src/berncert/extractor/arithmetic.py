"""How torch computes while a network is frozen, run or bounded: plain sums of products, on the CPU by default."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from threading import Lock
from typing import Any

import torch


class _PlainSettings:
    """Torch's settings of its arithmetic, which all threads share: plain while any frozen network computes."""

    def __init__(self) -> None:
        self.lock, self.users, self.stack = Lock(), 0, ExitStack()

    def enter(self) -> None:
        with self.lock:
            if self.users == 0:
                self._set()
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                self.stack.close()

    def _set(self) -> None:
        backends: Any = torch.backends
        self.stack.enter_context(backends.nnpack.flags(enabled=False))
        parts = [backends.mkldnn.matmul, backends.mkldnn.conv]
        if torch.cuda.is_available():
            self.stack.enter_context(backends.cudnn.flags(enabled=False, allow_tf32=False))
            parts += [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]  # torch wants these two to agree
        if platform.machine().lower() not in ("x86_64", "amd64"):
            onednn = backends.mkldnn.set_flags
            self.stack.callback(onednn, onednn(False, None, None, None)[0], None, None, None)
        for part in parts:
            chosen = part.fp32_precision
            if chosen not in ("none", "ieee"):
                inherited = chosen == backends.fp32_precision
                self.stack.callback(setattr, part, "fp32_precision", "none" if inherited else chosen)
                part.fp32_precision = "ieee"


_PLAIN = _PlainSettings()


@contextmanager
def plain_arithmetic() -> Iterator[None]:
    """The arithmetic that rounding bounds assume: sums of products in the dtype of the values, in any order.

    No reduced precision (TF32, bfloat16, automatic mixed precision), and no convolutions by way of transforms
    (Winograd, FFT), which NNPACK and cuDNN may choose, and oneDNN on other processors than x86.
    """
    _PLAIN.enter()
    try:
        with torch.autocast("cpu", enabled=False), torch.autocast("cuda", enabled=False):
            yield
    finally:
        _PLAIN.leave()


def on_cpu() -> AbstractContextManager[object]:
    """New tensors are made on the CPU, whatever the caller's default device is."""
    return nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
