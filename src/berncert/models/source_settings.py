"""How a network of the user's own becomes a model: options of ONNX files and of networks that Python code builds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from berncert.foundation.settings import Settings, setting


def _shape(value: Any) -> tuple[int, ...]:
    sizes = value if isinstance(value, (tuple, list)) else str(value).split(",")
    try:
        shape = tuple(int(n) for n in sizes)
    except ValueError:
        shape = ()
    if not shape or min(shape) < 1:
        raise ValueError(f"expected input_shape like 3,32,32, the shape of one image, got {value!r}")
    return shape


@dataclass(frozen=True, kw_only=True)
class SourceSettings(Settings):
    """Options of networks of one's own; models of berncert's own files have none."""

    head_after: str | None = setting(
        None, "ONNX: the node or tensor that gives the features; what follows is the head, which degree smooths"
    )
    end_at: str | None = setting(None, "ONNX: the node or tensor that gives the logits (the file's output)")
    cube: tuple[float, ...] | None = setting(
        None, "LOW,HIGH: the features that become 0 and 1 (what those of 1000 training images span)"
    )
    mean: tuple[float, ...] | None = setting(None, "ONNX: subtracted from images first, one number or one per channel")
    std: tuple[float, ...] | None = setting(None, "ONNX: images are then divided by this")
    input_shape: tuple[int, ...] | None = setting(
        None, "the shape of one image, e.g. 3,32,32 (that of the data)", check=_shape
    )

    def given(self) -> dict[str, Any]:
        """Those that are set."""
        return {name: value for name, value in vars(self).items() if value is not None}
