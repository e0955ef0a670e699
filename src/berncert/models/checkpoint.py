"""Checkpoints: one safetensors file with a frozen extractor, a head, and where they come from.

Nothing in such a file can run code, and nothing that it says is trusted: the steps and numbers are checked, and bounds
are proven from them. Its header is JSON that any safetensors reader shows; a checksum of all of it finds a file that
was cut off or changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata, resources
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor

from berncert.certification.classifier import Classifier
from berncert.extractor import FrozenNetwork
from berncert.floor.folders import write_whole
from berncert.floor.reading import parsed_json
from berncert.models.heads import Head, build_head, head_size
from berncert.polynomial import SmoothedHead

FORMAT = "berncert checkpoint 2"
FILE = "model.safetensors"
"""Its name in the folder of a training."""
SHIPPED = resources.files(__package__) / "checkpoints"
EXACTLY = {torch.float64: torch.float32, torch.int64: torch.int32}
"""dtype -> the narrower one that tensors of an extractor are written in, where that loses nothing."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """What a file holds: an extractor, a head, or both, which make a classifier."""

    path: Path
    size: int
    sha256: str
    extractor: FrozenNetwork | None
    head: SmoothedHead | Head | None
    base: Head | None
    """The head before it was smoothed, if it was kept."""
    about: dict[str, Any]
    """How the model came to be; plain JSON."""

    def model(self, *, base: bool = False) -> Classifier | FrozenNetwork | SmoothedHead | Head:
        """The classifier, or the only part there is, in evaluation mode; `base` puts the head before smoothing back."""
        head = self.base if base else self.head
        if base and head is None:
            raise ValueError(
                f"expected a checkpoint with its base head, got {self.path}, which has only the one in use; smooth the "
                "model again in Python, and save that"
            )
        if self.extractor is None or head is None:
            part = self.extractor or head
            assert part is not None
            return part.eval()
        return Classifier(self.extractor, head).eval()

    def smoothed(self, degree: int | None = None) -> Classifier:
        """The classifier with a smoothed head; with a degree, its base head smoothed again to that degree."""
        needs_base = degree is not None and isinstance(self.head, SmoothedHead)
        model = self.model(base=needs_base)
        if not isinstance(model, Classifier):
            raise ValueError(f"expected a classifier, got {self.path}, which holds only a {type(model).__name__}")
        if degree is not None:
            return model.smooth(degree)
        if not isinstance(model.head, SmoothedHead):
            raise ValueError(f"expected a model with a smoothed head, got {self.path}, whose head is not; pass degree")
        return model

    @property
    def trained_on(self) -> str | None:
        """The data set that the file names as that of its training, if it does."""
        entry: Any = self.about
        for key in ("recipe", "data", "dataset"):
            entry = entry.get(key) if isinstance(entry, Mapping) else None
        return entry if isinstance(entry, str) else None

    def description(self) -> dict[str, Any]:
        """What it is made of, in a few lines of JSON."""
        extractor, head, base = self.extractor, self.head, self.base
        return {
            "extractor": extractor and {
                "input_shape": list(extractor.input_shape), "dim": extractor.dim, "steps": len(extractor.steps),
                "numbers": extractor.numbers, "about": extractor.about,
            },
            "head": _described_head(head),
            "base": base and base.description,
            "about": self.about,
        }  # fmt: skip


def save(
    model: Classifier | FrozenNetwork | SmoothedHead,
    path: str | PathLike[str],
    *,
    input_shape: tuple[int, ...] | None = None,
    base: Head | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write a model to one file without code in it: any classifier whose extractor can be frozen, or a part of one.

    `input_shape` is that of one image, for an extractor that does not know it. `base` is the head that was smoothed,
    kept beside it; `about` is any plain JSON: how the model came to be.
    """
    extractor, head = _parts_of(model, input_shape)
    description: dict[str, Any] = {"extractor": None, "head": None, "base": None, "about": dict(about or {})}
    tensors: dict[str, Tensor] = {}
    if extractor is not None:
        description["extractor"], own = extractor.as_data()
        tensors |= {f"extractor.{name}": _narrowed(tensor) for name, tensor in own.items()}
    for name, part in (("head", head), ("base", base)):
        if part is not None:
            _require_as_described(part)
            description[name] = _described_head(part)
            tensors |= {f"{name}.{key}": value for key, value in part.state_dict().items()}
    write(path, tensors, FORMAT, description)


def load(path: str | PathLike[str], *, base: bool = False) -> Any:
    """The model in that file, in evaluation mode; or one that is shipped with the package: "digits", "mnist".

    It computes what the model that was saved does. `base` gives the head as it was before smoothing.
    """
    return open_checkpoint(path).model(base=base)


def open_checkpoint(path: str | PathLike[str]) -> Checkpoint:
    """The checkpoint at that path or of that name, read once and checked."""
    file = found(path)
    content = file.read_bytes()
    tensors, description = read(file, FORMAT)
    for name in ("extractor", "head", "base", "about"):
        optional = name != "about" and isinstance(description, Mapping) and description.get(name, 0) is None
        if not isinstance(description, Mapping) or not (isinstance(description.get(name), Mapping) or optional):
            raise ValueError(
                f"expected a checkpoint with a description of its {name}, got {path} without; save it again"
            )
    if description["extractor"] is None and description["head"] is None:
        raise ValueError(f"expected a checkpoint with an extractor, a head or both, got {path} with neither")
    try:
        data, head, base = (description[name] for name in ("extractor", "head", "base"))
        return Checkpoint(
            file, len(content), hashlib.sha256(content).hexdigest(),
            None if data is None else FrozenNetwork.from_data(data, under("extractor.", tensors)),
            None if head is None else _read_head(head, under("head.", tensors)),
            None if base is None else _read_base(base, under("base.", tensors)),
            dict(description["about"]),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise ValueError(
            f"expected a checkpoint that this version of berncert can read, got {path}: {error}"
        ) from error


def _parts_of(
    model: Any, input_shape: tuple[int, ...] | None
) -> tuple[FrozenNetwork | None, SmoothedHead | Head | None]:
    if isinstance(model, FrozenNetwork):
        return model, None
    if isinstance(model, SmoothedHead):
        return None, model
    if not isinstance(model, Classifier):
        raise TypeError(
            f"expected a Classifier, a FrozenNetwork or a SmoothedHead, got {type(model).__name__}; freeze a network "
            "first: berncert.freeze(network, input_shape)"
        )
    head = model.head
    if not isinstance(head, SmoothedHead | Head):
        raise TypeError(
            f"expected a smoothed head, got {type(head).__name__}, whose code a file cannot hold; smooth it first: "
            "model.smooth(degree)"
        )
    extractor = model.freeze(input_shape).extractor
    assert isinstance(extractor, FrozenNetwork)
    return extractor, head


def _described_head(head: SmoothedHead | Head | None) -> dict[str, Any] | None:
    if isinstance(head, SmoothedHead):
        return {"coefficients": list(head.coefficients.shape)}
    return None if head is None else head.description


def _require_as_described(head: SmoothedHead | Head) -> None:
    """A head that was changed since it was built would come back as another one."""
    if isinstance(head, SmoothedHead):
        return
    points = torch.rand(8, head.description["dim"], generator=torch.Generator().manual_seed(0))
    try:
        like = next(head.parameters())
        same = torch.equal(_read_base(head.description, head.state_dict())(points.to(like)), head(points.to(like)))
    except (RuntimeError, ValueError, StopIteration):
        same = False
    if not same or type(head) is not Head:
        raise ValueError("expected a head as build_head builds it, with other weights at most, got a changed one")


def _read_head(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> SmoothedHead | Head:
    return SmoothedHead(tensors["coefficients"]) if "coefficients" in description else _read_base(description, tensors)


def _read_base(description: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Head:
    """The head that is described, with these values, in their dtype; its size is known before anything is built."""
    there = sum(tensor.numel() for tensor in tensors.values())
    if head_size(**description) != there:
        raise ValueError(f"a head of {head_size(**description)} numbers is described, and there are {there}")
    with torch.random.fork_rng(devices=[]):  # first weights are drawn, for nothing
        head = build_head(**description)
    head.load_state_dict(dict(tensors), assign=True)
    return head


def _narrowed(tensor: Tensor) -> Tensor:
    """In a dtype of half the size if that is exact."""
    narrow = tensor.to(EXACTLY[tensor.dtype])
    bits = (value.reshape(-1).view(torch.int64) for value in (narrow.to(tensor.dtype), tensor))
    return narrow if torch.equal(*bits) else tensor


def shipped() -> tuple[str, ...]:
    """The checkpoints that are shipped with the package."""
    files = SHIPPED.iterdir() if SHIPPED.is_dir() else ()
    return tuple(sorted(file.name.removesuffix(".safetensors") for file in files if file.name.endswith(".safetensors")))


def write(path: str | PathLike[str], tensors: Mapping[str, Tensor], kind: str, description: Mapping[str, Any]) -> None:
    """Tensors and plain JSON as one file."""
    path = Path(path)
    text = json.dumps(description)
    values = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    header = {kind: json.dumps({"sha256": _digest(values, kind, text), "description": description})}
    write_whole(path, serialise(values, metadata=header))


def read(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` wrote; a file that is cut off, changed, or of another kind is refused."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if kind not in header:
                formats = ", ".join(header) or "a safetensors file of something else"
                raise ValueError(f"expected a {kind}, got {path}: {formats}{_advice(header)}")
            names = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}  # not a view of the file
    except SafetensorError as error:
        raise ValueError(
            f"expected a whole safetensors file, got {path}, which is cut off or something else ({error}); {ADVICE}"
        ) from error
    try:
        entry = parsed_json(header[kind])
        whole = entry["sha256"] == _digest(tensors, kind, json.dumps(entry["description"]))
    except (KeyError, TypeError, ValueError, RecursionError):
        whole = False
    if not whole:
        raise ValueError(f"expected the content that was saved, got {path}, which was changed since; get it again")
    return tensors, entry["description"]


ADVICE = (
    "get it again, or, if it is a PyTorch file, which may run code, load it in Python and write it with "
    "berncert.save(model, path, input_shape=...)"
)


def _advice(header: Mapping[str, str]) -> str:
    older = any(name.startswith("berncert checkpoint") for name in header)
    return "; it is of another version of berncert: train or save it again" if older else ""


def _digest(tensors: Mapping[str, Tensor], kind: str, text: str) -> str:
    digest = hashlib.sha256(f"{kind}\n{text}\n".encode())
    for key in sorted(tensors):
        value = tensors[key]
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def found(path: str | PathLike[str]) -> Path:
    """The file at that path or in the training's folder there, or the one of that name that is shipped."""
    for place in (Path(path), Path(path) / FILE):
        if place.is_file():
            return place
    if str(path) in shipped():
        return Path(str(SHIPPED / f"{path}.safetensors"))
    if Path(path).is_dir():
        got = f"the folder {str(path)!r} without one"
        raise ValueError(f"expected a checkpoint, or a folder with a {FILE} in it, got {got}")
    raise FileNotFoundError(
        f"expected the path of a checkpoint, or the name of one that is shipped ({', '.join(shipped()) or 'none'}), "
        f"got {str(path)!r}, which is neither"
    )


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name begins so, without the beginning."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def versions() -> dict[str, str]:
    """Of this package and of torch, without the latter's build for one kind of hardware."""
    return {"berncert": metadata.version("berncert"), "torch": torch.__version__.split("+")[0]}
