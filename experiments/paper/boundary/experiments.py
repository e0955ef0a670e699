"""Figures 1 and 3 as experiments; the pictures are made of the records alone, which hold the network itself."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

import berncert
from experiments.paper.boundary import plots
from experiments.paper.boundary.measure import measure_figure1, measure_figure3
from experiments.paper.boundary.scene import Data, read_network
from experiments.paper.boundary.tables import figure1_sections, figure3_sections
from experiments.paper.work import Experiment, Record

NETWORK_RESOLUTION = 401  # it has corners, polynomials have none


def safe_zones_figure(record: Record) -> Figure:
    network, zones = read_network(record["network"]), record["zones"]
    centres, radii, predicted, witnesses = (_array(zones, key) for key in ("point", "radius", "predicted", "witness"))
    return plots.safe_zones_figure(
        plots.sample_leads(network, resolution=NETWORK_RESOLUTION),
        plots.sample_leads(berncert.smooth(network, dim=2, degree=record["degree"])),
        degree=record["degree"],
        data=_data(record),
        zones=plots.Zones(centres.reshape(-1, 2), radii, predicted.astype(int), witnesses.reshape(-1, 2)),
        norm=float(record["norms"][0]["norm"]),
    )


def degrees_figure(record: Record) -> Figure:
    network = read_network(record["network"])
    by_degree = {n: plots.sample_leads(berncert.smooth(network, dim=2, degree=n, points=0)) for n in record["degrees"]}
    return plots.degrees_figure(by_degree, plots.sample_leads(network, resolution=NETWORK_RESOLUTION), _data(record))


def _data(record: Record) -> Data:
    return np.array(record["points"]), np.array(record["labels"])


def _array(zones: list[Record], key: str) -> np.ndarray:
    return np.array([zone[key] for zone in zones])


FIGURE1 = Experiment(
    "figure1",
    "Figure 1: a sharp boundary, and the smoothed one with safe zones",
    """\
The paper smooths an over-fitted classifier of points in the plane and draws a zone round some of them, as wide as
its root finder says. Here the zones are proven, and each touches a point of another class. Brute force, which shares
nothing with the proofs, and the paper's estimates stand beside them.""",
    measure_figure1,
    figure1_sections,
    safe_zones_figure,
)
FIGURE3 = Experiment(
    "figure3",
    "Figure 3: the smoothed boundary approaches the network's as the degree grows",
    """\
The paper shows smoothed boundaries at growing degrees. Added here: how often both models agree, the accuracy of each
on points that were not seen in training, and the mean radius that is proven.""",
    measure_figure3,
    figure3_sections,
    degrees_figure,
)
