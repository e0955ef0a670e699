"""The command `berncert-check`: verdicts for the rows of a proof file, or of a run."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from pathlib import Path

from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, check_file
from berncert_check.proof_file import UnusableError
from berncert_check.run import check_run

EXITS = "exit code: 0 every row is accepted; 1 one is rejected; 2 the file cannot be used; 3 one is not supported"


def main(arguments: list[str] | None = None) -> int:
    """Check a file or a run, print a line for each row that is not accepted and a summary, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="berncert-check", description="Check proofs in exact arithmetic, without searching.", epilog=EXITS
    )
    parser.add_argument("run", type=Path, metavar="RUN", help="a run's folder (certify --proof), or a proof file")
    parser.add_argument("--all", action="store_true", help="print accepted rows, too")
    chosen = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    row = None
    try:
        for row in check_run(chosen.run) if chosen.run.is_dir() else check_file(chosen.run):
            counts[row.verdict] += 1
            if chosen.all or row.verdict != ACCEPTED:
                print(f"row {row.index}: {row.verdict}, class {row.predicted}, {shown(row.radius)}", end="")
                print(f": {row.why}" if row.why else "", flush=True)
    except (UnusableError, OSError) as error:
        print(f"{chosen.run} cannot be used: {error}", file=sys.stderr)
        return 2
    if row is not None:
        print(f"claims are about {row.subject.about}; model {row.subject.model[:16]}")
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in (ACCEPTED, REJECTED, UNSUPPORTED)))
    return 1 if counts[REJECTED] else 3 if counts[UNSUPPORTED] else 0


def shown(radius: Fraction | None) -> str:
    """A radius for people, rounded down."""
    if radius is None:
        return "any distance"
    floor = Context(prec=6, rounding=ROUND_FLOOR)
    return f"radius {floor.divide(Decimal(radius.numerator), Decimal(radius.denominator))}"


if __name__ == "__main__":
    raise SystemExit(main())
