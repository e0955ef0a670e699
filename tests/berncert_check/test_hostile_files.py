"""Files that were made to harm: each ends in a refusal, soon, without a traceback."""

from __future__ import annotations

import hashlib
import struct
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from berncert_check_files import blocks_of, write

import berncert
from berncert_check.__main__ import main
from berncert_check.norms import norm, parse_norm


@pytest.fixture(scope="module")
def proof(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("proof") / "proof.bin"
    head = berncert.SmoothedHead(torch.tensor([[0.0, 0.3, 1.0], [0.5, 0.5, 0.4]], dtype=torch.float64))
    berncert.certify(head, [[0.2]], proof=path)
    assert main([str(path)]) == 0
    return path


def sealed(kind: bytes, content: bytes, length: int | None = None) -> bytes:
    head = kind + struct.pack("<Q", len(content) if length is None else length)
    return head + content + hashlib.sha256(bytes(32) + head + content).digest()


def with_text(text: bytes) -> bytes:
    return sealed(b"HEAD", struct.pack("<I", len(text)) + text)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"HEAD",
        sealed(b"HEAD", b"", 1 << 62),
        sealed(b"HEAD", b"abc", 1 << 27),
        sealed(b"HEAD", struct.pack("<I", 1 << 31)),
        sealed(b"EVIL", b"\x02\0\0\0{}"),
        with_text(b"[" * 100_000),
        with_text(b"{" * 100_000),
        with_text(b'{"arrays": [["a", "f8", 1000000000000]]}'),
        with_text(b'{"arrays": [["a", "f8", -1]]}'),
        with_text(b'{"arrays": [["a", "f8", 1e3]]}'),
        with_text(b'{"arrays": [["a", "f8", true]]}'),
        with_text(b'{"arrays": [["a", "f8", 0], ["a", "f8", 0]]}'),
        with_text(b'{"arrays": [[["a"], "f8", 0]]}'),
        with_text(b'{"arrays": [], "a": NaN}'),
        with_text(b'{"arrays": [], "a": ' + b"9" * 10_000 + b"}"),
        with_text(b'{"arrays": [], "a": 1, "a": 2}'),
        with_text(b'{"arrays": 5}'),
        with_text(b"[]"),
        with_text(b"\xff\xfe"),
    ],
)
def test_broken_blocks_are_unusable(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.bin").write_bytes(content)
    assert main([str(tmp_path / "bad.bin")]) == 2


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("degrees", [10**12]), ("degrees", [1] * 1_000), ("degrees", []), ("degrees", [0]), ("degrees", [-3]),
        ("degrees", "2"), ("degrees", [True]), ("exponent", 10**9), ("exponent", -(10**9)), ("exponent", "1"),
        ("classes", 10**15), ("classes", -1), ("norm", "1e999999999"), ("norm", "3/0"), ("norm", "99999999/1"),
        ("norm", 2), ("norm", "1/2"), ("rounding", "0x0p0"), ("rounding", "inf"), ("rounding", "nan"),
        ("rounding", "-0x1p9"), ("rounding", "0x1p99999999"), ("version", 2), ("head", ["dense"]),
    ],
)  # fmt: skip
def test_heads_with_nonsense_are_unusable(proof: Path, tmp_path: Path, name: str, value: object) -> None:
    blocks = blocks_of(proof)
    blocks[0][1][name] = value
    write(tmp_path / "bad.bin", blocks)
    assert main([str(tmp_path / "bad.bin")]) in (2, 3)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("index", -1), ("index", True), ("index", "0"), ("predicted", "0"), ("predicted", 10**30), ("predicted", 5),
        ("radius", 0.3), ("radius", "nan"), ("radius", "-inf"), ("radius", "-0x1p0"), ("radius", None), ("rival", -1),
        ("upper", "nan"), ("upper", None), ("input_radius", "0x1p0"),
    ],
)  # fmt: skip
def test_rows_with_nonsense_are_not_accepted(proof: Path, tmp_path: Path, name: str, value: object) -> None:
    blocks = blocks_of(proof)
    blocks[1][1][name] = value
    write(tmp_path / "bad.bin", blocks)
    assert main([str(tmp_path / "bad.bin")]) in (1, 2)


@pytest.mark.parametrize("array", ["x0", "weight", "limits", "box", "witness", "hints", "tags"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 5e-324, 1e308, -1.0])
def test_arrays_with_nonsense_are_not_accepted(proof: Path, tmp_path: Path, array: str, value: float) -> None:
    blocks = blocks_of(proof)
    arrays = blocks[1][2]
    arrays[array] = np.full(max(arrays[array].size, 1), value, np.float64)
    write(tmp_path / "bad.bin", blocks)
    assert main([str(tmp_path / "bad.bin")]) in (1, 2)


def test_trees_without_end_and_deep_ones_are_rejected(proof: Path, tmp_path: Path) -> None:
    for tags in (np.zeros(1_000_000, np.uint8), np.zeros(0, np.uint8), np.full(50, 251, np.uint8)):
        blocks = blocks_of(proof)
        blocks[1][2]["tags"] = tags
        write(tmp_path / "bad.bin", blocks)
        assert main([str(tmp_path / "bad.bin")]) == 1


def test_norms_of_rational_p_enclose_known_values() -> None:
    for text in ("3/2", "3", "7/3", "64/63"):
        p = parse_norm(text)
        assert p is not None
        low, high = norm([Fraction(x) for x in (1, -1, 0)], p)  # 2^(1/p)
        assert low**p.numerator <= 2**p.denominator <= high**p.numerator
        assert high - low < Fraction(1, 2**80)
    sides = [Fraction(3), Fraction(4), Fraction(5)]  # 27 + 64 + 125 = 216
    low, high = norm(sides, Fraction(3))
    assert low <= 6 <= high
    assert high - low < Fraction(1, 2**80)
