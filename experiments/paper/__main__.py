"""Every table and figure of the paper: its figure, our reproduction, and the proven value side by side."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.report import show
from rich.console import Console

from berncert.foundation.arguments import guess
from berncert.hardware import use_threads
from experiments.paper import EXPERIMENTS, plan
from experiments.paper.work import PROGRAM, Work

EXAMPLES = """\
examples:
  python -m experiments.paper list                    what there is
  python -m experiments.paper figure5 table-mnist     two of them, at the size of a laptop
  python -m experiments.paper all                     all, in under two hours on two cores
  python -m experiments.paper all --full              as in the paper (ResNet-110, 150 epochs): for a GPU
  python -m experiments.paper all --draw              tables and pictures again, from the records that there are

Each writes NAME.json (all that was measured, with command, versions and data), NAME.md and NAME.png. Killed at any
moment, the same command goes on: trainings after their last epoch, runs after their last image.
"""


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {PROGRAM}", description=__doc__, epilog=EXAMPLES, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("names", nargs="+", metavar="NAME", help="experiments, or all, or list")
    parser.add_argument("--full", action="store_true", help="the paper's networks and epochs instead of small ones")
    parser.add_argument("--out", type=Path, metavar="DIR", help="of records, tables and pictures (out/paper)")
    parser.add_argument("--work", type=Path, metavar="DIR", help="of trainings and runs (out/paper-work)")
    parser.add_argument(
        "--data-dir", metavar="DIR", help="where data sets are (else BERNCERT_DATA, the cache, download)"
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--again", action="store_true", help="make records again; trainings and runs that --work has are taken as done"
    )
    action.add_argument("--draw", action="store_true", help="measure nothing: draw the records that there are")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="on the CPU (1)")
    chosen = parser.parse_args(words)
    console = Console()
    if "list" in chosen.names:
        for experiment in EXPERIMENTS.values():
            console.print(f"{experiment.name:16} {experiment.title}", highlight=False, soft_wrap=True)
        return 0
    names = list(EXPERIMENTS) if "all" in chosen.names else chosen.names
    for name in names:
        if name not in EXPERIMENTS:
            parser.error(
                f"expected an experiment out of {', '.join(EXPERIMENTS)}, got {name!r}{guess(name, EXPERIMENTS)}"
            )
    size = "full" if chosen.full else "small"
    suffix = "-full" if chosen.full else ""
    out, folder = chosen.out or Path(f"out/paper{suffix}"), chosen.work or Path(f"out/paper-work{suffix}")
    work = Work(size, folder, chosen.data_dir, plan.models(size), lambda text: console.print(text, style="dim"))
    if chosen.draw:
        missing = [name for name in names if not (out / f"{name}.json").is_file()]
        if missing and ("all" not in chosen.names or len(missing) == len(names)):
            parser.error(f"expected records in {out}, got none of {', '.join(missing)}; measure first, without --draw")
        names = [name for name in names if name not in missing]
    try:
        use_threads(chosen.threads)
        for name in names:
            experiment = EXPERIMENTS[name]
            console.rule(f"{name}: {experiment.title}", align="left")
            record = experiment.read(out) if chosen.draw else experiment.record(work, out, again=chosen.again)
            for section in experiment.render(record, out):
                show(console, section)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        return 130
    except (OSError, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    console.print(f"records, tables and pictures: {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
