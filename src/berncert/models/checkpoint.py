"""Checkpoints: one safetensors file with a frozen extractor, a head, and a record of how they were made.

Nothing in such a file can run code, and nothing that it claims is trusted: its steps and numbers are checked, and
bounds are proven from them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib import metadata, resources
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork
from berncert.foundation.arguments import guess
from berncert.models.heads import NETWORK, Head, NetworkHead, build_head, head_size
from berncert.models.tensor_file import parse_tensors, serialised, strip_prefix, write_tensors
from berncert.polynomial import PolynomialHead
from berncert.polynomial.sum_head import head_from_data

FORMAT = "berncert checkpoint 2"
FILE = "model.safetensors"
"""The name of the checkpoint in the folder of a training."""
SHIPPED = resources.files(__package__) / "checkpoints"
NARROWER = {torch.float64: torch.float32, torch.int64: torch.int32}
"""dtype -> the narrower one in which tensors of an extractor are written if that is exact."""


HOW_TO_SMOOTH = {
    "ONNX": "name the node before the head with head_after",
    "function": "return a berncert.Classifier(extractor, head) whose head is not smoothed, or leave degree out",
}
"""Kind of source -> how its head gets a degree."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The content of a checkpoint file: an extractor, a head, or both, which make a classifier."""

    path: Path
    size: int
    sha256: str
    extractor: FrozenNetwork | None
    head: PolynomialHead | Head | None
    base: Head | None
    """The head before it was smoothed, if the file contains it."""
    about: dict[str, Any]
    """How the model was made, as plain JSON."""
    source: Mapping[str, Any] = field(default_factory=dict)
    """What it was made of, if it is no file of this format: an ONNX file or a function, and with which options."""
    content: bytes | None = None
    """The file of this format that it would be, if it is none."""

    def model(self, *, base: bool = False) -> Classifier | FrozenNetwork | PolynomialHead | Head:
        """The classifier, or its only part, in evaluation mode; with `base`, with the head before smoothing."""
        head = self.base if base else self.head
        if base and head is None:
            raise ValueError(
                f"expected a checkpoint with its base head, got {self.path}, which has only the one in use; "
                f"{HOW_TO_SMOOTH.get(self.source.get('kind', ''), 'smooth the model in Python')}"
            )
        if self.extractor is None or head is None:
            part = self.extractor or head
            assert part is not None
            return part.eval()
        return Classifier(self.extractor, head).eval()

    def with_base_head(self) -> Classifier:
        """The classifier with its head as it was before smoothing."""
        return self._classifier(base=isinstance(self.head, PolynomialHead))

    def _classifier(self, *, base: bool) -> Classifier:
        model = self.model(base=base)
        if not isinstance(model, Classifier):
            raise ValueError(f"expected a classifier, got {self.path}, which holds only a {type(model).__name__}")
        return model

    def smoothed(self, degree: int | None = None) -> Classifier:
        """The classifier with its smoothed head; with a degree, with the base head smoothed again to that degree."""
        if degree is not None:
            return self.with_base_head().smooth(degree)
        model = self._classifier(base=False)
        if not isinstance(model.head, PolynomialHead):
            raise ValueError(f"expected a model with a smoothed head, got {self.path}, whose head is not; pass degree")
        return model

    @property
    def trained_on(self) -> str | None:
        """The data set that the file names as that of its training, if it does."""
        entry: Any = self.about
        for key in ("recipe", "data", "dataset"):
            entry = entry.get(key) if isinstance(entry, Mapping) else None
        return entry if isinstance(entry, str) else None

    @property
    def name(self) -> str:
        """A short name, fit for a folder."""
        path = self.path.resolve()
        name = path.parent.name if path.name == FILE else path.name
        return name.removesuffix(".safetensors").removesuffix(".onnx").replace(":", "-")

    def description(self) -> dict[str, Any]:
        """The parts of the model, in a few lines of plain JSON."""
        extractor, head, base = self.extractor, self.head, self.base
        return {
            "extractor": extractor and {
                "input_shape": list(extractor.input_shape), "dim": extractor.dim, "steps": len(extractor.steps),
                "numbers": extractor.numbers, "about": extractor.about,
            },
            "head": head and head.description,
            "base": base and base.description,
            "about": self.about,
            **({"source": dict(self.source)} if self.source else {}),
        }  # fmt: skip


def save(
    model: Classifier | FrozenNetwork | PolynomialHead,
    path: str | PathLike[str],
    *,
    input_shape: tuple[int, ...] | None = None,
    base: Head | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to one file that contains no code: a classifier whose extractor can be frozen, or a part of one.

    `input_shape` is the shape of one image, for an extractor that does not know it. `base` is the head before it was
    smoothed, to be kept in the same file; `about` is any plain JSON, e.g. how the model was made.

    Example:
        >>> import tempfile, torch, berncert
        >>> model = berncert.load("digits")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     berncert.save(model, f"{folder}/mine.safetensors", about={"made by": "me"})
        ...     again = berncert.load(f"{folder}/mine.safetensors")
        >>> images = berncert.data.load("digits", limit=5).images
        >>> torch.equal(again(images), model(images))
        True
    """
    write_tensors(path, *_tensors_of(*_parts_of(model, input_shape), base, about))


def _tensors_of(
    extractor: FrozenNetwork | None,
    head: PolynomialHead | Head | None,
    base: Head | None,
    about: Mapping[str, Any] | None,
) -> tuple[dict[str, Tensor], str, dict[str, Any]]:
    """The tensors, the format and the description of a file."""
    description: dict[str, Any] = {"extractor": None, "head": None, "base": None, "about": dict(about or {})}
    tensors: dict[str, Tensor] = {}
    if extractor is not None:
        description["extractor"], values = extractor.as_data()
        tensors |= {f"extractor.{name}": _narrow(value) for name, value in values.items()}
    for name, part in (("head", head), ("base", base)):
        if isinstance(part, NetworkHead):
            data, values = part.network.as_data()
            description[name] = {"kind": NETWORK, **data}
            tensors |= {f"{name}.{key}": value for key, value in values.items()}
        elif part is not None:
            _check_rebuilds(part)
            description[name] = part.description
            tensors |= {f"{name}.{key}": value for key, value in part.state_dict().items()}
    return tensors, FORMAT, description


def checkpoint_of(model: Classifier, path: Path, source: Mapping[str, Any]) -> Checkpoint:
    """The checkpoint of a model that was made of something else: what it would be if it were saved, and read again."""
    content = serialised(*_tensors_of(*_parts_of(model, None), None, {}))
    return replace(parse_checkpoint(content, path), source=dict(source), content=content)


def load(path: str | PathLike[str], *, base: bool = False) -> Any:
    """Load the model of a file, or one that is shipped with the package, in evaluation mode.

    Shipped are "digits", "mnist", "mnist-large-radius", "mnist-linf", "cifar10", "cifar10-linf", "svhn" and "cifar100".
    The model computes what the saved one computes. `base=True` loads it with its head as it was before smoothing.

    Example:
        >>> import berncert
        >>> model = berncert.load("digits")
        >>> test = berncert.data.load("digits", limit=5)
        >>> model(test.images).argmax(dim=1).tolist(), test.labels.tolist()
        ([5, 0, 9, 8, 7], [5, 0, 9, 8, 7])
    """
    return open_checkpoint(path).model(base=base)


def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """Read and check the checkpoint with that path or name."""
    file = find_checkpoint(path)
    if file.suffix == ".onnx":
        raise ValueError(f"expected a checkpoint, got {file}, an ONNX file; read it with berncert.read_onnx")
    return parse_checkpoint(file.read_bytes(), file)


def parse_checkpoint(content: bytes, path: Path) -> Checkpoint:
    """Check what is in the file with that path."""
    tensors, description = parse_tensors(content, path, FORMAT)
    for name in ("extractor", "head", "base", "about"):
        kinds = Mapping if name == "about" else Mapping | None
        if not isinstance(description, Mapping) or not isinstance(description.get(name, 0), kinds):
            raise ValueError(
                f"expected a checkpoint with a description of its {name}, got {path} without; save it again"
            )
    if description["extractor"] is None and description["head"] is None:
        raise ValueError(f"expected a checkpoint with an extractor, a head or both, got {path} with neither")
    try:
        data, head, base = (description[name] for name in ("extractor", "head", "base"))
        return Checkpoint(
            path, len(content), hashlib.sha256(content).hexdigest(),
            None if data is None else FrozenNetwork.from_data(data, strip_prefix("extractor.", tensors)),
            None if head is None else _read_head(head, strip_prefix("head.", tensors)),
            None if base is None else _read_base(base, strip_prefix("base.", tensors)),
            dict(description["about"]),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"expected a checkpoint that this version of berncert can read, got {path}: {error}"
        ) from error


def _parts_of(
    model: Any, input_shape: tuple[int, ...] | None
) -> tuple[FrozenNetwork | None, PolynomialHead | Head | None]:
    if isinstance(model, FrozenNetwork):
        return model, None
    if isinstance(model, PolynomialHead):
        return None, model
    if not isinstance(model, Classifier):
        raise TypeError(
            f"expected a Classifier, a FrozenNetwork or a smoothed head, got {type(model).__name__}; freeze a network "
            "first: berncert.freeze(network, input_shape)"
        )
    head = model.head
    if not isinstance(head, PolynomialHead | Head):
        raise TypeError(
            f"expected a smoothed head, got {type(head).__name__}, whose code a file cannot hold; smooth it first: "
            "model.smooth(degree)"
        )
    extractor = model.freeze(input_shape).extractor
    assert isinstance(extractor, FrozenNetwork)
    return extractor, head


def _check_rebuilds(head: PolynomialHead | Head) -> None:
    """Raise a ValueError if the head's description does not rebuild it, as it was changed after it was built."""
    if isinstance(head, PolynomialHead):
        return
    points = torch.rand(8, head.description["dim"], generator=torch.Generator().manual_seed(0))
    try:
        like = next(head.parameters())
        same = torch.equal(_read_base(head.description, head.state_dict())(points.to(like)), head(points.to(like)))
    except (RuntimeError, ValueError, StopIteration):
        same = False
    if not same or type(head) is not Head:
        raise ValueError("expected a head as build_head builds it, with other weights at most, got a changed one")


def _read_head(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> PolynomialHead | Head:
    return _read_base(description, tensors) if "kind" in description else head_from_data(description, tensors)


def _read_base(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Head:
    """The described head with these values, in their dtype; its size is checked before anything is built."""
    if description.get("kind") == NETWORK:
        return NetworkHead(FrozenNetwork.from_data(description, tensors))
    expected, got = head_size(**description), sum(tensor.numel() for tensor in tensors.values())
    if expected != got:
        raise ValueError(f"expected a head of {expected} numbers, as its description says, got {got}")
    with torch.random.fork_rng(devices=[]):  # the initial weights, which are replaced, are random
        head = build_head(**description)
    head.load_state_dict(dict(tensors), assign=True)
    return head


def _narrow(tensor: Tensor) -> Tensor:
    """The tensor in a dtype of half the size, if that is exact."""
    narrow = tensor.to(NARROWER[tensor.dtype])
    bits = (value.reshape(-1).view(torch.int64) for value in (narrow.to(tensor.dtype), tensor))
    return narrow if torch.equal(*bits) else tensor


def shipped_models() -> tuple[str, ...]:
    """The names of the models that are shipped with the package."""
    return tuple(sorted(Path(file.name).stem for file in SHIPPED.iterdir() if file.name.endswith(".safetensors")))


def find_checkpoint(path: str | PathLike[str]) -> Path:
    """The file with that path, the one in the folder of a training with that path, or the shipped one of that name."""
    for place in (Path(path), Path(path) / FILE):
        if place.is_file():
            return place
    if str(path) in shipped_models():
        return Path(str(SHIPPED / f"{path}.safetensors"))
    if Path(path).is_dir():
        raise ValueError(f"expected a checkpoint, or a folder with a {FILE} in it, got {str(path)!r} without one")
    raise FileNotFoundError(
        f"expected the path of a checkpoint, or the name of one that is shipped ({', '.join(shipped_models())}), "
        f"got {str(path)!r}, which is neither{guess(str(path), shipped_models())}"
    )


def versions() -> dict[str, str]:
    """The versions of this package and of torch, without torch's suffix for a kind of hardware."""
    return {"berncert": metadata.version("berncert"), "torch": torch.__version__.split("+")[0]}
