"""From a proof file to a verdict for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from pathlib import Path

from berncert_check.bernstein import Net, net_of
from berncert_check.network import Network, UnsupportedError, network_of
from berncert_check.norms import norm, parse_norm
from berncert_check.proof_file import FORMAT, VERSION, Block, UnusableError, exact_number, read_blocks
from berncert_check.reasons import Box, Claim, Hints, RejectedError, check_tree

ACCEPTED, REJECTED, UNSUPPORTED = "ACCEPTED", "REJECTED", "UNSUPPORTED"
ROUNDING_LAW = Fraction(202, 100) / 2**53
"""Times d (4 n + 3) + 2: how far a margin computed in float64 may be from the exact one, for coefficients up to 1."""


@dataclass(frozen=True)
class Verdict:
    """What was found of one row."""

    index: int
    verdict: str
    why: str
    predicted: int
    radius: Fraction | None
    """What the file claims; None for any distance."""
    nodes: int = 0


@dataclass(frozen=True)
class Head:
    """The polynomials of all classes on the unit cube, divided by a power of two so that no coefficient is above 1."""

    nets: list[Net]
    norm: Fraction | None
    floor: Fraction

    @property
    def dim(self) -> int:
        """The number of features."""
        return len(self.nets[0].sizes)


def check_file(path: Path) -> Iterator[Verdict]:
    """A verdict for each row, in the order of the file; raises UnusableError where the file itself cannot be used."""
    head, network, first = None, None, True
    for block in read_blocks(path):
        if head is None:
            head = _head(block)
        elif block.kind == "NET" and first:
            network, first = _network(block, head), False
        elif block.kind == "ROW":
            first = False
            yield check_row(head, block, network)
        else:
            raise UnusableError(f"expected rows after the head and the network, got a block of kind {block.kind!r}")


def _network(block: Block, head: Head) -> Network | str:
    """The network, or what is not supported of it."""
    try:
        network = network_of(block, head.norm)
    except UnsupportedError as error:
        return str(error)
    if network.steps[-1].outputs != head.dim:
        raise UnusableError(f"expected a network with {head.dim} features, got {network.steps[-1].outputs}")
    return network


def _head(block: Block) -> Head:
    fields = block.fields
    if block.kind != "HEAD" or fields.get("format") != FORMAT or fields.get("version") != VERSION:
        raise UnusableError(
            f"expected a {FORMAT} of version {VERSION}, got {fields.get('format')} {fields.get('version')}"
        )
    try:
        sizes, classes, exponent = (
            [int(n) + 1 for n in fields["degrees"]],
            int(fields["classes"]),
            int(fields["exponent"]),
        )
        p = parse_norm(fields["norm"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableError(f"the head lacks something, or has it wrong: {error}") from error
    count = prod(sizes)
    if not sizes or min(sizes) < 2 or classes < 2 or len(sizes) > 250:
        raise UnusableError("expected one axis or more, of degree 1 or more, and two classes or more")
    numbers = block.array("coefficients", classes * count)
    nets = [net_of(numbers[k * count : (k + 1) * count], sizes, exponent) for k in range(classes)]
    floor = exact_number(fields.get("rounding"))
    least = (len(sizes) * (4 * (max(sizes) - 1) + 3) + 2) * ROUNDING_LAW
    if floor is None or floor < least or any(max(map(abs, net.numbers)) > 1 << net.exponent for net in nets):
        raise UnusableError("expected coefficients up to 1 after scaling, and a rounding that covers float64")
    return Head(nets, p, floor)


def check_row(head: Head, block: Block, network: Network | str | None = None) -> Verdict:
    """Whether a row follows from its tree: the radius, and the upper end if there is one; of an image, its radius.

    network: the way from images to features, or what is not supported of it.
    """
    fields = block.fields
    try:
        index, predicted = int(fields["index"]), int(fields["predicted"])
        radius = exact_number(fields["radius"])
        claimed = radius if network is None else exact_number(fields["image_radius"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnusableError(f"a row lacks something, or has it wrong: {error}") from error
    if isinstance(network, str):
        return Verdict(index, UNSUPPORTED, network, predicted, claimed)
    if claimed == 0:
        return Verdict(index, ACCEPTED, "a radius of 0 claims nothing", predicted, claimed)
    if "tags" not in block.arrays:
        return Verdict(index, UNSUPPORTED, str(fields.get("why", "no proof was written")), predicted, claimed)
    try:
        if not 0 <= predicted < len(head.nets):
            raise RejectedError(f"there is no class {predicted}")
        nodes = check_radius(head, block, predicted, radius)
        if "witness" in block.arrays:
            check_upper(head, block, predicted)
        if network is not None:
            check_image(network, block, radius, claimed)
    except RejectedError as error:
        return Verdict(index, REJECTED, str(error), predicted, claimed)
    return Verdict(index, ACCEPTED, "", predicted, claimed, nodes)


def check_image(network: Network, block: Block, radius: Fraction | None, claimed: Fraction | None) -> None:
    """Check that the features of every image nearer than the claimed radius are points that the tree speaks of.

    They are nearer than bound * claimed to the features of the image itself, which are computed exactly here and are at
    most `off` from the point x0 of the tree: so nearer than bound * claimed + off to x0. They must lie in the cube: by
    a clamp at the end, or because the ball around x0 does.
    """
    d = network.steps[-1].outputs
    x0, weight, limits = (block.exact(name, n) for name, n in (("x0", d), ("weight", d), ("limits", 2 * d)))
    if any(w != 1 for w in weight) or any(limits[:d]) or any(limit != 1 for limit in limits[d:]):
        raise RejectedError("of images, weights must be 1 and the limits those of the cube")
    features = network.value(block.array("image", network.steps[0].inputs))
    off = norm([a - b for a, b in zip(features, x0, strict=True)], network.norm)[1]
    if radius is not None and (claimed is None or network.bound * claimed + off > radius):
        raise RejectedError("features of images within the radius may be further away than the tree proves")
    if not network.stays_in_cube() and (radius is None or any(not radius <= x <= 1 - radius for x in x0)):
        raise RejectedError("features of images within the radius may lie outside the cube")


def check_radius(head: Head, block: Block, predicted: int, radius: Fraction | None) -> int:
    """Check that the first box contains every point that counts, and the tree of every rival; the number of nodes.

    What counts is within the limits, which are within the cube, and nearer than the radius: along each axis no further
    than radius / weight from the sample.
    """
    d = head.dim
    x0, weight, limits, box = (
        block.exact(name, n) for name, n in (("x0", d), ("weight", d), ("limits", 2 * d), ("box", 2 * d))
    )
    if min(weight) <= 0 or (radius is not None and radius <= 0):
        raise RejectedError("weights and the radius must be above 0")
    for j in range(d):
        low, high, least, greatest = box[j], box[d + j], limits[j], limits[d + j]
        if not (0 <= least <= greatest <= 1 and 0 <= low < high <= 1):
            raise RejectedError(f"the box and the limits must be within [0, 1], those of axis {j} are not")
        reach = None if radius is None else radius / weight[j]
        if low > (least if reach is None else max(least, x0[j] - reach)):
            raise RejectedError(f"the first box leaves out points that count, below it along axis {j}")
        if high < (greatest if reach is None else min(greatest, x0[j] + reach)):
            raise RejectedError(f"the first box leaves out points that count, above it along axis {j}")
    claim = Claim(x0, weight, radius, head.norm, head.floor)
    centre = [w * ((low + high) / 2 - x) for w, low, high, x in zip(weight, box, box[d:], x0, strict=False)]
    half = [w * (high - low) / 2 for w, low, high in zip(weight, box, box[d:], strict=False)]
    on_box = [_restricted(net, box[:d], box[d:]) for net in head.nets]
    tags, hints, nodes = iter([int(tag) for tag in block.array("tags")]), Hints(block.array("hints")), 0
    for rival, net in enumerate(on_box):
        if rival != predicted:
            start = Box(centre, half, on_box[predicted].minus(net))
            nodes += check_tree(start, claim, tags, hints, f"rival {rival}")
    if next(tags, None) is not None or hints.used != len(hints.numbers):
        raise RejectedError("something is left over after the trees of all rivals")
    return nodes


def _restricted(net: Net, low: Sequence[Fraction], high: Sequence[Fraction]) -> Net:
    for axis, (a, b) in enumerate(zip(low, high, strict=True)):
        net = net.within(axis, a, b)
    return net


def check_upper(head: Head, block: Block, predicted: int) -> None:
    """Check that the witness counts, is at most `upper` away, and that a rival is above the predicted class there."""
    d, upper = head.dim, exact_number(block.fields.get("upper"))
    witness, x0, weight, limits = (
        block.exact(name, n) for name, n in (("witness", d), ("x0", d), ("weight", d), ("limits", 2 * d))
    )
    if any(not low <= x <= high for x, low, high in zip(witness, limits, limits[d:], strict=False)):
        raise RejectedError("the witness is not within the limits")
    away = [w * (x - y) for w, x, y in zip(weight, witness, x0, strict=True)]
    if upper is None or norm(away, head.norm)[0] > upper:
        raise RejectedError("the witness is further away than the upper end")
    rival = block.fields.get("rival")
    if not isinstance(rival, int) or not 0 <= rival < len(head.nets) or rival == predicted:
        raise RejectedError(f"the witness names no rival, but {rival!r}")
    if head.nets[rival].value(witness) <= head.nets[predicted].value(witness):
        raise RejectedError("the witness has the predicted class")
