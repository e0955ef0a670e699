"""Writing proofs down: a file that `berncert_check` reads, and anyone who follows docs/proof-format.md."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from berncert.certification.kernels.problem import Problem, pose
from berncert.certification.kernels.recording import Claim, new_desk, record_row
from berncert.certification.network_proof import NetworkProof, norm_text
from berncert.certification.results import Certificates
from berncert.foundation.arrays import Floats
from berncert.foundation.progress import Bar
from berncert.polynomial import SmoothedHead

FORMAT, VERSION = "berncert-proof", 1
LOWERED = 1 - 2.0**-13
"""A radius with a proof is lowered by this factor: room for short hints, and far fewer boxes."""
FINENESS = 8
"""The first box has corners on a grid of 2^-8 of the radius or finer, so that a checker has short numbers."""
THIN = 2.0**-40
"""How far the first box reaches beyond a fixed feature."""
MOST_TAGS = 1_000_000


class ProofFile:
    """A proof file being written: blocks, each with a checksum over itself and all before it."""

    def __init__(self, path: Path) -> None:
        self.file, self.digest, self.rows = path.open("wb"), bytes(32), 0

    def write(self, kind: str, fields: dict[str, Any], **arrays: np.ndarray) -> None:
        """Append a block."""
        listed = [[name, values.dtype.str[1:], values.size] for name, values in arrays.items()]
        text = json.dumps(fields | {"arrays": listed}).encode()
        data = b"".join(np.ascontiguousarray(v, dtype=v.dtype.newbyteorder("<")).tobytes() for v in arrays.values())
        content = struct.pack("<I", len(text)) + text + data
        head = kind.encode().ljust(4) + struct.pack("<Q", len(content))
        self.digest = hashlib.sha256(self.digest + head + content).digest()
        self.file.write(head + content + self.digest)
        self.rows += kind == "ROW"


@dataclass(frozen=True)
class ImageRows:
    """What rows about images say of them."""

    pixels: Floats
    """(N, numbers of an image), as they were given."""
    radius: Floats
    """Of each image; lowered to what its proof says."""
    error: Floats
    """How far computed features may be from the exact ones."""
    bound: float

    def lowered(self, row: int, feature_radius: float) -> float:
        """The radius of this image that follows from this one in feature space."""
        room = max(feature_radius - 2 * float(self.error[row]), 0.0)
        follows = room / self.bound * (1 - 2.0**-40) if self.bound > 0 else math.inf
        self.radius[row] = min(float(self.radius[row]), follows)
        return float(self.radius[row])


@contextmanager
def proof_file(
    path: str | PathLike[str], smoothed: SmoothedHead, norm: float, network: NetworkProof | None = None
) -> Iterator[ProofFile]:
    """A new proof file about this head; it gets its last block, without which it is refused, only if all went well.

    network: the way from images to features, if rows are about images.
    """
    problem = _posed(smoothed, norm)
    file = ProofFile(Path(path))
    try:
        raw = smoothed.coefficients.detach().cpu().double().numpy()
        about = {"format": FORMAT, "version": VERSION, "norm": norm_text(norm), "degrees": list(smoothed.degree)}
        exponent = math.frexp(float(np.abs(raw).max()))[1]
        about |= {"classes": smoothed.classes, "exponent": exponent, "rounding": _floor(problem).hex()}
        file.write("HEAD", about, coefficients=raw.reshape(-1))
        if network is not None:
            file.write("NET", network.fields, **network.arrays)
        yield file
        file.write("END", {"rows": file.rows})
    finally:
        file.file.close()


def with_proofs(
    file: ProofFile, smoothed: SmoothedHead, features: Floats, certificates: Certificates, norm: float, *,
    weights: Floats | None = None, lower: Floats | None = None, upper: Floats | None = None,
    images: ImageRows | None = None, progress: bool | None = None,
) -> Certificates:  # fmt: skip
    """Write a proof for each row, and return the certificates with the radii that are proven there, a little lower.

    A row for which no tree was found is written without one, keeps its radius, and is called unsupported by a checker.
    """
    problem = _posed(smoothed, norm)
    desk = new_desk(len(problem.coefficients), problem.sizes)
    ones = np.ones_like(features)
    weight = ones if weights is None else weights
    limits = np.concatenate([0 * ones if lower is None else lower, ones if upper is None else upper], axis=1)
    radii = certificates.radius.copy()
    tags, hints = np.empty(4096, np.uint8), np.empty(65536, np.float32)
    with Bar("writing proofs", total=len(features), progress=progress) as bar:
        for row, x0 in enumerate(features):
            radius = float(certificates.radius[row] * LOWERED)
            fields: dict[str, Any] = {"index": row, "predicted": int(certificates.predicted[row])}
            arrays = {"x0": x0, "weight": weight[row], "limits": limits[row]}
            box = _first_box(x0, weight[row], limits[row], radius) if radius > 0 else None
            used = hinted = -1
            if box is not None:
                claim = Claim(
                    np.ascontiguousarray(x0), np.ascontiguousarray(weight[row]), *box, fields["predicted"], radius,
                    float(norm), _floor(problem),
                )  # fmt: skip
                used, hinted = record_row(problem.coefficients, problem.sizes, claim, desk, tags, hints, MOST_TAGS)
                while used == -2:
                    tags, hints = np.empty(2 * tags.size, np.uint8), np.empty(2 * hints.size, np.float32)
                    used, hinted = record_row(problem.coefficients, problem.sizes, claim, desk, tags, hints, MOST_TAGS)
            if used >= 0 and box is not None:
                radii[row] = radius
                arrays |= {"box": np.concatenate(box), "tags": tags[:used], "hints": hints[:hinted]}
                if np.isfinite(certificates.upper[row]):
                    fields |= {"upper": float(certificates.upper[row]).hex(), "rival": int(certificates.rival[row])}
                    arrays["witness"] = certificates.witness[row]
            else:
                fields["why"] = "a radius of 0 claims nothing" if not radius > 0 else "no tree of boxes was found"
            if images is not None:
                fields["image_radius"] = images.lowered(row, radius if used >= 0 else math.inf).hex()
                arrays["image"] = images.pixels[row]
            file.write("ROW", fields | {"radius": float(radii[row]).hex()}, **arrays)
            bar.update(row + 1)
    return replace(certificates, radius=radii)


def _posed(smoothed: SmoothedHead, norm: float) -> Problem:
    raw = smoothed.coefficients.detach().cpu().double().numpy()
    return pose(raw, norm=norm, tolerance=1e-3, max_boxes=1)


def _floor(problem: Problem) -> float:
    """Above the rounding of a margin, which is itself a rounded number."""
    return problem.rounding * (1 + 2.0**-20)


def _first_box(x0: Floats, weight: Floats, limits: Floats, radius: float) -> tuple[Floats, Floats] | None:
    """A box around all points that count, with short corners; None where an axis has no width."""
    d = x0.size
    low, high = limits[:d].copy(), limits[d:].copy()
    if radius < math.inf:
        reach = radius / weight
        grid = 2.0 ** np.floor(np.log2(np.minimum(reach, 1.0)) - FINENESS)
        low = np.maximum(low, np.floor((x0 - reach) / grid - 0.01) * grid)
        high = np.minimum(high, np.ceil((x0 + reach) / grid + 0.01) * grid)
    fixed = low == high  # a thin box around it
    low, high = np.where(fixed, np.maximum(low - THIN, 0), low), np.where(fixed, np.minimum(high + THIN, 1), high)
    return (low, high) if (low < high).all() else None
