"""Kernels are compiled from what the source says now."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import berncert
from berncert.certification.kernels.compiled import kernel, part
from berncert.foundation.arrays import Floats

PROGRAM = """
import numpy
from berncert.certification.kernels import compiled, minorant
moment_weights = compiled.kernel(minorant.moment_weights)
linear, square = numpy.empty(3), numpy.empty(3)
slope, mean = numpy.empty(3), numpy.empty(3)
moment_weights(3, mean, linear, square)  # calls nodes, a part
print(mean[0])
"""


@pytest.mark.parametrize("changed", ["tensor.py", "minorant.py"])
def test_a_change_in_any_kernel_file_makes_numba_compile_anew(tmp_path: Path, changed: str) -> None:
    package = tmp_path / "berncert"
    shutil.copytree(Path(berncert.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def kept() -> set[tuple[str, bytes]]:
        subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True)
        return {(p.name, p.read_bytes()) for p in (tmp_path / "cache").rglob("*.nbi")}

    first = kept()
    assert first
    assert kept() == first
    source = package / "certification" / "kernels" / changed
    source.write_text(source.read_text() + "\n# changed\n")
    assert not kept() & first


def test_where_nothing_can_be_kept_kernels_are_compiled_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(function: object) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    def double(x: float) -> float:
        return 2 * x

    monkeypatch.setattr("numba.core.dispatcher.FunctionCache", refuse)
    assert kernel(double)(1.5) == 3.0


@part
def halved(x: float) -> float:
    return x / 2


@part
def quarter(x: float) -> float:
    return halved(halved(x))


def test_a_part_is_compiled_with_the_kernel_that_calls_it_and_is_python_elsewhere() -> None:
    def eighth(x: float) -> float:
        return quarter(x) / 2

    compiled = kernel(eighth)
    assert compiled(1.0) == 0.125
    assert quarter(1.0) == 0.25
    with pytest.raises(ZeroDivisionError):
        quarter_of_nothing()
    assert kernel(quarter_of_nothing)() == float("inf")


@part
def first_half(x: Floats) -> Floats:
    return x[: x.size // 2]


@part
def the_same(x: Floats) -> tuple[Floats, int]:
    return x, 1


@part
def new_array(n: int) -> int:
    return int(np.empty(n).size)


@pytest.mark.parametrize("refused", [first_half, the_same])
def test_a_part_that_returns_an_array_is_refused(refused: Any) -> None:
    def caller(x: Floats) -> None:
        refused(x)

    with pytest.raises(Exception, match=r"expected a part that returns numbers|returning of array passed into"):
        kernel(caller)(np.ones(4))


def test_a_part_that_makes_an_array_is_refused() -> None:
    def caller(n: int) -> int:
        return new_array(n)

    with pytest.raises(Exception, match="returning of array passed into"):
        kernel(caller)(4)


def test_a_kernel_leaves_the_collector_of_garbage_as_it_was() -> None:
    def identity(x: float) -> float:
        return x

    assert gc.isenabled()
    kernel(identity)(1.0)
    assert gc.isenabled()
    gc.disable()
    try:
        kernel(identity)(2.0)
        assert not gc.isenabled()
    finally:
        gc.enable()


@part
def quarter_of_nothing() -> float:
    return 1.0 / quarter(0.0)
