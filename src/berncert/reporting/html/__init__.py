"""One HTML file with all there is to see of some runs: it works offline, asks for nothing, and needs no server.

The same runs give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import metadata, resources
from os import PathLike
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from berncert.floor.folders import write_whole
from berncert.reporting.html import chart, formats
from berncert.reporting.html.content import Group, report
from berncert.reporting.html.pictures import Album
from berncert.runs.records import Run

__all__ = ["report_html", "write_report"]

ENDINGS = (".html", ".htm")


def write_report(
    runs: Sequence[tuple[str, Run]],
    path: str | PathLike[str],
    *,
    title: str | None = None,
    examples: int = 200,
    data_dir: str | PathLike[str] | None = None,
    own_images: bool = False,
) -> int:
    """Write the page about these labelled runs, whole or not at all; how many bytes it has."""
    place = Path(path)
    if place.is_dir():
        raise ValueError(f"expected the path of an HTML file, got the folder {place}; name a file in it")
    if place.suffix.lower() not in ENDINGS:
        raise ValueError(
            f"expected a file that ends in {' or '.join(ENDINGS)}, got {str(path)!r}; the report is a page"
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"expected a folder that can be made, got {place.parent}: {error.strerror or error}") from error
    content = report_html(runs, title=title, examples=examples, data_dir=data_dir, own_images=own_images).encode()
    write_whole(place, content)
    return len(content)


def report_html(
    runs: Sequence[tuple[str, Run]],
    *,
    title: str | None = None,
    examples: int = 200,
    data_dir: str | PathLike[str] | None = None,
    own_images: bool = False,
) -> str:
    """The page. Of each run at most so many examples are shown; their images are looked for, never downloaded.

    Runs over the same data are compared on the images that all of them have, or each on its own_images.
    """
    css, script = _text("report.css"), _text("report.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return _environment().get_template("template.html").render(
        report=report(runs, title=title, examples=examples, data_dir=data_dir, own_images=own_images),
        css=Markup(css),
        script=Markup(script),
        policy=policy,
        version=metadata.version("berncert"),
        album=Album(),
        box=chart.BOX,
        readings=_readings,
    )  # fmt: skip


def _environment() -> Environment:
    """Whatever comes from a run is escaped; a name that the content does not have is an error."""
    made = Environment(
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters |= {"count": formats.count, "norm_name": formats.norm_name, "bound": formats.bound}
    return made


def _readings(group: Group) -> list[dict[str, Any]]:
    """For the script: numbers only, no text of anyone."""
    readings = (curve.reading for curve in group.curves)
    return [{"of": its.of, "places": its.places, "counts": its.counts} for its in readings]


def _text(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _hash(text: str) -> str:
    """As a content security policy names a style or a script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
