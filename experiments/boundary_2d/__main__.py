"""Train, smooth, prove, draw: the paper's Figures 1 and 3, with proofs in place of estimates."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from matplotlib import rc_context
from matplotlib.figure import Figure
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

import berncert
from berncert.certify.arguments import checked_norm
from berncert.progress import Bar
from berncert.study import plots
from experiments.boundary_2d.brute_force import BruteForce, Floats, lengths
from experiments.boundary_2d.scene import Ints, moons, overfitted

TRAINING_POINTS, TEST_POINTS, TABLE_ROWS = 150, 100, 8
DEGREES = (1, 2, 4, 8, 16, 32, 64)
LARGEST_DEGREE = 128
BALLS, SMALLEST_BALL, LARGEST_BALL = 26, 0.018, 0.24
PAPERS_SOLVER = {np.inf: "dogbox"}  # its choice for l-inf; lm for the others


class Outcome(NamedTuple):
    """What is known of each test point's distance to the boundary."""

    proven: berncert.Certificates
    brute_force: Floats
    estimates: dict[str, Floats]
    """The paper's, by the name of its solver."""


def main() -> int:
    options = parse()
    console = Console(highlight=False)
    torch.set_num_threads(1)  # more are slower on a network this small
    try:
        run(options, console)
    except (ValueError, OSError) as error:
        print(f"{options.program}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0
