"""Train, smooth, prove, draw: the paper's Figures 1 and 3, with proofs in place of estimates."""

from __future__ import annotations

import argparse
import sys
import time
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
from torch import nn

import berncert
from berncert.certify.arguments import checked_norm
from berncert.progress import Bar
from berncert.study import plots
from experiments.boundary_2d.brute_force import BruteForce, Floats, lengths
from experiments.boundary_2d.scene import Ints, moons, overfitted

TRAINING_POINTS, TEST_POINTS, TABLE_ROWS = 150, 100, 8
DEGREES = (1, 2, 4, 8, 16, 32, 64)
LARGEST_DEGREE = 128
MOST_BALLS, SMALLEST_BALL, LARGEST_BALL = 24, 0.02, 0.2  # what a picture can show
PROGRAM = "python -m experiments.boundary_2d"
DESCRIPTION = """\
The paper's two-dimensional example, with proofs in place of estimates.

A small network is over-fitted to two noisy moons, then smoothed with Bernstein
polynomials. For each of {tests} fresh points berncert proves how far away the
nearest point of another class is at least. The answers are compared with brute
force and with the radius that the paper's root finder returns.

  figure1   the network's sharp boundary; the smoothed one with proven safe zones
  figure3   the smoothed boundary closing in on the network's as the degree grows
"""
EXAMPLES = """\
examples:
  {program}                          the l2 norm, degree 32
  {program} --norm inf               safe zones are squares
  {program} --norm 1 --degree 16     diamonds, a smoother boundary
  {program} --seed 3 --out out/other other moons, another network

The very first run compiles the certifier, which takes half a minute.
"""


class Distances(NamedTuple):
    """What is known of each test point's distance to the boundary."""

    proven: berncert.Certificates
    brute_force: Floats
    estimates: dict[str, Floats]
    """The paper's, by the name of its solver."""


class Clock:
    """Prints each finished step, with the seconds it took."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._start = time.perf_counter()

    def done(self, what: str) -> None:
        now = time.perf_counter()
        self._console.print(f"[dim]{now - self._start:5.1f} s[/dim]  {what}")
        self._start = now


def main() -> int:
    options = parsed_options()
    torch.set_num_threads(1)  # more are slower on a network this small
    console = Console(highlight=False)
    clock = Clock(console)

    generator = np.random.default_rng(options.seed)
    data = moons(TRAINING_POINTS, generator)
    points, labels = moons(TEST_POINTS, generator)
    network = overfitted(*data, seed=options.seed)
    clock.done(
        f"network 2-64-64-2: {accuracy(network, *data):.0%} right on its {TRAINING_POINTS} training points, "
        f"{accuracy(network, points, labels):.0%} on {TEST_POINTS} test points"
    )
    smoothed = berncert.smooth(network, dim=2, degree=options.degree)
    clock.done(f"smoothed to degree {options.degree}: {accuracy(smoothed, points, labels):.0%} on the test points")
    distances = measure(smoothed, points, options.norm, clock)
    shown = readable_selection(points, labels, distances.proven, options.norm)
    by_degree = {degree: plots.sample_leads(berncert.smooth(network, dim=2, degree=degree)) for degree in DEGREES}
    leads = plots.sample_leads(network)
    figures = {
        "figure1": plots.safe_zones_figure(
            leads,
            plots.sample_leads(smoothed),
            degree=options.degree,
            data=data,
            centres=points[shown],
            certificates=distances.proven[shown],
            norm=options.norm,
        ),
        "figure3": plots.degrees_figure(by_degree, leads, data),
    }
    save(figures, options.out)
    clock.done("two figures drawn")
    print_table(console, points, distances, options.norm)
    sound = print_summary(console, distances)
    console.print(f"\nPictures: {options.out}/figure1.png, figure1.svg, figure3.png, figure3.svg", soft_wrap=True)
    return 0 if sound else 1


def parsed_options() -> argparse.Namespace:
    """The command line's options; a mistake ends the program with exit code 2 and a message."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description=DESCRIPTION.format(tests=TEST_POINTS),
        epilog=EXAMPLES.format(program=PROGRAM),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--norm", type=norm_option, default=2.0, metavar="P", help="1 <= P <= inf (default: 2)")
    parser.add_argument(
        "--degree",
        type=degree_option,
        default=32,
        metavar="N",
        help=f"of figure 1's polynomial, 1 to {LARGEST_DEGREE}: low is smooth, high is faithful (default: 32)",
    )
    parser.add_argument("--seed", type=seed_option, default=10, help="of the data and the network (default: 10)")
    parser.add_argument(
        "--out", type=Path, default=Path("out/boundary_2d"), metavar="FOLDER", help="(default: out/boundary_2d)"
    )
    options = parser.parse_args()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --out: expected a folder that can be made or written to, got {error}")
    return options


def norm_option(text: str) -> float:
    try:
        return checked_norm(float(text))
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a norm p with 1 <= p <= inf, got {text!r}") from None


def degree_option(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_DEGREE:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {LARGEST_DEGREE}, got {text!r}")
    return int(text)


def seed_option(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2^63 - 1, got {text!r}")
    return int(text)


def accuracy(head: nn.Module, points: Floats, labels: Ints) -> float:
    with torch.no_grad():
        return float(np.mean(head(torch.from_numpy(points)).argmax(dim=1).numpy() == labels))


def measure(smoothed: berncert.SmoothedHead, points: Floats, norm: float, clock: Clock) -> Distances:
    """Each point's distance to the boundary: proven, by brute force, and as the paper has it."""
    proven = berncert.certify(smoothed, points, norm=norm)
    clock.done(f"{len(points)} radii proven")
    tried = BruteForce(smoothed.coefficients.numpy())
    brute_force = np.zeros(len(points))
    with Bar("brute force", total=len(points)) as bar:
        for i, point in enumerate(points):
            brute_force[i] = tried.distance(point, norm)
            bar.update(i + 1)
    clock.done("the same distances by brute force")
    solvers = ("dogbox" if np.isinf(norm) else "lm", "regularised")  # the paper's choices
    estimates = {
        solver: berncert.estimate(smoothed, points, solver=solver, norm=norm).distance_estimate for solver in solvers
    }
    clock.done("the paper's estimates")
    return Distances(proven, brute_force, estimates)


def readable_selection(points: Floats, labels: Ints, proven: berncert.Certificates, norm: float) -> list[int]:
    """Rows whose balls do not overlap, rightly classified, largest first: enough of them to see the boundary touched."""
    fit = (proven.predicted == labels) & (proven.radius >= SMALLEST_BALL) & (proven.radius <= LARGEST_BALL)
    chosen: list[int] = []
    for row in np.argsort(-proven.radius):
        apart = lengths(points[chosen] - points[row], norm) > proven.radius[chosen] + proven.radius[row]
        if fit[row] and apart.all() and len(chosen) < MOST_BALLS:
            chosen.append(int(row))
    return chosen


def save(figures: dict[str, Figure], folder: Path) -> None:
    """Each figure as PNG and SVG; the same run writes the same bytes."""
    with rc_context({"svg.hashsalt": "berncert"}):
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.png", dpi=200)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def print_table(console: Console, points: Floats, distances: Distances, norm: float) -> None:
    table = Table(
        title=f"Distance to the nearest point of another class, l{norm:g} norm, first {TABLE_ROWS} test points",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
    )
    columns = ["point", "proven\nradius", "proven\nupper", "by brute\nforce"]
    for name in [*columns, *(f"paper's estimate\n({solver})" for solver in distances.estimates)]:
        table.add_column(name, justify="right", no_wrap=True)
    for row in range(TABLE_ROWS):
        true = distances.brute_force[row]
        table.add_row(
            f"({points[row, 0]:.2f}, {points[row, 1]:.2f})",
            Text(f"{distances.proven.radius[row]:.5f}", style="bold green"),
            f"{distances.proven.upper[row]:.5f}",
            f"{true:.5f}",
            *(against(estimate[row], true) for estimate in distances.estimates.values()),
        )
    console.print()
    console.print(table)


def against(estimate: float, true: float) -> Text:
    """The estimate, and whether it claims more than is true."""
    if estimate > true:
        return Text(f"{estimate:.5f}  too large", style="red")
    return Text(f"{estimate:.5f}           ")


def print_summary(console: Console, distances: Distances) -> bool:
    """How often the estimates are wrong; whether the proofs withstand brute force."""
    proven = distances.proven
    for solver, estimate in distances.estimates.items():
        above = estimate > proven.upper
        factor = f", by a median factor of {np.median((estimate / proven.upper)[above]):.3g}" if above.any() else ""
        console.print(
            f"The paper's estimate ({solver}) is above the proven upper bound on {above.sum()} of {len(above)} "
            f"test points{factor}.",
            soft_wrap=True,
        )
    refuted = distances.brute_force < proven.radius
    if not refuted.any():
        console.print(f"[bold]No brute-force distance is below a radius[/bold] ({len(refuted)} points).")
        return True
    console.print(
        f"[bold red]Brute force found another class within {refuted.sum()} of {len(refuted)} radii[/bold red], first "
        f"at test point {refuted.argmax()}: this is a bug in berncert, please report it with the options you used.",
        soft_wrap=True,
    )
    return False


if __name__ == "__main__":
    sys.exit(main())
