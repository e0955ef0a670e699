"""`berncert certify` and `berncert attack` as a user calls them: output, JSON, exit codes, mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits

from berncert import Classifier, SmoothingWarning, build, save
from berncert.cli import main
from berncert.foundation.rounding import floor_digits
from berncert.models.checkpoint import open_checkpoint
from berncert.models.heads import build_head
from berncert.runs.records import read


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_run_is_certified_told_and_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "digits", "--skip", "30"]) == 0
    output = capsys.readouterr().out
    assert "Certified accuracy in % at l2 radius r" in output
    assert "12 PROVEN" in output
    assert "berncert report runs/digits-exact-l2-skip30" in output
    run = read("runs/digits-exact-l2-skip30")
    assert run.complete
    assert floor_digits(run.mean_radius, 3) in output


def test_the_same_command_again_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "digits", "--limit", "5", "--out", "run"]
    assert main(command) == 0
    before = {path.name: path.read_bytes() for path in Path("run").iterdir()}
    assert main(command) == 0
    assert {path.name: path.read_bytes() for path in Path("run").iterdir()} == before


@pytest.mark.parametrize(
    ("words", "claim", "norm"),
    [
        (["certify", "digits", "--norm", "inf"], "PROVEN", "inf"),
        (["certify", "digits", "--norm", "1.5", "--degree", "1", "--dtype", "float32"], "PROVEN", "1.5"),
        (["certify", "digits", "--method", "estimate", "--solver", "regularised"], "ESTIMATE", "2"),
        (["certify", "digits", "--method", "randomized", "--n", "100", "--sigma", "0.5"], "PROBABLE", "2"),
        (["attack", "digits", "--radii", "1/4,0.5", "--steps", "3"], "ATTACK", "2"),
        (["attack", "digits", "--method", "fgsm", "--norm", "inf", "--radii", "0.1"], "ATTACK", "inf"),
    ],
)
def test_json_is_one_document_that_agrees_with_the_run(
    words: list[str], claim: str, norm: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--limit", "4", "--out", "run", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    run = read("run")
    (curve,) = told["curves"]
    assert told["norm"] == (norm if norm == "inf" else float(norm))
    assert (curve["claim"], curve["images"], told["run"]) == (claim.lower(), 4, "run")
    assert curve["accuracy"] == run.standing(told["radii"]).tolist()
    assert sum(told["status"].values()) == 4
    assert run.about["settings"]["norm"] == (norm if norm == "inf" else float(norm))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["certify", "nothing"], "expected the path of a checkpoint, or the name of one that is shipped"),
        (["certify", "digits", "--norm", "0.5"], "expected a norm p with 1 <= p <= inf, got 0.5"),
        (["certify", "digits", "--norm", "two"], "expected a norm p with 1 <= p <= inf, got 'two'"),
        (["certify", "digits", "--limit", "0"], "expected --limit >= 1, got 0"),
        (["certify", "digits", "--sigma", "1"], "expected no --sigma with --method exact"),
        (["certify", "digits", "--method", "randomized", "--tolerance", "0.1"], "expected no --tolerance with"),
        (["certify", "digits", "--data", "moons"], "expected --data of shape (1, 8, 8), got moons of shape (2,)"),
        (["certify", "digits", "--data", "nowhere"], "expected one of moons, digits"),
        (["certify", "digits", "--out", ""], "expected a folder for --out, got nothing"),
        (["certify", "digits", "--threads", "0"], "expected a whole number --threads >= 1"),
        (["certify", "digits", "--device", "abacus"], "expected a device that torch knows"),
        (["attack", "digits", "--norm", "1"], "expected --norm 2 or inf for an attack"),
        (["attack", "digits", "--radii", "a,b"], "expected --radii to be a list of numbers"),
        (["attack", "digits", "--radii", "0"], "expected --radii that are finite and > 0"),
    ],
)
def test_mistakes_are_told_in_one_line_and_leave_nothing(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("berncert: ")
    assert error.count("\n") == 1
    assert not [path for path in Path().rglob("*") if path.is_file()]


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a flat folder of images, `mine`, five of each class, and the training on it, `model`."""
    place = tmp_path_factory.mktemp("flat")
    images, labels = load_digits(return_X_y=True)
    for row in (row for digit in range(10) for row in np.flatnonzero(labels == digit)[:5]):
        path = place / "mine" / str(labels[row]) / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray((images[row].reshape(8, 8) * 15).astype(np.uint8)).save(path)
    words = ["digits", "--dataset", str(place / "mine"), "--epochs", "1", "--option", "width=16", "--option", "depth=1"]
    assert main(["train", *words, "--out", str(place / "model")]) == 0
    return place


@pytest.mark.parametrize("command", ["certify", "attack"])
def test_what_was_set_aside_is_certified_and_anything_else_is_said_aloud(
    command: str, flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = {
        "test": "",
        "train": "note: TRAINING IMAGES: train: these 40 images are training images of the model",
        "all": f"note: TRAINING IMAGES: all: 40 of the 50 images of {flat / 'mine'} are training images",
    }
    for split, note in said.items():
        words = [command, str(flat / "model"), "--split", split, "--out", split]
        extra = ["--radii", "0.5", "--steps", "1"] if command == "attack" else []
        assert main([*words, *extra]) == 0
        output = capsys.readouterr().out
        assert note in output
        assert ("TRAINING IMAGES" in output) == bool(note)
        assert main(["report", split]) == 0
        assert ("TRAINING IMAGES" in capsys.readouterr().out) == bool(note)
        assert ("<strong>Training images.</strong>" in Path(split, "report.html").read_text("utf-8")) == bool(note)
        assert main(["curve", split, "--json"]) == 0
        assert any("TRAINING" in line for line in json.loads(capsys.readouterr().out)["notes"]) == bool(note)
    runs = {split: read(split) for split in said}
    assert len(runs["test"]) == 10
    kept = {split: set(run.rows["idx"].tolist()) for split, run in runs.items()}
    assert kept["test"] | kept["train"] == kept["all"] == set(range(50))
    division = runs["test"].about["data"]["division"]
    assert division == open_checkpoint(flat / "model").about["data"]["division"]
    assert division["test_images"] == 10


def test_the_default_part_is_the_test_part_and_the_table_says_so(
    flat: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", str(flat / "model"), "--out", "run"]) == 0
    output = capsys.readouterr().out
    assert f"{flat / 'mine'} test: one in 5 images of each class, set aside for testing" in output
    assert read("run").about["data"]["split"] == "test"


def test_a_folder_with_other_options_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "digits", "--limit", "3", "--out", "run"]) == 0
    assert main(["certify", "digits", "--limit", "4", "--out", "run"]) == 2
    error = capsys.readouterr().err
    assert "which differs in data.images (3 there, 4 here)" in error
    assert " --limit (3 there, 4 here)" in error
    assert len(read("run")) == 3


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["certfy"], "did you mean certify?"),
        (["certify", "digits", "--tolerence", "0.1"], "did you mean --tolerance?"),
        (["certify", "digits", "--method", "exat"], "invalid choice: 'exat'"),
        (["certify"], "required: MODEL"),
    ],
)
def test_words_that_are_not_known_get_a_guess(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert message in capsys.readouterr().err


def test_held_out_images_are_certified_as_such(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["moons", "--epochs", "1", "--option", "width=8", "--holdout", "true", "--out", str(tmp_path / "model")]
    assert main(["train", *words]) == 0
    assert "held out: accuracy" in capsys.readouterr().out
    assert main(["certify", str(tmp_path / "model"), "--split", "holdout", "--out", str(tmp_path / "run")]) == 0
    assert "one in 10 training images of each class" in capsys.readouterr().out
    record = read(tmp_path / "run").about["data"]
    assert (record["split"], record["images"]) == ("holdout", 100)
    assert "seen_in_training" not in record


def test_a_model_that_smoothing_made_constant_is_called_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    base = build_head("mlp", 2, 10, degree=1)
    with torch.no_grad():  # class 0 and a valley of class 1 between the corners of the cube
        base.layers[0].weight.zero_()[0, 0] = base.layers[0].weight[1, 0] = 40
        base.layers[0].bias.zero_()[:2] = torch.tensor([-2.0, -38.0])
        base.layers[2].weight.zero_()[0, :2] = torch.tensor([-1.0, 1.0])
        base.layers[2].bias.fill_(-5.0)[:2] = torch.tensor([1.5, 0.5])
    model = Classifier(build("mlp", (1, 8, 8), dim=2, depth=2, width=8), base).eval()
    with pytest.warns(SmoothingWarning, match="gives all of them one class"):
        save(model.smooth(1), "ruined.safetensors", base=base)
    assert main(["certify", "ruined.safetensors", "--data", "digits", "--limit", "4"]) == 0
    output = capsys.readouterr().out
    assert (
        "note: ruined-digits-exact-l2-limit4: every radius is inf because the smoothed classifier is constant" in output
    )
    assert "4 WHOLE_CUBE" in output
    assert main(["inspect", "ruined.safetensors", "--json"]) == 0
    fidelity = json.loads(capsys.readouterr().out)["base"]["fidelity"]
    assert fidelity["constant"]
    assert fidelity["agreement"] < 0.2
    assert main(["explain", "ruined.safetensors", "--data", "digits", "--index", "1", "--no-picture"]) == 0
    assert "WHOLE_CUBE: the class holds in the whole cube, so the classifier is constant" in capsys.readouterr().out
