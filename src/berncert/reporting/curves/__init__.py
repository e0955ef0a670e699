"""Certified accuracy over radii: curves, the images they are compared on, tables, warnings and pictures."""

from berncert.reporting.curves.accuracy import accuracy_table, summary
from berncert.reporting.curves.common_images import on_common_images
from berncert.reporting.curves.curve import Curve, common_norm, curves_of
from berncert.reporting.curves.curve_warnings import constant_note, warnings_about
from berncert.reporting.curves.radii import default_radii, radii_of

__all__ = [
    "Curve", "accuracy_table", "common_norm", "constant_note", "curves_of", "default_radii", "on_common_images",
    "radii_of", "summary", "warnings_about",
]  # fmt: skip
