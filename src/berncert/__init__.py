"""Smooth a classifier with Bernstein polynomials and prove, input by input, how far its prediction holds."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from berncert.certification import (
        Certificates,
        Classifier,
        Estimate,
        ImageCertificates,
        ImageEstimate,
        Status,
        certify,
        estimate,
    )  # fmt: skip
    from berncert.extractor import FrozenNetwork, freeze, lipschitz_bound, lipschitz_table
    from berncert.polynomial import SmoothedHead, smooth
    from berncert.study.checkpoint import load, save

__version__ = "0.1.0"
__all__ = [
    "Certificates",
    "Classifier",
    "Estimate",
    "FrozenNetwork",
    "ImageCertificates",
    "ImageEstimate",
    "SmoothedHead",
    "Status",
    "certify",
    "estimate",
    "freeze",
    "lipschitz_bound",
    "lipschitz_table",
    "load",
    "save",
    "smooth",
]
ROOMS = ("polynomial", "extractor", "certification", "study.checkpoint")


def __getattr__(name: str) -> Any:
    """Import torch and the rest only when one of the names is used: `berncert --help` needs none of it."""
    if name in __all__:
        for room in ROOMS:
            found = getattr(import_module(f"berncert.{room}"), name, None)
            if found is not None:
                globals()[name] = found
                return found
    raise AttributeError(f"module 'berncert' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
