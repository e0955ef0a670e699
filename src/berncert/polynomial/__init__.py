"""Bernstein polynomials on the unit cube, and the head they smooth."""

from berncert.polynomial.bernstein import basis, enclose, evaluate, gradient, restrict, split
from berncert.polynomial.degrees import choose_degree
from berncert.polynomial.fidelity import Fidelity, SmoothingWarning
from berncert.polynomial.head import SmoothedHead, smooth

__all__ = [
    "Fidelity", "SmoothedHead", "SmoothingWarning", "basis", "choose_degree", "enclose", "evaluate", "gradient",
    "restrict", "smooth", "split",
]  # fmt: skip
