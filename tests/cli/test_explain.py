"""`berncert explain` as a user calls it."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from explained_toys import open_classifier, saved
from torch import nn

import berncert
from berncert import data
from berncert.certification.methods import Exact
from berncert.certification.status import Status
from berncert.cli import main
from berncert.cli.explain import _derivation, _overtakes
from berncert.data import load
from berncert.foundation.rounding import floor_digits
from berncert.reporting.explanation import Sample, explain

Capture = pytest.CaptureFixture[str]
QUICK = ["--no-attack", "--no-picture"]


def test_an_image_is_explained_and_drawn_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", "digits", "--index", "3"]) == 0
    text = capsys.readouterr().out
    (c,) = berncert.certify(berncert.load("digits"), data.load("digits", "test").images[3:4])
    radius = floor_digits(c.radius, 4)
    for part in (
        "digits, test image 3: labelled '8', classified as '8': correct",
        f"proven: no image within l2 distance {radius}",
        "found by attack: one at", "PROVEN: the radius is within the tolerance", "(checked)",
        "how the radius is computed", "/ 0.1666", f"= {radius}", "overtakes at", "boxes searched", "degree 2",
        "the picture: explain-digits-3.png",
    ):  # fmt: skip
        assert part in text
    assert (tmp_path / "explain-digits-3.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("words", [["--norm", "1"], ["--norm", "inf"], ["--degree", "2"]])
def test_nothing_is_printed_that_is_more_than_what_is_proven(words: list[str], capsys: Capture) -> None:
    assert main(["explain", "digits", "--index", "0", *words, *QUICK]) == 0
    text = capsys.readouterr().out
    assert main(["explain", "digits", "--index", "0", "--json", *words, *QUICK]) == 0
    record = json.loads(capsys.readouterr().out)

    def printed(pattern: str) -> float:
        return float(re.search(pattern, text, re.MULTILINE)[1])  # type: ignore[index]

    proven = [
        (printed(r"distance (\S+) has another class"), record["radius"]),
        (printed(r"^= (\S+)"), record["radius"]),
        (printed(r"^ +(\S+) +proven distance"), record["feature_radius"]),
    ]
    limits = [
        (printed(r"^- 2 x (\S+)"), record["extraction_error"]),
        (printed(r"^/ (\S+)"), record["lipschitz_bound"]),
        (printed(r"a point at (\S+) has class"), record["feature_upper"]),
    ]
    names = record["data"]["classes"]
    for rival in record["rivals"]:
        cells = rf"^ *{names[rival['number']]} +\S+ +\S+% +\S+ +(\S+) +(\S+) +(\S+) *$"
        to, at, pixels = map(float, re.search(cells, text, re.MULTILINE).groups())  # type: ignore[union-attr]
        proven += [(to, rival["feature_radius"]), (pixels, rival["radius"])]
        limits += [(at, rival["feature_upper"])]
    for shown, known in proven:
        assert known * 0.999 <= shown <= known
    for shown, known in limits:
        assert known <= shown <= known * 1.1


def test_of_the_local_route_no_largest_radius_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(64, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 10)]
    berncert.write_onnx(berncert.freeze(nn.Sequential(*layers), (1, 8, 8)), "net.onnx")
    words = ["explain", "net.onnx", "--data", "digits", "--index", "3", *QUICK]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "within the tolerance" not in text
    for part in ("LOCAL: by bounds that hold near this input", "by the local route", "it would be", "the widest first"):
        assert part in text
    assert main([*words, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["route"] == "local"
    assert 0 < record["radius_by_bound"] < record["radius"]
    assert len(record["reached"]["upper"]) == 10
    assert main([*words, "--routes", "global", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["radius"] == record["radius_by_bound"]


def test_without_a_witness_what_is_known_is_printed() -> None:
    sample = Sample("toy", "test", 0, torch.tensor([0.5]), 0, ("a", "b"))
    e = explain(open_classifier(torch.tensor([[3.0, 3.0], [0.0, 1.0]])), sample, Exact(), attack=False)
    assert (e.status, e.certificate.in_features.rival) == (Status.LEAVES_CUBE, -1)
    assert "in l2; no point of the cube has another class" in "\n".join(_derivation(e))
    (rival,) = e.rivals
    assert (_overtakes(rival), rival.radius) == ("never", pytest.approx(0.5))
    stopped = dataclasses.replace(rival, feature_radius=0.4, status=Status.BUDGET)
    e = dataclasses.replace(e, rivals=(stopped,))
    assert "in l2; no point of another class is known" in "\n".join(_derivation(e))
    assert _overtakes(stopped) == "unknown"


def test_the_numbers_as_json_are_those_of_certify(capsys: Capture) -> None:
    assert main(["explain", "digits", "--index", "12", "--norm", "inf", "--json", *QUICK]) == 0
    record = json.loads(capsys.readouterr().out)
    (c,) = berncert.certify(berncert.load("digits"), data.load("digits", "test").images[12:13], norm=float("inf"))
    assert (record["radius"], record["predicted"]) == (c.radius, c.predicted)
    assert (record["features"], record["witness"]) == (c.features.tolist(), c.in_features.witness.tolist())
    assert record["picture"] is None
    assert record["found"] is None
    assert len(record["rivals"]) == 9


def test_a_degree_smooths_the_base_head_again(capsys: Capture) -> None:
    assert main(["explain", "digits", "--index", "3", "--degree", "3", "--json", *QUICK]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["degree"] == [3] * 6
    (c,) = berncert.certify(berncert.load("digits"), data.load("digits", "test").images[3:4])
    assert record["radius"] != c.radius  # the base head is a polynomial of degree 2: smoothed again it is another
    assert record["radius"] == pytest.approx(c.radius, rel=0.1)


def test_an_image_that_is_wrong_is_reported_as_such(capsys: Capture) -> None:
    test, model = data.load("digits", "test"), berncert.load("digits")
    index = int((model(test.images).argmax(dim=1) != test.labels).nonzero()[0])
    assert main(["explain", "digits", "--index", str(index), *QUICK]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(": wrong")


def test_the_other_split_has_other_images(capsys: Capture) -> None:
    assert main(["explain", "digits", "--split", "train", "--index", "1441", *QUICK]) == 0
    assert "digits, train image 1441" in capsys.readouterr().out
    assert main(["explain", "digits", "--split", "train", "--index", "1442", *QUICK]) == 2
    assert "digits has 1,442 train images" in capsys.readouterr().err


def test_a_degree_beyond_memory_ends_with_1(capsys: Capture) -> None:
    assert main(["explain", "digits", "--index", "1", "--degree", "40", *QUICK]) == 1
    assert "lower the degree" in capsys.readouterr().err


@pytest.mark.parametrize("suffix", ["svg", "pdf"])
def test_pictures_are_written_where_they_are_wanted_in_the_same_bytes(suffix: str, tmp_path: Path) -> None:
    saved(tmp_path / "model.safetensors", about={"recipe": {"data": {"dataset": str(own(tmp_path))}}})
    paths = [tmp_path / "deep" / f"{name}.{suffix}" for name in ("one", "two")]
    for path in paths:
        assert (
            main(["explain", str(tmp_path), "--index", "1", "--out", str(path), "--split", "all", "--no-attack"]) == 0
        )
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert [path.name for path in (tmp_path / "deep").iterdir() if path.name.startswith(".")] == []


def test_data_of_ones_own_is_taken_and_names_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "model.safetensors")
    assert (
        main(
            [
                "explain",
                "model.safetensors",
                "--data",
                str(own(tmp_path)),
                "--index",
                "2",
                "--split",
                "all",
                "--no-attack",
            ]
        )
        == 0
    )
    assert "the picture: explain-own-2.png" in capsys.readouterr().out


def test_an_image_has_the_number_that_it_has_in_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "model.safetensors")
    images = torch.rand(12, 1, 4, 4, generator=torch.Generator().manual_seed(2)).numpy()
    np.savez("twelve.npz", x=images, y=np.arange(12) % 4)
    test = load("twelve.npz", "test")
    words = ["explain", "model.safetensors", "--data", "twelve.npz", "--no-attack", "--no-picture", "--index"]
    for row, index in enumerate(test.indices.tolist()):
        assert main([*words, str(index)]) == 0
        assert f"test image {index}: labelled '{test.labels[row]}'" in capsys.readouterr().out
    other = next(index for index in range(12) if index not in test.indices.tolist())
    assert main([*words, str(other)]) == 2
    assert "which is of another split; take it with --split 'all'" in capsys.readouterr().err
    assert main([*words, str(other), "--split", "all"]) == 0
    assert main([*words, "12"]) == 2
    assert "expected an index from 0 to 11, as twelve.npz has 12 images, got 12" in capsys.readouterr().err


def own(folder: Path) -> Path:
    """Four images of four classes."""
    images = torch.rand(4, 1, 4, 4, generator=torch.Generator().manual_seed(2)).numpy()
    np.savez(folder / "own.npz", x=images, y=np.arange(4))
    return folder / "own.npz"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits", "--index", "355"], "expected an index from 0 to 354, as digits has 355 test images, got 355"),
        (["digits", "--index", "-1"], "index >= 0, got -1"),
        (["digits", "--index", "1", "--norm", "0.5"], "expected a norm p with 1 <= p <= inf, got 0.5"),
        (["digits", "--index", "1", "--degree", "0"], "expected --degree to be a whole number >= 1, or base, got '0'"),
        (["digits", "--index", "1", "--out", "x.jpg"], "expected a file that ends in .png, .svg or .pdf, got 'x.jpg'"),
        (["digits", "--index", "1", "--out", "x.png", "--no-picture"], "expected --out or --no-picture, got both"),
        (["digits", "--index", "1", "--data", "moons"], "expected --data of shape (1, 8, 8), got moons of shape (2,)"),
        (["digits", "--index", "1", "--data", "nowhere"], "expected one of moons, digits"),
        (["digits", "--index", "1", "--split", "all"], "expected --split to be 'train', 'test' or"),
        (["digits", "--index", "1", "--split", "x"], "expected --split out of train, test, holdout, all, got 'x'"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_end_with_2(words: list[str], message: str, capsys: Capture) -> None:
    assert main(["explain", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("berncert: ")


def test_a_model_that_does_not_name_its_data_needs_a_data_flag(tmp_path: Path, capsys: Capture) -> None:
    saved(tmp_path / "model.safetensors")
    assert main(["explain", str(tmp_path), "--index", "0"]) == 2
    assert "pass --data" in capsys.readouterr().err


@pytest.mark.parametrize(("out", "code"), [("taken/x.png", 1), ("folder.png", 2)])
def test_a_path_that_cannot_be_written_is_reported_before_the_work(
    out: str, code: int, tmp_path: Path, capsys: Capture
) -> None:
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "folder.png").mkdir()
    assert main(["explain", "digits", "--index", "1", "--out", str(tmp_path / out)]) == code
    out_text, error = capsys.readouterr()
    assert out_text == ""
    assert str(tmp_path / out) in error


@pytest.mark.parametrize("words", [["digits"], ["--index", "3"], ["digits", "--index", "x"]])
def test_wrong_use_ends_with_2(words: list[str], capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["explain", *words])
    assert "usage: berncert explain" in capsys.readouterr().err
