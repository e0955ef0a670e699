"""`berncert inspect` as a user calls it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from explained_toys import saved

import berncert
from berncert.cli import main
from berncert.models.checkpoint import save
from berncert.models.inspection import inspect

Capture = pytest.CaptureFixture[str]


def test_a_shipped_model_is_taken_apart(capsys: Capture) -> None:
    assert main(["inspect", "digits"]) == 0
    text = capsys.readouterr().out
    for expected in (
        "digits: a berncert checkpoint 2", "sha256", "fingerprint  da283e954170da82",
        "recipe digits, digits (1,442 images), 100 epochs",
        "depth 3, width 256", "1x8x8 -> 6 features", "degree 2 on each axis, 6 features -> 10 classes",
        "10 x 3^6 = 7,290 coefficients", "base head    polynomial",
        "proven Lipschitz bound, norm 2: 0.166667", "layers.8", "UnitCube", "l2: 0.166667 (used)",
        "proven here", "proven to stay in the cube", "rounding",
    ):  # fmt: skip
        assert expected in text


def test_a_norm_is_asked_for_and_the_numbers_come_as_json(capsys: Capture) -> None:
    assert main(["inspect", "digits", "--norm", "inf", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["lipschitz"]["norm"] == "inf"
    assert {route["feature_norm"] for route in document["lipschitz"]["routes"]} == {1.0, 2.0, "inf"}
    assert document["about"]["recipe"]["name"] == "digits"


def test_a_model_of_ones_own_with_classes_of_different_range(tmp_path: Path, capsys: Capture) -> None:
    saved(tmp_path / "model.safetensors")
    assert main(["inspect", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "the file does not say" in text
    assert "4 x 3^3 = 108 coefficients" in text
    assert "coefficients, between which the logits lie" in text


def test_bounds_are_printed_with_the_norms_they_go_between(capsys: Capture) -> None:
    assert main(["inspect", "digits", "--norm", "inf"]) == 0
    text = capsys.readouterr().out
    assert "from linf of the pixels to norms of the features: l1: " in text
    used = text.count("(used)")
    assert (used > 1) == ("each image takes the one that proves most" in text)


def test_no_number_is_broken_on_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert main(["inspect", "digits"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["layers.8", "UnitCube", "6", "0.166667", "0.166667"] in lines


@pytest.mark.parametrize(
    "about",
    [{"recipe": 3}, {"recipe": "mine"}, {"data": [1]}, {"data": {"name": "d", "images": "many"}}, {"versions": 1.5}],
)
@pytest.mark.parametrize("words", [[], ["--json"]])
def test_whatever_a_file_says_of_its_making_it_can_be_inspected(
    about: dict[str, Any], words: list[str], tmp_path: Path, capsys: Capture
) -> None:
    saved(tmp_path / "model.safetensors", about=about)
    assert main(["inspect", str(tmp_path), *words]) == 0
    text = capsys.readouterr().out
    assert json.loads(text)["about"] == about if words else "the file does not say" in text


@pytest.mark.parametrize("norm", ["1", "1.5", "2", "inf"])
def test_no_limit_is_printed_on_the_wrong_side(norm: str, tmp_path: Path, capsys: Capture) -> None:
    saved(tmp_path / "model.safetensors")
    assert main(["inspect", str(tmp_path), "--norm", norm]) == 0
    text = capsys.readouterr().out
    assert main(["inspect", str(tmp_path), "--norm", norm, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)

    (bounds,) = (line for line in text.splitlines() if "l1: " in line)
    routes = {f"l{float(route['feature_norm']):g}": route["bound"] for route in document["lipschitz"]["routes"]}
    limits = [(float(printed), routes[name]) for name, printed in re.findall(r"(l[\w.]+): ([\d.e-]+)", bounds)]
    assert len(limits) == len(routes)
    off, cost = re.search(r"off by at most (\S+) .* costs a radius (\S+) at most", text).groups()  # type: ignore[union-attr]
    limits += [(float(off), document["rounding"]["feature_bound"]), (float(cost), document["rounding"]["radius_cost"])]
    classes = re.findall(r"^(\d) +(\S+) +(\S+) *$", text, re.MULTILINE)
    least, greatest = document["head"]["least"], document["head"]["greatest"]
    assert [int(number) for number, *_ in classes] == [0, 1, 2, 3]
    limits += [(float(high), greatest[int(number)]) for number, _, high in classes]
    limits += [(-float(low), -least[int(number)]) for number, low, _ in classes]
    for printed, known in limits:
        assert known <= printed <= known + 0.1 * abs(known)


def test_the_rounding_of_a_shipped_model_is_not_printed_too_small(capsys: Capture) -> None:
    assert main(["inspect", "digits"]) == 0
    text = capsys.readouterr().out
    bound = inspect("digits").rounding_bound
    assert bound <= float(text.split("off by at most ")[1].split()[0]) <= 1.1 * bound


def test_a_model_that_is_not_smoothed_is_described_as_such(tmp_path: Path, capsys: Capture) -> None:
    saved(tmp_path / "model.safetensors")
    save(berncert.load(tmp_path, base=True), tmp_path / "base.safetensors")
    assert main(["inspect", str(tmp_path / "base.safetensors")]) == 0
    assert "mlp, not smoothed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["digits", "--norm", "0.5"], "expected a norm p with 1 <= p <= inf, got 0.5; pass e.g. 1, 2 or inf"),
        (["digits", "--norm", "nan"], "expected a norm p with 1 <= p <= inf, got nan"),
        (["digits", "--norm", "two"], "expected a norm p with 1 <= p <= inf, got 'two'"),
        (["pyproject.toml"], "expected a whole safetensors file"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_end_with_2(words: list[str], message: str, capsys: Capture) -> None:
    assert main(["inspect", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("berncert: ")


def test_a_model_that_is_not_there_ends_with_2(capsys: Capture) -> None:
    assert main(["inspect", "digist"]) == 2
    assert "got 'digist', which is neither; did you mean digits?" in capsys.readouterr().err


def test_help_shows_examples(capsys: Capture) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["inspect", "--help"])
    assert "berncert inspect digits" in capsys.readouterr().out
