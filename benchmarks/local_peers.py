"""The local route beside CROWN as others have it, of the same networks in one run: what is proven, and the time.

Peers, each left out where it cannot be imported: auto_LiRPA (its repository's newest, on PYTHONPATH: the registry's 0.3
wants an old torch), and bound-propagation 0.4.7 (`pip install --no-deps bound-propagation`; fully connected only). The
folder that BERNCERT_NETWORKS names has networks that others trained. A network that bends is trained here: the CNN of
experiments/own_network, its small head smoothed. No image that ours proves may fall to an attack.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from experiments.own_network.networks import ordinary, train
from torch import Tensor, nn

import berncert
from benchmarks.timing import made_by, origin, shown
from berncert.data import Dataset
from berncert.extractor import operations as ops
from berncert.foundation.folders import write_whole

HERE = Path(__file__).parent
NORMS = {"linf": math.inf, "l2": 2.0}
CIFAR_STD = 0.225
CIFAR_MEAN = (0.485, 0.456, 0.406)
PLAIN: dict[str, dict[str, tuple[float, ...]]] = {
    "mnist/mnist2x10": {"linf": (0.005, 0.01, 0.015, 0.02, 0.03), "l2": (0.1, 0.2, 0.3, 0.4, 0.5)},
    "mnist/mnist5x20_leaky_relu": {"linf": (0.005, 0.01, 0.015, 0.02, 0.03), "l2": (0.1, 0.2, 0.3, 0.4, 0.5)},
    "mnist/mnist2x5_sigmoid": {"linf": (0.005, 0.01, 0.015, 0.02, 0.03), "l2": (0.1, 0.2, 0.3, 0.4, 0.5)},
    "mnist/cnn_max_mninst2": {"linf": (0.005, 0.01, 0.015, 0.02, 0.03), "l2": (0.1, 0.2, 0.3, 0.4, 0.5)},
    "cifar10/cifar_base_kw": {"linf": tuple(k / 255 for k in (0.5, 1, 2, 3, 4)), "l2": (0.05, 0.1, 0.15, 0.2, 0.3)},
    "cifar10/cifar_deep_kw": {"linf": tuple(k / 255 for k in (0.5, 1, 2, 3, 4)), "l2": (0.05, 0.1, 0.15, 0.2, 0.3)},
}
"""The radii of each network, in pixels."""
BENT = {"linf": (0.002, 0.005, 0.01, 0.015, 0.02), "l2": (0.01, 0.02, 0.05, 0.1, 0.15)}
BENT_DEGREE = 7
Prover = Callable[[Tensor, Tensor, float, float], np.ndarray[Any, np.dtype[np.bool_]]]
"""(images, classes, radius, norm) -> whether each image is proven to keep its class."""


@dataclass(frozen=True)
class Subject:
    """A network, what is asked of it, and who answers."""

    name: str
    images: Tensor
    labels: Tensor
    model: berncert.Classifier
    """What is certified; attacked too."""
    provers: dict[str, Prover]
    radii: dict[str, tuple[float, ...]]
    scale: float = 1.0
    """Pixels are divided by it before they are the network's input."""
    network: Any = None
    """The frozen network of others, before a head is put to it."""


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.local_peers", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--images", type=int, default=50, metavar="N", help="test images of each set, the first (50)")
    parser.add_argument("--epochs", type=int, default=3, help="of the training of the network that bends (3)")
    parser.add_argument("--only", nargs="*", help="names of networks, e.g. mnist/mnist2x10 bending (all)")
    parser.add_argument("--data-dir", help="where MNIST and CIFAR-10 are (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="of the record (beside this file)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = []
    for name in chosen.only or [*PLAIN, "bending"]:
        subject = bending(chosen) if name == "bending" else plain(name, chosen)
        rows += [measured(subject, norm) for norm in NORMS]
    record = {
        "images": chosen.images, "epochs": chosen.epochs, "rows": rows, "l2_claim": l2_claim(),
        "float32": float32_claim(chosen), "made": origin("benchmarks.local_peers"),
    }  # fmt: skip
    write_whole(chosen.out / "local_peers.json", json.dumps(record, indent=1).encode())
    (chosen.out / "local_peers.md").write_text(text(record))
    print(text(record))


def plain(name: str, chosen: argparse.Namespace) -> Subject:
    """A network of others whose outputs are logits, as it is."""
    test = images_for(name.split("/")[0], chosen)
    shape = tuple(test.images.shape[1:])
    network = berncert.read_onnx(Path(os.environ["BERNCERT_NETWORKS"]) / f"{name}.onnx", input_shape=shape)
    scale = CIFAR_STD if name.startswith("cifar10") else 1.0
    images = test.images.double()
    if scale != 1:
        images = (images - torch.tensor(CIFAR_MEAN, dtype=torch.float64)[:, None, None]) / scale
    layers = as_torch(network)
    gap = float((layers(images) - network(images)).abs().max())
    if gap > 1e-9:
        raise SystemExit(f"{name}: the layers for the peers compute something else, by {gap}")
    model = berncert.Classifier.of_logits(network)
    provers = {"berncert": ours(model), **lirpa_provers(layers, shape, network.dim)}
    if not any(isinstance(layer, nn.Conv2d) for layer in layers):
        provers |= propagation_provers(layers, network.dim)
    return Subject(name, images, test.labels, model, provers, PLAIN[name], scale, network)


def bending(chosen: argparse.Namespace) -> Subject:
    """The CNN with five features and a head that bends; for the peer its head as it was, or ours on its box."""
    torch.manual_seed(0)
    model = ordinary()
    training = berncert.data.load("mnist", "train", data_dir=chosen.data_dir)
    train(model, training, chosen.epochs, lambda images, labels, done: F.cross_entropy(model(images), labels))
    test = images_for("mnist", chosen)
    smoothed = model.smooth(BENT_DEGREE, points=0)
    base = nn.Sequential(*model.extractor, *model.head).double().eval()
    extractor = nn.Sequential(*model.extractor).double().eval()
    provers = {"berncert": ours(smoothed)}
    if find_spec("auto_LiRPA"):
        box = Lirpa(extractor, (1, 28, 28))
        provers["auto_LiRPA CROWN to the features, our enclosure on their box"] = on_box(box, smoothed)
        provers |= {f"{k}, head as it was": v for k, v in lirpa_provers(base, (1, 28, 28), 10).items()}
    return Subject("bending", test.images.double(), test.labels, smoothed, provers, BENT)


def images_for(dataset: str, chosen: argparse.Namespace) -> Dataset:
    return berncert.data.load(dataset, "test", data_dir=chosen.data_dir, limit=chosen.images)


def ours(model: berncert.Classifier) -> Prover:
    def proves(images: Tensor, classes: Tensor, radius: float, norm: float) -> Any:
        c = berncert.certify(model, images, norm=norm, radius=radius, threads=1, progress=False)
        return (c.radius >= radius) & (c.predicted == classes.numpy())

    return proves


def margins_of(classes: Tensor, count: int) -> Tensor:
    """(N, K - 1, K): the rows that take each other class from the image's."""
    eye = torch.eye(count, dtype=torch.float64)
    rows = [torch.stack([eye[c] - eye[k] for k in range(count) if k != c]) for c in classes.tolist()]
    return torch.stack(rows)


class Lirpa:
    """auto_LiRPA on some layers, in float32 as it is used: its sigmoid does not take float64."""

    def __init__(self, layers: nn.Module, shape: tuple[int, ...], method: str = "CROWN") -> None:
        bounded = import_module("auto_LiRPA").BoundedModule
        self.method = method
        self.bounded = bounded(copy.deepcopy(layers).float(), torch.zeros(1, *shape), device="cpu")

    def bounds(self, images: Tensor, radius: float, norm: float, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Of the outputs, or of rows times them, within the radius."""
        lirpa, kinds = import_module("auto_LiRPA"), import_module("auto_LiRPA.perturbations")
        x = lirpa.BoundedTensor(images.float(), kinds.PerturbationLpNorm(norm=norm, eps=radius))
        chosen = None if rows is None else rows.float()
        with torch.no_grad():
            found = self.bounded.compute_bounds(x=(x,), C=chosen, method=self.method, bound_upper=rows is None)
        return tuple(side if side is None else side.double() for side in found)  # type: ignore[return-value]


def lirpa_provers(layers: nn.Module, shape: tuple[int, ...], classes: int) -> dict[str, Prover]:
    if not find_spec("auto_LiRPA"):
        return {}

    def prover(method: str) -> Prover:
        lirpa = Lirpa(layers, shape, method)

        def proves(images: Tensor, predicted: Tensor, radius: float, norm: float) -> Any:
            lower, _ = lirpa.bounds(images, radius, norm, margins_of(predicted, classes))
            return (lower > 0).all(dim=1).numpy()

        return proves

    return {f"auto_LiRPA {method}": prover(method) for method in ("CROWN", "CROWN-IBP")}


def on_box(lirpa: Lirpa, model: berncert.Classifier) -> Prover:
    """Their box of the features, on it our head's coefficients; where that is not enough, those on all its halves."""
    head = model.head

    def holds(low: Tensor, high: Tensor, classes: Tensor) -> Tensor:
        assert isinstance(head, berncert.PolynomialHead)
        lead = head.greatest_lead(low.clamp(0, 1), high.clamp(0, 1), classes)
        return (lead.scatter(1, classes[:, None], -torch.inf) < 0).all(dim=1)

    def proves(images: Tensor, predicted: Tensor, radius: float, norm: float) -> Any:
        low, high = lirpa.bounds(images, radius, norm)
        found = holds(low, high, predicted)
        middle = (low + high) / 2
        halves = torch.ones(len(images), dtype=torch.bool)
        for corner in range(2 ** low.shape[1]):
            upper = torch.tensor([corner >> i & 1 for i in range(low.shape[1])], dtype=torch.bool)
            halves &= holds(torch.where(upper, middle, low), torch.where(upper, high, middle), predicted)
        return (found | halves).numpy()

    return proves


def propagation_provers(layers: nn.Sequential, classes: int) -> dict[str, Prover]:
    """bound-propagation, in l-inf; its balls of other norms claim too much: see `l2_claim`."""
    if not find_spec("bound_propagation"):
        return {}
    peer = import_module("bound_propagation")
    if any(isinstance(layer, nn.LeakyReLU) for layer in layers):
        return {}

    @cache
    def bounded(predicted: int) -> Any:
        last = nn.Linear(classes, classes - 1, bias=False).double()
        last.weight.data = margins_of(torch.tensor([predicted]), classes)[0]
        return peer.BoundModelFactory().build(nn.Sequential(*layers[1:], last))

    def proves(images: Tensor, predicted: Tensor, radius: float, norm: float) -> Any:
        if norm != math.inf:
            raise NotImplementedError
        found = np.zeros(len(images), bool)
        for number in predicted.unique().tolist():
            rows = torch.nonzero(predicted == number)[:, 0]
            region = peer.HyperRectangle.from_eps(images[rows].flatten(1), radius)
            with torch.no_grad():
                lower = bounded(number).crown(region, bound_upper=False).concretize().lower
            found[rows.numpy()] = (lower > 0).all(dim=1).numpy()
        return found

    return {"bound-propagation CROWN": proves}


def l2_claim() -> dict[str, float] | None:
    """What bound-propagation says that one linear layer can fall in a ball of l2, and what it can: rows' norms."""
    if not find_spec("bound_propagation"):
        return None
    peer = import_module("bound_propagation")
    torch.manual_seed(0)
    layer, x = nn.Linear(20, 1).double(), torch.rand(1, 20, dtype=torch.float64)
    with torch.no_grad():
        region = peer.LpNormSet(x, 0.5, 2.0)
        claimed = layer(x) - peer.BoundModelFactory().build(nn.Sequential(layer)).crown(region).concretize().lower
        return {"claimed": float(claimed), "true": float(0.5 * layer.weight.norm())}


def float32_claim(chosen: argparse.Namespace) -> dict[str, float] | None:
    """How often, and by how much, a bound in float32 is above what holds for the image itself, in a tiny ball."""
    if not find_spec("auto_LiRPA"):
        return None
    subject = plain("mnist/mnist2x10", chosen)
    network = as_torch(subject.network)
    with torch.no_grad():
        logits = network(subject.images)
        rows = margins_of(logits.argmax(dim=1), 10)
        true = (rows @ logits[..., None])[..., 0]
    lower = Lirpa(network, (1, 28, 28)).bounds(subject.images, 1e-9, math.inf, rows)[0]
    above = lower - true
    return {"above": int((above > 0).sum()), "margins": above.numel(), "most": float(above.max())}


def as_torch(network: berncert.FrozenNetwork) -> nn.Sequential:
    """The steps of a chain as layers of torch, which the peers take; a permutation goes into the weights after it."""
    layers: list[nn.Module] = []
    order: Tensor | None = None
    for number, step in enumerate(network.steps):
        o, shape = step.operation, network.shapes[number + 1]
        if step.inputs != (number,):
            raise SystemExit(f"{step.name}: only chains are compared")
        if isinstance(o, ops.Reshape):
            layers += [nn.Flatten()] if len(shape) == 1 else []
        elif isinstance(o, ops.Gather):
            layers, order = [*layers, nn.Flatten()], o.index
        elif isinstance(o, ops.Linear):
            weight = o.weight if order is None else torch.zeros_like(o.weight).index_copy(1, order, o.weight)
            layers, order = [*layers, with_weights(nn.Linear(*weight.T.shape), weight, o.bias)], None
        elif isinstance(o, ops.Convolution):
            (top, _), (left, _) = o.padding
            kernel = (int(o.weight.shape[2]), int(o.weight.shape[3]))
            layer = nn.Conv2d(o.weight.shape[1], len(o.weight), kernel, o.stride, (top, left))
            layers.append(with_weights(layer, o.weight, o.bias))
        elif isinstance(o, ops.MaximumPool):
            layers.append(nn.MaxPool2d(o.kernel, o.stride, o.padding))
        elif isinstance(o, ops.Leaky):
            layers.append(nn.LeakyReLU(float(o.by)))
        elif isinstance(o, ops.Activation):
            layers.append({"relu": nn.ReLU, "sigmoid": nn.Sigmoid}[o.function]())
        else:
            raise SystemExit(f"{step.name}: {type(o).__name__} is not given to the peers")
    return nn.Sequential(*layers).double().eval()


def with_weights(layer: nn.Linear | nn.Conv2d, weight: Tensor, bias: Tensor | None) -> nn.Module:
    layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(torch.zeros(len(weight)) if bias is None else bias)
    return layer


def measured(subject: Subject, norm_name: str) -> dict[str, Any]:
    """What each prover proves at each radius, and how long it takes for an image at one radius, in turn."""
    norm, images = NORMS[norm_name], subject.images
    with torch.no_grad():
        predicted = subject.model(images).argmax(dim=1)
    correct = (predicted == subject.labels).numpy()
    proven: dict[str, dict[float, Any]] = {name: {} for name in subject.provers}
    seconds = dict.fromkeys(subject.provers, 0.0)
    for prove in subject.provers.values():  # compiled, and its memory touched
        try:
            prove(images[:2], predicted[:2], subject.radii[norm_name][0] / subject.scale, norm)
        except NotImplementedError:
            continue
    for radius in shown(f"{subject.name}, {norm_name}", subject.radii[norm_name]):
        for name, prove in subject.provers.items():
            began = time.process_time()
            try:
                proven[name][radius] = prove(images, predicted, radius / subject.scale, norm)
            except NotImplementedError:
                continue
            seconds[name] += time.process_time() - began
    return {
        "name": subject.name, "norm": norm_name, "clean": float(correct.mean()),
        "radii": [float(r) for r in subject.radii[norm_name]],
        "attacked": attacked(subject, norm, predicted, correct, proven, subject.radii[norm_name]),
        "provers": {
            name: {
                "certified": [float((found[r] & correct).mean()) for r in subject.radii[norm_name]],
                "not_ours": [int((found[r] & ~proven["berncert"][r]).sum()) for r in subject.radii[norm_name]],
                "only_ours": [int((~found[r] & proven["berncert"][r]).sum()) for r in subject.radii[norm_name]],
                "ms": 1e3 * seconds[name] / (len(images) * len(subject.radii[norm_name])),
            }
            for name, found in proven.items() if found
        },
    }  # fmt: skip


def attacked(
    subject: Subject, norm: float, predicted: Tensor, correct: Any, proven: dict[str, dict[float, Any]],
    radii: tuple[float, ...],
) -> list[float]:  # fmt: skip
    """The share that an attack leaves correct; it ends the program if it succeeds where we claim a proof."""
    left = []
    attack = berncert.Pgd(norm=norm, steps=20, pixels=(-10.0, 10.0))
    for radius in radii:
        tried = attack(subject.model, subject.images, predicted, radius / subject.scale * (1 - 1e-12))
        with torch.no_grad():
            keeps = (subject.model(tried).argmax(dim=1) == predicted).numpy()
        if (proven["berncert"][radius] & ~keeps).any():
            raise SystemExit(f"{subject.name}: an image within the proven radius {radius} changes its class")
        left.append(float((keeps & correct).mean()))
    return left


def text(record: dict[str, Any]) -> str:
    """The tables."""
    lines = [
        "# Local proofs beside CROWN as others have it", "",
        f"The first {record['images']} test images of MNIST or CIFAR-10. Percent correct and proven at each radius (in "
        "pixels; CIFAR-10's l-inf radii are 0.5, 1, 2, 3 and 4 of 255), beside what PGD leaves. ms: CPU time of one "
        "thread for an image at one radius, all images in one batch; ours in float64, auto_LiRPA in float32. +a -b: "
        "so many images, over all radii, are proven by ours and not by it, and the other way round.", "",
    ]  # fmt: skip
    for row in record["rows"]:
        heads = " | ".join(f"{r:.4g}" for r in row["radii"])
        lines += [f"## {row['name']}, {row['norm']}", "", f"{100 * row['clean']:.0f} % correct.", ""]
        lines += [f"| | {heads} | beside ours | ms |", "| :--- |" + " ---: |" * (len(row["radii"]) + 2)]
        for name, found in row["provers"].items():
            cells = " | ".join(f"{100 * v:.0f}" for v in found["certified"])
            beside = "" if name == "berncert" else f"+{sum(found['only_ours'])} -{sum(found['not_ours'])}"
            lines.append(f"| {name} | {cells} | {beside} | {found['ms']:.3g} |")
        lines += ["| PGD | " + " | ".join(f"{100 * v:.0f}" for v in row["attacked"]) + " | | |", ""]
    claim = record["l2_claim"]
    if claim:
        lines += [
            "bound-propagation is compared in l-inf only: in l2 it says of one linear layer of 20 inputs that its "
            f"output falls by at most {claim['claimed']:.2g} within 0.5; it can fall by {claim['true']:.2g} (its dual "
            "exponent is p / (1 - p) instead of p / (p - 1)). It has no convolutions and no leaky ReLU.", "",
        ]  # fmt: skip
    if record["float32"]:
        lines += [
            "Rounding is not part of the peers' bounds: of mnist2x10, within a radius of 1e-9, auto_LiRPA's lower "
            "bound of a margin is above the margin of the image itself, in float64, for "
            f"{record['float32']['above']} of {record['float32']['margins']} margins, by up to "
            f"{record['float32']['most']:.1e}.", "",
        ]  # fmt: skip
    return "\n".join([*lines, made_by(record["made"], peers()), ""])


def peers() -> dict[str, str]:
    found = {}
    if find_spec("auto_LiRPA"):
        found["auto_LiRPA"] = str(import_module("auto_LiRPA").__version__)
    if find_spec("bound_propagation"):
        found["bound-propagation"] = "0.4.7"
    return found


if __name__ == "__main__":
    main()
