"""The paper's tables and figures. `python -m experiments.paper all` makes them."""

from __future__ import annotations

from experiments.paper.boundary.experiments import FIGURE1, FIGURE3
from experiments.paper.regression.experiments import FIGURE7
from experiments.paper.work import Experiment

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (FIGURE1, FIGURE3, FIGURE7)}
"""Name -> experiment, in the order of the paper."""
