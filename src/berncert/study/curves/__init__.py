"""Certified accuracy over radii: `accuracy` has the numbers and tables, `figure` the picture."""

from berncert.study.curves.accuracy import (
    Curve,
    accuracy_table,
    common_norm,
    curve_figure,
    curves_of,
    default_radii,
    radii_of,
    summary,
    warnings_about,
)  # fmt: skip

__all__ = [
    "Curve", "accuracy_table", "common_norm", "curve_figure", "curves_of", "default_radii", "radii_of", "summary",
    "warnings_about",
]  # fmt: skip
