"""Smooth a classifier with Bernstein polynomials and prove, input by input, how far its prediction holds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from berncert import data as data
    from berncert.attacks.methods import Fgsm as Fgsm
    from berncert.attacks.methods import Pgd as Pgd
    from berncert.certification.bounds import Ranges as Ranges
    from berncert.certification.bounds import bounds as bounds
    from berncert.certification.classifier import Classifier as Classifier
    from berncert.certification.exact import certify as certify
    from berncert.certification.fingerprint import fingerprint as fingerprint
    from berncert.certification.methods import Batch as Batch
    from berncert.certification.methods import Estimate as Estimate
    from berncert.certification.methods import Exact as Exact
    from berncert.certification.methods import Randomized as Randomized
    from berncert.certification.results import AttackResults as AttackResults
    from berncert.certification.results import Certificates as Certificates
    from berncert.certification.results import Estimates as Estimates
    from berncert.certification.results import ImageCertificates as ImageCertificates
    from berncert.certification.results import ImageEstimates as ImageEstimates
    from berncert.certification.results import RandomizedCertificates as RandomizedCertificates
    from berncert.certification.rootfinding import estimate as estimate
    from berncert.certification.status import Status as Status
    from berncert.certification.verify import Verdicts as Verdicts
    from berncert.certification.verify import verify as verify
    from berncert.extractor import FrozenNetwork as FrozenNetwork
    from berncert.extractor import UnitCube as UnitCube
    from berncert.extractor import build as build
    from berncert.extractor import freeze as freeze
    from berncert.extractor import lipschitz_bound as lipschitz_bound
    from berncert.extractor import lipschitz_table as lipschitz_table
    from berncert.extractor import narrow_weights as narrow_weights
    from berncert.extractor import register_bound as register_bound
    from berncert.models.checkpoint import load as load
    from berncert.models.checkpoint import save as save
    from berncert.models.onnx_reading import read_onnx as read_onnx
    from berncert.models.onnx_writing import write_onnx as write_onnx
    from berncert.polynomial import Fidelity as Fidelity
    from berncert.polynomial import PolynomialHead as PolynomialHead
    from berncert.polynomial import SmoothedHead as SmoothedHead
    from berncert.polynomial import SmoothingWarning as SmoothingWarning
    from berncert.polynomial import SumHead as SumHead
    from berncert.polynomial import choose_degree as choose_degree
    from berncert.polynomial import smooth as smooth
    from berncert.reporting.diagnosis import Diagnosis as Diagnosis
    from berncert.reporting.diagnosis import diagnose as diagnose
    from berncert.training.certified_loss import certified_loss as certified_loss
    from berncert.training.feature_box import FeatureBox as FeatureBox
    from berncert.training.feature_box import feature_box as feature_box
    from berncert.training.loop import train as train

__version__ = "0.2.0"
_HOMES = {
    "": ("data",),
    "attacks.methods": ("Fgsm", "Pgd"),
    "certification.bounds": ("Ranges", "bounds"),
    "certification.classifier": ("Classifier",),
    "certification.exact": ("certify",),
    "certification.fingerprint": ("fingerprint",),
    "certification.methods": ("Batch", "Estimate", "Exact", "Randomized"),
    "certification.results": (
        "AttackResults", "Certificates", "Estimates", "ImageCertificates", "ImageEstimates", "RandomizedCertificates",
    ),
    "certification.rootfinding": ("estimate",),
    "extractor": (
        "FrozenNetwork", "UnitCube", "build", "freeze", "lipschitz_bound", "lipschitz_table", "narrow_weights",
        "register_bound",
    ),
    "certification.status": ("Status",),
    "certification.verify": ("Verdicts", "verify"),
    "models.checkpoint": ("load", "save"),
    "models.onnx_reading": ("read_onnx",),
    "models.onnx_writing": ("write_onnx",),
    "polynomial": (
        "Fidelity", "PolynomialHead", "SmoothedHead", "SmoothingWarning", "SumHead", "choose_degree", "smooth",
    ),
    "reporting.diagnosis": ("Diagnosis", "diagnose"),
    "training.certified_loss": ("certified_loss",),
    "training.feature_box": ("FeatureBox", "feature_box"),
    "training.loop": ("train",),
}  # fmt: skip
"""Module -> the public names that are defined there."""
__all__ = sorted(name for names in _HOMES.values() for name in names)


def __getattr__(name: str) -> Any:
    """Import torch and the rest only when one of the names is used: `berncert --help` needs none of it."""
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'berncert' has no attribute {name!r}")
    if home == "":
        return import_module(f"berncert.{name}")
    globals()[name] = found = getattr(import_module(f"berncert.{home}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
