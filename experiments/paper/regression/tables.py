"""The tables of Figure 7, made of its record."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import mean, median, stdev
from typing import Any

from benchmarks.report import Column, Section, number

from experiments.paper.work import Record

Rows = list[dict[str, Any]]


def figure7_sections(record: Record) -> list[Section]:
    curves, tables = record["curves"], record["tables"]
    return [_curves(curves), _degrees(curves), _bands(curves), _tables(tables), _ranges(tables)]


def _curves(curves: Record) -> Section:
    amounts = curves["amounts"]
    note = f"""Root mean squared error against the known curve, mean and standard deviation over {amounts["seeds"]}
        draws of {amounts["training"]} training points, a tenth of them outliers. Degree, width of the Gaussian and
        settings are chosen on {amounts["validation"]} other noisy points. Middle: without a tenth at each end, where a
        smoothed curve keeps the raw model's value. Variation: how far a curve goes up and down in all; the true one
        {curves["truth_variation"]:.2f}. In one dimension an unpruned tree is 1 nearest neighbour, and boosting for
        long comes close to it."""
    columns = [
        Column("model", "model", lambda rows: rows[0]["model"]),
        Column("raw", "raw", _all("raw"), _spread),
        Column("smoothed", "smoothed", _all("smoothed"), _spread),
        Column("chosen", "degree (median)", _median_degree, number),
        Column("better", "draws where it is better", _draws_better),
        Column("middle_raw", "raw, middle", _all("middle_raw"), _spread),
        Column("middle_smoothed", "smoothed, middle", _all("middle_smoothed"), _spread),
        Column("average", "averaged with a Gaussian", _all("average", "error"), _spread),
        Column("regularised", "regularised as usual", _all("regularised", "error"), _spread),
        Column("variation_raw", "variation, raw", _all("variation", "raw"), _mean),
        Column("variation_smoothed", "variation, smoothed", _all("variation", "smoothed"), _mean),
    ]
    groups = [*_groups(curves["rows"]), *([_as_row(row) for row in rows] for rows in _groups(curves["rivals"]))]
    return Section.of("curves", "One dimension: does smoothing cure over-fitting?", note, columns, groups)


def _degrees(curves: Record) -> Section:
    degrees = curves["amounts"]["degrees"]
    note = """The same error at each degree, no choice involved: the median of all draws, as single draws of the
        polynomial, which shoot up between its last points, would rule the mean."""
    columns = [
        Column("model", "model", lambda rows: rows[0]["model"]),
        *(_at_degree(place, degree, _median) for place, degree in enumerate(degrees)),
        Column("raw", "raw", _all("raw"), _median),
    ]
    return Section.of("degrees", "One dimension: the error over the degree", note, columns, _groups(curves["rows"]))


def _bands(curves: Record) -> Section:
    note = f"""How far the prediction can go when the input moves by up to {curves["move"]:g}, at 41 places of each
        smoothed curve, proven by `berncert.bounds`; each interval sampled at {curves["samples"]} points. Gap: from the
        farthest sample to the proven end, in shares of the range of the coefficients. The raw model's range is sampled
        only: nothing is proven of it."""
    columns = [
        Column("model", "model", lambda rows: rows[0]["model"]),
        Column("width", "mean width of the band, smoothed (proven)", _all("band", "width"), _mean),
        Column("raw_width", "raw model (sampled)", _all("band", "raw_width"), _mean),
        Column("sampled", "points sampled", lambda rows: sum(_all("band", "sampled")(rows)), _count),
        Column("outside", "of these outside the band", lambda rows: sum(_all("band", "outside")(rows))),
        Column("gap", "largest gap", lambda rows: max(_all("band", "largest_gap")(rows)), lambda gap: f"{gap:.2%}"),
    ]
    return Section.of("bands", "One dimension: proven bands", note, columns, _groups(curves["rows"]))


def _tables(tables: Record) -> Section:
    amounts = tables["amounts"]
    about = "; ".join(
        f"{name}: {one['about']}, {one['rows']} rows, standard deviation {number(one['deviation'])}"
        for name, one in tables["tables"].items()
    )
    note = f"""Root mean squared error on test rows, {amounts["folds"]}-fold cross-validation, mean over the folds.
        {about}. `BernsteinRegressor` fits the model on {amounts["dim"]} components of the columns; beside it the same
        model on these components and on all columns. Degree and settings are chosen on a quarter of the training
        rows."""
    columns = [
        Column("table", "table", lambda rows: rows[0]["table"]),
        Column("model", "model", lambda rows: rows[0]["model"]),
        Column("raw", "raw, all columns", _all("raw"), _mean),
        Column("raw_on_axes", f"raw, {amounts['dim']} components", _all("raw_on_axes"), _mean),
        *(_at_degree(place, degree, _mean) for place, degree in enumerate(amounts["degrees"])),
        Column("smoothed", "smoothed, degree chosen", _all("smoothed"), _mean),
        Column("better", "folds where it beats both raw models", _folds_better),
        Column("regularised", "regularised as usual, all columns", _all("regularised", "error"), _mean),
    ]
    groups = [*_groups(tables["rows"]), *([_as_row(row) for row in rows] for rows in _groups(tables["rivals"]))]
    groups.sort(key=lambda rows: list(tables["tables"]).index(rows[0]["table"]))
    return Section.of("tables", "Real tables", note, columns, groups)


def _ranges(tables: Record) -> Section:
    note = f"""How far the prediction for a row can go when all its columns change together, by up to
        {tables["radius"]:g} standard deviations (l2), proven by `BernsteinRegressor.bounds` at the degree chosen; rows
        of the first fold. Not reached: the mean share of a range that no row tried reaches; the tries are random, then
        closer and closer to the most extreme one."""
    columns = [
        Column("table", "table", lambda row: row["table"]),
        Column("model", "model", lambda row: row["model"]),
        Column("degree", "degree", lambda row: row["degree"]),
        Column("rows", "rows", lambda row: row["rows"]),
        Column("width", "mean width (proven)", lambda row: row["width"], number),
        Column("sampled", "rows tried", lambda row: row["sampled"], _count),
        Column("outside", "of these outside", lambda row: row["outside"]),
        Column("gap", "not reached", lambda row: row["mean_gap"], lambda gap: f"{gap:.1%}"),
    ]
    return Section.of("ranges", "Real tables: proven ranges", note, columns, tables["ranges"])


def _groups(rows: Iterable[dict[str, Any]]) -> list[Rows]:
    """The rows of each model (of each table), in their order."""
    groups: dict[tuple[Any, str], Rows] = {}
    for row in rows:
        groups.setdefault((row.get("table"), row["model"]), []).append(row)
    return list(groups.values())


def _as_row(rival: dict[str, Any]) -> dict[str, Any]:
    """A plain rival has one error only, that of its best setting."""
    return {key: rival[key] for key in ("table", "model") if key in rival} | {"regularised": {"error": rival["error"]}}


def _all(*keys: str) -> Any:
    """The values under these keys, one for each row; None where rows have none."""

    def values(rows: Rows) -> list[float] | None:
        found: list[Any] = rows
        for key in keys:
            if key not in found[0]:
                return None
            found = [one[key] for one in found]
        return found

    return values


def _at_degree(place: int, degree: int, text: Any) -> Column:
    def error(rows: Rows) -> list[float] | None:
        return [row["by_degree"][place] for row in rows] if "by_degree" in rows[0] else None

    return Column(f"degree_{degree}", f"degree {degree}", error, text)


def _median_degree(rows: Rows) -> float | None:
    return median(row["chosen"] for row in rows) if "chosen" in rows[0] else None


def _draws_better(rows: Rows) -> str:
    if "raw" not in rows[0]:
        return "-"
    return f"{sum(row['smoothed'] < row['raw'] for row in rows)} of {len(rows)}"


def _folds_better(rows: Rows) -> str:
    if "raw" not in rows[0]:
        return "-"
    return f"{sum(row['smoothed'] < min(row['raw'], row['raw_on_axes']) for row in rows)} of {len(rows)}"


def _mean(values: list[float] | None) -> str:
    return number(None if values is None else mean(values))


def _median(values: list[float] | None) -> str:
    return number(None if values is None else median(values))


def _spread(values: list[float] | None) -> str:
    return "-" if values is None else f"{mean(values):.3f} ± {stdev(values):.3f}"


def _count(value: int) -> str:
    return f"{value:,}"
