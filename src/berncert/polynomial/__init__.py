"""Bernstein polynomials on the unit cube, and the head they smooth."""

from berncert.polynomial.bernstein import basis, enclose, evaluate, gradient, restrict, split
from berncert.polynomial.head import SmoothedHead, smooth

__all__ = ["SmoothedHead", "basis", "enclose", "evaluate", "gradient", "restrict", "smooth", "split"]
