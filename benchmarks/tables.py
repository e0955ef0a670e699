"""Models on tables: certificates that are attacked, and counterfactuals beside a global solver and heuristic searches.

    python -m benchmarks.tables            # some minutes; writes benchmarks/tables.json and benchmarks/tables.md
    python -m benchmarks.tables --quick    # few rows, to see that it works; writes to out/benchmarks/

The peers pyscipopt and dice-ml take part if they can be imported: a dash stands where they cannot. Everything runs in
one process on one thread; only ratios of times travel from one machine to another.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from benchmarks.attacked_sums import points_around
from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin
from berncert import Status
from berncert.estimators import BernsteinClassifier

TABLES: dict[str, Callable[..., Any]] = {"breast cancer": load_breast_cancer, "wine": load_wine, "iris": load_iris}
MODELS: dict[str, Any] = {
    "random forest": RandomForestClassifier(random_state=0),
    "gradient boosting": GradientBoostingClassifier(random_state=0),
    "5 neighbours": KNeighborsClassifier(),
    "SVC": SVC(),
    "logistic": LogisticRegression(max_iter=5000),
}
NORMS = (1.0, 2.0, math.inf)
MODULES = {"scikit-learn": "sklearn", "pyscipopt": "pyscipopt", "dice-ml": "dice_ml"}


@dataclass(frozen=True)
class Fitted:
    """A smoothed model, and the rows that were held out."""

    table: str
    model: str
    degree: int
    smoothed: BernsteinClassifier
    rows: pd.DataFrame
    labels: np.ndarray


def fitted(table: str, model: str, degree: int, dim: int | None = 5) -> Fitted:
    x, y = TABLES[table](return_X_y=True, as_frame=True)
    train, test, labels, held = train_test_split(x, y, test_size=0.3, random_state=0, stratify=y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the base models
        smoothed = BernsteinClassifier(clone(MODELS[model]), degree=degree, dim=dim).fit(train, labels)
    return Fitted(table, model, degree, smoothed, test, held.to_numpy())


# ---- certificates, attacked ----


@dataclass(frozen=True)
class Attacked:
    case: Fitted
    norm: float
    rows: int
    ms: float
    proven: int
    certified: tuple[float, float]
    """The share of rows proven correct within 0.25 and 0.5 standard deviations."""
    points: int
    changed: int
    worst: int
    """Counterfactuals that do not flip the smoothed model."""


def attacked(case: Fitted, norm: float, limit: int, points: int) -> Attacked:
    model, rows = case.smoothed, case.rows[:limit]
    x, labels = rows.to_numpy(), case.labels[:limit]
    model.certify(rows[:1], norm=norm, threads=1)
    begun = time.perf_counter()
    c = model.certify(rows, norm=norm, threads=1)
    ms = 1e3 * (time.perf_counter() - begun) / len(rows)
    rng, changed = np.random.default_rng(0), 0
    goals = c.counterfactual.to_numpy()
    for i in range(len(x)):
        steps = rng.normal(size=(points, x.shape[1]))
        near = points_around(rng, steps, x[i], goals[i], model.scale_, norm, min(float(c.radius[i]), 30.0))
        changed += int((model.predict(pd.DataFrame(near, columns=rows.columns)) != c.predicted[i]).sum())
    known = np.isfinite(c.upper)
    wrong = int((model.predict(c.counterfactual[known]) == c.predicted[known]).sum()) if known.any() else 0
    proven = sum(status in (Status.PROVEN, Status.WHOLE_CUBE) for status in c.status)
    shares = tuple(float(v) for v in c.certified_accuracy(labels, [0.25, 0.5]))
    return Attacked(case, norm, len(x), ms, proven, (shares[0], shares[1]), points * len(x), changed, wrong)


# ---- the same question to a global solver ----


@dataclass(frozen=True)
class Solved:
    case: Fitted
    rows: int
    ms: float
    peer_ms: float | None
    ended: int
    """Rows that the solver finished within its time."""
    largest_difference: float | None


def solved(case: Fitted, limit: int, seconds: float) -> Solved:
    model, rows = case.smoothed, case.rows[:limit]
    c = model.certify(rows, threads=1)
    begun = time.perf_counter()
    model.certify(case.rows, threads=1)
    ms = 1e3 * (time.perf_counter() - begun) / len(case.rows)
    try:
        scip = import_module("pyscipopt")
    except ImportError:
        return Solved(case, limit, ms, None, 0, None)
    times, differences = [], []
    for i, features in enumerate(model.features(rows)):
        begun = time.perf_counter()
        best = _nearest_by_solver(scip, model, features, seconds)
        times.append(1e3 * (time.perf_counter() - begun))
        if best is not None and math.isfinite(c.upper[i]):
            differences.append(max(c.radius[i] - best, best - c.upper[i], 0.0) / c.upper[i])
    return Solved(case, len(rows), ms, float(np.mean(times)), len(differences), max(differences, default=None))


def _nearest_by_solver(scip: Any, model: BernsteinClassifier, u0: np.ndarray, seconds: float) -> float | None:
    """The distance to the nearest other class by SCIP, to 0.1 %; None if it does not end in time."""
    weight, coefficients = model.reduction_.weight, model.coefficients_
    values = model.head_(torch.from_numpy(u0[None])).numpy()[0]
    predicted, best = int(values.argmax()), math.inf
    for rival in range(len(values)):
        if rival == predicted:
            continue
        problem = scip.Model()
        problem.hideOutput()
        problem.setParam("limits/gap", 2e-3)  # of the square
        problem.setParam("limits/time", seconds)
        x = [problem.addVar(f"x{j}", lb=0.0, ub=1.0) for j in range(len(u0))]
        squared = problem.addVar("squared", lb=0.0)
        problem.addCons(
            scip.quicksum((w * (v - a)) * (w * (v - a)) for w, v, a in zip(weight, x, u0, strict=True)) <= squared
        )
        problem.addCons(_expression(scip, coefficients[predicted] - coefficients[rival], x) <= 0)
        problem.setObjective(squared)
        problem.optimize()
        status = problem.getStatus()
        if status not in ("optimal", "gaplimit", "infeasible"):
            return None
        if status != "infeasible":
            best = min(best, math.sqrt(max(problem.getObjVal(), 0.0)))
    return best


def _expression(scip: Any, net: np.ndarray, x: Sequence[Any]) -> Any:
    """The polynomial in powers of x."""
    for axis in range(net.ndim):
        n = net.shape[axis] - 1
        change = np.array([[(-1) ** (i - k) * math.comb(n, i) * math.comb(i, k) if k <= i else 0 for k in range(n + 1)]
                           for i in range(n + 1)])  # fmt: skip
        net = np.moveaxis(np.tensordot(change, net, axes=(1, axis)), 0, axis)
    terms = []
    for powers in product(*(range(size) for size in net.shape)):
        if abs(net[powers]) > 1e-12:
            term: Any = float(net[powers])
            for v, power in zip(x, powers, strict=True):
                term = term * v**power if power else term
            terms.append(term)
    return scip.quicksum(terms)


# ---- heuristic searches for a counterfactual ----


@dataclass(frozen=True)
class Searched:
    case: Fitted
    search: str
    rows: int
    ms: float | None
    valid: int
    """Rows for which a counterfactual was found that flips the smoothed model."""
    median: float | None
    greatest: float | None
    """Its distance over the proven upper limit of the nearest one."""


Search = Callable[[BernsteinClassifier, pd.DataFrame, Any], "np.ndarray | None"]


def searched(case: Fitted, limit: int) -> list[Searched]:
    model, rows = case.smoothed, case.rows[:limit]
    model.certify(rows[:1], threads=1)
    begun = time.perf_counter()
    c = model.certify(rows, threads=1)
    ms = 1e3 * (time.perf_counter() - begun) / len(rows)
    ratios = np.ones(int(np.isfinite(c.upper).sum()))
    found = [Searched(case, "berncert", len(rows), ms, len(ratios), 1.0, 1.0)]
    for name, search in SEARCHES.items():
        ratios_, times = [], []
        failed = False
        for i in range(len(rows)):
            row = rows.iloc[[i]]
            begun = time.perf_counter()
            try:
                other = search(model, row, c.rival[i])
            except ImportError:
                failed = True
                break
            times.append(1e3 * (time.perf_counter() - begun))
            if other is None:
                continue
            frame = pd.DataFrame(other[None], columns=rows.columns)
            if model.predict(frame)[0] != c.predicted[i]:
                far = np.linalg.norm((other - row.to_numpy()[0]) / model.scale_)
                ratios_.append(float(far / c.upper[i]))
        if failed:
            found.append(Searched(case, name, len(rows), None, 0, None, None))
            continue
        middle = float(np.median(ratios_)) if ratios_ else None
        found.append(
            Searched(case, name, len(rows), float(np.mean(times)), len(ratios_), middle, max(ratios_, default=None))
        )
    return found


def growing_spheres(model: BernsteinClassifier, row: pd.DataFrame, wanted: Any) -> np.ndarray | None:
    """Laugel et al.: points in shells of growing radius, then the nearest one that flips, made sparse by nothing."""
    rng, x = np.random.default_rng(0), row.to_numpy()[0]
    predicted, low, step = model.predict(row)[0], 0.0, 0.1
    for _ in range(200):
        steps = rng.normal(size=(500, len(x)))
        lengths = rng.uniform(low, low + step, size=(500, 1))
        points = x + steps / np.linalg.norm(steps, axis=1, keepdims=True) * lengths * model.scale_
        flipped = model.predict(pd.DataFrame(points, columns=row.columns)) != predicted
        if flipped.any():
            far = np.linalg.norm((points - x) / model.scale_, axis=1)
            return np.asarray(points[np.flatnonzero(flipped)[far[flipped].argmin()]])
        low += step
    return None


def gradient_search(model: BernsteinClassifier, row: pd.DataFrame, wanted: Any) -> np.ndarray | None:
    """Wachter et al.: Adam on hinge loss and distance in the model's features, for several weights of the distance.

    Then back along the line by bisection. It is given the exact gradient of the polynomial, which other tools lack.
    """
    u0 = torch.from_numpy(model.features(row))
    head, weight = model.head_, torch.from_numpy(model.reduction_.weight)
    goal = int(np.flatnonzero(model.classes_ == wanted)[0])
    best, x = None, row.to_numpy()
    strength = 1.0
    for _ in range(4):
        u = u0.clone().requires_grad_()
        optimizer = torch.optim.Adam([u], lr=0.01)
        for _ in range(100):
            scores = head(u.clamp(0, 1))[0]
            others = torch.cat([scores[:goal], scores[goal + 1 :]])
            loss = torch.relu(others.max() - scores[goal] + 1e-3) + 0.01 * strength * torch.linalg.vector_norm(
                weight * (u - u0)
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        point = u.detach().clamp(0, 1).numpy()
        other = model.reduction_.moved(x, point, np.zeros(point.shape, bool))[0]
        if model.predict(pd.DataFrame(other[None], columns=row.columns))[0] == wanted:
            best = other if best is None or _distance(model, x[0], other) < _distance(model, x[0], best) else best
        strength *= 0.25
    if best is None:
        return None
    near, far = 0.0, 1.0
    for _ in range(20):
        part = 0.5 * (near + far)
        point = pd.DataFrame(x + part * (best - x), columns=row.columns)
        near, far = (near, part) if model.predict(point)[0] == wanted else (part, far)
    return np.asarray(x[0] + far * (best - x[0]))


def _distance(model: BernsteinClassifier, x: np.ndarray, y: np.ndarray) -> float:
    return float(np.linalg.norm((y - x) / model.scale_))


def dice(method: str) -> Search:
    """dice-ml, asked for one counterfactual of the class that the nearest one has."""
    prepared: dict[int, Any] = {}

    def search(model: BernsteinClassifier, row: pd.DataFrame, wanted: Any) -> np.ndarray | None:
        dice_ml = import_module("dice_ml")
        if id(model) not in prepared:
            table = next(
                load for load in TABLES.values() if list(load(as_frame=True).data.columns) == list(row.columns)
            )
            x, y = table(return_X_y=True, as_frame=True)
            data = dice_ml.Data(
                dataframe=x.assign(target=y), continuous_features=list(x.columns), outcome_name="target"
            )
            wrapped = dice_ml.Model(model=model, backend="sklearn", model_type="classifier")
            prepared[id(model)] = dice_ml.Dice(data, wrapped, method=method)
        try:
            found = prepared[id(model)].generate_counterfactuals(
                row, total_CFs=1, desired_class=int(wanted), verbose=False
            )
        except Exception as error:  # it raises a UserConfigValidationException where it finds none
            if "No counterfactuals" in str(error):
                return None
            raise
        rows = found.cf_examples_list[0].final_cfs_df
        return None if rows is None or not len(rows) else rows[list(row.columns)].to_numpy(float)[0]

    return search


SEARCHES: dict[str, Search] = {
    "gradient (Wachter)": gradient_search,
    "growing spheres": growing_spheres,
    "dice-ml random": dice("random"),
    "dice-ml genetic": dice("genetic"),
}

ATTACKED_COLUMNS = [
    Column("table", "table", lambda a: a.case.table),
    Column("model", "model", lambda a: a.case.model),
    Column("axes", "axes", lambda a: a.case.smoothed.reduction_.dim),
    Column("degree", "degree", lambda a: a.case.degree),
    Column("norm", "norm", lambda a: str(a.norm), lambda v: v.removesuffix(".0")),
    Column("rows", "rows", lambda a: a.rows),
    Column("clean", "smoothed correct, %", lambda a: 100 * a.case.smoothed.score(a.case.rows, a.case.labels), number),
    Column("quarter", "proven at 0.25, %", lambda a: 100 * a.certified[0], number),
    Column("half", "proven at 0.5, %", lambda a: 100 * a.certified[1], number),
    Column("proven", "PROVEN to 0.1 %", lambda a: a.proven),
    Column("ms", "ms/row", lambda a: a.ms, number),
    Column("points", "points within radii", lambda a: a.points, lambda v: f"{v:,}"),
    Column("changed", "of another class", lambda a: a.changed),
    Column("worst", "counterfactuals that do not flip", lambda a: a.worst),
]
SOLVED_COLUMNS = [
    Column("table", "table", lambda s: s.case.table),
    Column("model", "model", lambda s: s.case.model),
    Column("axes", "axes", lambda s: s.case.smoothed.reduction_.dim),
    Column("degree", "degree", lambda s: s.case.degree),
    Column("rows", "rows", lambda s: s.rows),
    Column("ms", "berncert, ms/row", lambda s: s.ms, number),
    Column("peer", "SCIP, ms/row", lambda s: s.peer_ms, number),
    Column("ratio", "SCIP / berncert", lambda s: s.peer_ms and s.peer_ms / s.ms, number),
    Column("ended", "SCIP ended", lambda s: s.ended),
    Column("difference", "largest disagreement", lambda s: s.largest_difference, number),
]
SEARCHED_COLUMNS = [
    Column("table", "table", lambda s: s.case.table),
    Column("model", "model", lambda s: s.case.model),
    Column("search", "search", lambda s: s.search),
    Column("rows", "rows", lambda s: s.rows),
    Column("ms", "ms/row", lambda s: s.ms, number),
    Column("valid", "valid", lambda s: s.valid),
    Column("median", "distance / nearest, median", lambda s: s.median, number),
    Column("greatest", "greatest", lambda s: s.greatest, number),
]
ATTACKED_NOTE = """Every row was held out. Distances in standard deviations of the training rows. For each row, random
    points closer than its proven radius, two thirds of them towards its counterfactual: none may be of another class.
    With a projection, norms other than 2 go through bounds, so that fewer rows are PROVEN to 0.1 %."""
SOLVED_NOTE = """The same polynomials and l2 distance, to the same gap, on the same rows, one thread each. SCIP may take
    {} s for each rival class; its time counts where it does not end. Disagreement: how far its answer lies outside
    [radius, upper], relative to upper."""
SEARCHED_NOTE = """Counterfactuals of the same rows by heuristics, on the smoothed model. Distance: over the proven
    nearest one's. dice-ml also wants few columns to change, which this does not measure."""


def sections(quick: bool) -> list[Section]:
    limit, points = (4, 200) if quick else (40, 5000)
    cases = [
        ("breast cancer", "random forest", 8),
        ("breast cancer", "5 neighbours", 4),
        ("wine", "gradient boosting", 8),
        ("wine", "5 neighbours", 8),
        ("iris", "SVC", 8),
        ("iris", "logistic", 8),
    ]
    made = [fitted(*case) for case in (cases[-2:] if quick else cases)]
    attacks = [attacked(case, norm, limit, points) for case in made for norm in NORMS]
    seconds, few = (5.0, 2) if quick else (20.0, 4)
    small = [fitted("iris", "SVC", 1), fitted("iris", "SVC", 2), fitted("wine", "logistic", 1)]
    answers = [solved(case, few, seconds) for case in (small[:1] if quick else small)]
    compared = [made[-1]] if quick else [made[-1], fitted("iris", "random forest", 8)]
    searches = [line for case in compared for line in searched(case, 3 if quick else 15)]
    return [
        Section.of("attacked", "Certificates, attacked", ATTACKED_NOTE, ATTACKED_COLUMNS, attacks),
        Section.of("solver", "Beside a global solver", SOLVED_NOTE.format(seconds), SOLVED_COLUMNS, answers),
        Section.of("searches", "Beside heuristic searches", SEARCHED_NOTE, SEARCHED_COLUMNS, searches),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few rows: shows that it works")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for tables.json and tables.md")
    chosen = parser.parse_args()
    out = chosen.out or Path("out/benchmarks" if chosen.quick else "benchmarks")
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # of the peers
    source = origin("benchmarks.tables")
    found = sections(chosen.quick)
    console = Console()
    for section in found:
        show(console, section)
    out.mkdir(parents=True, exist_ok=True)
    record = source | {section.key: section.rows for section in found}
    (out / "tables.json").write_text(json.dumps(record, indent=1) + "\n")
    peers = {name: version(name) for name in ("scikit-learn", "pyscipopt", "dice-ml") if find_spec(MODULES[name])}
    intro = f"{made_by(source, peers)} Full precision is in `tables.json`, beside this file."
    (out / "tables.md").write_text(markdown("Models on tables, measured", intro, found))


if __name__ == "__main__":
    main()
