"""What a user waits for: `berncert --help` beside `import numpy`, and the first proofs beside `import torch`."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console

from benchmarks.report import Column, Section, markdown, number, show
from benchmarks.timing import made_by, origin, shown

HERE = Path(__file__).parent
COMMANDS = {
    'python -c "import numpy"': [sys.executable, "-c", "import numpy"],
    "berncert --help": [sys.executable, "-m", "berncert", "--help"],
    'python -c "import berncert"': [sys.executable, "-c", "import berncert"],
    'python -c "import torch"': [sys.executable, "-c", "import torch"],
    "berncert certify --help": [sys.executable, "-m", "berncert", "certify", "--help"],
}
FIRST = next(iter(COMMANDS))
PROOFS = {
    "certify": "certify(smoothed, point, threads=1)",
    "bounds": "bounds(smoothed, 0.2 * point, point, threads=1)",
}
PROGRAM = """
import time
at = [time.perf_counter(), time.process_time()]
def lap():
    now = [time.perf_counter(), time.process_time()]
    parts.append([b - a for a, b in zip(at, now)])
    at[:] = now
parts = []
import torch
lap()
import berncert, json
from berncert import SmoothedHead, certify, bounds
smoothed = SmoothedHead(torch.rand(3, 4, 4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
point = torch.full((1, 3), 0.5, dtype=torch.float64)
lap()
{call}
lap()
print(json.dumps(parts))
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command (15)")
    parser.add_argument("--compilations", type=int, default=3, help="runs of each proof with an empty cache (3)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (here)")
    chosen = parser.parse_args()
    sections = [commands(chosen.rounds), proofs(chosen.compilations)]
    for section in sections:
        show(Console(), section)
    source = origin("benchmarks.startup")
    record = source | {section.key: section.rows for section in sections}
    (chosen.out / "startup.json").write_text(json.dumps(record, indent=1) + "\n")
    intro = (
        "The first answer is to come in at most 4 times the time that importing numpy takes. "
        f"The load was {source['machine']['load']:.1f} on these cores. {made_by(source)}"
    )
    (chosen.out / "startup.md").write_text(markdown("Startup, measured", intro, sections))


def commands(rounds: int) -> Section:
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn, name in shown("starting", [(turn, name) for turn in range(rounds + 1) for name in COMMANDS]):
        began = time.perf_counter()
        subprocess.run(COMMANDS[name], check=True, stdout=subprocess.DEVNULL)
        if turn:  # the first fills the disk's cache
            times[name].append(1e3 * (time.perf_counter() - began))
    rows = [{"command": name, "ms": ms, "ratio": median(ms) / median(times[FIRST])} for name, ms in times.items()]
    columns = [
        Column("command", "command", lambda r: f"`{r['command']}`"),
        Column("ms", "ms, median", lambda r: median(r["ms"]), number),
        Column("ratio", f"to {FIRST.split()[-1].strip(chr(34))}", lambda r: r["ratio"], number),
        Column("all_ms", "", lambda r: r["ms"]),
    ]
    return Section.of("startup", "Startup", "The commands take turns.", columns, rows)


def proofs(compilations: int) -> Section:
    """Each in a new process, first with an empty cache, then three times with what that one left."""
    rows = []
    for name, call in PROOFS.items():
        runs: dict[str, list[Any]] = {"empty": [], "full": []}
        for _ in shown(f"first {name}", range(compilations)):
            with TemporaryDirectory() as cache:
                for kind in ("empty", "full", "full", "full"):
                    runs[kind].append(_seconds(call, cache))
        rows += [{"proof": name, "cache": kind, "laps": laps} for kind, laps in runs.items()]
    columns = [
        Column("proof", "first proof", lambda r: f"`{r['proof']}`"),
        Column("cache", "cache", lambda r: r["cache"]),
        Column("torch", "`import torch`, s", lambda r: _middle(r, 0, 0), number),
        Column("berncert", "other imports, s", lambda r: _middle(r, 1, 0), number),
        Column("seconds", "proof, s", lambda r: _middle(r, 2, 0), number),
        Column("cpu_seconds", "on the CPU, s", lambda r: _middle(r, 2, 1), number),
        Column(
            "ratio", "on the CPU, to `import torch`", lambda r: median(p[1] / t[1] for t, _, p in r["laps"]), number
        ),
        Column("laps", "", lambda r: r["laps"]),
    ]
    note = """A new process each time; the cache of compiled code is empty, or as such a process left it. Medians. Where
        others use the machine, times on the CPU say more than the seconds that passed, and their ratios say most."""
    return Section.of("proofs", "First proofs", note, columns, rows)


def _seconds(call: str, cache: str) -> list[list[float]]:
    """(seconds that passed, seconds on the CPU) of importing torch, of the other imports, and of the proof."""
    program = [sys.executable, "-c", PROGRAM.format(call=call)]
    done = subprocess.run(program, env=os.environ | {"NUMBA_CACHE_DIR": cache}, check=True, stdout=subprocess.PIPE)
    laps: list[list[float]] = json.loads(done.stdout)
    return laps


def _middle(row: dict[str, Any], lap: int, clock: int) -> float:
    return float(median(laps[lap][clock] for laps in row["laps"]))


if __name__ == "__main__":
    main()
