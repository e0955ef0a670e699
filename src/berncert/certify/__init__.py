"""Certificates: proven (`certify`), and the paper's estimate of one (`estimate`)."""

from berncert.certify.certificate import Certificates, Estimate, ImageCertificates, Status
from berncert.certify.classifier import Classifier, certify
from berncert.certify.rootfinding import estimate

__all__ = ["Certificates", "Classifier", "Estimate", "ImageCertificates", "Status", "certify", "estimate"]
