"""How kernels are compiled: no sum is reordered and no operations are fused, so every machine gives the same bits.

A `kernel` is what Python calls; it is compiled when first called, and kept on disk. What it calls is a `part`. As a
kernel, each part would be optimised and made machine code of once by itself and once more in every caller, which took
half of the time; so parts are only lowered to LLVM, and the kernel is optimised as a whole.

Parts do not count references to arrays, as each mention of a named tuple would count those of all its arrays: the
arrays are the kernel's, parts work in them, and neither make nor return any. A part that does is not compiled.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numba
from llvmlite import ir
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering
from numba.extending import intrinsic, register_jitable

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
SOURCES = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(Path(__file__).parent.glob("*.py")))).hexdigest()


def kernel(function: Kernel) -> Kernel:
    """Compiled when first called, then kept on disk until the source of any kernel or part changes."""
    options: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True, "pipeline_class": _KernelCompiler}
    compiled: Any = None
    with suppress(RuntimeError):  # there is no folder to keep it in that can be written to
        compiled = numba.njit(cache=True, **options)(function)
    # Left to itself, numba looks at the file of the function alone, and would go on using a caller compiled with an
    # older version of what it calls. For a proof that will not do.
    kept: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if not hasattr(kept, "_source_stamp"):
        compiled = numba.njit(**options)(function)
    else:
        kept._source_stamp = SOURCES
    result: Kernel = compiled
    return result


def part(function: Kernel) -> Kernel:
    """Compiled with each kernel that calls it. Called from Python it is interpreted: tests wrap it in `kernel`."""
    return _as_part(function, forceinline=False)


def inlined(function: Kernel) -> Kernel:
    """A small part, copied to where it is called: the search is some percent faster, and compiles an eighth longer."""
    return _as_part(function, forceinline=True)


def _as_part(function: Kernel, **options: Any) -> Kernel:
    same: Kernel = register_jitable(
        error_model="numpy",
        no_cfunc_wrapper=True,
        no_rewrites=True,
        _nrt=False,
        pipeline_class=_PartCompiler,
        **options,
    )(function)
    return same


class _KernelCompiler(Compiler):
    def compile_extra(self, func: Any) -> Any:
        """Compile without looking for garbage: going over all objects again and again took a sixth of the time."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            return super().compile_extra(func)  # type: ignore[no-untyped-call]
        finally:
            if collecting:
                gc.enable()


class _PartLibrary(JITCodeLibrary):
    """The code of a part: linked into its callers as it was lowered."""

    def _optimize_final_module(self) -> None:
        """Left to the kernel."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True


@register_pass(mutates_CFG=True, analysis_only=False)  # type: ignore[no-untyped-call]
class _PartLowering(NativeLowering):
    _name = "part_lowering"

    def run_pass(self, state: Any) -> bool:
        if _holds_arrays(state.return_type):
            raise TypeError(
                f"expected a part that returns numbers, got {state.return_type} from {state.func_id.func_name}"
            )
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)  # type: ignore[no-untyped-call]
        state.flags.no_compile = True
        super().run_pass(state)  # type: ignore[no-untyped-call]
        key: Any = [].append  # callers find the code by a built-in function of its own, which nobody calls
        state.targetctx.insert_user_function(key, state["cr"].fndesc, [state.library])
        state["cr"] = state["cr"]._replace(cfunc=key)
        return True


def _holds_arrays(kind: Any) -> bool:
    """Whether it is an array, or a tuple with one in it."""
    if isinstance(kind, types.BaseTuple):
        members: Any = kind
        return any(_holds_arrays(member) for member in members)
    return isinstance(kind, types.Array)


class _PartCompiler(Compiler):
    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()  # type: ignore[no-untyped-call]
        for pipeline in pipelines:
            passes = pipeline.passes
            pipeline.passes = [(_PartLowering if step is NativeLowering else step, name) for step, name in passes]
            pipeline.finalize()
        return pipelines


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
