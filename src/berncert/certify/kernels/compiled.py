"""How kernels are compiled: no sum is reordered and no operations are fused, so every machine gives the same bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


def kernel(function: Kernel) -> Kernel:
    """Compiled when first called, then kept on disk."""
    compiled: Kernel = numba.njit(**OPTIONS)(function)
    return compiled


def inlined(function: Kernel) -> Kernel:
    """Compiled as a part of each caller: every level of calls costs compile time."""
    compiled: Kernel = numba.njit(inline="always", **OPTIONS)(function)
    return compiled


def _borrowed(typingctx: Any, value: Any) -> Any:
    """An array, or a named tuple of such, without reference counts: they would cost more than a small kernel does.

    The owner must outlive what is borrowed.
    """

    def strip(context: Any, builder: Any, kind: Any, part: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            kinds: Any = kind
            parts = [strip(context, builder, k, builder.extract_value(part, i)) for i, k in enumerate(kinds)]
            return context.make_tuple(builder, kind, parts)
        if not isinstance(kind, types.Array):
            return part
        array = context.make_array(kind)(context, builder, part)
        array.meminfo = ir.Constant(array.meminfo.type, None)
        array.parent = ir.Constant(array.parent.type, None)
        return array._getvalue()

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return strip(context, builder, signature.args[0], args[0])

    return value(value), codegen


borrowed: Any = intrinsic(_borrowed)
