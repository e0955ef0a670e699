"""Training: one loop for every recipe; it can be killed at any moment and ends in the same weights."""

from berncert.study.training.loop import train
from berncert.study.training.model import build_model

__all__ = ["build_model", "train"]
