"""Every number of an explanation is what it is said to be."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from explained_toys import HALVES, JAGGED, PLACE, boxy, classifier, explained, lengths, open_classifier, saved, towards
from torch import Tensor, nn

import berncert
from berncert.certification.exact import ImageProver
from berncert.certification.methods import Exact
from berncert.certification.status import Status
from berncert.models.checkpoint import open_checkpoint, save
from berncert.reporting.explanation import Sample, explain, read_sample
from berncert.reporting.explanation.explanation import MOST_RIVALS, _check_witness, rivals_of
from berncert.reporting.explanation.surface import slice_of
from berncert.runs.settings import RunSettings

NORMS = [1, 1.5, 2, math.inf]


@pytest.mark.parametrize("norm", NORMS)
def test_no_point_of_the_ball_in_the_plane_crosses_the_boundary(norm: float) -> None:
    e = explained(JAGGED, PLACE, norm=norm, attack=False)
    c, cut = e.certificate, slice_of(e)
    assert c.feature_norm == norm
    assert cut.contains(c.features)
    assert cut.contains(c.in_features.witness)
    outline = cut.ball_outline(norm, float(c.feature_radius) * (1 - 1e-12))
    shares = np.random.default_rng(0).uniform(size=(20, 1, 1)) ** 0.25
    points = cut.points((shares * outline).reshape(-1, 2))
    assert (lengths(points - c.features, norm) < c.feature_radius).all()
    points = points[(np.minimum(points, 1 - points) >= 0).all(axis=1)]
    assert len(points) > 1000
    assert (e.head(torch.from_numpy(points)).argmax(dim=1) == e.predicted).all()


@pytest.mark.parametrize("norm", NORMS)
def test_the_nearest_of_the_rivals_is_as_far_as_the_certificate_says(norm: float) -> None:
    e = explained(JAGGED, PLACE, norm=norm, attack=False)
    c = e.certificate
    assert {rival.number for rival in e.rivals} == set(range(5)) - {e.predicted}
    assert c.feature_radius <= min(rival.feature_radius for rival in e.rivals) <= c.in_features.upper
    assert min(rival.radius for rival in e.rivals) == pytest.approx(c.radius, rel=2e-3)
    assert e.rivals[0].number == c.in_features.rival
    assert [rival.feature_upper for rival in e.rivals] == sorted(rival.feature_upper for rival in e.rivals)
    for rival in e.rivals:
        assert rival.radius >= c.radius
        assert rival.feature_radius <= rival.feature_upper
        assert lengths(rival.witness - c.features, norm) == pytest.approx(rival.feature_upper)
        predicted, overtaking = e.head(torch.from_numpy(rival.witness)[None])[0][[e.predicted, rival.number]]
        assert overtaking > predicted


@pytest.mark.parametrize("norm", NORMS)
def test_within_its_radius_a_rival_stays_behind_at_every_point_tried(norm: float) -> None:
    e = explained(JAGGED, PLACE, norm=norm, attack=False)
    rng = np.random.default_rng(1)
    for rival in e.rivals:
        images = towards(rival.witness, e.sample.image.double().numpy(), rival.radius, norm, rng)
        logits = e.model(torch.from_numpy(images))
        assert (logits[:, e.predicted] > logits[:, rival.number]).all()


@pytest.mark.parametrize("norm", NORMS)
def test_the_attack_never_comes_closer_than_the_radius_and_does_succeed(norm: float) -> None:
    e = explained(JAGGED, PLACE, norm=norm)
    assert e.found is not None
    assert e.found.distance >= e.certificate.radius
    assert int(e.model(e.found.image[None]).argmax()) == e.found.predicted != e.predicted


def test_the_radius_is_made_of_its_parts() -> None:
    c = explained(JAGGED, PLACE, attack=False).certificate
    made = (c.feature_radius - 2 * c.extraction_error) / c.lipschitz_bound
    assert c.radius <= made
    assert c.radius == pytest.approx(made, rel=1e-9)


def steep() -> berncert.Classifier:
    """An ordinary network, whose Lipschitz bound is far from what it does near an image."""
    torch.manual_seed(0)
    extractor = nn.Sequential(
        nn.Linear(12, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 3), nn.Sigmoid()
    )
    with torch.no_grad():
        for parameter in extractor.parameters():
            parameter *= 3
    head = berncert.SmoothedHead(torch.randn(4, 3, 3, 3, dtype=torch.float64))
    return berncert.Classifier(extractor.double(), head).eval()


@pytest.mark.parametrize("norm", [2, math.inf])
def test_the_route_that_proves_more_is_the_one_that_is_explained(norm: float) -> None:
    model, point = steep(), torch.rand(12, dtype=torch.float64)
    e = explain(model, Sample("toy", "test", 0, point, 0, tuple("abcd")), Exact(norm=norm))
    (c,) = berncert.certify(model, point[None], norm=norm)
    assert e.is_local
    assert (e.certificate.radius, e.certificate.route, e.status) == (c.radius, "local", Status.LOCAL)
    by_bound = berncert.certify(model, point[None], norm=norm, routes="global")[0]
    assert e.by_bound.radius == by_bound.radius < c.radius
    assert min(rival.radius for rival in e.rivals) >= c.radius
    assert e.found is not None
    assert e.found.distance >= c.radius
    lower, upper = e.reached  # type: ignore[misc]
    rng = np.random.default_rng(0)
    near = towards(rng.uniform(size=12), point.numpy(), float(c.radius), norm, rng)
    features = e.model.extractor(torch.from_numpy(near)).numpy()
    assert ((lower <= features) & (features <= upper)).all()
    assert (features.max(axis=0) - features.min(axis=0) > 0).all()
    assert e.as_json()["reached"]["lower"] is lower
    alone = explain(model, e.sample, Exact(norm=norm, routes="global"), attack=False)
    assert (alone.certificate.radius, alone.reached, alone.is_local) == (by_bound.radius, None, False)


def test_a_known_answer_in_one_two_and_three_features() -> None:
    for dim in (1, 2, 3):
        e = explained(boxy(dim), [0.3] * dim, label=1)
        assert (e.predicted, e.correct, e.certificate.in_features.rival) == (1, True, 0)
        assert e.certificate.radius == pytest.approx(0.2, rel=1e-3)
        assert e.found is not None
        assert e.found.distance == pytest.approx(0.2, rel=0.02)
        assert e.logits == pytest.approx([0.3, 0.7])
        assert e.rivals[0].margin == pytest.approx(0.4)
        assert e.probabilities.sum() == pytest.approx(1)


def test_an_image_that_is_wrong_is_explained_all_the_same() -> None:
    e = explained(boxy(2), [0.3, 0.3], label=0)
    assert not e.correct
    assert e.certificate.radius > 0.19


def test_a_class_that_nothing_overtakes_has_no_rival_within_reach() -> None:
    e = explained(torch.tensor([[3.0, 3.0], [0.0, 1.0], [1.0, 0.0]]), [0.5])
    assert e.status is Status.WHOLE_CUBE
    assert e.found is None
    assert [(rival.radius, rival.feature_upper) for rival in e.rivals] == [(math.inf, math.inf)] * 2


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_a_tie_is_reported_as_one(dim: int) -> None:
    e = explained(boxy(dim), [0.5] * dim)
    assert e.status is Status.TIE
    assert e.certificate.radius == e.rivals[0].radius == 0


def test_classes_that_are_the_same_everywhere_tie_without_a_witness() -> None:
    e = explained(torch.zeros(3, 2, 2, 2), [0.4, 0.4, 0.4])
    assert e.status is Status.TIE
    assert e.certificate.in_features.rival == -1
    assert e.found is None
    assert slice_of(e).axes.shape == (2, 3)


def test_of_many_classes_the_nearest_are_looked_at_and_the_rival_among_them() -> None:
    e = explained(torch.randn(30, 3, 3, 3), PLACE, attack=False)
    assert len(e.rivals) == MOST_RIVALS
    assert e.rivals[0].number == e.certificate.in_features.rival
    assert e.rivals[0].feature_upper == pytest.approx(e.certificate.in_features.upper, rel=2e-3)


def test_a_budget_that_is_spent_leaves_distances_that_hold() -> None:
    e = explained(JAGGED, PLACE, max_boxes=1, attack=False)
    exact = explained(JAGGED, PLACE, attack=False)
    assert e.status is Status.BUDGET
    known = {rival.number: rival for rival in exact.rivals}
    for rival in e.rivals:
        assert rival.radius <= known[rival.number].radius * 1.002
    assert e.certificate.radius <= exact.certificate.radius * 1.002


def test_features_that_may_leave_the_cube_give_no_rival_more_than_the_certificate() -> None:
    sample = Sample("toy", "test", 0, torch.tensor([0.3, 0.9]), 1, ("left", "right"))
    e = explain(open_classifier(boxy(2)), sample, Exact(), attack=False)
    assert e.status is Status.LEAVES_CUBE
    assert [rival.radius for rival in e.rivals] == [e.certificate.radius]
    assert e.certificate.radius == pytest.approx(0.1, rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_no_rival_is_proven_to_stay_behind_beyond_the_wall_of_the_cube(norm: float) -> None:
    x, y = torch.tensor([[0.0], [1.0]]), torch.tensor([[0.0, 1.0]])
    coefficients = torch.stack([torch.zeros(2, 2), (x - 0.6).expand(2, 2), (y - 1.05).expand(2, 2)])
    sample = Sample("toy", "test", 0, torch.tensor([0.5, 0.5]), 0, ("a", "b", "c"))
    e = explain(open_classifier(coefficients), sample, Exact(norm=norm), attack=False)
    assert e.status is Status.PROVEN  # what is nearest is inside
    assert int(e.model(torch.tensor([[0.5, 1.2]], dtype=torch.float64)).argmax()) == 2
    near, far = e.rivals
    assert (near.number, far.number, far.feature_upper) == (1, 2, math.inf)
    assert near.radius == pytest.approx(0.1, rel=2e-3)
    assert far.radius == pytest.approx(0.5, rel=1e-9)  # 0.55 away it overtakes
    images = towards(np.array([0.5, 1.2]), np.array([0.5, 0.5]), far.radius, norm, np.random.default_rng(2))
    logits = e.model(torch.from_numpy(images))
    assert (logits[:, 0] > logits[:, 2]).all()


def test_explain_checks_the_witness_that_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = ImageProver.by_global

    def moved(prove: ImageProver, images: Tensor) -> berncert.ImageCertificates:
        c = honest(prove, images)
        between = (c.in_features.witness + c.features) / 2
        return dataclasses.replace(c, in_features=dataclasses.replace(c.in_features, witness=between))

    monkeypatch.setattr(ImageProver, "by_global", moved)
    with pytest.raises(RuntimeError, match="expected a witness of another class"):
        explained(JAGGED, PLACE, attack=False)


def test_a_witness_that_is_none_is_noticed() -> None:
    e = explained(JAGGED, PLACE, attack=False)
    _check_witness(e.head, e.certificate)
    inner = e.certificate.in_features
    for wrong in ({"witness": e.certificate.features}, {"upper": inner.upper * 2}):
        changed = dataclasses.replace(inner, **wrong)
        with pytest.raises(RuntimeError, match="this must not happen"):
            _check_witness(e.head, dataclasses.replace(e.certificate, in_features=changed))


def test_an_attack_within_the_radius_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    e = explained(JAGGED, PLACE)
    assert e.found is not None
    near = dataclasses.replace(e.found, distance=float(e.certificate.radius) / 2)
    monkeypatch.setattr("berncert.reporting.explanation.explanation.nearest_counterexample", lambda *_, **__: near)
    with pytest.raises(RuntimeError, match="within the proven radius"):
        explained(JAGGED, PLACE)


def test_the_record_keeps_every_bit(capsys: pytest.CaptureFixture[str]) -> None:
    from berncert.cli.output import print_json

    e = explained(JAGGED, PLACE, norm=math.inf)
    print_json(e.as_json())
    record = json.loads(capsys.readouterr().out)
    assert record["norm"] == record["feature_norm"] == "inf"
    assert record["radius"] == e.certificate.radius
    assert record["witness"] == e.certificate.in_features.witness.tolist()
    assert record["found"]["distance"] == e.found.distance  # type: ignore[union-attr]
    assert [rival["radius"] for rival in record["rivals"]] == [rival.radius for rival in e.rivals]
    assert record["status"] == "PROVEN"


def test_a_checkpoint_is_read_as_it_is_or_smoothed_again(tmp_path: Path) -> None:
    model = saved(tmp_path / "model.safetensors")
    assert torch.equal(open_checkpoint(tmp_path).smoothed().head.coefficients, model.head.coefficients)  # type: ignore[arg-type]
    assert open_checkpoint(tmp_path).smoothed(5).head.degree == (5, 5, 5)
    save(berncert.load(tmp_path, base=True), tmp_path / "base.safetensors")
    with pytest.raises(ValueError, match="whose head is not; pass degree"):
        open_checkpoint(tmp_path / "base.safetensors").smoothed()
    assert open_checkpoint(tmp_path / "base.safetensors").smoothed(1).head.degree == (1, 1, 1)


def test_the_image_at_a_place_of_the_split_is_read() -> None:
    whole = berncert.data.load("digits", "test")
    sample = read_sample(RunSettings(data="digits"), 17)
    assert torch.equal(sample.image, whole.images[17])
    assert (sample.label, sample.classes, sample.kind) == (int(whole.labels[17]), whole.classes, "image")
    with pytest.raises(ValueError, match="expected an index from 0 to 354, as digits has 355 test images, got 355"):
        read_sample(RunSettings(data="digits"), 355)
    with pytest.raises(ValueError, match="index >= 0"):
        read_sample(RunSettings(data="digits"), -1)


def test_data_that_the_model_does_not_take_is_refused_before_any_work() -> None:
    digits = berncert.load("digits")
    with pytest.raises(ValueError, match=r"expected data of shape \(1, 8, 8\), got moons of shape \(2,\)"):
        explain(digits, read_sample(RunSettings(data="moons"), 0), Exact())
    sample = Sample("own", "test", 0, torch.zeros(3), 2, ("a", "b", "c"))
    with pytest.raises(ValueError, match="at most the 2 classes of the model, got own with 3"):
        explain(classifier(boxy(3)), sample, Exact())


def test_a_class_that_the_data_does_not_name_has_its_number() -> None:
    sample = Sample("own", "test", 0, torch.tensor([0.3]), 0, ("a",))
    assert explain(classifier(HALVES), sample, Exact(), attack=False).name(1) == "1"


def test_rivals_are_the_same_whatever_else_is_asked() -> None:
    e = explained(JAGGED, PLACE, attack=False)
    again = rivals_of(e.head, e.certificate, e.settings, room=math.inf)
    assert [vars(rival)["feature_radius"] for rival in again] == [rival.feature_radius for rival in e.rivals]
