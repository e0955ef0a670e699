"""Certificates: proven (`certify`), the paper's estimate of one (`estimate`), and one that holds with a probability."""

from berncert.certify.certificate import Certificates, Estimate, ImageCertificates, ImageEstimate, Status
from berncert.certify.classifier import Classifier
from berncert.certify.images import certify
from berncert.certify.randomized import RandomizedCertificates, certify_randomized, predict_randomized
from berncert.certify.rootfinding import estimate

__all__ = [
    "Certificates",
    "Classifier",
    "Estimate",
    "ImageCertificates",
    "ImageEstimate",
    "RandomizedCertificates",
    "Status",
    "certify",
    "certify_randomized",
    "estimate",
    "predict_randomized",
]
