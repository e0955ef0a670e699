"""Smooth a classifier with Bernstein polynomials and prove, input by input, how far its prediction holds."""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from berncert.certify import (
        Certificates,
        Classifier,
        Estimate,
        ImageCertificates,
        ImageEstimate,
        Status,
        certify,
        estimate,
    )  # fmt: skip
    from berncert.extractor import lipschitz_bound, lipschitz_table
    from berncert.polynomial import SmoothedHead, smooth
    from berncert.study.checkpoint import load

__version__ = "0.1.0"
__all__ = [
    "Certificates",
    "Classifier",
    "Estimate",
    "ImageCertificates",
    "ImageEstimate",
    "SmoothedHead",
    "Status",
    "certify",
    "estimate",
    "lipschitz_bound",
    "lipschitz_table",
    "load",
    "smooth",
]
ROOMS = ("polynomial", "extractor", "certify", "study.checkpoint")


class _Package(ModuleType):
    """Imports torch and the rest only when one of its names is asked for: `berncert --help` needs none of it."""

    def __getattr__(self, name: str) -> Any:
        if name in __all__:
            for room in ROOMS:
                found = getattr(import_module(f"berncert.{room}"), name, None)
                if found is not None:
                    setattr(self, name, found)
                    return found
        raise AttributeError(f"module 'berncert' has no attribute {name!r}")

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "certify" and isinstance(value, ModuleType)):  # the function, not the room of the same name
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package
