"""Training: one loop for every recipe; it can be killed at any moment and ends in the same weights."""

from berncert.study.training.loop import build_model, train

__all__ = ["build_model", "train"]
