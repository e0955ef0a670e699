"""Certified accuracy over radii: `accuracy` has numbers and tables, `matching` the common images, `figure` pictures."""

from berncert.reporting.curves.accuracy import (
    Curve,
    accuracy_table,
    common_norm,
    curves_of,
    default_radii,
    radii_of,
    summary,
    warnings_about,
)  # fmt: skip
from berncert.reporting.curves.matching import on_common_images

__all__ = [
    "Curve", "accuracy_table", "common_norm", "curves_of", "default_radii", "on_common_images",
    "radii_of", "summary", "warnings_about",
]  # fmt: skip
