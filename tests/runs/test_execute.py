"""Runs: what they write is what the library says, and what a killed one ends in is what a whole one does."""

from __future__ import annotations

import copy
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import berncert
from berncert import data
from berncert.attacks.gradient import fallen_at
from berncert.attacks.methods import Fgsm, Pgd
from berncert.certification.methods import Estimate, Exact, Method, Randomized
from berncert.extractor import build
from berncert.foundation.folders import claimed
from berncert.models.checkpoint import FORMAT, find_checkpoint, open_checkpoint, save
from berncert.models.heads import build_head, smoothed
from berncert.models.tensor_file import read_tensors, write_tensors
from berncert.reporting.curves import Curve, default_radii, warnings_about
from berncert.runs import versions
from berncert.runs.execute import default_folder, execute
from berncert.runs.image_job import digest
from berncert.runs.records import Run
from berncert.runs.settings import RunSettings

Asked = tuple[Method, RunSettings]


def of(kind: type[Method], **options: Any) -> Asked:
    """A method and the settings of a run, from the options of both."""
    names = {entry.name for entry in fields(RunSettings)}
    run = {name: value for name, value in options.items() if name in names}
    return kind(**{name: value for name, value in options.items() if name not in names}), RunSettings(**run)


def perform(model: str | Path, asked: Asked, folder: Path, **options: Any) -> Run:
    return execute(model, asked[0], folder, asked[1], **options)


QUICK: dict[str, Asked] = {
    "exact": of(Exact, limit=10, batch_size=4),
    "exact-inf": of(Exact, limit=10, batch_size=4, norm=math.inf),
    "estimate": of(Estimate, limit=3, batch_size=2, solver="regularised"),
    "randomized": of(Randomized, limit=5, n=200, n0=10, batch_size=2),
    "attack": of(Pgd, limit=10, batch_size=4, radii=(0.25, 1.0), steps=5),
}


def without_times(folder: Path) -> list[list[str]]:
    (table,) = folder.glob("*.tsv")
    rows = [line.split("\t") for line in table.read_text("utf-8").splitlines()]
    place = rows[0].index("time")
    return [row[:place] + row[place + 1 :] for row in rows]


def test_an_exact_run_keeps_what_certify_proves(tmp_path: Path) -> None:
    run = perform("digits", of(Exact, skip=30), tmp_path / "run")
    test = data.load("digits", skip=30)
    c = berncert.certify(berncert.load("digits"), test.images)
    np.testing.assert_array_equal(run.rows["idx"], test.indices)
    np.testing.assert_array_equal(run.rows["label"], test.labels)
    np.testing.assert_array_equal(run.rows["predict"], c.predicted)
    np.testing.assert_array_equal(run.radius, c.radius)
    np.testing.assert_array_equal(run.correct, c.predicted == test.labels.numpy())
    np.testing.assert_array_equal(run.vectors("witness"), c.in_features.witness)
    np.testing.assert_array_equal(run.vectors("features"), c.features)
    assert run.rows["status"].tolist() == [status.name for status in c.status]
    assert run.complete
    assert run.about["settings"]["data"] == "digits"
    assert run.about["lipschitz"]["bound"] == pytest.approx(c.lipschitz_bound[0], rel=1e-9)


def test_an_estimate_is_kept_as_one(tmp_path: Path) -> None:
    run = perform("digits", QUICK["estimate"], tmp_path / "run")
    images = data.load("digits", limit=2).images  # the first batch
    found = berncert.estimate(berncert.load("digits"), images, solver="regularised")
    np.testing.assert_array_equal(run.radius[:2], found.distance_estimate)
    assert run.claim.name == "ESTIMATE"
    assert set(run.rows["status"]) == {"ESTIMATE"}


def test_randomized_smoothing_draws_the_noise_of_each_image_by_its_number(tmp_path: Path) -> None:
    run = perform("digits", of(Randomized, skip=100, n=300, n0=20, sigma=0.5, seed=3), tmp_path / "run")
    test, model = data.load("digits", skip=100), berncert.load("digits")
    plain = berncert.Classifier(model.extractor, model.head.float()).eval()
    for row, number in enumerate(test.indices.tolist()):
        (c,) = Randomized(sigma=0.5, n=300, n0=20, seed=3).certify(
            plain, test.images[row][None], first_index=number
        )  # fmt: skip
        assert run.rows["predict"][row] == c.predicted
        assert run.radius[row] == c.probable_radius
        np.testing.assert_array_equal(run.vectors("counts")[row], c.counts)
    assert run.claim.name == "PROBABLE"


def test_what_is_proven_is_never_above_what_an_attack_leaves(tmp_path: Path) -> None:
    for norm in (2.0, math.inf):
        proven = perform("digits", of(Exact, norm=norm, skip=3), tmp_path / f"proven{norm}")
        attacked = perform("digits", of(Pgd, norm=norm, skip=3, radii=(0.05, 0.3, 0.6, 1.0)), tmp_path / f"a{norm}")
        np.testing.assert_array_equal(proven.rows["predict"], attacked.rows["predict"])
        right = proven.correct
        assert (proven.radius[right] <= attacked.radius[right]).all()
        assert (attacked.radius[~right] == 0).all()
        grid = np.linspace(0, 1.5, 31)
        assert (proven.standing(grid) <= attacked.standing(grid)).all()


def test_another_degree_smooths_the_base_head_anew(tmp_path: Path) -> None:
    base = build_head("mlp", 3, 10, degree=1)
    extractor = build("mlp", (1, 8, 8), dim=3, depth=2, width=8)
    path = tmp_path / "m.safetensors"
    save(berncert.Classifier(extractor, smoothed(base)).eval(), path, base=base)
    images = data.load("digits", limit=20).images
    for degree in (1, 4):
        run = perform(path, of(Exact, data="digits", limit=20, degree=degree), tmp_path / str(degree))
        model = berncert.Classifier(extractor, base).eval().smooth(degree)
        np.testing.assert_array_equal(run.radius, berncert.certify(model, images).radius)
    saved = perform(path, of(Exact, data="digits", limit=20), tmp_path / "saved")
    assert without_times(saved.path) == without_times(tmp_path / "1")
    with pytest.raises(ValueError, match="does not say what it was trained on; pass data"):
        perform(path, of(Exact), tmp_path / "unknown")


@pytest.mark.parametrize("name", QUICK)
def test_a_run_in_two_parts_has_the_rows_of_one(tmp_path: Path, name: str) -> None:
    settings = QUICK[name]
    whole = perform("digits", settings, tmp_path / "whole")
    perform("digits", settings, tmp_path / "parts")
    (table,) = (tmp_path / "parts").glob("*.tsv")
    for cut in (0.2, 0.55, 0.9):
        os.truncate(table, int(cut * table.stat().st_size))
        perform("digits", settings, tmp_path / "parts")
        assert without_times(tmp_path / "parts") == without_times(tmp_path / "whole")
    assert whole.complete


def rows_in(folder: Path) -> int:
    table = folder / "certificates.tsv"
    return table.read_bytes().count(b"\n") - 1 if table.exists() else 0


def test_kill_9_loses_nothing_that_was_written(tmp_path: Path) -> None:
    folder = tmp_path / "killed"
    words = ["certify", "digits", "--method", "randomized", "--limit", "60", "--n", "2000", "--threads", "1"]
    command = [sys.executable, "-m", "berncert", *words, "--out"]
    for enough in (1, 20):
        process = subprocess.Popen([*command, str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while rows_in(folder) < enough:
            assert process.poll() is None, "it ended too soon"
            time.sleep(0.01)
        process.kill()
        process.wait()
        assert enough <= rows_in(folder) < 60
    for place in (folder, tmp_path / "whole"):
        subprocess.run([*command, str(place)], check=True, capture_output=True)
    assert without_times(folder) == without_times(tmp_path / "whole")


def test_a_second_process_on_one_folder_is_refused(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "berncert", "certify", "digits", "--limit", "3", "--out", str(tmp_path / "run")]
    with claimed(tmp_path / "run", "run"):
        second = subprocess.run(command, capture_output=True, text=True)
    assert second.returncode == 2
    assert "expected a folder that no other run is writing to" in second.stderr
    assert subprocess.run(command, capture_output=True).returncode == 0


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("digits", of(Exact, data="moons"), r"expected data of shape \(1, 8, 8\), got moons of shape \(2,\)"),
        ("digits", of(Exact, data="nowhere"), "expected one of moons, digits"),
        ("nothing", of(Exact), "expected the path of a checkpoint"),
    ],
)
def test_what_does_not_fit_is_refused_and_leaves_no_folder(
    model: str, settings: Exact, message: str, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        perform(model, settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_of_other_settings_is_refused(tmp_path: Path) -> None:
    perform("digits", of(Exact, limit=2), tmp_path)
    with pytest.raises(ValueError, match=r"differs in settings\.tolerance \(0\.001 there, 0\.5 here\)"):
        perform("digits", of(Exact, limit=2, tolerance=0.5), tmp_path)


def test_a_read_only_folder_is_told_before_any_work(tmp_path: Path) -> None:
    with unprivileged(tmp_path), pytest.raises(OSError, match=r"expected a folder that can be written to, got .*run"):
        perform("digits", of(Exact, limit=2), tmp_path / "locked" / "run")


@contextmanager
def unprivileged(tmp_path: Path) -> Iterator[None]:
    """As a user who may not write into the folder `locked`: the superuser may write everywhere."""
    (tmp_path / "locked").mkdir(mode=0o555)
    user, model = os.geteuid(), find_checkpoint("digits")
    try:
        if user == 0:
            os.seteuid(65534)
            if not os.access(model, os.R_OK, effective_ids=True):
                pytest.skip("others may not read this checkout")
        yield
    finally:
        os.seteuid(user)


def test_run_json_tells_all_that_decides(tmp_path: Path) -> None:
    run: Run = perform("digits", of(Exact, limit=2), tmp_path, command="berncert certify digits")
    told: dict[str, Any] = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert told.keys() >= {
        "format",
        "kind",
        "method",
        "claim",
        "settings",
        "model",
        "data",
        "versions",
        "lipschitz",
        "origin",
    }
    assert told["settings"].keys() >= {"norm", "tolerance", "max_boxes", "dtype", "skip", "limit"}
    assert told["origin"].keys() >= {"machine", "engine", "device", "threads"}
    assert len(told["model"]["sha256"]) == len(told["data"]["sha256"]) == 64
    assert told["data"]["classes"] == [str(k) for k in range(10)]
    assert told["origin"]["command"] == "berncert certify digits"
    assert told["versions"].keys() == {"berncert", "code", "numba", "numpy", "scipy", "torch"}
    assert len(told["versions"]["code"]) == 64
    assert run.about == told


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (of(Exact), "mnist-exact-l2"),
        (of(Exact, norm=math.inf, skip=20), "mnist-exact-linf-skip20"),
        (of(Exact, data="mnist"), "mnist-exact-l2"),
        (of(Exact, data="some/own.npz", max_boxes=5), "mnist-own-exact-l2-maxboxes5"),
        (of(Pgd), "mnist-attack-l2"),
        (of(Fgsm, radii=(0.1, 36 / 255)), "mnist-attack-l2-fgsm-radii0.1+0.141"),
        (of(Pgd, radii=tuple(k / 100 for k in range(1, 60))), "mnist-attack-l2-radii0.01to0.59(59)"),
    ],
)
def test_a_folder_is_named_after_what_is_not_usual(settings: Asked, name: str) -> None:
    assert default_folder("mnist", *settings) == Path("runs") / name


def test_nothing_that_a_file_says_to_be_proven_is_trusted(tmp_path: Path) -> None:
    tensors, description = read_tensors(find_checkpoint("digits"), FORMAT)
    description["proofs"] = description["extractor"]["proofs"] = {"factors": ["0.001"] * 9, "bound": 0.001}
    description["extractor"]["about"] |= {"side": 1000.0, "lipschitz_bound": 0.001}
    write_tensors(tmp_path / "forged.safetensors", tensors, FORMAT, description)
    forged = perform(tmp_path / "forged.safetensors", of(Exact, limit=3), tmp_path / "forged")
    honest = perform("digits", of(Exact, limit=3), tmp_path / "honest")
    np.testing.assert_array_equal(forged.radius, honest.radius)


SETTINGS: dict[str, tuple[Asked, Callable[[berncert.Classifier, torch.Tensor], object]]] = {
    "norm": (of(Exact, norm=1), lambda m, x: berncert.certify(m, x, norm=1).radius),
    "tolerance": (of(Exact, tolerance=0.5), lambda m, x: berncert.certify(m, x, tolerance=0.5).radius),
    "max_boxes": (of(Exact, max_boxes=1), lambda m, x: berncert.certify(m, x, max_boxes=1).radius),
    "dtype": (of(Exact, dtype="float32"), lambda m, x: berncert.certify(m, x, dtype=torch.float32).radius),
    "solver": (of(Estimate, solver="trf"), lambda m, x: berncert.estimate(m, x, solver="trf").distance_estimate),
    "conservatism": (
        of(Estimate, conservatism=4.0),
        lambda m, x: berncert.estimate(m, x, conservatism=4.0).distance_estimate,
    ),
    "jacobian": (
        of(Estimate, jacobian="exact"),
        lambda m, x: berncert.estimate(m, x, jacobian="exact").distance_estimate,
    ),
    "sigma": (of(Randomized, n=50, sigma=1.0), lambda m, x: votes(m, x, n=50, sigma=1.0)),
    "alpha": (of(Randomized, n=50, alpha=0.3), lambda m, x: votes(m, x, n=50, sigma=0.25, alpha=0.3)),
    "n0": (of(Randomized, n=50, sigma=30.0, n0=1), lambda m, x: votes(m, x, n=50, sigma=30.0, n0=1)),
    "seed": (of(Randomized, n=50, sigma=30.0, seed=5), lambda m, x: votes(m, x, n=50, sigma=30.0, seed=5)),
}


def votes(model: berncert.Classifier, images: torch.Tensor, **options: Any) -> object:
    plain = berncert.Classifier(model.extractor, copy.deepcopy(model.head).float()).eval()
    return Randomized(**options).certify(plain, images).probable_radius


@pytest.fixture(scope="module")
def bent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint whose head bends, so that every option has something to do."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("bent") / "bent.safetensors"
    base = build_head("mlp", 3, 10, degree=4)
    with torch.no_grad():
        for value in base.parameters():
            value.mul_(6)
    save(berncert.Classifier(build("mlp", (1, 8, 8), dim=3, depth=2, width=8), smoothed(base)).eval(), path, base=base)
    return path


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_does_what_the_record_says(tmp_path: Path, bent: Path, name: str) -> None:
    (method, _), call = SETTINGS[name]
    settings = RunSettings(data="digits", limit=4, batch_size=4)
    usual = perform(bent, (replace(method, **{name: default(method, name)}), settings), tmp_path / "usual")
    run = perform(bent, (method, settings), tmp_path / "run")
    model, images = open_checkpoint(bent).smoothed(), data.load("digits", limit=4).images
    np.testing.assert_array_equal(run.radius, call(model, images))
    assert not np.array_equal(run.radius, usual.radius), f"{name} changes nothing here"


def default(settings: Method, name: str) -> Any:
    return next(entry.default for entry in fields(settings) if entry.name == name)


def test_the_split_is_the_one_that_is_told(tmp_path: Path) -> None:
    run = perform("digits", of(Exact, split="train", limit=5), tmp_path)
    np.testing.assert_array_equal(run.rows["label"], data.load("digits", "train", limit=5).labels)


@pytest.mark.parametrize("changes", [{"seed": 7}, {"restarts": 3}, {"steps": 9}, {"loss": "cross_entropy"}])
def test_an_attack_is_the_one_that_is_told(tmp_path: Path, changes: dict[str, Any]) -> None:
    radii, settings = (
        tuple(np.linspace(0.3, 1.2, 60).tolist()),
        {"steps": 1, "restarts": 1, "seed": 0, "loss": "margin"},
    )
    run = perform("digits", of(Pgd, limit=12, radii=radii, **settings | changes), tmp_path / "run")
    usual = perform("digits", of(Pgd, limit=12, radii=radii, **settings), tmp_path / "usual")
    assert not np.array_equal(run.radius, usual.radius)
    test, model = data.load("digits", limit=12), berncert.load("digits")
    plain = berncert.Classifier(model.extractor, model.head).eval()
    attack = Pgd(norm=2.0, **settings | changes)
    expected = fallen_at(plain, test.images.double(), test.labels, radii, attack, numbers=test.indices.tolist())
    np.testing.assert_array_equal(run.radius, expected)


def test_one_step_is_one_step(tmp_path: Path) -> None:
    run = perform("digits", of(Fgsm, limit=12, radii=(0.5, 0.8)), tmp_path)
    test, model = data.load("digits", limit=12), berncert.load("digits")
    plain = berncert.Classifier(model.extractor, model.head).eval()
    step = Fgsm(norm=2.0)
    np.testing.assert_array_equal(run.radius, fallen_at(plain, test.images.double(), test.labels, (0.5, 0.8), step))


def test_an_image_is_attacked_alike_whichever_others_are(tmp_path: Path) -> None:
    radii = tuple(np.linspace(0.3, 1.2, 40).tolist())
    some = perform("digits", of(Pgd, skip=3, limit=8, batch_size=5, steps=1, radii=radii), tmp_path / "some")
    every = perform("digits", of(Pgd, limit=22, batch_size=7, steps=1, radii=radii), tmp_path / "every")
    np.testing.assert_array_equal(some.radius, every.radius[::3])


def test_any_json_about_a_checkpoint_is_taken(tmp_path: Path) -> None:
    model = berncert.load("digits")
    for number, about in enumerate([{}, {"recipe": "mine"}, {"recipe": {"data": None}}, {"recipe": {"data": {}}}]):
        save(model, tmp_path / f"{number}.safetensors", about=about)
        assert open_checkpoint(tmp_path / f"{number}.safetensors").trained_on is None


def test_the_checksum_of_data_is_of_pixels_and_of_labels() -> None:
    test = data.load("digits", limit=3)
    others = [replace(test, labels=test.labels + 1), replace(test, images=test.images * 0.5)]
    assert len({digest(each) for each in (test, *others)}) == 3


def test_a_run_is_not_gone_on_with_by_other_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    perform("digits", of(Exact, limit=3), tmp_path)
    table = tmp_path / "certificates.tsv"
    before = table.read_bytes()
    monkeypatch.setattr(versions, "code_checksum", lambda: "changed since")
    assert perform("digits", of(Exact, limit=3), tmp_path).complete  # nothing is left to do
    os.truncate(table, len(before) - 5)
    with pytest.raises(ValueError, match=r"differs in versions\.code"):
        perform("digits", of(Exact, limit=3), tmp_path)


def test_a_run_that_decides_at_one_radius_is_read_at_that_radius(tmp_path: Path) -> None:
    whole, asked = (perform("digits", of(Exact, limit=30, **more), tmp_path / name) for name, more in ASKED.items())
    assert (whole.decided_at, asked.decided_at) == (None, 0.3)
    assert asked.standing([0.0, 0.3]).tolist() == whole.standing([0.0, 0.3]).tolist()
    curves = [Curve("asked", asked)]
    assert default_radii(curves) == [0.0, 0.3]
    assert any("was decided at radius 0.3 only" in note for note in warnings_about(curves))
    assert not warnings_about([Curve("whole", whole)])


ASKED: dict[str, dict[str, Any]] = {"whole": {}, "asked": {"radius": 0.3}}
