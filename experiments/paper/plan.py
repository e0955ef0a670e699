"""Which models the experiments are about: by name, the recipe of each and what differs from it.

Two constructions. `paper`: the usual networks with Miyato's normalisation, trained against PGD, an mlp head on five
features that is smoothed after the training. `ours`: networks that are 1-Lipschitz by construction, certified training,
a head on six features that bends. The small size has small networks and few epochs, on all training images; the full
size is the paper's, for a GPU; toy is for tests, on the digits that are shipped, and its figures mean nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from berncert.hardware import chosen_device, has_bfloat16

DIMS = (3, 4, 5, 6)
DATA_SETS = ("cifar10", "mnist", "svhn", "cifar100")
NETWORKS = ("resnet", "wide_resnet", "vgg", "densenet")
Changes = Mapping[str, Any]
Plan = dict[str, tuple[str, Changes]]
"""The name of a model -> its recipe, and what differs from it."""

UNATTACKED: Changes = {"objective": "plain", "attack_steps": 0}
COLOURS: Mapping[str, Changes] = {
    "cifar10": {},
    "svhn": {"dataset": "svhn", "crop": 2, "flip": False, "mean": (0.438, 0.444, 0.473), "std": (0.2, 0.2, 0.2)},
    "cifar100": {"dataset": "cifar100", "mean": (0.507, 0.487, 0.441), "std": (0.267, 0.256, 0.276)},
}
"""Data set -> how its recipe in the paper's construction differs from that of CIFAR-10."""
FULL_NETWORKS: Mapping[str, Changes] = {
    "resnet": {"architecture": "resnet110"},
    "wide_resnet": {"architecture": "wide_resnet28_10"},
    "vgg": {"architecture": "vgg19"},
    "densenet": {"architecture": "densenet", "options": {"depth": 100, "growth": 12}},
}
SMALL_NETWORKS: Mapping[str, Changes] = {
    "resnet": {"architecture": "resnet", "options": {"depth": 8, "width": 16}},
    "wide_resnet": {"architecture": "wide_resnet", "options": {"depth": 10, "widen": 1}},
    "vgg": {"architecture": "vgg", "options": {"depth": 11, "width": 16}},
    "densenet": {"architecture": "densenet", "options": {"depth": 10, "growth": 12}},
}
SMALL: Changes = {"attack_steps": 2, "batch_size": 128, "lr": 0.1, "epochs": 6, "test_limit": 500}
HALF: Changes = {"train_limit": 25_000}
"""Models that are compared with each other only are trained on half of the images, and in equal time."""
BENDING: Changes = {"head": "polynomial", "dim": 6, "degree": 2, "side": 8.0, "head_lr": 3.0, "attack_steps": 5}
TOY: Changes = {
    "dataset": "digits",
    "train_limit": 600,
    "epochs": 6,
    "batch_size": 30,
    "crop": 0,
    "flip": False,
    "mean": None,
    "std": None,
}


def models(size: str) -> Plan:
    """All models of this size; those that are shipped with the package are not among them."""
    return {"small": _small, "full": _full, "toy": _toy}[size]()


def _precision() -> Changes:
    """bfloat16 halves the time of a training where the processor has it."""
    return {"precision": "bfloat16" if has_bfloat16(chosen_device(None)) else "float32"}


def _full() -> Plan:
    base = FULL_NETWORKS["resnet"]
    plan: Plan = {f"{name}-paper": ("cifar10-paper", {**base, **changes}) for name, changes in COLOURS.items()}
    plan["mnist-paper"] = ("mnist-paper", {})
    plan |= {f"cifar10-{name}": ("cifar10-paper", FULL_NETWORKS[name]) for name in NETWORKS}
    plan |= {f"cifar10-plain-d{dim}": ("cifar10-paper", {**base, **UNATTACKED, "dim": dim}) for dim in DIMS}
    large = {"options": {"depth": 5, "width": 128, "dense": 3, "hidden": 2048}, "epochs": 200}
    plan |= {f"cifar10-ours-d{dim}": ("cifar10", {**BENDING, **large, "dim": dim}) for dim in DIMS}
    plan["svhn-ours"] = ("svhn", {**BENDING, **large})
    return plan


def _small() -> Plan:
    short = {**SMALL, **_precision()}
    base = {**short, **SMALL_NETWORKS["resnet"]}
    plan: Plan = {f"{name}-paper": ("cifar10-paper", {**base, **changes}) for name, changes in COLOURS.items()}
    plan["mnist-paper"] = ("mnist-paper", {**short, "options": {"depth": 8, "width": 8}, "epochs": 3, "lr": 0.05})
    plan |= {f"cifar10-{name}": ("cifar10-paper", {**short, **HALF, **SMALL_NETWORKS[name]}) for name in NETWORKS}
    plan |= {f"cifar10-plain-d{dim}": ("cifar10-paper", {**base, **HALF, **UNATTACKED, "dim": dim}) for dim in DIMS}
    ours = {**BENDING, **_precision(), "options": {"depth": 1, "width": 32, "dense": 1, "hidden": 256}, "epochs": 10}
    plan |= {f"cifar10-ours-d{dim}": ("cifar10", {**ours, "crop": 3, "dim": dim}) for dim in DIMS}
    plan["svhn-ours"] = ("svhn", ours)
    return plan


def _toy() -> Plan:
    tiny = {**TOY, "options": {"depth": 8, "width": 4}, "architecture": "resnet", "attack_steps": 1, "lr": 0.1}
    plan: Plan = {f"{name}-paper": ("cifar10-paper", tiny) for name in DATA_SETS}
    plan |= {f"cifar10-{name}": ("cifar10-paper", tiny) for name in NETWORKS}
    plan |= {f"cifar10-plain-d{dim}": ("cifar10-paper", {**tiny, **UNATTACKED, "dim": dim}) for dim in DIMS}
    ours = {**BENDING, **TOY, "architecture": "mlp", "options": {"depth": 1, "width": 32}}
    plan |= {f"cifar10-ours-d{dim}": ("digits", {**ours, "dim": dim}) for dim in DIMS}
    return plan | {"svhn-ours": ("digits", ours)}
