"""Build the documentation site: `python -m docs.site [FOLDER]`, by default into out/site."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from docs.site.pages import ROOT, stage

CONFIG = Path(__file__).with_name("mkdocs.yml")


def build(out: Path) -> None:
    """The site, in a new folder or in place of an older one. Any warning, such as a broken link, is an error."""
    with tempfile.TemporaryDirectory(prefix="berncert-site-") as folder:
        staged = Path(folder).resolve()
        stage(staged / "docs")
        config = staged / "mkdocs.yml"
        config.write_text(CONFIG.read_text("utf-8").replace("ROOT", str(ROOT)), "utf-8")
        subprocess.run([sys.executable, "-m", "zensical", "build", "--strict", "-f", config], cwd=ROOT, check=True)
        replace(staged / "site", out)


def replace(new: Path, out: Path) -> None:
    if out.exists() and not (out / "objects.inv").exists() and (out.is_file() or any(out.iterdir())):
        raise FileExistsError(f"{out} holds something else than a site; name another folder, or empty it")
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(new, out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.site", description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=ROOT / "out" / "site", metavar="FOLDER")
    folder = parser.parse_args().out
    build(folder)
    print(f"open {folder / 'index.html'} in a browser; it works from there, without a server")
