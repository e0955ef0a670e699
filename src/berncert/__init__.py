"""Smooth a classifier with Bernstein polynomials and prove, input by input, how far its prediction holds."""

from berncert.certify import Certificates, Estimate, Status, certify, estimate
from berncert.polynomial import SmoothedHead, smooth

__version__ = "0.1.0"
__all__ = ["Certificates", "Estimate", "SmoothedHead", "Status", "certify", "estimate", "smooth"]
