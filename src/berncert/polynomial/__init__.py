"""Bernstein polynomials on the unit cube, and the heads they smooth."""

from berncert.polynomial.bernstein import basis, enclose, evaluate, gradient, restrict, split
from berncert.polynomial.degrees import choose_degree
from berncert.polynomial.fidelity import Fidelity, SmoothingWarning
from berncert.polynomial.head import SmoothedHead, smooth
from berncert.polynomial.polynomial_head import PolynomialHead
from berncert.polynomial.sum_head import SumHead

__all__ = [
    "Fidelity", "PolynomialHead", "SmoothedHead", "SmoothingWarning", "SumHead", "basis", "choose_degree", "enclose",
    "evaluate", "gradient", "restrict", "smooth", "split",
]  # fmt: skip
