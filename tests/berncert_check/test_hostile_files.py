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
        with_text(b"\xef\xbb\xbf{}"),
        with_text(b'{"arrays": [], "about": {"a": 1, "a": 1}}'),
        with_text(b'{"arrays": [], "about": ' + b"[" * 50_000 + b"]" * 50_000 + b"}"),
        with_text(b'{"arrays": [], "about": [' + b"[]," * (1 << 23) + b"[]]}"),
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
        ("rounding", "-0x1p9"), ("rounding", "0x1p99999999"), ("norm", "\uff12"), ("rounding", "0x1p\u0661"),
        ("rounding", "0x1p0\n"), ("degrees", {"0": 1}), ("classes", "\u0662"), ("version", 2), ("version", True),
        ("head", ["dense"]),
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


def test_texts_of_a_file_reach_the_terminal_as_one_line_of_ascii(
    proof: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for text in ("x\nrow 0: ACCEPTED\n355 ACCEPTED\x1b[8m" + "y" * 1000, "\ud800\u202e"):
        blocks = blocks_of(proof)
        blocks[1][1]["why"] = text
        for name in ("tags", "hints", "box"):
            del blocks[1][2][name]
        write(tmp_path / "bad.bin", blocks)
        assert main([str(tmp_path / "bad.bin")]) == 3
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 3
        assert all(line.isascii() and line.isprintable() and len(line) < 300 for line in lines)
        blocks = blocks_of(proof)
        blocks[0][1]["head"] = text
        write(tmp_path / "bad.bin", blocks)
        assert main([str(tmp_path / "bad.bin")]) == 3
        assert all(line.isascii() and line.isprintable() for line in capsys.readouterr().out.splitlines())


def test_a_file_without_a_head_is_unusable_and_one_without_rows_proves_nothing(
    proof: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head, _, _ = blocks_of(proof)
    end = ("END", {"rows": 0}, {})
    write(tmp_path / "end.bin", [end])
    assert main([str(tmp_path / "end.bin")]) == 2
    write(tmp_path / "head.bin", [head, end])
    assert main([str(tmp_path / "head.bin")]) == 3
    assert "no rows: nothing is proven" in capsys.readouterr().out


def test_a_radius_of_0_hides_neither_a_class_that_is_not_there_nor_a_false_witness(proof: Path, tmp_path: Path) -> None:
    for change, code in (({}, 0), ({"predicted": 7}, 1), ({"upper": "0x1p-40"}, 1), ({"rival": 7}, 2)):
        blocks = blocks_of(proof)
        blocks[1][1].update({"radius": "0x0p+0"} | change)
        write(tmp_path / "zero.bin", blocks)
        assert main([str(tmp_path / "zero.bin")]) == code, change


def dense(classes: int, degree: int) -> tuple[str, dict[str, object], dict[str, np.ndarray]]:
    fields = {"format": "berncert-proof", "version": 1, "norm": "2", "classes": classes, "exponent": 0, "about": {}}
    numbers = np.zeros(classes * (degree + 1), np.uint8)
    numbers[: degree + 1] = 1
    return "HEAD", fields | {"rounding": "0x1p-20", "head": "dense", "degrees": [degree]}, {"coefficients": numbers}


def one_row(classes: int, corner: float) -> tuple[str, dict[str, object], dict[str, np.ndarray]]:
    arrays = {"x0": [0.5], "weight": [1.0], "limits": [0.0, 1.0], "box": [corner, 1.0]}
    tags = {"tags": np.full(classes - 1, 251, np.uint8), "hints": np.zeros(0, np.float32)}
    fields = {"index": 0, "predicted": 0, "radius": "0x1p-2"}
    return "ROW", fields, {name: np.array(values) for name, values in arrays.items()} | tags


@pytest.mark.parametrize(
    ("classes", "degree", "corner", "code"),
    [
        (2, 40, 2.0**-128, 0),
        (2, 300, 2.0**-128, 0),
        (2, 7000, 2.0**-128, 3),
        (2, 1 << 20, 0.125, 3),
        (1 << 20, 1, 0.0, 2),
    ],
)
def test_small_files_that_would_take_all_memory_or_hours_are_refused_at_once(
    tmp_path: Path, classes: int, degree: int, corner: float, code: int
) -> None:
    write(tmp_path / "bad.bin", [dense(classes, degree), one_row(classes, corner), ("END", {"rows": 1}, {})])
    assert main([str(tmp_path / "bad.bin")]) == code


def test_a_table_with_a_huge_matrix_that_is_not_in_the_file_is_unsupported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    d = 20_000
    head = dense(2, 1)
    fields = head[1] | {"norm": "inf", "head": "sum", "features": d, "terms": []}
    weights = {"weight": np.zeros(2 * d, np.uint8), "bias": np.array([1, 0], np.uint8)}
    steps = [{"kind": "clamp", "low": "0x0p+0", "high": "0x1p+0"}]
    net = {"norm": "inf", "arithmetic": "real", "inputs": d, "steps": steps}
    row = ("ROW", {"index": 0, "predicted": 0, "radius": "0x1p-2", "input_radius": "0x1p-2"}, {})
    units = {"units": np.ones(d, np.uint8)}
    write(tmp_path / "bad.bin", [("HEAD", fields, weights), ("NET", net, units), row, ("END", {"rows": 1}, {})])
    assert main([str(tmp_path / "bad.bin")]) == 3
    assert "a table with too many columns" in capsys.readouterr().out


@pytest.mark.parametrize("error", [MemoryError, RecursionError])
def test_where_memory_ends_the_file_is_unusable(
    proof: Path, error: type[Exception], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ended(*_: object) -> None:
        raise error

    monkeypatch.setattr("berncert_check.checking.check_tree", ended)
    assert main([str(proof)]) == 2
    assert "cannot be used: it needs too much memory" in capsys.readouterr().err


def test_what_a_row_is_restricted_to_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = berncert.SmoothedHead(torch.tensor([[[0.0, 0.3], [0.2, 1.0]], [[0.5, 0.5], [0.5, 0.4]]]).double())
    said = {"weighted", "within limits of features", "with fixed features", "from an input outside its own limits"}
    for options, expected in (
        ({}, set()),
        ({"weights": [1.0, 2.0]}, {"weighted"}),
        ({"upper": [0.5, 1.0]}, {"within limits of features"}),
        ({"lower": [0.0, 0.3], "upper": [1.0, 0.3]}, {"within limits of features", "with fixed features"}),
        ({"lower": [0.3, 0.0]}, {"within limits of features", "from an input outside its own limits"}),
    ):
        berncert.certify(head, [[0.2, 0.3]], proof=tmp_path / "proof.bin", **options)
        assert main([str(tmp_path / "proof.bin"), "--all"]) == 0
        row, *rest = capsys.readouterr().out.splitlines()
        summary = "\n".join(rest)
        assert {words for words in said if words in row} == expected
        assert {words for words in said if f"1 of the accepted rows: {words}" in summary} == expected
