"""Checkpoints: one safetensors file with the weights, how the model is built, and what is proven of it.

Nothing in such a file can run code. Its header is JSON that any safetensors reader shows; a checksum of all of it tells
a file that was cut off or changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib import metadata, resources
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as serialise
from torch import Tensor, nn

from berncert.certification import Classifier
from berncert.extractor import Extractor, build
from berncert.extractor.remembered import fingerprint, remember
from berncert.polynomial import SmoothedHead
from berncert.study.folders import write_whole
from berncert.study.heads import Head, build_head

FORMAT = "berncert checkpoint 1"
FILE = "model.safetensors"
"""Its name in the folder of a training."""
MAKERS: dict[str, tuple[type[Extractor] | type[Head], str]] = {
    "extractor": (Extractor, "berncert.extractor.build"),
    "head": (Head, "berncert.study.heads.build_head"),
    "base": (Head, "berncert.study.heads.build_head"),
}
SHIPPED = resources.files(__package__) / "checkpoints"


def save(
    model: Classifier,
    path: str | PathLike[str],
    *,
    base: Head | None = None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Write the model; it must be made of parts that tell how they are built: `build`, `build_head`, `SmoothedHead`.

    `base` is the head that was smoothed, kept beside it; `about` is any plain JSON: how the model came to be.
    """
    parts: dict[str, nn.Module] = {"extractor": model.extractor, "head": model.head}
    if base is not None:
        parts["base"] = base
    description = {"base": None} | {name: _described(name, part) for name, part in parts.items()}
    description |= {"proofs": remember(model.extractor), "about": dict(about or {})}
    values = {f"{name}.{key}": value for name, part in parts.items() for key, value in part.state_dict().items()}
    write(path, values, FORMAT, description)


def load(path: str | PathLike[str], *, base: bool = False, proofs: bool = True) -> Classifier:
    """The classifier in that file, in evaluation mode; or one that comes with the package: "digits", "mnist".

    Its outputs are those of the model that was saved. `base` gives the head as it was before smoothing. What is proven
    of the extractor comes along, and is believed for the very same weights; from a source that you do not trust, load
    with proofs=False: then `certify` proves it again.
    """
    tensors, description = _opened(path)
    name = "base" if base else "head"
    if base and description["base"] is None:
        raise ValueError(f"expected a checkpoint with its base head, got {path}, which keeps only the one in use")
    try:
        extractor = _built(description["extractor"], under("extractor.", tensors), "extractor")
        head = _built(description[name], under(f"{name}.", tensors), name)
        extractor.proofs = description["proofs"] if proofs else {}  # type: ignore[assignment]
    except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
        message = f"expected a checkpoint that this version of berncert can build, got {path}: {error}"
        raise ValueError(message) from error
    return Classifier(extractor, head).eval()


def _built(description: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str) -> nn.Module:
    """The part that is described, with these values, in their dtype."""
    if name == "head" and "coefficients" in description:
        return SmoothedHead(tensors["coefficients"])
    with torch.random.fork_rng(devices=[]):  # first weights are drawn, for nothing
        part = build(**description) if name == "extractor" else build_head(**description)
    part.load_state_dict(tensors, assign=True)
    return part


def _described(name: str, part: nn.Module) -> dict[str, Any]:
    """How the part is built, if that is the whole truth."""
    if isinstance(part, SmoothedHead) and name == "head":
        return {"coefficients": list(part.coefficients.shape)}
    kind, maker = MAKERS[name]
    if not isinstance(part, kind) or type(part) is not kind:
        raise TypeError(
            f"expected a part that tells how it is built ({kind.__name__}), got {type(part).__name__}; make it with "
            f"{maker}, or keep your own module with torch.save"
        )
    mark = fingerprint(part)
    try:
        again = fingerprint(_built(part.description, part.state_dict(), name))
    except RuntimeError:  # it has other weights than that
        again = None
    if mark is None or mark != again:
        raise ValueError(
            f"expected the {name} as {maker} builds it, with other weights at most, got one that was changed since; "
            "keep it with torch.save"
        )
    return part.description


def describe(path: str | PathLike[str]) -> dict[str, Any]:
    """What a checkpoint says of itself: extractor, head, base, proofs, about."""
    return _opened(path)[1]


def _opened(path: str | PathLike[str]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the description, if that has its parts."""
    tensors, told = read(found(path), FORMAT)
    parts = {"extractor": Mapping, "head": Mapping, "base": Mapping | None, "proofs": Mapping, "about": Mapping}
    for name, kind in parts.items():
        if not isinstance(told, Mapping) or name not in told or not isinstance(told[name], kind):
            raise ValueError(f"expected a checkpoint that tells its {name}, got {path}, which does not; save it again")
    return tensors, told


def shipped() -> tuple[str, ...]:
    """The checkpoints that come with the package."""
    files = SHIPPED.iterdir() if SHIPPED.is_dir() else ()
    return tuple(sorted(file.name.removesuffix(".safetensors") for file in files if file.name.endswith(".safetensors")))


def write(path: str | PathLike[str], tensors: Mapping[str, Tensor], kind: str, description: Mapping[str, Any]) -> None:
    """Tensors and plain JSON as one file."""
    path = Path(path)
    told = json.dumps(description)
    values = {key: value.detach().cpu().contiguous().clone() for key, value in tensors.items()}
    header = {kind: json.dumps({"sha256": _digest(values, kind, told), "description": description})}
    write_whole(path, serialise(values, metadata=header))


def read(path: Path, kind: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What `write` wrote; a file that is cut off, changed, or of another kind is refused."""
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if kind not in header:
                formats = ", ".join(header) or "a safetensors file of something else"
                raise ValueError(f"expected a {kind}, got {path}: {formats}")
            names = file.keys()
            tensors = {name: file.get_tensor(name).clone() for name in names}  # not a view of the file
    except SafetensorError as error:
        raise ValueError(
            f"expected a whole safetensors file, got {path}, which is cut off or something else ({error}); get it again"
        ) from error
    try:
        told = json.loads(header[kind])
        whole = told["sha256"] == _digest(tensors, kind, json.dumps(told["description"]))
    except (KeyError, TypeError, ValueError):
        whole = False
    if not whole:
        raise ValueError(f"expected the content that was saved, got {path}, which was changed since; get it again")
    return tensors, told["description"]


def _digest(tensors: Mapping[str, Tensor], kind: str, told: str) -> str:
    digest = hashlib.sha256(f"{kind}\n{told}\n".encode())
    for key in sorted(tensors):
        value = tensors[key]
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def found(path: str | PathLike[str]) -> Path:
    """The file at that path or in the training's folder there, or the one of that name that comes with the package."""
    for place in (Path(path), Path(path) / FILE):
        if place.is_file():
            return place
    if str(path) in shipped():
        return Path(str(SHIPPED / f"{path}.safetensors"))
    if Path(path).is_dir():
        got = f"the folder {str(path)!r} without one"
        raise ValueError(f"expected a checkpoint, or a folder with a {FILE} in it, got {got}")
    raise FileNotFoundError(
        f"expected the path of a checkpoint, or one that comes with the package ({', '.join(shipped()) or 'none'}), "
        f"got {str(path)!r}, which is neither"
    )


def under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Those whose name begins so, without the beginning."""
    return {key.removeprefix(prefix): value for key, value in tensors.items() if key.startswith(prefix)}


def versions() -> dict[str, str]:
    """Of this package and of torch, without the latter's build for one kind of hardware."""
    return {"berncert": metadata.version("berncert"), "torch": torch.__version__.split("+")[0]}
