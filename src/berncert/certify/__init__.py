"""Certificates: proven (`certify`), and the paper's estimate of one (`estimate`)."""

from berncert.certify.certificate import Certificates, Estimate, Status
from berncert.certify.exact import certify
from berncert.certify.rootfinding import estimate

__all__ = ["Certificates", "Estimate", "Status", "certify", "estimate"]
