"""Files of models: what is on the list is read, and a file that was tampered with runs nothing."""

from __future__ import annotations

import json
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skops.io
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import SplineTransformer, StandardScaler
from sklearn.svm import SVC

from berncert.estimators import BernsteinClassifier, load

X = np.random.default_rng(0).normal(size=(40, 2))
Y = (X[:, 0] > 0).astype(int)
MODELS = [
    make_pipeline(StandardScaler(), LogisticRegression()),
    make_pipeline(StandardScaler(), SVC()),
    CalibratedClassifierCV(RidgeClassifier(), cv=2),
    GaussianProcessClassifier(),
    GradientBoostingClassifier(n_estimators=3, random_state=0),
    HistGradientBoostingClassifier(max_iter=3),
    KNeighborsClassifier(),
    MLPClassifier((4,), max_iter=500, tol=0.1, random_state=0),
]
ATTACKS = [
    ("numpy.testing._private.utils", "runstring"),
    ("numpy.f2py.crackfortran", "myeval"),
    ("builtins", "__import__"),
    ("builtins", "eval"),
    ("builtins", "getattr"),
    ("os", "system"),
    ("posix", "system"),
    ("subprocess", "Popen"),
]


def node(kind: str, module: str, loader: str, **rest: Any) -> dict[str, Any]:
    """A node of a skops file, as skops writes it; its number is one that no other has."""
    node.number += 1  # type: ignore[attr-defined]
    return {"__class__": kind, "__module__": module, "__loader__": loader, "__id__": node.number, **rest}  # type: ignore[attr-defined]


node.number = 2**62  # type: ignore[attr-defined]


def text(value: str) -> dict[str, Any]:
    return node("str", "builtins", "JsonNode", content=json.dumps(value), is_json=True)


def call(module: str, name: str, loader: str, code: str) -> dict[str, Any]:
    """A node that has skops call module.name(code, {}) when it is made."""
    none = node("list", "builtins", "ListNode", content=[])
    empty = node("dict", "builtins", "DictNode", content={}, key_types=none)
    arguments = node("tuple", "builtins", "TupleNode", content=[text(code), empty])
    if loader == "LossNode":
        return node(name, module, loader, __reduce__={"args": arguments}, content=text(""))
    return node(name, module, loader, content=arguments)


def tampered(folder: Path, evil: dict[str, Any]) -> Path:
    """A model of ours with one of its options replaced."""
    BernsteinClassifier(LogisticRegression(), degree=2).fit(X, Y).save(folder / "model.skops")
    with zipfile.ZipFile(folder / "model.skops") as file:
        parts = {name: file.read(name) for name in file.namelist()}
    schema = json.loads(parts["schema.json"])
    schema["content"]["content"]["scale"] = evil
    parts["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile(folder / "evil.skops", "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return folder / "evil.skops"


@pytest.mark.filterwarnings("ignore::berncert.SmoothingWarning")  # whatever the polynomial predicts
@pytest.mark.parametrize("base", MODELS, ids=lambda base: type(base).__name__)
def test_models_that_are_often_used_are_read_as_they_are(base: Any, tmp_path: Path) -> None:
    model = BernsteinClassifier(base, degree=2).fit(X, Y)
    model.save(tmp_path / "model.skops")
    np.testing.assert_array_equal(load(tmp_path / "model.skops").decision_function(X), model.decision_function(X))


@pytest.mark.parametrize("loader", ["LossNode", "ConstructorFromReduceNode"])
@pytest.mark.parametrize(("module", "name"), ATTACKS)
def test_a_tampered_file_is_refused_before_it_runs(module: str, name: str, loader: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    path = tampered(tmp_path, call(module, name, loader, f"open({str(trace)!r}, 'w').close()"))
    with pytest.raises(ValueError, match=rf"got {module}\.{name} in .*pass trusted=\['{module}\.{name}'\]"):
        load(path)
    assert not trace.exists()


def test_the_attack_is_a_real_one(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"open({str(trace)!r}, 'w').close()"
    path = tampered(tmp_path, call("numpy.testing._private.utils", "runstring", "LossNode", code))
    with suppress(Exception):  # skops may not know what to do with the result
        skops.io.load(path, trusted=skops.io.get_untrusted_types(file=path))
    assert trace.exists()


def test_functions_partials_and_methods_are_refused(tmp_path: Path) -> None:
    system = node("system", "os", "FunctionNode", content={"module_path": "os", "function": "system"})
    with pytest.raises(ValueError, match=r"got os\.system in"):
        load(tampered(tmp_path, system))
    getter = node("methodcaller", "operator", "OperatorFuncNode", attrs=call("os", "system", "LossNode", "true"))
    with pytest.raises(ValueError, match=r"got operator\.methodcaller, os\.system in"):
        load(tampered(tmp_path, getter))


def test_explainable_boosting_machines_are_read_as_they_are(tmp_path: Path) -> None:
    glassbox = pytest.importorskip("interpret.glassbox")
    base = glassbox.ExplainableBoostingClassifier(interactions=1, max_rounds=20, outer_bags=1, n_jobs=1)
    model = BernsteinClassifier(base, terms="auto", degree=3).fit(X, Y)
    model.save(tmp_path / "model.skops")
    np.testing.assert_array_equal(load(tmp_path / "model.skops").decision_function(X), model.decision_function(X))


def test_further_types_are_trusted_by_exact_name(tmp_path: Path) -> None:
    base = make_pipeline(SplineTransformer(), LogisticRegression())
    model = BernsteinClassifier(base, degree=2).fit(X, Y)
    path = tmp_path / "model.skops"
    model.save(path)
    with pytest.raises(ValueError, match=r"scipy\.interpolate\._bsplines\.BSpline.*if you made the file yourself"):
        load(path)
    with pytest.raises(ValueError, match=r"BSpline in"):
        load(path, trusted=["scipy.interpolate", "BSpline", "scipy.interpolate._bsplines.*"])
    with pytest.raises(TypeError, match="expected a list of type names, got the text 'scipy'"):
        load(path, trusted="scipy")
    found = [name for name in skops.io.get_untrusted_types(file=path) if name.startswith("scipy.")]
    np.testing.assert_array_equal(load(path, trusted=found).predict(X), model.predict(X))


def test_a_file_that_would_unpack_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.skops", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("schema.json", " " * 3_000_000)
    monkeypatch.setenv("BERNCERT_MAX_GIB", "0.001")
    with pytest.raises(ValueError, match=r"to unpack to at most 0\.001 GiB"):
        load(tmp_path / "bomb.skops")
