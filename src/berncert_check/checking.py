"""From a proof file to a verdict for each row."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from pathlib import Path

from berncert_check import proof_file
from berncert_check.bernstein import Net, Sum, net_of
from berncert_check.columns import affine_map, matrix_bound, possible_features
from berncert_check.fingerprint import fingerprint
from berncert_check.network import Network, Vector, network_of
from berncert_check.norms import norm, parse_norm
from berncert_check.proof_file import Block, UnsupportedError, UnusableError, exact_number, stop, whole_number
from berncert_check.reasons import Box, Claim, RejectedError, check_tree, refuse

ACCEPTED, REJECTED, UNSUPPORTED = "ACCEPTED", "REJECTED", "UNSUPPORTED"
MOST_COEFFICIENTS, LARGEST_EXPONENT, FINEST = 1 << 22, 1100, 1 << 128
"""Corners of the first box and the witness are multiples of 1 / FINEST: their bits make all coefficients longer."""
ROUNDOFF, LARGEST = Fraction(1, 2**53), Fraction(2**1024 - 2**971)
"""Of float64; columns are float64 numbers, so that the largest one is no limit for them."""


@dataclass(frozen=True)
class Subject:
    """What rows are about: the polynomials of all classes on the unit cube, in some unit, and what is before them."""

    head: Block
    """What the polynomials were read from."""
    polynomials: list[Sum]
    dim: int = 0
    """The number of features."""
    features_norm: Fraction | None = None
    norm: Fraction | None = None
    """That of the radii."""
    floor: Fraction = Fraction(0)
    """A margin above this is above 0, as computed in float64."""
    network: Network | None = None
    table: tuple[list[Vector], Vector] | None = None
    """A and b, if the network is a table's: its features are A x + b, clamped."""
    fingerprint: str = ""
    """A checksum of the polynomials and the steps, by which a reader knows whose they are."""
    missing: str = ""
    """What there is no rule for."""

    @property
    def about(self) -> str:
        """For the reader of a verdict."""
        what = "the head on its features, in float64 and" if self.network is None else "the network and the head,"
        return self.missing or f"{what} in real arithmetic, in l{'inf' if self.norm is None else self.norm}"


@dataclass(frozen=True)
class Verdict:
    """What was found of one row."""

    index: int
    verdict: str
    why: str
    predicted: int
    radius: Fraction | None
    """What the file claims; None for any distance."""
    subject: Subject
    conditions: tuple[str, ...] = ()
    """What an accepted row is restricted to, for the reader."""
    nodes: int = 0


def check_file(path: Path) -> Iterator[Verdict]:
    """A verdict for each row, in the order of the file; raises UnusableError where the file itself cannot be used."""
    subject, first, last = None, True, -1
    for block in proof_file.read_blocks(path):
        if subject is None or (block.kind == "NET" and first):
            first = subject is None
            subject = _subject(block, subject)
        elif block.kind == "ROW":
            first, before, last = False, last, block.whole("index", 0, 1 << 62)
            stop(last <= before, UnusableError(f"expected rows with ascending numbers, got {last} after {before}"))
            yield check_row(subject, block)
        else:
            raise UnusableError(f"expected rows after the head and the network, got a block of kind {block.kind!r}")
    stop(subject is None, UnusableError("expected a proof file with a head, got an end only"))


def _subject(block: Block, head: Subject | None) -> Subject:
    """The head of a first block; of a second one, the network before this head."""
    known = head is not None or (block.kind, block.fields.get("format")) == ("HEAD", proof_file.FORMAT)
    stop(not known, UnusableError("expected a proof file, which begins with a head, got something else"))
    try:
        if head is None:
            block.whole("version", proof_file.VERSION, proof_file.VERSION)
            return _head(block)
        if head.missing:
            return head
        network, both = network_of(block, head.features_norm), fingerprint(head.head, block)
        stop(network.steps[-1].outputs != head.dim, ValueError("another number of features than the head's"))
        table = affine_map(network) if network.units else None
        return replace(head, network=network, table=table, norm=network.norm, fingerprint=both)
    except UnsupportedError as error:
        return Subject(block, [], missing=str(error))
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise UnusableError(f"a {block.kind} lacks something, or has it wrong: {error}") from error


def _head(block: Block) -> Subject:
    """The head, and a floor that covers float64: for the laws of evaluation, see docs/proof.md."""
    fields, kind, classes = block.fields, block.fields["head"], block.whole("classes", 2, 1 << 16)
    exponent = block.whole("exponent", -LARGEST_EXPONENT, LARGEST_EXPONENT)
    p, floor, scale = parse_norm(fields["norm"]), exact_number(fields["rounding"]), Fraction(2) ** exponent
    dense = kind == "dense"
    stop(not dense and kind != "sum", UnsupportedError(f"a head of kind {kind!r}"))
    d = len(fields["degrees"]) if dense else block.whole("features", 1, MOST_COEFFICIENTS // classes)
    count = 0 if dense else classes * d
    weight = [] if dense else block.exact("weight", count)
    bias = [Fraction(0)] * classes if dense else block.exact("bias", classes)
    terms = [{"features": [*range(d)], "degrees": fields["degrees"]}] if dense else fields["terms"]
    size = [abs(bias[k]) + sum(map(abs, weight[k * d : (k + 1) * d])) for k in range(classes)]
    errors, underflows = [0 if dense else (d + len(terms) + 2) * s for s in size], 0 if dense else d + 2
    nets: list[list[tuple[Sequence[int], Net]]] = [[] for _ in range(classes)]
    for number, term in enumerate(terms):
        axes = [whole_number(axis, "a feature of a term", 0, d - 1) for axis in term["features"]]
        sizes = [whole_number(n, "a degree", 1, MOST_COEFFICIENTS) + 1 for n in term["degrees"]]
        stop(not 0 < len(set(axes)) == len(axes) == len(sizes) <= 250, ValueError("a term with other features"))
        m, n, count = len(axes), prod(sizes), count + classes * prod(sizes)
        stop(count > MOST_COEFFICIENTS, UnsupportedError(f"a head with more than {MOST_COEFFICIENTS} coefficients"))
        parts = block.array("coefficients" if dense else f"{number}.coefficients", classes * n)
        underflows += m * (max(sizes) + 1)
        for k, own in enumerate(nets):
            own.append((axes, net_of(parts[k * n : (k + 1) * n], sizes, exponent)))
            largest = Fraction(max(map(abs, parts[k * n : (k + 1) * n])))
            size[k] += largest
            errors[k] += (m * (4 * max(sizes) - 1) + (2 if dense else len(terms) + 4)) * largest
    stop(not dense and max(size) >= 2**1023, UnsupportedError("a head whose sums may be too large for float64"))
    tiny = 8 * underflows / Fraction(2) ** (1074 + min(exponent, 0))
    if floor is None or floor < Fraction(202, 100) * ROUNDOFF * max(errors) / scale + tiny:
        raise ValueError("expected a rounding that covers float64")
    slopes = [[w / scale / 2 for w in weight[k * d : (k + 1) * d]] or [Fraction(0)] * d for k in range(classes)]
    each = zip(bias, slopes, nets, strict=True)  # on the unit cube x = (1 + y) / 2
    polynomials = [Sum(b / scale + sum(slope, Fraction(0)), slope, own) for b, slope, own in each]
    return Subject(block, polynomials, d, p, p, floor, fingerprint=fingerprint(block))


def check_row(subject: Subject, block: Block) -> Verdict:
    """Whether a row follows from its tree: the radius, and the upper end if there is one; of inputs, their radius."""
    fields, inputs = block.fields, "input_radius" in block.fields
    index, predicted = block.whole("index", 0, 1 << 62), block.whole("predicted", -1, 1 << 62)
    radius = exact_number(fields.get("radius"))
    claimed = exact_number(fields["input_radius"]) if inputs else radius
    found = Verdict(index, ACCEPTED, "", predicted, claimed, subject)
    if subject.missing:
        return replace(found, verdict=UNSUPPORTED, why=subject.missing)
    stop(inputs == (subject.network is None), UnusableError("expected a radius of the inputs as there is a network"))
    d = subject.dim
    x0, weight, limits = (block.exact(name, n) for name, n in (("x0", d), ("weight", d), ("limits", 2 * d)))
    claim = Claim(x0, weight, limits[:d], limits[d:], radius, subject.features_norm, subject.floor)
    try:
        check_claim(subject, claim, predicted, claimed)
        if {"witness", "upper", "rival"} & (block.arrays.keys() | fields.keys()):
            check_upper(subject, block, claim, predicted)
        if claimed == 0:
            return replace(found, why="a radius of 0 claims nothing")
        stop("tags" not in block.arrays, UnsupportedError(str(fields.get("why", "no proof was written"))))
        if subject.network is not None:
            check_inputs(subject, subject.network, block, claim, claimed)
        found = replace(found, conditions=tuple(_conditions(subject, block, claim)))
        return replace(found, nodes=check_radius(subject, block, claim, predicted))
    except (RejectedError, UnsupportedError) as error:
        return replace(found, verdict=REJECTED if isinstance(error, RejectedError) else UNSUPPORTED, why=str(error))


def check_claim(subject: Subject, claim: Claim, predicted: int, claimed: Fraction | None) -> None:
    """Check that the claim is one: a class, no negative distance, weights above 0, limits in order and in the cube."""
    refuse(predicted not in range(len(subject.polynomials)), f"there is no class {predicted}")
    refuse(min(claimed or 0, claim.radius or 0) < 0, "a radius is below 0")
    refuse(min(claim.weight) <= 0, "weights must be above 0")
    refuse(any(not 0 <= a <= b <= 1 for a, b in zip(claim.low, claim.high, strict=True)), "limits beyond the cube")


def _conditions(subject: Subject, block: Block, claim: Claim) -> Iterator[str]:
    """What a reader must know of the claim: which points or rows count, how distances are weighted.

    Of a table its columns count: the limits and weights of its features follow from them and from its units.
    """
    names, x, low, high, all_low, all_high = "features", claim.x0, claim.low, claim.high, Fraction(0), Fraction(1)
    if subject.table is not None and subject.network is not None:
        count, names, all_high = subject.network.steps[0].inputs, "columns", LARGEST
        x, ends, all_low = block.exact("input", count), block.exact("columns", 2 * count), -LARGEST
        low, high = ends[:count], ends[count:]
    elif any(w != 1 for w in claim.weight):
        yield "weighted (distances are in the weights of the row)"
    if any(a > all_low or b < all_high for a, b in zip(low, high, strict=True)):
        yield f"within limits of {names}"
    if any(a == b for a, b in zip(low, high, strict=True)):
        yield f"with fixed {names}"
    if any(not a <= v <= b for a, v, b in zip(low, x, high, strict=True)):
        yield "from an input outside its own limits"


def check_inputs(subject: Subject, network: Network, block: Block, claim: Claim, claimed: Fraction | None) -> None:
    """Check that the features of every input nearer than the claimed radius are points that the tree speaks of.

    They are nearer than bound * claimed to the features of the input itself, which are computed exactly here and are at
    most `off` from the point x0 of the tree: so nearer than bound * claimed + off to x0; with a bound of 0 they are
    the same for all inputs, and off must be below the radius, as the tree says nothing of points at that distance. They
    must lie in the cube: by a clamp at the end, or because the claim around x0 does. Of a table they must also be
    within the limits of the tree whenever the columns are within theirs.
    """
    count, radius = network.steps[0].inputs, claim.radius
    bound, possible = network.bound, [(Fraction(0), Fraction(1))] * len(claim.x0)
    refuse(subject.table is None and any(w != 1 for w in claim.weight), "of images, weights must be 1")
    if subject.table is not None:
        ends, rows = block.exact("columns", 2 * count), zip(claim.weight, subject.table[0], strict=True)
        low, high = ends[:count], ends[count:]
        refuse(any(a > b for a, b in zip(low, high, strict=True)), "the limits of columns must be in order")
        b = [[w * a * u for a, u in zip(row, network.units, strict=True)] for w, row in rows]
        bound = matrix_bound(b, network.norm, claim.norm)  # from columns in units to features with weights
        possible = possible_features(*subject.table, low, high)
    for j, (least, greatest) in enumerate(possible):
        refuse(claim.low[j] > least or claim.high[j] < greatest, f"the limits leave out features, along axis {j}")
    features = network.value(block.exact("input", count))
    moves = [w * (a - b) for w, a, b in zip(claim.weight, features, claim.x0, strict=True)]
    off = norm(moves, subject.features_norm)[1]
    moved = Fraction(0) if bound == 0 else None if claimed is None else bound * claimed
    proven = radius is None or (moved is not None and moved + off <= radius and off < radius)
    refuse(not proven, "features of inputs within the radius may be further away than the tree proves")
    if not network.stays_in_cube() and (radius is None or any(not radius <= x <= 1 - radius for x in claim.x0)):
        raise RejectedError("features of inputs within the radius may lie outside the cube")


def check_radius(subject: Subject, block: Block, claim: Claim, predicted: int) -> int:
    """Check that the first box contains every point of the claim, and the tree of every rival; the number of nodes.

    The limits are within the cube, and along each axis no point is further than radius / weight from the sample.
    """
    d, radius, polynomials = len(claim.x0), claim.radius, subject.polynomials
    box, tags, hints = block.exact("box", 2 * d), block.array("tags"), iter(block.array("hints"))
    refuse(radius == 0, "the radius must be above 0")
    long = any(corner.denominator > FINEST for corner in box)
    refuse(long or type(tags) is not bytes, "corners of the first box must be multiples of 2^-128, and tags bytes")
    centre, half, left, nodes = Vector(), Vector(), map(int, tags), 0
    axes = zip(box[:d], box[d:], claim.low, claim.high, claim.x0, claim.weight, strict=True)
    for low, high, least, greatest, x, w in axes:
        refuse(not 0 <= low < high <= 1, "the first box must be within the cube, and its ends in order")
        if radius is not None:
            least, greatest = max(least, x - radius / w), min(greatest, x + radius / w)
        refuse(low > least or high < greatest, f"the first box leaves out points that count, along axis {len(half)}")
        centre.append(w * ((low + high) / 2 - x))
        half.append(w * (high - low) / 2)
    for rival in range(len(polynomials)):
        if rival != predicted:
            margin = polynomials[predicted].minus(polynomials[rival])
            nodes += check_tree(Box(centre, half, margin.on(box[:d], box[d:])), claim, left, hints, f"rival {rival}")
    refuse(next(left, None) is not None or next(hints, None) is not None, "something is left over after all trees")
    return nodes


def check_upper(subject: Subject, block: Block, claim: Claim, predicted: int) -> None:
    """Check that the witness counts, is at most `upper` away, and that a rival is above the predicted class there."""
    upper, witness = exact_number(block.fields.get("upper")), block.exact("witness", len(claim.x0))
    rival = block.whole("rival", 0, len(subject.polynomials) - 1)
    inside = (a <= x <= b and x.denominator <= FINEST for x, a, b in zip(witness, claim.low, claim.high, strict=True))
    refuse(not all(inside), "the witness is not within the limits, or not a multiple of 2^-128")
    away = [w * (x - y) for w, x, y in zip(claim.weight, witness, claim.x0, strict=True)]
    refuse(upper is None or norm(away, claim.norm)[1] > upper, "the witness is further away than the upper end")
    values = [subject.polynomials[k].on(witness, witness).least() for k in (predicted, rival)]
    refuse(values[1] <= values[0], "the witness has the predicted class")
