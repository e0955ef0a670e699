"""The paper's tables and figures. `python -m experiments.paper all` makes them."""

from __future__ import annotations

from experiments.paper import curves, degree_tables, timing
from experiments.paper.work import Experiment

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment for experiment in (*curves.EXPERIMENTS, *degree_tables.EXPERIMENTS, *timing.EXPERIMENTS)
}
"""Name -> experiment."""
