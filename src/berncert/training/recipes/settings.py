"""The settings of a recipe. They are also the flags of `berncert train`, so nothing heavy is imported here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from berncert.foundation.arguments import is_real
from berncert.foundation.settings import Settings, setting

ARCHITECTURES = (
    "mlp", "cnn", "distnet", "patchnet", "lipconvnet", "densenet", "resnet", "resnet20", "resnet110",
    "wide_resnet", "wide_resnet10_2", "wide_resnet28_10", "vgg", "vgg11", "vgg19",
)  # fmt: skip
"""The names in `berncert.extractor.ARCHITECTURES`."""


@dataclass(frozen=True, kw_only=True)
class DataSettings(Settings):
    """The images."""

    dataset: str = setting("digits", "a data set's name, or the path of a folder of images or of an .npz file")
    holdout: bool = setting(False, "set one in ten training images aside; the log evaluates them, no test images")
    train_limit: int | None = setting(None, "use only so many training images, drawn by the seed", least=1)
    test_limit: int | None = setting(1000, "test (or held-out) images evaluated after each epoch, for the log", least=1)
    crop: int = setting(0, "augmentation: shift by up to so many pixels; edges are repeated", least=0)
    flip: bool = setting(False, "augmentation: mirror half of the images")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(Settings):
    """The network and its head."""

    architecture: str = setting("mlp", "the extractor", choices=ARCHITECTURES)
    construction: str = setting(
        "lipschitz", "1-Lipschitz layers, the paper's, or plain weights", choices=("lipschitz", "paper", "ordinary")
    )
    dim: int = setting(10, "the number of features", least=1)
    side: float | None = setting(None, "side of the cube of the features, in pixel units (lipschitz)", above=0)
    mean: tuple[float, ...] | None = setting(None, "mean of each channel, subtracted from the image")
    std: tuple[float, ...] | None = setting(None, "standard deviation of each channel, by which the image is divided")
    head: str = setting(
        "identity", "from features to logits", choices=("identity", "affine", "mlp", "polynomial", "groups")
    )
    head_width: int = setting(32, "hidden units of the mlp head", least=1)
    head_group: int = setting(2, "groups head: features that bend together, in each group", least=1)
    degree: int = setting(1, "degree of the Bernstein polynomial that replaces the head", least=1)
    options: Mapping[str, Any] = field(default_factory=dict, metadata={"help": "of the architecture, e.g. width=128"})

    def __post_init__(self) -> None:
        if not isinstance(self.options, Mapping):
            raise ValueError(f"expected options to be a table, e.g. {{ width = 128 }}, got {self.options!r}")
        super().__post_init__()
        if self.construction != "lipschitz" and self.side is not None:
            raise ValueError(
                f"expected no side in the {self.construction} construction, got {self.side}; features end in a sigmoid"
            )


def _two_or_infinity(norm: Any) -> float:
    if not is_real(norm) or norm not in (2, math.inf):
        raise ValueError(f"expected norm 2 or inf to train in, got {norm!r}; pass 2 or inf")
    return float(norm)


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Settings):
    """The objective and the optimisation."""

    objective: str = setting(
        "certified", "the loss that is minimised", choices=("plain", "adversarial", "certified", "gaussian")
    )
    route: str = setting(
        "global", "how an image's ball gets to the features (certified): by a global bound, or local intervals (l-inf)",
        choices=("global", "local"),
    )  # fmt: skip
    through: str = setting("smoothed", "the head that the loss uses", choices=("base", "smoothed"))
    norm: float = setting(
        2.0, "norm of the radius, 2 or inf; the objective, schedules and log are in it", check=_two_or_infinity
    )
    radius: float = setting(0.3, "radius in pixel units, of the attack or of the certificates to train for", least=0)
    radius_warmup: float = setting(0.2, "the share of the training in which the radius grows from 0", least=0)
    attack_steps: int = setting(0, "gradient steps of the attack; with certified, 0 uses linearised margins", least=0)
    noise: float = setting(0.25, "standard deviation of the noise (gaussian)", least=0)
    loss: str = setting(
        "cross_entropy", "of the worst case (certified); hinge leaves hopeless images alone",
        choices=("cross_entropy", "hinge"),
    )  # fmt: skip
    clean_weight: float = setting(0.1, "hinge: weight of the cross-entropy of the image itself, at first", above=0)
    clean_weight_end: float = setting(0.001, "hinge: the same at the end; it falls geometrically", above=0)
    temperature: float = setting(1.0, "the logits are divided by it; a small one pushes few images hard", above=0)
    boundary_weight: float = setting(0.0, "weight of the paper's fine-tuning term, minus F-hat", least=0)
    epochs: int = setting(10, "passes over the training images", least=1)
    batch_size: int = setting(256, "images in one step", least=1)
    optimizer: str = setting("adam", "the optimizer", choices=("adam", "sgd"))
    adam_epsilon: float = setting(1e-8, "adam: gradients far below it hardly move a weight", above=0)
    lr: float = setting(0.01, "the largest learning rate", above=0)
    head_lr: float = setting(1.0, "the head's learning rate, as a multiple of the extractor's", above=0)
    weight_decay: float = setting(0.0, "weight decay, towards 0", least=0)
    schedule: str = setting("onecycle", "schedule of the learning rate", choices=("onecycle", "cosine", "constant"))
    lr_warmup: float = setting(0.2, "onecycle: the share of the training in which the learning rate rises", least=0)
    ema: float = setting(0.0, "decay of the running mean of the weights, which is saved; 0 saves the last", least=0)
    p_start: float = setting(8.0, "distance layers: the p of the p-norm in place of l-inf at first", least=2)
    p_end: float = setting(1000.0, "distance layers: the greatest p, before l-inf itself", least=2)
    p_wait: float = setting(0.05, "distance layers: the share of the training before p rises", least=0)
    p_exact: float = setting(0.05, "distance layers: the share of the training, at its end, in l-inf", least=0)
    precision: str = setting(
        "float32", "of the extractor; bfloat16 where the processor or GPU has it", choices=("float32", "bfloat16")
    )
    start: str | None = setting(None, "fine-tuning: the folder of a training whose weights to start from")
    seed: int = setting(0, "seed of weights, order, augmentation and noise", least=0)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("radius_warmup", "lr_warmup", "ema", "p_wait", "p_exact"):
            if getattr(self, name) >= 1:
                raise ValueError(f"expected {name} below 1, got {getattr(self, name)}; it is a share")
        if self.boundary_weight and self.norm != 2:
            raise ValueError(f"expected boundary_weight 0 in norm {self.norm:g}, got one; the paper's term is in l2")
        if self.objective == "certified" and self.through != "smoothed":
            raise ValueError(
                f"expected through='smoothed' with the certified objective, got {self.through!r}; certificates are "
                "those of the smoothed head"
            )
        if self.route == "local" and (self.norm != math.inf or self.attack_steps or self.precision != "float32"):
            raise ValueError(
                f"expected norm = inf, no attack_steps and float32 with route='local', got norm = {self.norm:g}, "
                f"{self.attack_steps} and {self.precision}; intervals are those of balls in l-inf"
            )
        if self.loss == "hinge" and (self.objective != "certified" or self.attack_steps):
            raise ValueError(
                "expected the certified objective without attack_steps with loss='hinge', got "
                f"{self.objective!r} with {self.attack_steps}; the hinge is about a proven worst case"
            )
        if self.objective == "adversarial" and not self.attack_steps:
            raise ValueError("expected attack_steps >= 1 with the adversarial objective, got 0; the paper uses 20")
