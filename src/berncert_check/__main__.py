"""The command `berncert-check`: verdicts for the rows of a proof file, or of a run."""

import argparse
import sys
from collections import Counter
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from pathlib import Path

from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, check_file
from berncert_check.proof_file import UnusableError
from berncert_check.run import check_run

EXITS = "exit code: 0 all rows accepted; 1 one rejected; 2 the file cannot be used; 3 one unsupported, or no rows"


def main(arguments: list[str] | None = None) -> int:
    """Check a file or a run, print a line for each row that is not accepted and a summary, and return the exit code."""
    parser = argparse.ArgumentParser("berncert-check", description="Check proofs in exact arithmetic.", epilog=EXITS)
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder (certify --proof), or a proof file")
    parser.add_argument("--all", action="store_true", help="print accepted rows, too")
    chosen = parser.parse_args(arguments)
    counts, conditions, row = Counter[str](), Counter[str](), None
    try:
        for row in check_run(chosen.run) if chosen.run.is_dir() else check_file(chosen.run):
            counts[row.verdict] += 1
            conditions.update(row.conditions if row.verdict == ACCEPTED else ())
            if chosen.all or row.verdict != ACCEPTED:
                what = ", ".join([f"class {row.predicted}", shown(row.radius), *row.conditions])
                print(f"row {row.index}: {row.verdict}, {what}{': ' if row.why else ''}{plain(row.why)}", flush=True)
    except (UnusableError, OSError, MemoryError, RecursionError) as error:
        if not isinstance(error, BrokenPipeError):  # as of `head`, which needs no message
            print(f"{chosen.run} cannot be used: {plain(str(error) or 'it needs too much memory')}", file=sys.stderr)
        return 2
    about = f"claims about {plain(row.subject.about)}; fingerprint {row.subject.fingerprint or 'none'}" if row else ""
    print(about or "no rows: nothing is proven")
    for condition, count in conditions.items():
        print(f"{count} of the accepted rows: {condition}")
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in (ACCEPTED, REJECTED, UNSUPPORTED)))
    return 1 if counts[REJECTED] else 3 if counts[UNSUPPORTED] or row is None else 0


def plain(text: str) -> str:
    """Text that may come from the file, for a terminal: one line of ASCII, without controls, and not long."""
    return ascii(text)[1:-1][:200]


def shown(radius: Fraction | None) -> str:
    """A radius for people, rounded down."""
    context = Context(prec=6, rounding=ROUND_FLOOR)
    return "any distance" if radius is None else f"radius {context.divide(*map(Decimal, radius.as_integer_ratio()))}"


if __name__ == "__main__":
    raise SystemExit(main())
