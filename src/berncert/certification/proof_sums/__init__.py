"""The proofs of sums of small polynomials, written down: boxes, and within a box a look at each term by itself.

For a price of the margin the least of (weighted squared distance) + price * margin over a box separates, once each term
is given a quadratic function of its axes that takes over a part of the distance: what is left of the term is at least
its least value, and what is left of the distance is the same everywhere. Nothing here has to be sound: a checker looks
at every leaf in exact arithmetic.
"""

from berncert.certification.proof_sums.terms import Group
from berncert.certification.proof_sums.tree import MOST_BOXES, SumTree

__all__ = ["MOST_BOXES", "Group", "SumTree"]
