"""The fingerprint of what a file speaks of: whoever has the model computes the same from its numbers."""

from hashlib import sha256
from struct import pack
from typing import Any

from berncert_check.proof_file import Block, exact_number

STEPS = {kind: (["outputs"], ["weight", "bias"]) for kind in ("linear", "distance")}
STEPS |= {"sort": (["size", "inner"], []), "clamp": ([], [])}
"""Kind of step -> its sizes and its arrays; other kinds have an array `by`."""


def fingerprint(head: Block, network: Block | None = None) -> str:
    """SHA-256 of lines of text, each with the numbers that it announces after it, as float64 (-0 as 0).

    How many numbers follow a line is known from it and those before, so no two heads and networks give the same bytes.
    All that a verdict rests on is in them, but for witnesses and bounds, which are checked. What a checker does not use
    is left out, so it cannot stand in for something else.
    """
    found, fields = sha256(), head.fields

    def add(words: list[Any], *arrays: Any) -> None:
        found.update((" ".join(map(str, words)) + "\n").encode("ascii"))
        for values in arrays:
            found.update(pack(f"<{len(values)}d", *(value + 0 for value in values)))

    if fields["head"] == "dense":
        add(["dense", fields["classes"], *fields["degrees"]], head.array("coefficients"))
    else:
        add(["sum", fields["classes"], fields["features"]], head.array("weight"), head.array("bias"))
        for number, term in enumerate(fields["terms"]):
            words = ["term", len(term["features"]), *term["features"], *term["degrees"]]
            add(words, head.array(f"{number}.coefficients"))
    if network is not None:
        add(["inputs", network.fields["inputs"]])
        for number, step in enumerate(network.fields["steps"]):
            sizes, names = STEPS.get(step["kind"], ([], ["by"]))
            ends = [name for name in ("low", "high") if step["kind"] == "clamp" and step[name] is not None]
            negative = ["negative"] if step["kind"] == "distance" and step.get("negative") else []
            numbers = [*(network.array(f"{number}.{name}") for name in names), [exact_number(step[e]) for e in ends]]
            add([step["kind"], *(step[name] for name in sizes), *ends, *negative], *numbers)
        if "units" in network.arrays:
            add(["units"], network.array("units"))
    return found.hexdigest()
