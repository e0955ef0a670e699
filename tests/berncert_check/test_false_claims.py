"""False claims at the edges of the rules, written by hand: each is refused, and what is true beside it accepted."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from berncert_check_files import write

from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, check_file
from berncert_check.proof_file import UnusableError

LARGEST = sys.float_info.max
CLAMP = {"kind": "clamp", "low": "0x0p+0", "high": "0x1p+0"}
POSITIVE, FAR = 251, 252


def head(coefficients: list[float], **changes: Any) -> tuple[str, dict[str, Any], dict[str, np.ndarray]]:
    """Two classes on one feature: lines with these values at 0 and 1."""
    fields = {"format": "berncert-proof", "version": 1, "norm": "2", "classes": 2, "exponent": 0, "about": {}}
    fields |= {"rounding": "0x1p-40", "head": "dense", "degrees": [1]}
    return "HEAD", fields | changes, {"coefficients": np.array(coefficients)}


def row(x0: float, radius: float, limits: list[float], box: list[float], tag: int, **more: Any) -> Any:
    """A row whose tree is one leaf; `more` are fields, or arrays where they are lists."""
    arrays = {"x0": [x0], "weight": [1.0], "limits": limits, "box": box}
    arrays |= {name: value for name, value in more.items() if isinstance(value, list)}
    fields = {"index": 0, "predicted": 0, "radius": radius.hex()}
    fields |= {name: value for name, value in more.items() if not isinstance(value, list)}
    numbers = {name: np.array(value, np.float64) for name, value in arrays.items()}
    return "ROW", fields, numbers | {"tags": np.array([tag], np.uint8), "hints": np.zeros(0, np.float32)}


def net(by: float, units: list[float] | None = None) -> Any:
    """Every input has the feature `by`, clamped: the bound of the network is 0."""
    steps = [{"kind": "scale"}, {"kind": "shift"}, CLAMP]
    fields = {"norm": "2", "arithmetic": "real", "inputs": 1, "steps": steps}
    arrays = {"0.by": np.zeros(1), "1.by": np.array([by])} | ({"units": np.array(units)} if units else {})
    return "NET", fields, arrays


def verdict(folder: Path, *blocks: Any) -> str:
    write(folder / "made.bin", [*blocks, ("END", {"rows": 1}, {})])
    try:
        (found,) = check_file(folder / "made.bin")
    except UnusableError:
        return "UNUSABLE"
    return found.verdict


@pytest.mark.parametrize("claimed", ["0x1.f4p+9", "inf"])
@pytest.mark.parametrize("table", [False, True])
def test_a_constant_network_whose_feature_is_at_the_radius_itself_is_rejected(
    tmp_path: Path, table: bool, claimed: str
) -> None:
    """The tree excludes points nearer than the radius; the feature of all inputs lies at it, and has another class."""
    columns = {"columns": [-LARGEST, LARGEST]} if table else {}
    units = [1.0] if table else None
    x0, limits = (0.125, [0.25, 1.0]) if table else (-0.5, [0.0, 1.0])
    at = 0.25 if table else 0.0
    box = [at, at + abs(x0)]
    more = {"input_radius": claimed, "input": [0.3]} | columns
    made = (head([0.0, 1.0, 0.5, 0.5]), net(at, units), row(x0, abs(at - x0), limits, box, FAR, **more))
    assert verdict(tmp_path, *made) == REJECTED


def test_a_constant_network_whose_feature_is_nearer_than_the_radius_is_accepted(tmp_path: Path) -> None:
    more = {"input_radius": "0x1.f4p+9", "input": [0.3]}
    inside = row(0.75, 0.125, [0.0, 1.0], [0.625, 0.875], POSITIVE, **more)
    assert verdict(tmp_path, head([0.0, 1.0, 0.5, 0.5]), net(0.75), inside) == ACCEPTED


def test_an_affine_head_whose_sums_overflow_is_unsupported(tmp_path: Path) -> None:
    """In exact arithmetic the constant class wins at (0.9, 0.9); a partial sum of the other one is inf in float64."""
    weight, bias = np.array([0.0, 0.0, LARGEST, LARGEST]), np.array([0.9 * LARGEST, -LARGEST])
    changes = {"head": "sum", "features": 2, "terms": [], "exponent": 1024}
    kind, fields, _ = head([], **changes)
    _, about, arrays = row(0.9, 0.01, [0.0, 1.0], [0.875, 0.925], POSITIVE)
    twice = {name: np.repeat(values, 2) if name not in ("tags", "hints") else values for name, values in arrays.items()}
    for factor, expected in ((1.0, UNSUPPORTED), (2.0**-40, ACCEPTED)):
        block = (kind, fields, {"weight": factor * weight, "bias": factor * bias})
        fields["exponent"] = 1024 if factor == 1 else 984
        assert verdict(tmp_path, block, ("ROW", about, twice)) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ACCEPTED),
        ({"limits": [-9.0, 9.0], "witness": [-1.0], "upper": "0x1.cp+0"}, REJECTED),  # not in the cube
        ({"limits": [1.0, 0.0]}, REJECTED),
        ({"weight": [0.0]}, REJECTED),
        ({"weight": [-1.0]}, REJECTED),
        ({"rival": None}, "UNUSABLE"),
        ({"upper": None}, "UNUSABLE"),
        ({"radius": "-0x1p+0"}, REJECTED),
        ({"radius": "0.25"}, "UNUSABLE"),  # decimal: neither 0.25 nor hexadecimal
        ({"radius": " 0x0p+0"}, "UNUSABLE"),
        ({"radius": "0x1.00000000000000000001p-2"}, "UNUSABLE"),  # more digits than a float64 has
        ({"radius": "0x1p-9999"}, "UNUSABLE"),
    ],
)
def test_a_row_without_a_radius_still_has_to_be_one(tmp_path: Path, changes: dict[str, Any], expected: str) -> None:
    kind, fields, arrays = row(0.75, 0.0, [0.0, 1.0], [0.5, 1.0], POSITIVE)
    fields |= {"rival": 1, "upper": "0x1p-1"}
    arrays["witness"] = np.array([0.25])
    for name, value in changes.items():
        if name in arrays:
            arrays[name] = np.array(value)
        elif value is None:
            del fields[name]
        else:
            fields[name] = value
    assert verdict(tmp_path, head([0.0, 1.0, 0.5, 0.5]), (kind, fields, arrays)) == expected


def test_a_negative_radius_of_inputs_and_columns_in_disorder_are_rejected(tmp_path: Path) -> None:
    block = head([0.0, 1.0, 0.5, 0.5])
    for claimed, columns, expected in (
        ("0x1p+0", [-1.0, 1.0], ACCEPTED),
        ("-0x1p+0", [-1.0, 1.0], REJECTED),
        ("0x1p+0", [1.0, -1.0], REJECTED),
    ):
        more = {"input_radius": claimed, "input": [0.3], "columns": columns}
        inside = row(0.75, 0.125, [0.0, 1.0], [0.625, 0.875], POSITIVE, **more)
        assert verdict(tmp_path, block, net(0.75, [1.0]), inside) == expected
