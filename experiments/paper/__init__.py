"""The paper's tables and figures. `python -m experiments.paper all` makes them."""

from __future__ import annotations

from experiments.paper import curves, degree_tables, timing
from experiments.paper.boundary.experiments import FIGURE1, FIGURE3
from experiments.paper.regression.experiments import FIGURE7
from experiments.paper.work import Experiment

_ALL = (FIGURE1, FIGURE3, FIGURE7, *curves.EXPERIMENTS, *degree_tables.EXPERIMENTS, *timing.EXPERIMENTS)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""Name -> experiment."""
