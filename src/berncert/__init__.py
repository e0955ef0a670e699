"""Smooth a classifier with Bernstein polynomials and prove, input by input, how far its prediction holds."""

from berncert.certify import Certificates, Classifier, Estimate, ImageCertificates, Status, certify, estimate
from berncert.extractor import lipschitz_bound, lipschitz_table
from berncert.polynomial import SmoothedHead, smooth
from berncert.study.checkpoint import load

__version__ = "0.1.0"
__all__ = [
    "Certificates",
    "Classifier",
    "Estimate",
    "ImageCertificates",
    "SmoothedHead",
    "Status",
    "certify",
    "estimate",
    "lipschitz_bound",
    "lipschitz_table",
    "load",
    "smooth",
]
