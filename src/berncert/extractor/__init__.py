"""Extractors from image to features, frozen ones, and the proof of how far a feature can move when the image does."""

from berncert.extractor.architectures import ARCHITECTURES, CONSTRUCTIONS, Extractor, build, default_options
from berncert.extractor.bounds.layer_bound import LayerBound
from berncert.extractor.freezing.freeze import freeze
from berncert.extractor.freezing.registration import register_bound
from berncert.extractor.frozen import FrozenNetwork
from berncert.extractor.layers import GroupSort, Householder, MaxMin, Normalise, PotentialStep, UnitCube
from berncert.extractor.lipschitz import LipschitzRow, LipschitzTable, lipschitz_bound, lipschitz_table
from berncert.extractor.parametrizations import almost_orthogonal, export, miyato, orthogonal, spectral

__all__ = [
    "ARCHITECTURES", "CONSTRUCTIONS", "Extractor", "FrozenNetwork", "GroupSort", "Householder", "LayerBound",
    "LipschitzRow", "LipschitzTable", "MaxMin", "Normalise", "PotentialStep", "UnitCube", "almost_orthogonal", "build",
    "default_options", "export", "freeze", "lipschitz_bound", "lipschitz_table", "miyato", "orthogonal",
    "register_bound", "spectral",
]  # fmt: skip
