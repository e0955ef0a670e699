"""The command `berncert-check`: verdicts for the rows of a proof file."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from berncert_check.checking import ACCEPTED, REJECTED, UNSUPPORTED, check_file
from berncert_check.proof_file import UnusableError

EXITS = """\
exit code: 0 every row is accepted; 1 a row is rejected; 2 the file cannot be used; 3 a row is not supported.
"""


def main(arguments: list[str] | None = None) -> int:
    """Check a file, print a line for each row that is not accepted and a summary, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="berncert-check", description="Check the proofs of a file in exact arithmetic.", epilog=EXITS
    )
    parser.add_argument("proof", type=Path, help="the file, as written by berncert.certify(..., proof=...)")
    parser.add_argument("--all", action="store_true", help="print accepted rows, too")
    chosen = parser.parse_args(arguments)
    counts: Counter[str] = Counter()
    try:
        for row in check_file(chosen.proof):
            counts[row.verdict] += 1
            if chosen.all or row.verdict != ACCEPTED:
                radius = "any distance" if row.radius is None else f"radius {float(row.radius):.6g}"
                print(f"row {row.index}: {row.verdict}, class {row.predicted}, {radius}{row.why and ': ' + row.why}")
    except (UnusableError, OSError) as error:
        print(f"{chosen.proof} cannot be used: {error}", file=sys.stderr)
        return 2
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in (ACCEPTED, REJECTED, UNSUPPORTED)))
    return 1 if counts[REJECTED] else 3 if counts[UNSUPPORTED] else 0


if __name__ == "__main__":
    raise SystemExit(main())
