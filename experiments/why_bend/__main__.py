"""Train affine and bending heads on few features of MNIST, prove both, and draw certified accuracy over the features.

36 trainings of about 15 seconds of one idle core each. Killed at any moment, the same command resumes; with --arm and
--dims two processes can share the work. The record is made of what is finished.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from benchmarks.timing import origin

import berncert
from berncert import data
from berncert.data import Dataset
from berncert.foundation.folders import write_whole
from berncert.foundation.progress import Bar
from berncert.models.checkpoint import open_checkpoint
from berncert.training.loop import train
from experiments.why_bend.plan import ARMS, DIMS, RADII, Trial, trials
from experiments.why_bend.plot import why_bend_figure
from experiments.why_bend.tables import summary, text

HERE = Path(__file__).parent
PICTURE = HERE.parent.parent / "docs" / "images" / "why-bend.png"
ROW = "row.json"


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m experiments.why_bend", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", choices=ARMS, help="only this arm (both)")
    parser.add_argument(
        "--dims", type=int, nargs="+", choices=DIMS, default=DIMS, help="only these numbers of features"
    )
    parser.add_argument("--images", type=int, default=2000, metavar="N", help="test images to prove, the first (2000)")
    parser.add_argument("--runs", type=Path, default=Path("out/why-bend"), metavar="DIR", help="of the trainings")
    parser.add_argument("--data-dir", help="where MNIST is (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="of the record (beside this file)")
    parser.add_argument("--picture", type=Path, default=PICTURE, metavar="FILE", help="(docs/images/why-bend.png)")
    parser.add_argument("--draw", action="store_true", help="draw the committed record again, and do nothing else")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if not chosen.draw:
        run(chosen)
    record = json.loads((chosen.out / "record.json").read_text())
    chosen.picture.parent.mkdir(parents=True, exist_ok=True)
    why_bend_figure(summary(record["rows"]), record["images"]).savefig(chosen.picture, dpi=160)
    (chosen.out / "results.md").write_text(text(record))
    print(text(record))


def run(chosen: argparse.Namespace) -> None:
    """Do what is not done yet, and write the record of all rows that there are."""
    test = data.load("mnist", "test", data_dir=chosen.data_dir, limit=chosen.images)
    mine = list(trials((chosen.arm,) if chosen.arm else tuple(ARMS), tuple(chosen.dims)))
    with Bar("trainings", total=len(mine)) as bar:
        for done, trial in enumerate(mine):
            bar.update(done, trial.name)
            folder = chosen.runs / trial.name
            if not _is_done(folder / ROW, trial, len(test)):
                row = trained_and_proven(trial, folder, test, chosen.data_dir)
                write_whole(folder / ROW, (json.dumps(row, indent=1) + "\n").encode())
    every = [trial for trial in trials() if _is_done(chosen.runs / trial.name / ROW, trial, len(test))]
    rows = [json.loads((chosen.runs / trial.name / ROW).read_text()) for trial in every]
    record = {"images": len(test), "trainings": len(rows), "rows": rows, **origin("experiments.why_bend")}
    chosen.out.mkdir(parents=True, exist_ok=True)
    write_whole(chosen.out / "record.json", (json.dumps(record, indent=1) + "\n").encode())


def trained_and_proven(trial: Trial, folder: Path, test: Dataset, data_dir: str | None) -> dict[str, Any]:
    """One training, and the certified accuracy of its model at each radius."""
    began = time.process_time()
    model = train(trial.recipe, folder, data_dir=data_dir, progress=False)
    trained, labels = time.process_time(), test.labels.numpy()
    clean = berncert.certify(model, test.images[:1], progress=False)  # the compiled search is loaded
    certified, open_cases = [], []
    for radius in RADII:
        if radius == 0:
            with torch.no_grad():
                predicted = model.double()(test.images.double()).argmax(dim=1).numpy()
            certified.append(float((predicted == labels).mean()))
            continue
        c = berncert.certify(model, test.images, radius=radius, threads=1, progress=False)
        certified.append(float(((c.predicted == labels) & (c.radius >= radius)).mean()))
        open_cases.append(int(np.sum([status.name == "BUDGET" for status in c.status])))
    return {
        "arm": trial.arm, "dim": trial.dim, "seed": trial.seed, "settings": trial.changes, "images": len(test),
        "radii": list(RADII), "certified": certified, "undecided": open_cases,
        "lipschitz_bound": float(clean.lipschitz_bound[0]),
        "checkpoint_sha256": open_checkpoint(folder).sha256,
        "training_cpu_seconds": trained - began, "proof_cpu_seconds": time.process_time() - trained,
    }  # fmt: skip


def _is_done(file: Path, trial: Trial, images: int) -> bool:
    """Whether there is a row of this trial, with these settings, on so many images."""
    if not file.exists():
        return False
    row = json.loads(file.read_text())
    return bool(row["settings"] == json.loads(json.dumps(trial.changes)) and row["images"] == images)


if __name__ == "__main__":
    main()
