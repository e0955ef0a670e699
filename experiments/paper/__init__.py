"""The paper's tables and figures. `python -m experiments.paper all` makes them."""

from __future__ import annotations

from experiments.paper.work import Experiment

EXPERIMENTS: dict[str, Experiment] = {}
"""Name -> experiment, in the order of the paper."""
