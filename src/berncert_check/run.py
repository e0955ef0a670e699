"""The folder of a run: its table says nothing that the proofs beside it do not."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path

from berncert_check.checking import ACCEPTED, REJECTED, Verdict, check_file
from berncert_check.proof_file import UnusableError, stop

PROOF, TABLE, RECORD = "proof.bin", "certificates.tsv", "run.json"


def check_run(folder: Path) -> Iterator[Verdict]:
    """A verdict for each line of the table of a run, from the proof in the same place of its proof file.

    Four things are compared: `idx`, `predict` and `radius` of the line, and the norm of the record. The line follows
    from an accepted row of the same index, with the same class and norm, and a radius that is no smaller. As the rows
    of a proof file have ascending numbers, none counts twice. Nothing else in the folder is checked: no label, no upper
    end, no summary; nor that the index is that of the input that is meant.
    """
    norm = _norm(folder)
    for line, found in zip_longest(_lines(folder), check_file(folder / PROOF)):
        if line is None or found is None:
            raise UnusableError(f"expected as many rows in {PROOF} as in {TABLE}; the run is not complete")
        index, predicted, radius = line
        why = "another input" if index != found.index else "another class" if predicted != found.predicted else ""
        if (radius or 0) < 0 or (found.radius is not None and (radius is None or radius > found.radius)):
            why = "a larger radius, or one below 0"
        if norm != _as_float(found.subject.norm):
            why = "another norm"
        ends = {"verdict": REJECTED, "why": f"its table has {why}"} if why and found.verdict == ACCEPTED else {}
        yield replace(found, **ends)


def _norm(folder: Path) -> Fraction | None:
    try:
        return _as_float(json.loads((folder / RECORD).read_text("utf-8"))["settings"]["norm"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UnusableError(f"expected the folder of a run, with its norm in {RECORD}: {error}") from error


def _as_float(norm: Fraction | float | str | None) -> Fraction | None:
    """As a record has it: 7/3 is written as the float that is nearest to it."""
    return None if norm is None or norm == "inf" else Fraction(float(norm))


def _lines(folder: Path) -> Iterator[tuple[int, int, Fraction | None]]:
    """Input, class and radius of each line; None for any distance."""
    try:
        with (folder / TABLE).open(encoding="utf-8") as file:
            names = file.readline().rstrip("\n").split("\t")
            stop(len(set(names)) < len(names), ValueError("a name of a column that is there twice"))
            for line in file:
                cells = dict(zip(names, line.rstrip("\n").split("\t"), strict=True))
                radius = None if cells["radius"] == "inf" else Fraction(float(cells["radius"]))
                yield int(cells["idx"]), int(cells["predict"]), radius
    except (OSError, ValueError, KeyError, OverflowError) as error:
        raise UnusableError(f"expected lines with idx, predict and radius in {TABLE}: {error}") from error
