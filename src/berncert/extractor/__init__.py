"""Extractors from image to features, their frozen form, and the proof of how far features move when the image does.

To add a layer that networks can be built from: `layers.py`; a whole architecture: `architectures.py`.
To add a module of torch that can be bounded: its translation in `freezing/modules.py` (a function: `functions.py`).
To add an operation, with its evaluation, shape, bound and rounding: `operations/`, and its name in OPERATIONS there.
To add a rule of how bounds in different norms combine: `bounds/norm_gains.py`; a norm of a matrix: `spectral_norm.py`.
A layer outside of this package needs none of these: `register_bound` in `freezing/registration.py`.
"""

from berncert.extractor.architectures import ARCHITECTURES, CONSTRUCTIONS, Extractor, build, default_options
from berncert.extractor.bounds.layer_bound import LayerBound
from berncert.extractor.freezing.freeze import freeze
from berncert.extractor.freezing.registration import register_bound
from berncert.extractor.frozen import FrozenNetwork
from berncert.extractor.layers import (
    Clip,
    GroupSort,
    Householder,
    LinfDistance,
    MaxMin,
    Normalise,
    PotentialStep,
    SortedDistance,
    UnitCube,
)
from berncert.extractor.lipschitz import LipschitzRow, LipschitzTable, lipschitz_bound, lipschitz_table
from berncert.extractor.parametrizations import almost_orthogonal, export, miyato, narrow_weights, orthogonal, spectral

__all__ = [
    "ARCHITECTURES", "CONSTRUCTIONS", "Clip", "Extractor", "FrozenNetwork", "GroupSort", "Householder", "LayerBound",
    "LinfDistance", "LipschitzRow", "LipschitzTable", "MaxMin", "Normalise", "PotentialStep", "SortedDistance",
    "UnitCube", "almost_orthogonal", "build", "default_options", "export", "freeze", "lipschitz_bound",
    "lipschitz_table", "miyato", "narrow_weights", "orthogonal", "register_bound", "spectral",
]  # fmt: skip
