"""Proofs that are remembered: used again for the very same network, and never for any other."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from berncert.extractor.remembered import fingerprint, remember
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import berncert
from berncert.certification import Classifier
from berncert.extractor import Extractor, MaxMin, build, export, lipschitz_bound, lipschitz_table, remembered
from berncert.extractor.bounds.layer import RULES
from berncert.study.checkpoint import describe, load, save
from berncert.study.heads import build_head, smoothed

SHAPE = (1, 4, 4)


def model(of: str = "mlp", **options: Any) -> Classifier:
    small = {"mlp": {"depth": 1, "width": 8}, "resnet": {"depth": 8, "width": 2}}[of]
    extractor = build(of, SHAPE, 3, mean=[0.5], std=[0.5], **small, **options)
    return Classifier(extractor, smoothed(build_head("affine", 3, 3))).eval()


def images(shape: tuple[int, ...] = SHAPE) -> Tensor:
    return torch.rand(2, *shape, dtype=torch.float64)


def bound(classifier: Classifier, x: Tensor | None = None, **options: Any) -> float:
    return float(berncert.certify(classifier, images() if x is None else x, **options).lipschitz_bound[0])


class Counter:
    """How often something was proven."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return lipschitz_table(*args, **kwargs)


@pytest.fixture
def proofs(monkeypatch: pytest.MonkeyPatch) -> Counter:
    counter = Counter()
    monkeypatch.setattr(remembered, "lipschitz_table", counter)
    return counter


@pytest.fixture(autouse=True)
def _rules_as_they_were() -> Iterator[None]:
    before = dict(RULES)
    yield
    RULES.clear()
    RULES.update(before)


@pytest.mark.parametrize("of", ["mlp", "resnet"])
@pytest.mark.parametrize("construction", ["lipschitz", "paper"])
def test_the_same_network_is_proven_once(of: str, construction: str, proofs: Counter) -> None:
    classifier = model(of, construction=construction)
    first, second = (berncert.certify(classifier, images()) for _ in range(2))
    assert proofs.calls == 1
    assert first.lipschitz_bound.tolist() == second.lipschitz_bound.tolist()
    assert first.extraction_error.tolist() == pytest.approx(second.extraction_error.tolist())


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, float("inf")])
def test_what_is_remembered_is_what_was_proven(norm: float) -> None:
    for construction in ("lipschitz", "paper"):
        classifier = model("resnet", construction=construction)
        plain = export(copy.deepcopy(classifier.extractor).double())
        fresh = lipschitz_table(plain, SHAPE, norm).flow
        for _ in range(2):
            flow = remembered.flow_of(classifier.extractor, plain, SHAPE, norm, 2.0**-53, False)
            assert flow.shape == fresh.shape
            assert flow.limits == fresh.limits
            assert flow.gains.norms == fresh.gains.norms
            for a, b in ((flow.gains.factors, fresh.gains.factors), (flow.size, fresh.size), (flow.error, fresh.error)):
                assert a.shape == b.shape
                assert a.tolist() == b.tolist()
            classifier.extractor.proofs = json.loads(json.dumps(classifier.extractor.proofs, allow_nan=False))


def test_other_questions_are_proven_apart_and_all_are_kept(proofs: Counter) -> None:
    extractor = build("resnet", SHAPE, 3, depth=8, width=2)
    classifier = Classifier(extractor, smoothed(build_head("affine", 3, 3))).eval()
    questions: list[tuple[Tensor, dict[str, Any]]] = [
        (images(), {}),
        (images(), {"norm": 1.5}),
        (images(), {"dtype": torch.float32}),
    ]
    answers = [bound(classifier, x, **options) for x, options in questions]
    assert proofs.calls == 3
    assert [bound(classifier, x, **options) for x, options in questions] == answers
    assert proofs.calls == 3


def test_images_of_another_shape_are_another_question(proofs: Counter) -> None:
    extractor = build("resnet", SHAPE, 3, depth=8, width=2, construction="paper")  # pools whatever its size
    classifier = Classifier(extractor, smoothed(build_head("affine", 3, 3))).eval()
    bound(classifier, images())
    bound(classifier, images((1, 8, 8)))
    assert proofs.calls == 2


class Scale(nn.Module):
    """A user's layer, that can be followed."""

    def __init__(self, by: float = 1.0) -> None:
        super().__init__()
        self.by = by

    def forward(self, x: Tensor) -> Tensor:
        return self.by * x


class Hidden(nn.Module):
    """A user's layer that keeps its factor where one would not look for it."""

    def __init__(self, where: str) -> None:
        super().__init__()
        if where == "a buffer that is not saved":
            self.register_buffer("factor", torch.ones(1, dtype=torch.float64), persistent=False)
        elif where == "a private table":
            self._factor = {"by": 1.0}
        elif where == "a table":
            self.table = {"by": 1.0}
        elif where == "a list":
            self.numbers = [1.0]
        elif where == "nested lists":
            self.nested = [[1.0]]
        elif where == "a tuple of tables":
            self.numbers = ({"by": 1.0},)
        else:
            self.setting = 1.0
        self.where = where

    def forward(self, x: Tensor) -> Tensor:
        return self.factor_now() * x

    def factor_now(self) -> Any:
        places: dict[str, Callable[[], Any]] = {
            "a buffer that is not saved": lambda: self.factor,
            "a private table": lambda: self._factor["by"],
            "a table": lambda: self.table["by"],
            "a list": lambda: self.numbers[0],
            "nested lists": lambda: self.nested[0][0],
            "a tuple of tables": lambda: self.numbers[0]["by"],
            "a setting": lambda: self.setting,
        }
        return places[self.where]()

    def grow(self) -> None:
        if self.where == "a buffer that is not saved":
            self.factor.fill_(7.0)
        elif self.where == "a private table":
            self._factor["by"] = 7.0
        elif self.where == "a table":
            self.table["by"] = 7.0
        elif self.where == "a list":
            self.numbers[0] = 7.0
        elif self.where == "nested lists":
            self.nested[0][0] = 7.0
        elif self.where == "a tuple of tables":
            self.numbers[0]["by"] = 7.0
        else:
            self.setting = 7.0


def assert_not_stale(classifier: Classifier, before: float, factor: float | None = None) -> None:
    """What is used is what a fresh proof gives, and that is another."""
    with torch.no_grad():
        fresh = classifier.lipschitz_table(SHAPE).bound
    if factor is not None:
        assert fresh == pytest.approx(factor * before, rel=1e-6)
    assert bound(classifier) == fresh != before


@pytest.mark.parametrize(
    "where",
    ["a buffer that is not saved", "a private table", "a table", "a list", "nested lists", "a tuple of tables",
     "a setting"],
)  # fmt: skip
def test_a_users_layer_that_changed_is_proven_again(where: str) -> None:
    classifier, layer = model(side=0.5), Hidden(where)
    classifier.extractor.layers.insert(0, layer)
    before = bound(classifier)
    layer.grow()
    assert_not_stale(classifier, before, 7.0)


def _weight(extractor: Extractor) -> None:
    with torch.no_grad():
        extractor.layers[-2].parametrizations.weight.original[0, 0] += 0.5


def _one_bit(extractor: Extractor) -> None:
    weight = extractor.layers[-2].parametrizations.weight.original
    with torch.no_grad():
        weight[0, 0] = torch.nextafter(weight[0, 0], torch.tensor(torch.inf))


def _bias(extractor: Extractor) -> None:
    with torch.no_grad():
        extractor.layers[-2].bias[0] += 1.0


def _buffer(extractor: Extractor) -> None:
    extractor.layers[0].std.fill_(0.25)


def _side(extractor: Extractor) -> None:
    extractor.layers[-1].side = 0.1


def _layer(extractor: Extractor) -> None:
    extractor.layers.insert(1, nn.Flatten())


def _activation(extractor: Extractor) -> None:
    extractor.layers[3] = nn.Tanh()


def _order(extractor: Extractor) -> None:
    extractor.layers[0], extractor.layers[1] = nn.Identity(), extractor.layers[0]


def _parametrisation(extractor: Extractor) -> None:
    parametrize.remove_parametrizations(extractor.layers[-2], "weight")


def _more_parametrisation(extractor: Extractor) -> None:
    parametrize.remove_parametrizations(extractor.layers[-2], "weight")
    parametrizations.spectral_norm(extractor.layers[-2]).eval()


def _load(extractor: Extractor) -> None:
    extractor.load_state_dict(build(**extractor.description).state_dict())


CHANGES = [_weight, _one_bit, _bias, _buffer, _side, _layer, _activation, _parametrisation, _more_parametrisation,
           _load]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES)
def test_any_change_is_proven_again(change: Callable[[Extractor], None], proofs: Counter) -> None:
    classifier = model()
    bound(classifier)
    stored = copy.deepcopy(classifier.extractor.proofs)
    change(classifier.extractor)
    assert remember(classifier.extractor) == {}
    got = bound(classifier)
    assert proofs.calls == 2
    assert got == classifier.lipschitz_table(SHAPE).bound
    classifier.extractor.proofs = stored  # not even when it is put back
    bound(classifier)
    assert proofs.calls == 3


def test_settings_of_torch_layers_count() -> None:
    classifier = model("resnet", construction="paper")
    marks = {fingerprint(classifier.extractor)}
    conv = next(m for m in classifier.extractor.modules() if isinstance(m, nn.Conv2d))
    norm = next(m for m in classifier.extractor.modules() if isinstance(m, nn.BatchNorm2d))
    changes: list[tuple[nn.Module, str, Any]] = [
        (conv, "stride", (2, 2)),
        (conv, "padding", (0, 0)),
        (conv, "dilation", (2, 2)),
        (conv, "padding_mode", "circular"),
        (conv, "_reversed_padding_repeated_twice", (0, 0, 0, 0)),
        (norm, "eps", 1e-12),
        (norm, "eps", 1e-3),
        (norm, "momentum", None),
    ]
    for part, name, value in changes:
        setattr(part, name, value)
        marks.add(fingerprint(classifier.extractor))
    assert None not in marks
    assert len(marks) == len(changes) + 1


def test_a_smaller_eps_of_a_batch_normalisation_is_proven_again() -> None:
    classifier = model("resnet", construction="paper")
    norms = [m for m in classifier.extractor.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.running_var.fill_(1e-3)
    before = bound(classifier)
    norms[0].eps = 1e-9
    assert_not_stale(classifier, before)


def test_a_layer_used_twice_is_proven_again() -> None:
    classifier = model(side=0.25)
    before = bound(classifier)
    classifier.extractor.layers.append(classifier.extractor.layers[-1])  # the very same cube, once more
    assert_not_stale(classifier, before, 4.0)


def test_a_class_of_the_same_name_that_computes_something_else_is_proven_again() -> None:
    classifier = model(side=0.5)

    def layer(factor: float) -> nn.Module:
        class Mine(nn.Module):  # as in a notebook's cell that is run again
            def forward(self, x: Tensor) -> Tensor:
                return factor * x

        return Mine()

    classifier.extractor.layers.insert(0, layer(1.0))
    before = bound(classifier)
    classifier.extractor.layers[0] = layer(5.0)
    assert_not_stale(classifier, before, 5.0)


def test_a_parametrisation_of_the_same_name_that_computes_something_else_is_proven_again() -> None:
    classifier = model(side=0.5)

    def parametrised(factor: float) -> nn.Module:
        class Mine(nn.Module):
            def forward(self, weight: Tensor) -> Tensor:
                return factor * torch.eye(16, dtype=weight.dtype) + 0 * weight

        layer = nn.Linear(16, 16)
        with torch.no_grad():
            layer.weight.zero_()
            layer.bias.zero_()
        return parametrize.register_parametrization(layer, "weight", Mine(), unsafe=True)

    classifier.extractor.layers.insert(2, parametrised(1.0).eval())
    before = bound(classifier)
    classifier.extractor.layers[2] = parametrised(5.0).eval()
    assert_not_stale(classifier, before, 5.0)


def test_a_forward_of_a_class_that_was_replaced_is_proven_again(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = model(side=0.5)
    classifier.extractor.layers.insert(0, Scale())
    before = bound(classifier)
    monkeypatch.setattr(Scale, "forward", lambda self, x: 5 * x)
    assert_not_stale(classifier, before, 5.0)


@pytest.mark.parametrize("kind", [Scale, MaxMin])
def test_a_rule_that_was_registered_anew_is_asked(kind: type[nn.Module]) -> None:
    classifier = model(side=0.5)
    if kind is Scale:
        lipschitz_bound.register(Scale, lambda module, shape: 1.0)
        classifier.extractor.layers.insert(0, Scale())
    before = bound(classifier)
    lipschitz_bound.register(kind, lambda module, shape: 3.0)
    assert_not_stale(classifier, before, 3.0)


def test_an_instance_with_its_own_forward_is_never_remembered(proofs: Counter) -> None:
    classifier = model(side=0.5).double()
    before = bound(classifier)
    extractor = classifier.extractor
    extractor.forward = lambda x: extractor.layers(x) ** 2  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="cannot be followed"):
        bound(classifier)
    assert proofs.calls == 2
    del extractor.forward
    inner = extractor.layers[0]
    inner.forward = lambda x: 5 * (x - inner.mean) / inner.std  # type: ignore[method-assign]
    with pytest.raises(TypeError):
        bound(classifier)
    del inner.forward
    assert bound(classifier) == before


class Steeper(Extractor):
    def forward(self, image: Tensor) -> Tensor:
        return self.layers(5 * image)


def test_a_subclass_of_the_extractor_is_never_remembered(proofs: Counter) -> None:
    classifier = model(side=0.5)
    before = bound(classifier)
    classifier.extractor.__class__ = Steeper
    assert bound(classifier) == pytest.approx(5 * before)
    bound(classifier)
    assert proofs.calls == 3


@pytest.mark.parametrize("place", ["extractor", "layer"])
@pytest.mark.parametrize("kind", ["register_forward_hook", "register_forward_pre_hook"])
def test_with_a_hook_nothing_is_remembered(place: str, kind: str, proofs: Counter) -> None:
    classifier = model()
    before = bound(classifier)
    part = {"extractor": classifier.extractor, "layer": classifier.extractor.layers[0]}
    handle = getattr(part[place], kind)(lambda *args: None)
    assert fingerprint(classifier.extractor) is None
    with suppress(TypeError):  # a fresh proof refuses layers with hooks
        bound(classifier)
    assert proofs.calls == 2
    handle.remove()
    assert bound(classifier) == before


@pytest.mark.parametrize("kind", ["register_module_forward_hook", "register_module_forward_pre_hook"])
def test_with_a_hook_of_all_modules_nothing_is_remembered(kind: str) -> None:
    classifier = model()
    bound(classifier)
    handle = getattr(nn.modules.module, kind)(lambda *args: None)
    try:
        with pytest.raises(TypeError, match="without hooks"):
            bound(classifier)
    finally:
        handle.remove()


def test_what_is_proven_is_proven_of_the_very_weights_that_run(proofs: Counter) -> None:
    """A parametrised weight is computed: with more threads or on another machine it is another in its last bits."""
    extractor = build("mlp", SHAPE, 3, depth=1, width=8).eval()
    here, there = (export(copy.deepcopy(extractor).double()) for _ in range(2))
    weight = there.layers[1].weight
    with torch.no_grad():
        weight.copy_(torch.nextafter(weight, weight.sign() * torch.inf))
    for plain in (here, there):
        flow = remembered.flow_of(extractor, plain, SHAPE, 2.0, 2.0**-53, False)
        assert flow.gains.factor(2.0, 2.0) >= lipschitz_bound(plain, SHAPE)
    assert proofs.calls == 2


class Extra(nn.Module):
    def get_extra_state(self) -> Any:
        return {"a": 1}

    def set_extra_state(self, state: Any) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        return 1.0 * x


class Described(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.description = ["words", ["more words"]]

    def forward(self, x: Tensor) -> Tensor:
        return 1.0 * x


@pytest.mark.parametrize("kind", [Extra, Described])
def test_layers_that_cannot_be_told_apart_are_proven_each_time(kind: type[nn.Module]) -> None:
    classifier = model()
    classifier.extractor.layers.insert(0, kind())
    assert bound(classifier) == classifier.lipschitz_table(SHAPE).bound


def test_a_copy_has_its_own_memory(proofs: Counter) -> None:
    classifier = model()
    bound(classifier)
    other = copy.deepcopy(classifier)
    assert bound(other) == bound(classifier)
    assert proofs.calls == 1
    _side(other.extractor)
    assert bound(other) != bound(classifier)
    assert proofs.calls == 2


def test_training_mode_is_refused_though_the_proof_is_known() -> None:
    classifier = model("resnet", construction="paper")
    bound(classifier)
    classifier.train()
    with pytest.raises(ValueError, match="expected evaluation mode"):
        bound(classifier)


def test_a_loaded_checkpoint_brings_its_proof(tmp_path: Path, proofs: Counter) -> None:
    classifier = model()
    before = bound(classifier)
    save(classifier, tmp_path / "model")
    assert describe(tmp_path / "model")["proofs"] == classifier.extractor.proofs != {}
    loaded = load(tmp_path / "model")
    assert bound(loaded) == before
    assert proofs.calls == 1
    bound(loaded, norm=1.5)
    assert proofs.calls == 2
    assert bound(load(tmp_path / "model", proofs=False)) == before
    assert proofs.calls == 3


def test_a_proof_that_is_out_of_date_is_neither_saved_nor_used(tmp_path: Path, proofs: Counter) -> None:
    classifier = model()
    before = bound(classifier)
    stale = classifier.extractor.proofs
    with torch.no_grad():
        classifier.extractor.layers[0].std.fill_(0.25)
    save(classifier, tmp_path / "model")
    assert describe(tmp_path / "model")["proofs"] == {}
    loaded = load(tmp_path / "model")
    loaded.extractor.proofs = stale
    assert bound(loaded) == pytest.approx(2 * before)
    assert proofs.calls == 2
