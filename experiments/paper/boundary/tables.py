"""The tables of Figures 1 and 3, made of their records."""

from __future__ import annotations

from operator import itemgetter
from statistics import mean, median
from typing import Any, NamedTuple

from benchmarks.report import Column, Section, number

from experiments.paper.work import Record

TABLE_ROWS = 8
ABOVE = " (too large)"


class Comparison(NamedTuple):
    """One solver of the paper beside the proofs, in one norm."""

    norm: str
    solver: str
    points: int
    above: int
    """Points whose estimate is above the proven upper bound: the claimed radius is refuted by the witness there."""
    factor: float | None
    """The median of estimate / upper among those."""
    widest: float
    """The largest share of `upper` that radius and upper are apart."""
    below: int
    """Points of another class that brute force found closer than the proven radius: none, or it is a bug."""


def figure1_sections(record: Record) -> list[Section]:
    first, norms = record["norms"][0], record["norms"]
    solvers = list(first["rows"][0]["estimates"])
    columns = [
        Column("point", "point", lambda row: row["point"], lambda point: ", ".join(f"{x:.2f}" for x in point)),
        *(Column(key, title, itemgetter(key), _distance) for key, title in DISTANCES.items()),
        *(_estimated(solver) for solver in solvers),
    ]
    share = record["accuracy"]
    note = f"""{TABLE_ROWS} of {len(first["rows"])} fresh points, l{first["norm"]} norm, degree {record["degree"]}.
        The network has the correct class on {share["training"]:.1%} of its training points and {share["network"]:.1%}
        of {record["fresh"]:,} fresh ones, the smoothed network on {share["smoothed"]:.1%} of the same fresh ones."""
    return [
        Section.of("points", "Distance to the nearest other class", note, columns, first["rows"][:TABLE_ROWS]),
        Section.of("estimates", "The paper's estimates beside the proofs", NOTE, COMPARED, comparisons(norms)),
    ]


DISTANCES = {"radius": "radius (proven)", "upper": "upper (proven)", "brute_force": "by brute force"}
NOTE = """An estimate above the proven upper bound claims too large a radius: the witness at the upper bound has another
    class. The solver is the paper's for the norm, and `regularised` its variant for two dimensions, made for l2."""
COMPARED = [
    Column("norm", "norm", lambda row: row.norm, lambda norm: f"l{norm}"),
    Column("solver", "solver", lambda row: row.solver),
    Column("points", "points", lambda row: row.points),
    Column("above", "estimates above the upper bound", lambda row: row.above),
    Column("factor", "by a median factor of", lambda row: row.factor, number),
    Column("widest", "upper above radius, at most", lambda row: row.widest, lambda share: f"{share:.3%}"),
    Column("below", "brute force below the radius", lambda row: row.below),
]


def comparisons(norms: list[dict[str, Any]]) -> list[Comparison]:
    return [_compared(one["norm"], s, one["rows"]) for one in norms for s in one["rows"][0]["estimates"]]


def _compared(norm: str, solver: str, rows: list[dict[str, Any]]) -> Comparison:
    known = [row for row in rows if row["upper"] is not None]
    pairs = [(row["estimates"][solver], row["upper"]) for row in known]
    factors = [estimate / upper for estimate, upper in pairs if estimate is not None and estimate > upper]
    widest = max((1 - row["radius"] / row["upper"] for row in known if row["upper"] > 0), default=0.0)
    below = sum(row["brute_force"] is not None and row["brute_force"] < row["radius"] for row in rows)
    return Comparison(norm, solver, len(rows), len(factors), median(factors) if factors else None, widest, below)


def figure3_sections(record: Record) -> list[Section]:
    by_degree = [[row for row in record["rows"] if row["degree"] == degree] for degree in record["degrees"]]
    seeds = len(record["networks"])
    networks = [one["accuracy"] for one in record["networks"]]
    note = f"""Mean over {seeds} networks, in brackets the least and the greatest; {record["fresh"]:,} fresh points
        each, radii (l2) of the first {record["tests"]}. The networks themselves: {_percent(networks)}."""
    columns = [
        Column("degree", "degree", lambda rows: rows[0]["degree"]),
        _over_seeds("agreement", "agreement with the network", _percent),
        _over_seeds("accuracy", "accuracy on fresh points", _percent),
        Column("better", "as accurate as the network, or more", lambda rows: _as_good(rows, networks)),
        _over_seeds("mean_radius", "mean proven radius", _span),
    ]
    return [Section.of("degrees", "What the degree changes", note, columns, by_degree)]


def _estimated(solver: str) -> Column:
    return Column(solver, f"paper's {solver}", lambda row: (row["estimates"][solver], row["upper"]), _against)


def _over_seeds(key: str, title: str, text: Any) -> Column:
    return Column(key, title, lambda rows: [row[key] for row in rows], text)


def _as_good(rows: list[dict[str, Any]], networks: list[float]) -> str:
    count = sum(row["accuracy"] >= network for row, network in zip(rows, networks, strict=True))
    return f"{count} of {len(rows)}"


def _percent(values: list[float]) -> str:
    return f"{mean(values):.1%} ({min(values):.1%} to {max(values):.1%})"


def _span(values: list[float]) -> str:
    return f"{mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def _distance(value: float | None) -> str:
    return "-" if value is None else f"{value:.5f}"


def _against(pair: tuple[float | None, float | None]) -> str:
    """The estimate, and whether it claims more than is true."""
    estimate, upper = pair
    too_large = estimate is not None and upper is not None and estimate > upper
    return _distance(estimate) + (ABOVE if too_large else "")
