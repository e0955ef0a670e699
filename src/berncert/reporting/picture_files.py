"""Pictures as files: the same figure gives the same bytes, and text stays text."""

from __future__ import annotations

import warnings
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from berncert.floor.folders import write_whole

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STAMPS: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
"""Kind of file -> what would be told in it of when and by what it was made, and is not."""


def picture_path(word: str) -> Path:
    """The path of a picture of a kind that can be written."""
    path, kinds = Path(word).expanduser(), [*STAMPS]
    if path.suffix.lower() not in kinds:
        raise ValueError(f"expected a file that ends in {', '.join(kinds[:-1])} or {kinds[-1]}, got {word!r}")
    if path.is_dir():
        raise ValueError(f"expected the path of a file, got the folder {path}; name a file in it")
    return path


def try_to_write(path: Path) -> None:
    """An error if no file can be written there: better before the work than after."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        trial = path.with_name(f".{path.name}.trial")
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise OSError(f"could not write {path}: {error.strerror or error}; choose another file") from error


def write_picture(figure: Figure, path: Path) -> None:
    """Whole or not at all; folders on the way are made."""
    try_to_write(path)
    write_whole(path, rendered(figure, path.suffix.lower()))


def rendered(figure: Figure, suffix: str) -> bytes:
    """The file for .png, .svg or .pdf."""
    import matplotlib as mpl  # slow to import, and checks of paths do without

    picture = BytesIO()
    settings: Any = {"svg.fonttype": "none", "svg.hashsalt": "berncert", "pdf.fonttype": 42}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"Glyph .* missing from font", UserWarning)  # it shows as a box
        figure.savefig(picture, format=suffix.removeprefix("."), dpi=200, metadata=STAMPS[suffix])
    return picture.getvalue()
