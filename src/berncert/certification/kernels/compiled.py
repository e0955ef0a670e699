"""How kernels are compiled: no sum is reordered and no operations are fused, so every machine gives the same bits."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
SOURCES = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


def kernel(function: Kernel) -> Kernel:
    """Compiled when first called, then kept on disk until the source of any kernel changes."""
    return _compiled(function, inline="never")


def inlined(function: Kernel) -> Kernel:
    """Compiled as a part of each caller: every level of calls costs compile time."""
    return _compiled(function, inline="always")


def _compiled(function: Kernel, **options: Any) -> Kernel:
    compiled: Any = None
    with suppress(RuntimeError):  # there is no folder to keep it in that can be written to
        compiled = numba.njit(cache=True, nogil=True, error_model="numpy", **options)(function)
    # Left to itself, numba looks at the file of the function alone, and would go on using a caller compiled with an
    # older version of what it calls. For a proof that will not do.
    kept: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if not hasattr(kept, "_source_stamp"):
        compiled = numba.njit(nogil=True, error_model="numpy", **options)(function)
    else:
        kept._source_stamp = SOURCES
    result: Kernel = compiled
    return result


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
