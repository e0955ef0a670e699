"""Extractors from image to features, and the proof of how far a feature can move when the image does."""

from berncert.extractor.architectures import ARCHITECTURES, CONSTRUCTIONS, Extractor, build, default_options
from berncert.extractor.bounds import LipschitzRow, LipschitzTable, lipschitz_bound, lipschitz_table
from berncert.extractor.layers import GroupSort, Householder, MaxMin, Normalise, PotentialStep, UnitCube
from berncert.extractor.normalised import almost_orthogonal, export, miyato, orthogonal, spectral
from berncert.extractor.proofs.facts import Layer

__all__ = [
    "ARCHITECTURES",
    "CONSTRUCTIONS",
    "Extractor",
    "GroupSort",
    "Householder",
    "Layer",
    "LipschitzRow",
    "LipschitzTable",
    "MaxMin",
    "Normalise",
    "PotentialStep",
    "UnitCube",
    "almost_orthogonal",
    "build",
    "default_options",
    "export",
    "lipschitz_bound",
    "lipschitz_table",
    "miyato",
    "orthogonal",
    "spectral",
]
