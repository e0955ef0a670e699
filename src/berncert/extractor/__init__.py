"""Extractors from image to features, and the proof of how far a feature can move when the image does."""

from berncert.extractor.bounds import LipschitzRow, LipschitzTable, lipschitz_bound, lipschitz_table
from berncert.extractor.layers import GroupSort, Householder, MaxMin, Normalise, PotentialStep, UnitCube
from berncert.extractor.normalised import almost_orthogonal, export, miyato, orthogonal, spectral
from berncert.extractor.proofs.facts import Layer

__all__ = [
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
    "export",
    "lipschitz_bound",
    "lipschitz_table",
    "miyato",
    "orthogonal",
    "spectral",
]
