"""Networks that others trained: proven bounds beside gradient ascent, and attacks within every proven radius.

The folder that BERNCERT_NETWORKS names has them: VNN-COMP's MNIST networks in ONNX, and two that were published as
1-Lipschitz. No bound may be below what ascent finds, and no attack may succeed within a radius: the program fails then.
Networks of CIFAR-10 that were trained to be robust within l-inf 2/255 are certified there.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import berncert
from benchmarks.timing import made_by, origin
from berncert.extractor import MaxMin
from berncert.extractor.frozen import FrozenNetwork, Step
from berncert.extractor.operations import Scale, Shift
from berncert.foundation.folders import write_whole

HERE = Path(__file__).parent
ONNX = ("mnist2x10", "mnist5x20_leaky_relu", "mnist2x5_sigmoid", "cnn_max_mninst2")
COLOURED = ("cifar_base_kw", "cifar_deep_kw")
MEAN, DEVIATION = (0.485, 0.456, 0.406), 0.225
"""What these networks take from the pixels first, which is not in their files."""
DECIDED_AT = 2 / 255
NORMS = {"l2": 2.0, "linf": math.inf}
ASCENT_STEPS, STARTS, CHUNK = 100, 20, 500


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.others", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=20, metavar="N", help="MNIST test images, the first (20)")
    parser.add_argument("--coloured", type=int, default=100, metavar="N", help="CIFAR-10 test images, the first (100)")
    parser.add_argument("--tries", type=int, default=100_000, help="attacks on each network, in each norm (100000)")
    parser.add_argument("--data-dir", help="where the images are (else BERNCERT_DATA, the cache, download)")
    parser.add_argument("--out", type=Path, default=HERE, metavar="DIR", help="of the record (beside this file)")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    folder = Path(os.environ["BERNCERT_NETWORKS"])
    test = berncert.data.load("mnist", "test", data_dir=chosen.data_dir, limit=chosen.images)
    rows = [measured(name, network, test, chosen.tries) for name, network in networks(folder).items()]
    test = berncert.data.load("cifar10", "test", data_dir=chosen.data_dir, limit=chosen.coloured)
    coloured = [decided(name, coloured_network(folder, name), test) for name in COLOURED]
    record = {
        "images": chosen.images, "coloured_images": chosen.coloured, "tries": chosen.tries, "rows": rows,
        "coloured": coloured, "made": origin("benchmarks.others"),
    }  # fmt: skip
    write_whole(chosen.out / "others.json", json.dumps(record, indent=1).encode())
    (chosen.out / "others.md").write_text(text(record))
    print(text(record))


def networks(folder: Path) -> dict[str, berncert.FrozenNetwork]:
    """By name, all of images (1, 28, 28)."""
    found = {name: berncert.read_onnx(folder / "mnist" / f"{name}.onnx", input_shape=(1, 28, 28)) for name in ONNX}
    for name in ("mlp", "convsmall"):
        weights = torch.load(folder / "lipschitz" / f"{name}_mnist_gnp_t100.pth", weights_only=True)
        found[f"{name}, 1-Lipschitz"] = berncert.freeze(published(weights).eval(), (1, 28, 28))
    return found


def published(weights: dict[str, Tensor]) -> nn.Module:
    """The network of these weights, in float64, whose pairs are sorted upwards.

    MaxMin sorts downwards, so each layer after it takes its pairs of channels in the other order.
    """
    layers: list[nn.Module] = [] if weights[next(iter(weights))].ndim == 4 else [nn.Flatten()]
    for key in sorted({int(name.split(".")[0]) for name in weights}):
        weight, bias = weights[f"{key}.weight"].double(), weights[f"{key}.bias"].double()
        first = not any(isinstance(layer, nn.Linear | nn.Conv2d) for layer in layers)
        layer: nn.Module
        if weight.ndim == 4:
            layer = nn.Conv2d(weight.shape[1], weight.shape[0], 4, stride=2, padding=1)
            weight = weight if first else swapped(weight, 1)
        else:
            last = next((part for part in reversed(layers) if isinstance(part, nn.Linear | nn.Conv2d)), None)
            if isinstance(last, nn.Conv2d):
                layers.append(nn.Flatten())
                by_channel = weight.unflatten(1, (last.out_channels, -1))
                weight = swapped(by_channel, 1).flatten(1)
            elif last is not None:
                weight = swapped(weight, 1)
            layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight, layer.bias = nn.Parameter(weight), nn.Parameter(bias)  # type: ignore[assignment]
        layers += [layer, MaxMin()]
    return nn.Sequential(*layers[:-1]).double()


def swapped(weight: Tensor, axis: int) -> Tensor:
    """Neighbours along this axis in the other order."""
    return weight.unflatten(axis, (-1, 2)).flip(axis + 1).flatten(axis, axis + 1)


def measured(name: str, network: berncert.FrozenNetwork, test: Any, tries: int) -> dict[str, Any]:
    """One network: bounds, radii and attacks, in both norms."""
    model = berncert.Classifier.of_logits(network)
    images = test.images.double()
    clean = float((network(images).argmax(dim=1) == test.labels).double().mean())
    row: dict[str, Any] = {"name": name, "clean": clean, "tries": tries}
    for label, norm in NORMS.items():
        bound, seen = berncert.lipschitz_bound(network, (1, 28, 28), norm), steepest(network, images, norm)
        c, alone = (berncert.certify(model, images, norm=norm, routes=routes) for routes in ("both", "global"))
        fallen = attacked(network, images, c, norm, row["tries"])
        if seen > bound or fallen:
            raise SystemExit(f"{name}, {label}: bound {bound} but {seen} was found; {fallen} counterexamples")
        row[label] = {
            "bound": bound,
            "seen": seen,
            "global_median": float(np.median(alone.radius)),
            "median": float(np.median(c.radius)),
            "largest": float(c.radius.max()),
            "local": int((c.route == "local").sum()),
        }
    return row


def coloured_network(folder: Path, name: str) -> berncert.FrozenNetwork:
    """A network of CIFAR-10, from pixels in [0, 1]."""
    mean = torch.tensor(MEAN, dtype=torch.float64).view(3, 1, 1)
    scale = Scale(torch.tensor([DEVIATION], dtype=torch.float64), divide=True)
    first = FrozenNetwork((3, 32, 32), [Step(Shift(-mean), (0,), "mean", "Shift")]).followed_by(scale)
    return first.followed_by(berncert.read_onnx(folder / "cifar10" / f"{name}.onnx", input_shape=(3, 32, 32)))


def decided(name: str, network: berncert.FrozenNetwork, test: Any) -> dict[str, Any]:
    """Which images of one network hold and which fall within the l-inf radius that it was trained for."""
    model, images = berncert.Classifier.of_logits(network), test.images.double()
    berncert.verify(model, images[:1], DECIDED_AT, math.inf)  # what is proven once
    began = time.process_time()
    found = berncert.verify(model, images, DECIDED_AT, math.inf)
    spent = time.process_time() - began
    right = found.predicted == test.labels.numpy()
    alone = berncert.certify(model, images, norm=math.inf, routes="global").radius >= DECIDED_AT
    return {
        "name": name,
        "clean": float(right.mean()),
        "holds": float((right & found.holds).mean()),
        "global": float((right & alone).mean()),
        "not_falling": float((right & ~found.falls).mean()),
        "ms": 1e3 * spent / len(images),
    }


def steepest(network: berncert.FrozenNetwork, images: Tensor, norm: float) -> float:
    """The greatest quotient of differences that gradient ascent finds, from pairs of images close to each other."""
    x = images[torch.arange(STARTS) % len(images)].clone().requires_grad_()
    u = torch.randn_like(x).mul_(1e-3).requires_grad_()
    optimiser, best = torch.optim.Adam([x, u], lr=1e-2), 0.0
    for _ in range(ASCENT_STEPS):
        optimiser.zero_grad()
        step = 1e-3 * u / torch.linalg.vector_norm(u.flatten(1), norm, dim=1).view(-1, 1, 1, 1)
        moved = torch.linalg.vector_norm(network(x + step) - network(x), norm, dim=1)
        quotient = moved / torch.linalg.vector_norm(step.flatten(1), norm, dim=1)
        best = max(best, float(quotient.detach().max()))
        (-quotient.log().sum()).backward()
        optimiser.step()
    return best * (1 - 1e-9)  # the rounding of the quotient


def attacked(network: berncert.FrozenNetwork, images: Tensor, c: Any, norm: float, tries: int) -> int:
    """How many of so many tries within the radii change a class: by PGD with restarts, and at random on the sphere."""
    fallen, classes = 0, torch.from_numpy(c.predicted)
    radii = torch.from_numpy(c.radius) * (1 - 1e-12)
    ascent = berncert.Pgd(norm=norm, steps=40, restarts=5, pixels=(-10.0, 10.0))
    tried = ascent(network, images, classes, radii)
    fallen += int((network(tried).argmax(dim=1) != classes).sum())
    left = tries - 200 * len(images)
    for image, label, radius in zip(images, classes, radii, strict=True):
        for _ in range(0, left // len(images), CHUNK):
            noise = torch.randn(CHUNK, *image.shape, dtype=torch.float64)
            noise = noise.sign() if norm == math.inf else noise
            noise /= torch.linalg.vector_norm(noise.flatten(1), norm, dim=1).view(-1, 1, 1, 1)
            with torch.no_grad():
                fallen += int((network(image + radius * noise).argmax(dim=1) != label).sum())
    return fallen


def text(record: dict[str, Any]) -> str:
    """The table."""
    lines = [
        "# Networks that others trained", "",
        f"The first {record['images']} test images of MNIST. Bound: proven, from the norm of the pixels to that of the "
        f"logits; seen: the greatest quotient that gradient ascent found. Local: so many images are proven by the "
        "local route. In so many tries (PGD, and at random), in "
        "float64, no image within a proven radius changed its class.", "",
        "| network | clean, % | norm | bound | seen | median radius | global route alone | largest | local | tries |",
        "| :--- | ---: | :--- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for row in record["rows"]:
        for norm in NORMS:
            r = row[norm]
            bound = f"{r['bound']:.9f}" if r["bound"] < 2 else f"{r['bound']:.4g}"
            lines.append(
                f"| {row['name']} | {100 * row['clean']:.0f} | {norm} | {bound} | {r['seen']:.4g} | "
                f"{r['median']:.3g} | {r['global_median']:.3g} | {r['largest']:.3g} | {r['local']} | {row['tries']} |"
            )
    lines += [
        "", f"The first {record['coloured_images']} test images of CIFAR-10, l-inf {255 * DECIDED_AT:g}/255: proven by "
        "both routes, by the global one alone, and not refuted by an attack; CPU time of `berncert.verify`.", "",
        "| network | clean, % | proven, % | global route alone, % | not refuted, % | ms for an image |",
        "| :--- | ---: | ---: | ---: | ---: | ---: |",
    ]  # fmt: skip
    for row in record["coloured"]:
        shares = " | ".join(f"{100 * row[key]:.0f}" for key in ("clean", "holds", "global", "not_falling"))
        lines.append(f"| {row['name']} | {shares} | {row['ms']:.0f} |")
    return "\n".join([*lines, "", made_by(record["made"]), ""])


if __name__ == "__main__":
    main()
