"""Networks of the user's own on the command line: ONNX files and functions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import berncert
from berncert.cli import main
from berncert.runs.records import read

CODE = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Sigmoid(), nn.Linear(3, 10))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_network.py").write_text(CODE, "utf-8")
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Sigmoid(), nn.Linear(3, 10))
    berncert.write_onnx(berncert.freeze(network, (1, 8, 8)), "net.onnx")
    return tmp_path


def rows(folder: str) -> dict[str, list[float]]:
    return {name: values.tolist() for name, values in read(Path("runs") / folder).rows.items() if name != "time"}


def test_a_function_and_the_onnx_file_of_its_network_give_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["certify", "my_network:build", "--data", "digits", "--limit", "8"]) == 0
    assert main(["certify", "net.onnx", "--data", "digits", "--limit", "8"]) == 0
    one, two = rows("my_network-build-digits-exact-l2-limit8"), rows("net-digits-exact-l2-limit8")
    assert one["predict"] == two["predict"]
    assert one["radius"] == pytest.approx(two["radius"], rel=1e-4)
    assert min(one["radius"]) > 0


def test_a_head_after_a_node_is_smoothed_and_the_run_is_resumed_and_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = ["certify", "net.onnx", "--head-after", "value 2", "--degree", "2", "--data", "digits", "--limit", "8"]
    assert main([*command, "--out", "run"]) == 0
    record = json.loads(Path("run/run.json").read_text("utf-8"))
    assert record["model"]["source"] == {"kind": "ONNX", "head_after": "value 2"}
    assert record["model"]["extractor"]["dim"] == 3
    before = Path("run/certificates.tsv").read_text("utf-8")
    Path("run/certificates.tsv").write_text("".join(before.splitlines(keepends=True)[:1]), "utf-8")
    assert main([*command, "--out", "run"]) == 0
    assert read("run").complete
    assert main(["report", "run", "--out", "page.html"]) == 0
    other = [word if word != "value 2" else "value 1" for word in command]
    assert main([*other, "--out", "run"]) == 2  # another model: refused
    assert "model" in capsys.readouterr().err


def test_all_commands_take_a_network_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["attack", "net.onnx", "--data", "digits", "--limit", "4", "--steps", "5"]) == 0
    assert main(["explain", "my_network:build", "--data", "digits", "--index", "3", "--no-picture", "--no-attack"]) == 0
    assert main(["inspect", "net.onnx"]) == 0
    assert "an ONNX file" in capsys.readouterr().out
    assert main(["inspect", "my_network:build", "--input-shape", "1,8,8", "--json"]) == 0


def test_upper_ends_are_told_of_or_how_to_get_them(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "net.onnx", "--data", "digits", "--limit", "4"]
    assert main(command) == 0
    assert "were not looked for: --counterexamples does" in capsys.readouterr().out
    assert main([*command, "--counterexamples", "--out", "both"]) == 0
    assert "images of another class: found for 4 of 4 images, in the median " in capsys.readouterr().out
    run = read("both")
    assert (run.radius <= run.rows["upper"]).all()
    assert (run.rows["upper"] < float("inf")).all()
    assert main([*command, "--radius", "0.0001"]) == 0
    assert "of another class" not in capsys.readouterr().out
    test = berncert.data.load("digits", limit=4)
    model = berncert.Classifier.of_logits(berncert.read_onnx("net.onnx"))
    assert "upper not known: counterexamples=True" in repr(berncert.certify(model, test.images))
    assert "of 4 rows" in repr(berncert.certify(model, test.images, counterexamples=True))


def test_processes_get_the_model_that_was_built_here(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "my_network:build", "--data", "digits", "--limit", "8"]
    assert main([*command, "--out", "runs/here"]) == 0
    assert main([*command, "--out", "runs/there", "--engine", "processes:1", "--batch-size", "4"]) == 0
    assert rows("here")["radius"] == rows("there")["radius"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(["net.onnx"], "pass --data"), (["net.onnx", "--data", "digits", "--head-after", "nothing"], "it makes"),
     (["net.onnx", "--data", "digits", "--degree", "2"], "with --head-after"),
     (["digits", "--head-after", "x"], "expected --head-after with ONNX files only"),
     (["net.onnx", "--data", "digits", "--input-shape", "many"], "like 3,32,32")],
)  # fmt: skip
def test_wrong_use_is_answered_with_what_to_do(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", *words]) == 2
    assert message in capsys.readouterr().err
