"""The pages of the site: docs/ and all that it links to in the repository."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
STARTS = [*sorted(DOCS.glob("**/*.md")), ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"]
FENCES = re.compile(r"^( *```.*?^ *```)", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]*)(#[^)\s]*)?\)")


def stage(folder: Path) -> None:
    """Write every page into the folder, with links that lead from there to the same places; docs/ is its top."""
    waiting, seen = list(STARTS), set(STARTS)
    while waiting:
        page = waiting.pop()
        text, linked = translated(page)
        write(folder / place(page), text)
        for target in linked - seen:
            if target.suffix == ".md":
                waiting.append(target)
            else:
                copy(target, folder / place(target))
        seen |= linked
    shutil.copytree(Path(__file__).with_name("assets"), folder / "assets-of-the-site")


def translated(page: Path) -> tuple[str, set[Path]]:
    """The text of a page with its links as they are on the site, and the files that it links to."""
    linked: set[Path] = set()

    def link(found: re.Match[str]) -> str:
        picture, text, target, anchor = found.groups()
        if not target or ":" in target:  # an anchor of this page, or an address
            return found[0]
        path = Path(os.path.normpath(page.parent / target))
        if not path.exists():
            raise FileNotFoundError(f"{page.relative_to(ROOT)} links to {target}, which is not there")
        if path.is_dir():  # a code host shows what is in it; a site has no such page
            return text
        linked.add(path)
        there = os.path.relpath(place(path), place(page).parent).replace(os.sep, "/")
        return f"{picture}[{text}]({there}{anchor or ''})"

    parts = FENCES.split(page.read_text("utf-8"))  # code as it is, at odd places
    parts[::2] = [LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts), linked


def place(path: Path) -> Path:
    """Where a file of the repository is on the site."""
    return path.relative_to(DOCS if path.is_relative_to(DOCS) else ROOT)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def copy(path: Path, to: Path) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(path, to)
