"""Certificates: proven (`certify`), the paper's estimate of one (`estimate`), and one that holds with a probability."""

from berncert.certification.certificate import Certificates, Estimate, ImageCertificates, ImageEstimate, Status
from berncert.certification.classifier import Classifier
from berncert.certification.images import certify
from berncert.certification.randomized import RandomizedCertificates, certify_randomized, predict_randomized
from berncert.certification.rootfinding import estimate

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
