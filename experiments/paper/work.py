"""What every experiment is made of: models that are trained once, and runs over their test images; both resume."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.report import Section, markdown
from benchmarks.timing import made_by, origin
from matplotlib.figure import Figure

import berncert
from berncert.certification.methods import Method
from berncert.foundation.folders import write_whole
from berncert.models.checkpoint import FILE, Checkpoint, open_checkpoint
from berncert.runs.execute import default_folder, execute
from berncert.runs.records import Run
from berncert.runs.settings import RunSettings
from berncert.training.loop import train
from berncert.training.recipes import Recipe, load_recipe

PROGRAM = "experiments.paper"
SIZES = ("small", "full", "toy")
"""On two cores in under two hours for all; as in the paper, on a GPU; in seconds, for tests: no result."""
SIZE_TEXTS = {
    "small": "Small size: small networks, few epochs. The paper's are of the size of ResNet-110, and have 150 epochs.",
    "full": "Full size: the networks and epochs of the paper.",
    "toy": "Toy size, for tests: its figures mean nothing.",
}
"""What a page says about the networks that were trained for it."""
Record = dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Where and at what size an experiment is done. What is done already is not done twice."""

    size: str
    folder: Path
    """Of trainings and runs."""
    data_dir: str | None = None
    plan: Mapping[str, tuple[str, Mapping[str, Any]]] = field(default_factory=dict)
    """The name of a model -> the recipe, and what differs from it."""
    say: Callable[[str], None] = print

    def model(self, name: str) -> Path:
        """The folder of this model, trained by the plan if it is not yet."""
        recipe, changes = self.plan[name]
        same = next(other for other, entry in self.plan.items() if entry == (recipe, changes))  # trained once for both
        folder = self.folder / "models" / same
        wanted = load_recipe(recipe, **changes)
        if not _is_trained(folder, wanted):
            self.say(f"training {name}: {wanted.training.epochs} epochs")
            train(wanted, folder, data_dir=self.data_dir)
        return folder

    def run(self, model: Checkpoint, method: Method, **settings: Any) -> Run:
        """A run of this method over test images; it resumes."""
        chosen = RunSettings(**settings)
        folder = self.folder / default_folder(model, method, chosen)
        with degrees_may_be_low():
            return execute(model, method, folder, chosen, data_dir=self.data_dir, command=shlex.join(sys.argv))

    def kept(self, name: str, make: Callable[[], Record]) -> Record:
        """What `make` returned when it was first called under this name."""
        file = self.folder / "kept" / f"{name}.json"
        if not file.is_file():
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, json.dumps(make()).encode())
        kept: Record = json.loads(file.read_text())
        return kept


@contextmanager
def degrees_may_be_low() -> Iterator[None]:
    """Within it, nothing warns of heads that smoothing has ruined: the tables are about just that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", berncert.SmoothingWarning)
        yield


def _is_trained(folder: Path, recipe: Recipe) -> bool:
    """Whether the folder has the model of this recipe, trained to its end."""
    if not (folder / FILE).is_file():
        return False
    about = open_checkpoint(folder).about
    sections = ("data", "model", "training")
    same = all(about["recipe"][name] == json.loads(json.dumps(recipe.as_dict()[name])) for name in sections)
    return bool(same and about["epochs"] == recipe.training.epochs)


_CURE = "restore it, or delete it to measure it anew"


class Experiment(NamedTuple):
    """One table or figure of the paper. What is measured is kept; tables and pictures are made of that alone."""

    name: str
    title: str
    about: str
    """What the paper shows, and what is added here: a few sentences above the tables."""
    measure: Callable[[Work], Record]
    sections: Callable[[Record], list[Section]]
    figure: Callable[[Record], Figure] | None = None
    trained: bool = False
    """Whether it is about networks that were trained for it, at one of the sizes."""

    def record(self, work: Work, out: Path, *, again: bool = False) -> Record:
        """The record of this experiment: read, if there is one, else measured and written.

        One of another size is a ValueError: it is neither what was asked for nor to be written over.
        """
        out.mkdir(parents=True, exist_ok=True)  # or an error, before anything is measured
        file = out / f"{self.name}.json"
        if file.is_file() and not again:
            record = self.read(out)
            if record["size"] != work.size:
                raise ValueError(
                    f"expected a record of the {work.size} size, got {file}, which is of the {record['size']} size; "
                    "choose another folder with --out, or --again to measure it anew"
                )
            return record
        record = {"name": self.name, "size": work.size, **self.measure(work), **origin(PROGRAM)}
        write_whole(file, (json.dumps(record, indent=1) + "\n").encode())
        return record

    def read(self, out: Path) -> Record:
        """The record in that folder, of whatever size; a ValueError if the file is no record of this experiment."""
        file = out / f"{self.name}.json"
        try:
            record: Record = json.loads(file.read_text())
        except (UnicodeDecodeError, json.JSONDecodeError) as error:
            raise ValueError(f"expected a record, got {file}, which is damaged: {error}; {_CURE}") from error
        if not isinstance(record, dict) or record.get("name") != self.name or record.get("size") not in SIZES:
            raise ValueError(f"expected a record of {self.name}, got {file}, which is none; {_CURE}")
        return record

    def render(self, record: Record, out: Path) -> list[Section]:
        """Write the tables as Markdown and the picture as PNG, and return the tables."""
        sections = self.sections(record)
        intro = [self.about, *([SIZE_TEXTS[record["size"]]] if self.trained else []), made_by(record)]
        if self.figure is not None:
            self.figure(record).savefig(out / f"{self.name}.png", dpi=150)
            intro.append(f"![{self.title}]({self.name}.png)")
        write_whole(out / f"{self.name}.md", markdown(self.title, "\n\n".join(intro), sections).encode())
        return sections
