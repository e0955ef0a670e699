"""Figures 1 and 3 in any norm, of any degree, from any seed: train, smooth, prove, draw."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from benchmarks.report import show
from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.console import Console

from berncert.foundation.arguments import checked_norm
from experiments.paper.boundary.experiments import degrees_figure, safe_zones_figure
from experiments.paper.boundary.measure import degrees, safe_zones
from experiments.paper.boundary.scene import AMOUNTS, Amounts, Scene
from experiments.paper.boundary.tables import Comparison, comparisons, figure1_sections, figure3_sections

LARGEST_DEGREE = 64
PROGRAM = "python -m experiments.paper.boundary"
DEFAULT = AMOUNTS["small"]
DESCRIPTION = f"""\
The paper's two-dimensional example, with proofs in place of estimates.

A small network is over-fitted to two noisy moons, then smoothed with Bernstein
polynomials. For each of {DEFAULT.tests} fresh points berncert proves how far away the
nearest point of another class is at least. The answers are compared with brute
force and with the radius that the paper's root finder returns.

  figure1   the network's sharp boundary; the smoothed one with proven safe zones
  figure3   the smoothed boundary closing in on the network's as the degree grows
"""
EXAMPLES = f"""\
examples:
  {PROGRAM}                          the l2 norm, degree 32
  {PROGRAM} --norm inf               safe zones are squares
  {PROGRAM} --norm 1 --degree 16     diamonds, a smoother boundary
  {PROGRAM} --seed 3 --out out/other other moons, another network

The very first run compiles the certifier, which takes half a minute. With records:
python -m experiments.paper figure1 figure3.
"""


def main(words: list[str] | None = None, amounts: Amounts = DEFAULT) -> int:
    options = parsed_options(words)
    try:
        return run(options, amounts)
    except OSError as error:  # the pictures could not be written
        print(f"{PROGRAM}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def run(options: argparse.Namespace, amounts: Amounts) -> int:
    """Measure, draw, and say how the estimates compare; 1 if a radius is refuted."""
    torch.set_num_threads(1)  # more are slower on a network this small
    console = Console(highlight=False)
    amounts = amounts._replace(seeds=(options.seed,), degree=options.degree)
    scene = Scene.of(options.seed, amounts)
    zones, by_degree = safe_zones(scene, amounts, [options.norm]), degrees(amounts, [scene])
    save({"figure1": safe_zones_figure(zones), "figure3": degrees_figure(by_degree)}, options.out)
    for section in (*figure1_sections(zones), *figure3_sections(by_degree)):
        show(console, section)
    compared = comparisons(zones["norms"])
    for line in (*map(in_words, compared), f"Pictures: {options.out}/figure1.png, .svg, figure3.png, .svg"):
        console.print(line, markup=False, soft_wrap=True)
    refuted = compared[0].below
    if refuted:
        console.print(
            f"Brute force found another class within {refuted} of {compared[0].points} radii: this is a bug in "
            "berncert, please report it with the options you used.", style="bold red", soft_wrap=True,
        )  # fmt: skip
        return 1
    console.print(f"No brute-force distance is below a radius ({compared[0].points} points).", style="bold")
    return 0


def parsed_options(words: list[str] | None) -> argparse.Namespace:
    """The command line's options; a mistake ends the program with exit code 2 and a message."""
    parser = argparse.ArgumentParser(
        prog=PROGRAM, description=DESCRIPTION, epilog=EXAMPLES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    add = parser.add_argument
    add(
        "--norm",
        type=norm_option,
        default=2.0,
        metavar="P",
        help="the p of the norm that distances are measured in, from 1 (diamonds) to inf (squares) (default: 2)",
    )
    add(
        "--degree",
        type=degree_option,
        default=DEFAULT.degree,
        metavar="N",
        help=f"of the polynomial, 1 (smoothest) to {LARGEST_DEGREE} (closest to the network) (default: 32)",
    )
    add(
        "--seed",
        type=seed_option,
        default=DEFAULT.seeds[0],
        metavar="S",
        help="of the data and the network (default: 10)",
    )
    add(
        "--out",
        type=folder_option,
        default=Path("out/boundary"),
        metavar="FOLDER",
        help="for the pictures (default: out/boundary)",
    )
    options = parser.parse_args(words)
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


def save(figures: dict[str, Figure], folder: Path) -> None:
    """Each figure as PNG and SVG; the same run writes the same bytes."""
    with rc_context({"svg.hashsalt": "berncert"}):
        for name, figure in figures.items():
            figure.savefig(folder / f"{name}.png", dpi=200)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})


def in_words(one: Comparison) -> str:
    """How often an estimate is wrong, in a sentence."""
    method = f"{one.solver}, made for l2" if one.solver == "regularised" and one.norm != "2" else one.solver
    factor = "" if one.factor is None else f", by a median factor of {one.factor:.3f}"
    return (
        f"The paper's estimate ({method}) is above the proven upper bound on {one.above} of {one.points} test "
        f"points{factor}."
    )


if __name__ == "__main__":
    sys.exit(main())
