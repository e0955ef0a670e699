"""The fingerprint of a model: a checksum of its numbers, which whoever checks a proof file computes from the file."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from berncert.certification.classifier import Classifier
from berncert.certification.proof_content import Part, head_content, network_content
from berncert.extractor import FrozenNetwork
from berncert.polynomial import PolynomialHead


def fingerprint(model: PolynomialHead | Classifier) -> str:
    """64 hexadecimal digits that `berncert-check` prints for proofs about this head, or this frozen classifier.

    They depend on the coefficients and, of a classifier, on the steps of its network, by the rule of
    docs/proof-format.md; not on a file, a norm or a method. Models that a proof file cannot hold have none, which is an
    error.

    Example:
        >>> import torch, berncert
        >>> head = berncert.SmoothedHead(torch.tensor([[0.0, 1.0], [0.5, 0.5]]).double())
        >>> berncert.fingerprint(head)[:16]
        '2ce943f800ed2487'
    """
    if isinstance(model, PolynomialHead):
        return fingerprint_of(head_content(model))
    if not isinstance(model, Classifier) or not isinstance(model.head, PolynomialHead):
        raise TypeError(f"expected a SmoothedHead, or a Classifier with one, got {type(model).__name__}")
    if not isinstance(model.extractor, FrozenNetwork):
        raise TypeError(
            f"expected a frozen classifier, got one with a {type(model.extractor).__name__}; freeze it first: "
            "model.freeze(input_shape)"
        )
    return fingerprint_of(head_content(model.head), network_content(model.extractor))


def fingerprint_of(head: Part, network: Part | None = None) -> str:
    """That of parts of a proof file: SHA-256 of lines of text, each followed by numbers as float64."""
    found, (fields, arrays) = hashlib.sha256(), head

    def add(words: list[Any], *numbers: Any) -> None:
        found.update((" ".join(map(str, words)) + "\n").encode())
        for values in numbers:
            found.update((np.asarray(values, dtype="<f8").reshape(-1) + 0.0).tobytes())  # -0.0 becomes 0.0

    if fields["head"] == "dense":
        numbers = arrays["coefficients"]
        add(["dense", numbers.size // int(np.prod(np.add(fields["degrees"], 1))), *fields["degrees"]], numbers)
    else:
        add(["sum", arrays["bias"].size, fields["features"]], arrays["weight"], arrays["bias"])
        for number, term in enumerate(fields["terms"]):
            words = ["term", len(term["features"]), *term["features"], *term["degrees"]]
            add(words, arrays[f"{number}.coefficients"])
    if network is not None:
        fields, arrays = network
        add(["inputs", fields["inputs"]])
        for number, step in enumerate(fields["steps"]):
            own = [arrays[f"{number}.{name}"] for name in ("weight", "bias", "by") if f"{number}.{name}" in arrays]
            ends = [name for name in ("low", "high") if step.get(name) is not None]
            sizes = [step[name] for name in ("outputs", "size", "inner") if name in step]
            negative = ["negative"] if step.get("negative") else []
            add([step["kind"], *sizes, *ends, *negative], *own, [float.fromhex(step[name]) for name in ends])
        if "units" in arrays:
            add(["units"], arrays["units"])
    return found.hexdigest()
