"""One HTML file with the content of a report: it works offline, loads nothing, and needs no server.

The same runs give the same bytes.
"""

from __future__ import annotations

import base64
import hashlib
from importlib import metadata, resources
from pathlib import Path

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from berncert.reporting.files import write_file
from berncert.reporting.html import chart, formats
from berncert.reporting.html.content import Report
from berncert.reporting.html.pictures import Album
from berncert.reporting.html.results import options


def write_report(report: Report, path: Path) -> int:
    """Write the page, whole or not at all; returns its size in bytes."""
    content = report_html(report).encode()
    write_file(path, content)
    return len(content)


def report_html(report: Report) -> str:
    """The text of the page."""
    css, script = _text("report.css"), _text("report.js")
    policy = (
        f"default-src 'none'; style-src '{_hash(css)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    environment = Environment(  # all text of a run is escaped; a name that the content does not have is an error
        loader=FunctionLoader(_text), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"vars": vars, "norm_name": formats.norm_name, "bound": formats.bound}
    return environment.get_template("template.html").render(
        report=report,
        css=Markup(css),
        script=Markup(script),
        policy=policy,
        version=metadata.version("berncert"),
        album=Album(),
        box=chart.BOX,
        options=options,
    )  # fmt: skip


def _text(name: str) -> str:
    return (resources.files(__package__) / name).read_text("utf-8")


def _hash(text: str) -> str:
    """The name of a style or a script in a content security policy."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
