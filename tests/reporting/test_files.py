"""Pictures as files: of three kinds, whole, and the same bytes for the same figure."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from berncert.reporting.files import PICTURES, file_path, rendered, write_picture


def figure() -> Figure:
    made = Figure(figsize=(2, 1))
    made.text(0.1, 0.5, "some text")
    return made


@pytest.mark.parametrize(("suffix", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_the_same_figure_gives_the_same_bytes(tmp_path: Path, suffix: str, start: bytes) -> None:
    path = file_path(str(tmp_path / "new" / f"picture{suffix.upper()}"), PICTURES)
    write_picture(figure(), path)
    assert path.read_bytes() == rendered(figure(), suffix)
    assert path.read_bytes().startswith(start)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("word", ["picture", "picture.jpeg", "", ".png/picture"])
def test_other_kinds_are_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"expected a file that ends in \.png, \.svg or \.pdf"):
        file_path(word, PICTURES)


def test_where_nothing_can_be_written_nothing_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"could not write .* choose another file"):
        write_picture(figure(), tmp_path / "file" / "picture.png")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(ValueError, match="got the folder"):
        file_path(str(tmp_path / "folder.png"), PICTURES)
