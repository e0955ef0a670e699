"""The paper's tables and figures. `python -m experiments.paper all` makes them."""

from __future__ import annotations

from experiments.paper import bent_heads, curves, degree_tables, timing
from experiments.paper.boundary.experiments import FIGURE1, FIGURE3
from experiments.paper.regression.experiments import FIGURE7
from experiments.paper.work import Experiment

_TABLES = (*degree_tables.EXPERIMENTS, *bent_heads.EXPERIMENTS, *timing.EXPERIMENTS)
_ALL = (FIGURE1, FIGURE3, FIGURE7, *curves.EXPERIMENTS, *_TABLES)
EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _ALL}
"""Name -> experiment."""
