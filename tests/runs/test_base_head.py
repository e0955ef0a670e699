"""Runs of the head before smoothing: the baseline beside a smoothed model, by every method that needs no proof."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import berncert
from berncert import data
from berncert.certification.methods import Batch, Estimate, Exact, Method, Randomized
from berncert.cli import main
from berncert.extractor import build
from berncert.models.checkpoint import open_checkpoint, save
from berncert.models.heads import Head, build_head, smoothed
from berncert.reporting.curves import curves_of
from berncert.runs.execute import default_folder, execute
from berncert.runs.records import Run, read
from berncert.runs.settings import RunSettings

BASE = RunSettings(data="digits", degree="base", limit=6, batch_size=4)
METHODS: dict[str, Method] = {
    "estimate": Estimate(solver="regularised"),
    "randomized": Randomized(n=200, n0=10),
    "attack": berncert.Pgd(radii=(0.25, 1.0), steps=5),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose head bends so much that smoothing to degree 1 changes it."""
    torch.manual_seed(1)
    base = build_head("mlp", 3, 10, degree=1)
    with torch.no_grad():
        base.layers[0].weight *= 20  # type: ignore[index, operator]
    file = tmp_path_factory.mktemp("model") / "bent.safetensors"
    with pytest.warns(berncert.SmoothingWarning):
        head = smoothed(base)
    extractor = build("mlp", (1, 8, 8), dim=3, depth=2, width=16)
    save(berncert.Classifier(extractor, head).eval(), file, base=base)
    return file


def rows(run: Run) -> dict[str, list[Any]]:
    return {name: values.tolist() for name, values in run.rows.items() if name != "time"}


@pytest.mark.parametrize("name", METHODS)
def test_a_run_has_the_rows_of_the_method_on_the_base_head(name: str, path: Path, tmp_path: Path) -> None:
    run = execute(path, METHODS[name], tmp_path / "run", BASE)
    images, model = data.load("digits", limit=6), berncert.load(path, base=True)
    assert isinstance(model.head, Head)
    work = METHODS[name].prepare(model, images.images.shape[1:])
    found = [
        work(Batch(images.images[k : k + 4], images.labels[k : k + 4], images.indices[k : k + 4].tolist()))
        for k in (0, 4)
    ]
    np.testing.assert_array_equal(run.rows["predict"], np.concatenate([part.predicted for part in found]))
    if name == "attack":
        with torch.no_grad():
            own = model.double()(images.images.double()).argmax(dim=1)
        np.testing.assert_array_equal(run.rows["predict"], own)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["settings"]["degree"] == "base"


def test_the_base_head_is_another_classifier_than_the_smoothed_one(path: Path, tmp_path: Path) -> None:
    attack, settings = berncert.Fgsm(radii=(0.1,)), RunSettings(data="digits")
    base = execute(path, attack, tmp_path / "base", RunSettings(data="digits", degree="base"))
    smooth = execute(path, attack, tmp_path / "smooth", settings)
    assert (base.rows["predict"] != smooth.rows["predict"]).any()
    assert not base.same_task(smooth)


@pytest.mark.parametrize("name", METHODS)
def test_a_run_that_was_cut_off_resumes_to_the_same_rows(name: str, path: Path, tmp_path: Path) -> None:
    whole = rows(execute(path, METHODS[name], tmp_path / "run", BASE))
    (table,) = (tmp_path / "run").glob("*.tsv")
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:4]))
    assert rows(execute(path, METHODS[name], tmp_path / "run", BASE)) == whole
    with pytest.raises(ValueError, match=r"which differs in settings\.degree"):
        execute(path, METHODS[name], tmp_path / "run", RunSettings(data="digits", limit=6, batch_size=4))


def test_a_proof_of_a_base_head_is_refused_and_leaves_no_folder(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="got base: only a smoothed head has a proof"):
        execute(path, Exact(), tmp_path / "run", BASE)
    assert not (tmp_path / "run").exists()
    with pytest.raises(TypeError, match="got Classifier with a Head"):
        berncert.certify(berncert.load(path, base=True), data.load("digits", limit=2).images)


def test_folders_and_labels_say_base(path: Path, tmp_path: Path) -> None:
    assert default_folder(path, berncert.Pgd(), BASE).name.startswith("bent-base-digits-attack-l2-limit6")
    for name, label in (("mine", "mine (base)"), ("my-base", "my-base"), ("database", "database (base)")):
        execute(path, METHODS["attack"], tmp_path / name, BASE)
        assert read(tmp_path / name).label == label
        assert [curve.label for curve in curves_of([str(tmp_path / name)])] == [label]
    assert [curve.label for curve in curves_of([f"x={tmp_path / 'mine'}"])] == ["x"]


def test_a_model_that_was_never_smoothed_is_its_own_base(path: Path, tmp_path: Path) -> None:
    base = berncert.load(path, base=True)
    save(base, tmp_path / "plain.safetensors")
    checkpoint = open_checkpoint(tmp_path / "plain.safetensors")
    assert checkpoint.base is None
    run = execute(checkpoint, METHODS["attack"], tmp_path / "run", BASE)
    assert rows(run) == rows(execute(path, METHODS["attack"], tmp_path / "same", BASE))


def test_a_file_without_its_base_head_says_so(tmp_path: Path) -> None:
    model = berncert.load("digits")
    save(model, tmp_path / "smoothed.safetensors")
    with pytest.raises(ValueError, match="expected a checkpoint with its base head"):
        execute(tmp_path / "smoothed.safetensors", METHODS["attack"], tmp_path / "run", BASE)


@pytest.mark.parametrize("degree", [0, -1, 2.5, True, "", "Base", "auto", "0"])
def test_other_degrees_are_refused(degree: Any) -> None:
    with pytest.raises(ValueError, match="expected degree to be a whole number >= 1, or base"):
        RunSettings(degree=degree)
    assert RunSettings(degree="3") == RunSettings(degree=np.int64(3)) == RunSettings(degree=3)  # type: ignore[arg-type]


def test_the_command_line_runs_the_base_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["attack", "digits", "--degree", "base", "--limit", "5", "--steps", "3"]) == 0
    assert "digits-base-attack-l2-limit5-steps3" in capsys.readouterr().out
    for command in (["certify", "digits"], ["explain", "digits", "--index", "3"]):
        assert main([*command, "--degree", "base"]) == 2
        assert "expected --degree to be a whole number" in capsys.readouterr().err
