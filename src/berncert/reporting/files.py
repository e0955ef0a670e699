"""Files for people to look at: pictures and pages, written whole; the same figure gives the same bytes."""

from __future__ import annotations

from collections.abc import Collection
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berncert.foundation.folders import write_whole
from berncert.reporting.picture_text import missing_glyphs_as_boxes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PICTURES: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""The ending of a picture's name -> what would say when and with what it was made, and is left out."""
PAGES = (".html", ".htm")
"""The endings of a page's name."""


def file_path(text: str, endings: Collection[str]) -> Path:
    """The path of a file whose name has one of these endings."""
    path, (*others, last) = Path(text).expanduser(), endings
    if text and path.is_dir():
        raise ValueError(f"expected the path of a file, got the folder {path}; name a file in it")
    if path.suffix.lower() not in endings:
        raise ValueError(f"expected a file that ends in {', '.join(others)} or {last}, got {text!r}")
    return path


def try_to_write(path: Path) -> None:
    """Raise an error if no file can be written there: better before the work than after."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        trial = path.with_name(f".{path.name}.trial")
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise OSError(f"could not write {path}: {error.strerror or error}; choose another file") from error


def write_file(path: Path, content: bytes) -> None:
    """Write the file whole or not at all; missing folders are made."""
    try_to_write(path)
    write_whole(path, content)


def write_picture(figure: Figure, path: Path) -> None:
    """Write the figure in the format that the path's ending names."""
    write_file(path, rendered(figure, path.suffix.lower()))


def rendered(figure: Figure, suffix: str) -> bytes:
    """The figure as the content of a .png, .svg or .pdf file; text stays text."""
    import matplotlib as mpl  # slow to import, and checks of paths do without

    picture = BytesIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "berncert", "pdf.fonttype": 42}
    with mpl.rc_context(settings), missing_glyphs_as_boxes():
        figure.savefig(picture, format=suffix.removeprefix("."), dpi=200, metadata=PICTURES[suffix])
    return picture.getvalue()
