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
from berncert.data import moons
from berncert.foundation.arguments import checked_norm
from berncert.foundation.progress import Bar
from experiments.boundary_2d import plots
from experiments.boundary_2d.brute_force import BruteForce, Floats, lengths
from experiments.boundary_2d.scene import NOISE, Data, Ints, overfitted

TRAINING_POINTS, FRESH_POINTS, TEST_POINTS, TABLE_ROWS = 150, 2000, 60, 8
DEGREES = (1, 2, 4, 8, 16, 32, 64)
LARGEST_DEGREE = 64
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
        self._console.print(f"[dim]{now - self._start:5.1f} s[/dim]  {what}", soft_wrap=True)
        self._start = now


def main() -> int:
    options = parsed_options()
    try:
        return run(options)
    except OSError as error:  # the pictures could not be written
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace) -> int:
    """Train, smooth, prove, draw, tell."""
    torch.set_num_threads(1)  # more are slower on a network this small
    console = Console(highlight=False)
    clock = Clock(console)

    generator = np.random.default_rng(options.seed)
    data, fresh = (moons(count, generator, noise=NOISE) for count in (TRAINING_POINTS, FRESH_POINTS))
    network = overfitted(*data, seed=options.seed)
    clock.done(f"trained: {right_on('training', network, *data)}, {right_on('fresh', network, *fresh)}")
    smoothed = berncert.smooth(network, dim=2, degree=options.degree)
    clock.done(f"smoothed to degree {options.degree}: {right_on('fresh', smoothed, *fresh)}")

    test = fresh[0][:TEST_POINTS]
    zones, proven = (berncert.certify(smoothed, points, norm=options.norm) for points in (data[0], test))
    clock.done(f"{len(zones) + len(proven)} radii proven")
    tried = tried_distances(smoothed, test, options.norm)
    clock.done(f"{len(tried)} of them checked by brute force")
    distances = Distances(proven, tried, papers_estimates(smoothed, test, options.norm))
    clock.done("the paper's estimates made")
    save(figures(network, smoothed, data, zones, options.norm), options.out)
    clock.done("figures drawn")

    print_table(console, test, distances, options.norm)
    sound = print_summary(console, distances, options.norm)
    where = f"\nPictures: {options.out}/figure1.png, figure1.svg, figure3.png, figure3.svg"
    console.print(where, markup=False, soft_wrap=True)
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
    parser.add_argument(
        "--norm",
        type=norm_option,
        default=2.0,
        metavar="P",
        help="the p of the norm that distances are measured in, from 1 (diamonds) to inf (squares) (default: 2)",
    )
    parser.add_argument(
        "--degree",
        type=degree_option,
        default=32,
        metavar="N",
        help=f"of the polynomial, 1 (smoothest) to {LARGEST_DEGREE} (closest to the network) (default: 32)",
    )
    parser.add_argument(
        "--seed", type=seed_option, default=10, metavar="S", help="of the data and the network (default: 10)"
    )
    parser.add_argument(
        "--out",
        type=folder_option,
        default=Path("out/boundary_2d"),
        metavar="FOLDER",
        help="for the pictures (default: out/boundary_2d)",
    )
    options = parser.parse_args()
    try:
        options.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"argument --out: expected a folder that can be made or written to, got {error}")
    return options


def folder_option(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError(
            "expected the name of a folder, got an empty one; leave it out for the default"
        )
    return Path(text)


def norm_option(text: str) -> float:
    try:
        number: float | str = float(text)
    except ValueError:
        number = text
    try:
        return checked_norm(number)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def degree_option(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= LARGEST_DEGREE:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {LARGEST_DEGREE}, got {text!r}")
    return int(text)


def seed_option(text: str) -> int:
    if not text.isdecimal() or int(text) >= 2**63:
        raise argparse.ArgumentTypeError(f"expected a whole number from 0 to 2^63 - 1, got {text!r}")
    return int(text)


def right_on(which: str, head: nn.Module, points: Floats, labels: Ints) -> str:
    """The head's accuracy on these points, in words."""
    with torch.no_grad():
        predicted = head(torch.from_numpy(points)).argmax(dim=1).numpy()
    return f"{np.mean(predicted == labels):.1%} right on {len(labels)} {which} points"


def tried_distances(smoothed: berncert.SmoothedHead, points: Floats, norm: float) -> Floats:
    """Each point's distance to the boundary by brute force."""
    brute_force = BruteForce(smoothed.coefficients.numpy())
    found = np.zeros(len(points))
    with Bar("brute force", total=len(points)) as bar:
        for i, point in enumerate(points):
            found[i] = brute_force.distance(point, norm)
            bar.update(i + 1)
    return found


def papers_estimates(smoothed: berncert.SmoothedHead, points: Floats, norm: float) -> dict[str, Floats]:
    """What the paper takes for the radius, by the name of the solver it chose for the norm, and by its 2-D variant."""
    solvers = ("dogbox" if np.isinf(norm) else "lm", "regularised")
    return {s: berncert.estimate(smoothed, points, solver=s, norm=norm).distance_estimate for s in solvers}


def figures(
    network: nn.Module, smoothed: berncert.SmoothedHead, data: Data, zones: berncert.Certificates, norm: float
) -> dict[str, Figure]:
    """Both figures by the names of their files; `zones` are the certificates of the data's points."""
    points, labels = data
    shown = readable_selection(points, labels, zones, norm)
    original = plots.sample_leads(network, resolution=401)  # it has corners, polynomials have none
    by_degree = {}
    with Bar("drawing", total=len(DEGREES)) as bar:
        for done, degree in enumerate(DEGREES):
            by_degree[degree] = plots.sample_leads(berncert.smooth(network, dim=2, degree=degree))
            bar.update(done)
    return {
        "figure1": plots.safe_zones_figure(
            original,
            plots.sample_leads(smoothed),
            degree=smoothed.degree[0],
            data=data,
            centres=points[shown],
            certificates=zones[shown],
            norm=norm,
        ),
        "figure3": plots.degrees_figure(by_degree, original, data),
    }


def readable_selection(points: Floats, labels: Ints, proven: berncert.Certificates, norm: float) -> list[int]:
    """Rows of rightly classified points whose balls can be seen and do not overlap; those of middle size come first."""
    visible = (proven.radius >= SMALLEST_BALL) & (proven.radius <= LARGEST_BALL)
    rows = np.flatnonzero(visible & (proven.predicted == labels))
    middle = np.sqrt(SMALLEST_BALL * LARGEST_BALL)
    chosen: list[int] = []
    for row in rows[np.argsort(np.abs(np.log(proven.radius[rows] / middle)))]:
        apart = lengths(points[chosen] - points[row], norm) > proven.radius[chosen] + proven.radius[row]
        if apart.all() and len(chosen) < MOST_BALLS:
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
        title=f"Distance to the nearest other class, l{norm:g} norm, {TABLE_ROWS} of {TEST_POINTS} test points",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
    )
    columns = ["point", "radius\n(proven)", "upper\n(proven)", "distance by\nbrute force"]
    for name in [*columns, *(f"paper's\n{solver}" for solver in distances.estimates)]:
        table.add_column(name, justify="left" if "paper" in name else "right", no_wrap=True)
    for row in range(TABLE_ROWS):
        true = distances.brute_force[row]
        table.add_row(
            f"{points[row, 0]:.2f}, {points[row, 1]:.2f}",
            Text(f"{distances.proven.radius[row]:.5f}", style="bold green"),
            f"{distances.proven.upper[row]:.5f}",
            f"{true:.5f}",
            *(against(estimate[row], true) for estimate in distances.estimates.values()),
        )
    console.print()
    console.print(table)


def against(estimate: float, true: float) -> Text:
    """The estimate, and whether it claims more than is true."""
    return Text(f"{estimate:.5f} > true", style="red") if estimate > true else Text(f"{estimate:.5f}")


def print_summary(console: Console, distances: Distances, norm: float) -> bool:
    """How often the estimates are wrong; whether the proofs withstand brute force."""
    proven = distances.proven
    for solver, estimate in distances.estimates.items():
        above = estimate > proven.upper
        method = f"{solver}, made for l2" if solver == "regularised" and norm != 2 else solver
        factor = f", by a median factor of {np.median((estimate / proven.upper)[above]):.3f}" if above.any() else ""
        console.print(
            f"The paper's estimate ({method}) is above the proven upper bound on {above.sum()} of {len(above)} "
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
