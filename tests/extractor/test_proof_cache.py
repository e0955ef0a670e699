"""Proofs that are kept by content: used again for the very same network, question and code, and for nothing else."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

import berncert
from berncert.certification.classifier import Classifier
from berncert.extractor import Extractor, FrozenNetwork, build, freeze, lipschitz_table, proof_cache, register_bound
from berncert.extractor.bounds.value_bound import ValueBound
from berncert.extractor.proof_cache import proven

SHAPE = (1, 4, 4)
DOUBLE, SINGLE = 2.0**-53, 2.0**-24


def extractor(of: str = "mlp", **options: Any) -> Extractor:
    small = {"mlp": {"depth": 1, "width": 8}, "resnet": {"depth": 8, "width": 2}}[of]
    return build(of, SHAPE, 3, mean=[0.5], std=[0.5], **small, **options).eval()


def frozen(of: str = "mlp", **options: Any) -> FrozenNetwork:
    return freeze(extractor(of, **options), SHAPE)


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
    monkeypatch.setattr(proof_cache, "lipschitz_table", counter)
    return counter


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test keeps its proofs; nothing is known at the start."""
    monkeypatch.setenv(proof_cache.VARIABLE, str(tmp_path / "cache"))
    forget(monkeypatch)
    return tmp_path / "cache" / "proofs"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another process: only what is on disk is known."""
    monkeypatch.setattr(proof_cache, "_MEMORY", {})


def assert_equal(a: ValueBound, b: ValueBound, rtol: float = 0.0) -> None:
    assert (a.shape, a.limits, a.gains.norms) == (b.shape, b.limits, b.gains.norms)
    for one, two in ((a.gains.factors, b.gains.factors), (a.size, b.size), (a.error, b.error), (a.peak, b.peak)):
        np.testing.assert_allclose(one, two, rtol=rtol)


# ---- the very same ----


@pytest.mark.parametrize("of", ["mlp", "resnet"])
def test_the_same_network_is_proven_once_and_found_again_by_another_process(
    of: str, proofs: Counter, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = frozen(of)
    first = proven(network, 2.0, DOUBLE)
    assert_equal(proven(network, 2.0, DOUBLE), first)
    assert proofs.calls == 1
    forget(monkeypatch)
    assert_equal(proven(copy.deepcopy(network), 2.0, DOUBLE), first)
    assert proofs.calls == 1
    assert len(list(kept.iterdir())) == 1


@pytest.mark.parametrize("norm", [1.0, 1.5, 2.0, math.inf])
@pytest.mark.parametrize("unit", [DOUBLE, SINGLE])
def test_what_is_kept_is_what_was_proven(norm: float, unit: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for construction in ("lipschitz", "paper"):
        network = frozen("resnet", construction=construction)
        fresh = lipschitz_table(network, SHAPE, norm, unit=unit).value
        for _ in range(2):
            assert_equal(proven(network, norm, unit), fresh, 1e-9)
            forget(monkeypatch)


def test_infinite_bounds_and_limits_are_kept_too(monkeypatch: pytest.MonkeyPatch, proofs: Counter) -> None:
    layers = [nn.Linear(2, 2, bias=False, dtype=torch.float64) for _ in range(2)]
    for i, layer in enumerate(layers):
        layer.weight.data.zero_()
        layer.weight.data[i, i] = 1e200
    network = freeze(nn.Sequential(*layers, nn.ReLU()), (2,))
    first = proven(network, 2.0, DOUBLE)
    assert first.limits == (0.0, math.inf)
    assert first.gains.factor(2.0, 2.0) == math.inf
    forget(monkeypatch)
    assert_equal(proven(network, 2.0, DOUBLE), first)
    assert proofs.calls == 1


def test_names_and_stories_make_no_difference(proofs: Counter) -> None:
    network = frozen()
    proven(network, 2.0, DOUBLE)
    proven(FrozenNetwork(network.input_shape, network.steps, {"told": "another way"}), 2.0, DOUBLE)
    assert proofs.calls == 1


def test_certify_proves_an_extractor_once(proofs: Counter) -> None:
    model = Classifier(extractor(), berncert.SmoothedHead(torch.rand(3, 2, 2, 2, dtype=torch.float64))).eval()
    images = torch.rand(2, *SHAPE, dtype=torch.float64)
    first, second = (berncert.certify(model, images) for _ in range(2))
    assert proofs.calls == 1
    assert first.lipschitz_bound.tolist() == second.lipschitz_bound.tolist()
    assert first.extraction_error.tolist() == second.extraction_error.tolist()


# ---- another question ----


def test_another_norm_or_rounding_is_another_question_and_the_plain_norms_are_one(proofs: Counter) -> None:
    network = frozen("resnet")
    questions = [(2.0, DOUBLE), (1.5, DOUBLE), (3.0, DOUBLE), (2.0, SINGLE)]
    answers = [proven(network, *question) for question in questions]
    assert proofs.calls == 4
    for question, answer in zip(questions, answers, strict=True):
        assert_equal(proven(network, *question), answer)
    proven(network, 1.0, DOUBLE)
    proven(network, math.inf, DOUBLE)
    assert proofs.calls == 4


def test_images_of_another_shape_are_another_question(proofs: Counter) -> None:
    pools = extractor("resnet", construction="paper")  # whatever the size
    for shape in (SHAPE, (1, 8, 8)):
        assert proven(freeze(pools.layers, shape), 2.0, DOUBLE).gains.factor(2.0, 2.0) > 0
    assert proofs.calls == 2


def test_other_code_proves_again(proofs: Counter, monkeypatch: pytest.MonkeyPatch) -> None:
    network = frozen()
    proven(network, 2.0, DOUBLE)
    monkeypatch.setattr(proof_cache, "_code_checksum", lambda: "another version")
    proven(network, 2.0, DOUBLE)
    assert proofs.calls == 2


# ---- another network ----


def _weight(network: Extractor) -> None:
    with torch.no_grad():
        network.layers[-2].parametrizations.weight.original[0, 0] += 0.5


def _bias(network: Extractor) -> None:
    with torch.no_grad():
        network.layers[-2].bias[0] += 1.0


def _last_bit(network: Extractor) -> None:
    with torch.no_grad():
        bias = network.layers[-2].bias
        bias[0] = torch.nextafter(bias[0], torch.tensor(torch.inf))


def _buffer(network: Extractor) -> None:
    network.layers[0].std.fill_(0.25)


def _side(network: Extractor) -> None:
    network.layers[-1].side = 0.1


def _activation(network: Extractor) -> None:
    network.layers[3] = nn.Tanh()


def _twice(network: Extractor) -> None:
    network.layers.append(network.layers[-1])


def _other_parametrisation(network: Extractor) -> None:
    parametrize.remove_parametrizations(network.layers[-2], "weight")
    network.layers[-2].weight.data *= 3
    parametrizations.weight_norm(network.layers[-2]).eval()


def _other_weights(network: Extractor) -> None:
    network.load_state_dict(build(**network.description).state_dict())


def _steeper_class(network: Extractor) -> None:
    class Steeper(Extractor):
        def forward(self, image: Tensor) -> Tensor:
            return self.layers(5 * image)

    network.__class__ = Steeper


def _own_forward(network: Extractor) -> None:
    network.layers[0].forward = lambda x: 3 * x  # type: ignore[method-assign]


CHANGES = [_weight, _bias, _last_bit, _buffer, _side, _activation, _twice, _other_parametrisation, _other_weights,
           _steeper_class, _own_forward]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__[1:])
def test_any_change_is_proven_again(change: Callable[[Extractor], None], proofs: Counter) -> None:
    network = extractor(side=0.5)
    proven(freeze(network, SHAPE), 2.0, DOUBLE)
    change(network)
    changed = freeze(network, SHAPE)
    got = proven(changed, 2.0, DOUBLE)
    assert proofs.calls == 2
    assert_equal(got, lipschitz_table(changed, SHAPE).value, 1e-9)


class Hidden(nn.Module):
    """A user's layer that keeps its factor where one would not look for it."""

    def __init__(self) -> None:
        super().__init__()
        self._table = ({"by": [1.0]},)

    def forward(self, x: Tensor) -> Tensor:
        return self._table[0]["by"][0] * x


def test_a_users_layer_that_changed_is_proven_again_when_it_is_certified() -> None:
    model = Classifier(extractor(side=0.5), berncert.SmoothedHead(torch.rand(3, 2, 2, 2, dtype=torch.float64))).eval()
    layer = Hidden()
    model.extractor.layers.insert(0, layer)
    images = torch.rand(2, *SHAPE, dtype=torch.float64)
    before = berncert.certify(model, images).lipschitz_bound[0]
    layer._table[0]["by"][0] = 7.0
    assert berncert.certify(model, images).lipschitz_bound[0] == pytest.approx(7 * before, rel=1e-6)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(x)


def test_a_registered_layer_is_proven_again_each_time(registry: None, proofs: Counter, kept: Path) -> None:
    for factor in (1.0, 3.0):
        register_bound(Sine, lambda module, shape, factor=factor: factor)
        network = freeze(nn.Sequential(Sine()), (3,))
        for _ in range(2):
            assert proven(network, 2.0, DOUBLE).gains.factor(2.0, 2.0) == pytest.approx(factor)
    assert proofs.calls == 4
    assert not kept.exists()


# ---- files ----

BROKEN: dict[str, Callable[[str], str]] = {
    "empty": lambda text: "",
    "cut off": lambda text: text[: len(text) // 2],
    "no JSON": lambda text: "proof",
    "a number": lambda text: "5",
    "a list": lambda text: "[]",
    "an empty table": lambda text: "{}",
    "lists in lists": lambda text: "[" * 100_000,
    "of another question": lambda text: json.dumps(json.loads(text) | {"key": "0" * 64}),
    "without its error": lambda text: json.dumps({k: v for k, v in json.loads(text).items() if k != "error"}),
    "with too few factors": lambda text: json.dumps(json.loads(text) | {"factors": ["1.0"]}),
    "with words for numbers": lambda text: json.dumps(json.loads(text) | {"error": ["a", "b"]}),
    "with nothing for numbers": lambda text: json.dumps(json.loads(text) | {"error": None}),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_file_that_cannot_be_read_is_proven_again_and_replaced(
    how: str, proofs: Counter, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = frozen()
    first = proven(network, 2.0, DOUBLE)
    (file,) = kept.iterdir()
    whole = file.read_text("utf-8")
    file.write_text(BROKEN[how](whole), "utf-8")
    forget(monkeypatch)
    assert_equal(proven(network, 2.0, DOUBLE), first, 1e-9)
    assert proofs.calls == 2
    assert json.loads(file.read_text("utf-8")).keys() == json.loads(whole).keys()
    assert list(kept.iterdir()) == [file]  # nothing half-written is left


def test_bytes_that_are_no_text_are_proven_again(proofs: Counter, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = frozen()
    proven(network, 2.0, DOUBLE)
    next(kept.iterdir()).write_bytes(b"\xff\xfe\x00")
    forget(monkeypatch)
    proven(network, 2.0, DOUBLE)
    assert proofs.calls == 2


def test_a_folder_that_cannot_be_written_costs_nothing_but_time(
    tmp_path: Path, proofs: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv(proof_cache.VARIABLE, str(tmp_path / "file"))
    network = frozen()
    first = proven(network, 2.0, DOUBLE)
    assert_equal(proven(network, 2.0, DOUBLE), first)  # this process remembers
    forget(monkeypatch)
    assert_equal(proven(network, 2.0, DOUBLE), first, 1e-9)
    assert proofs.calls == 2


def test_the_folder_is_the_users_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(proof_cache.VARIABLE, str(tmp_path / "mine"))
    assert proof_cache.folder() == tmp_path / "mine" / "proofs"
    for unset in (lambda: monkeypatch.setenv(proof_cache.VARIABLE, ""), lambda: monkeypatch.delenv("BERNCERT_CACHE")):
        unset()
        assert "berncert" in str(proof_cache.folder())
        assert proof_cache.folder().is_absolute()


def test_a_long_process_does_not_remember_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof_cache, "MOST_REMEMBERED", 3)
    for side in range(1, 7):
        proven(freeze(build("mlp", SHAPE, 3, depth=1, width=8, side=float(side)).eval(), SHAPE), 2.0, DOUBLE)
    assert len(proof_cache._MEMORY) == 3
