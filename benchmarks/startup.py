"""How long `berncert --help` takes beside `python -c "import numpy"`, in turn, in one run."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.startup", description=__doc__)
    parser.add_argument("--rounds", type=int, default=15, help="runs of each command (15)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="where the record goes (here)")
    chosen = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for turn, name in shown("starting", [(turn, name) for turn in range(chosen.rounds + 1) for name in COMMANDS]):
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
    section = Section.of("startup", "Startup", "The commands take turns.", columns, rows)
    show(Console(), section)
    source = origin("benchmarks.startup")
    (chosen.out / "startup.json").write_text(json.dumps(source | {"startup": section.rows}, indent=1) + "\n")
    intro = f"The first answer is to come in at most 4 times the time that importing numpy takes. {made_by(source)}"
    (chosen.out / "startup.md").write_text(markdown("Startup, measured", intro, [section]))


if __name__ == "__main__":
    main()
