"""The documentation site: built once; its links, its reference, and how it behaves in a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import berncert
import berncert.estimators

pytest.importorskip("zensical", reason="the site is built with the extra `docs`")
ROOT = Path(__file__).parent.parent
PUBLIC = [f"{home.__name__}.{name}" for home in (berncert, berncert.estimators) for name in home.__all__]
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href"}
"""What a browser asks for by itself; a link in the text it follows only when it is clicked."""


class Parsed(HTMLParser):
    """The anchors of a page, where it leads, and what it fetches."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.targets: list[str] = []
        self.fetched: list[str] = []
        self.feed(path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = {name: value for name, value in attrs if value is not None}
        self.anchors |= {known[name] for name in ("id", "name") if name in known}
        if "href" in known and known.get("rel") != "canonical":
            self.targets.append(known["href"])
        if tag in FETCHED and FETCHED[tag] in known:
            self.targets.append(known[FETCHED[tag]])
            self.fetched.append(known[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site") / "built"
    done = subprocess.run([sys.executable, "-m", "docs.site", out], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Parsed]:
    """All but the page for addresses that do not exist: its own links are those of a server."""
    return {path: Parsed(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def test_every_link_leads_to_a_file_and_an_anchor_that_exist(pages: dict[Path, Parsed]) -> None:
    broken = []
    for page, parsed in pages.items():
        for target in parsed.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc:
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            file = file / "index.html" if file.is_dir() else file
            anchor = unquote(parts.fragment)
            if not file.exists() or (anchor and file in pages and anchor not in pages[file].anchors):
                broken.append(f"{page.name} -> {target}")
    assert not broken
    assert sum(len(parsed.targets) for parsed in pages.values()) > 1000


def test_no_page_fetches_anything_from_elsewhere(pages: dict[Path, Parsed], site: Path) -> None:
    assert not [each for parsed in pages.values() for each in parsed.fetched if urlsplit(each).netloc]
    styles = "".join(path.read_text("utf-8") for path in site.rglob("*.css"))
    assert not re.findall(r"(?:@import|url\()\s*[\"']?(?:https?:)?//[^)]*", styles)


def test_every_public_name_is_in_the_reference_once(pages: dict[Path, Parsed]) -> None:
    reference = [parsed.anchors for page, parsed in pages.items() if page.parent.name == "reference"]
    assert {name: sum(name in anchors for anchors in reference) for name in PUBLIC} == dict.fromkeys(PUBLIC, 1)


def test_the_first_page_of_the_reference_leads_to_every_public_name(pages: dict[Path, Parsed], site: Path) -> None:
    listed = {target.partition("#")[2] for target in pages[site / "reference" / "index.html"].targets}
    assert [name for name in PUBLIC if name not in listed] == []


def test_the_reference_shows_examples_and_defaults(site: Path) -> None:
    text = re.sub(r"<[^>]+>", "", (site / "reference" / "proving.html").read_text("utf-8"))
    assert text.count("&gt;&gt;&gt; import") >= 7
    assert "tolerance: float = 0.001" in re.sub(r"\s+", " ", text)
    assert "setting(" not in text


def test_every_page_of_the_docs_is_in_the_navigation(pages: dict[Path, Parsed], site: Path) -> None:
    reached = {(site / target).resolve() for target in pages[site / "index.html"].targets if urlsplit(target).path}
    docs = [path.relative_to(ROOT / "docs").with_suffix(".html") for path in (ROOT / "docs").rglob("*.md")]
    assert not [path for path in docs if (site / path).resolve() not in reached]


def test_formulas_are_typeset(pages: dict[Path, Parsed], site: Path) -> None:
    for name, least in (("proof.html", 80), ("layers.html", 50)):
        text = (site / name).read_text("utf-8")
        assert text.count("<math") > least
        article = re.sub(r"<(script|style|code|pre)\b.*?</\1>", "", text, flags=re.DOTALL)
        assert not re.findall(r"\$[^$<]+\$|\\[a-z]+\{", article)


def test_a_formula_that_cannot_be_typeset_is_an_error() -> None:
    from docs.site.formulas import mathml

    assert "<msub>" in mathml("x_0", "inline")
    with pytest.raises(ValueError, match="nosuchthing"):
        mathml(r"\nosuchthing x", "inline")


def test_the_bars_of_a_norm_stay_on_the_line_although_the_second_has_an_index() -> None:
    from docs.site.formulas import mathml

    for bar in ("\\|", "|"):
        found = re.findall(r"<mo[^>]*>(?:&#x02016;|&#x0007C;)</mo>", mathml(f"{bar}x{bar}_p", "inline"))
        assert len(found) == 2
        assert all('stretchy="false"' in mo for mo in found)


def test_a_broken_link_is_an_error_and_code_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    from docs.site import pages

    monkeypatch.setattr(Path, "read_text", lambda *_: "```python\n[code](nowhere.md)\n```\n[proof](proof.md#tables)")
    assert pages.translated(ROOT / "docs" / "page.md")[1] == {ROOT / "docs" / "proof.md"}
    monkeypatch.setattr(Path, "read_text", lambda *_: "[a page](nowhere.md)")
    with pytest.raises(FileNotFoundError, match=r"docs/page\.md links to nowhere\.md"):
        pages.translated(ROOT / "docs" / "page.md")


def test_a_folder_that_holds_something_else_is_not_replaced(tmp_path: Path) -> None:
    from docs.site.__main__ import replace

    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="something else than a site"):
        replace(tmp_path / "new", tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "mine"


WIDER = """() => {
  const cut = e => { for (let a = e; a; a = a.parentElement)
    if (["auto", "scroll", "hidden"].includes(getComputedStyle(a).overflowX)) return true; return false };
  const far = e => e.getBoundingClientRect().right > document.documentElement.clientWidth + 1;
  return [...document.querySelectorAll("article *")].filter(e => far(e) && !cut(e)).map(e => e.outerHTML.slice(0, 80))
    .concat(document.documentElement.scrollWidth > innerWidth ? ["the page itself scrolls sideways"] : []) }"""


@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("name", ["index", "proof", "layers", "paper", "tables", "models", "reference/proving"])
def test_nothing_is_wider_than_the_window(site: Path, open_page: Callable[..., Any], name: str, width: int) -> None:
    page = open_page(site / f"{name}.html", width=width, folder=site)
    page.wait_for_load_state("load")
    assert page.evaluate(WIDER) == []


def test_search_works_from_files(site: Path, open_page: Callable[..., Any]) -> None:
    page = open_page(site / "index.html", folder=site)
    page.wait_for_load_state("load")
    page.keyboard.press("Control+k")
    page.keyboard.type("counterfactual")
    page.get_by_text(re.compile(r"\d+ results")).wait_for()
    first = page.locator("a:visible", has_text="counterfactuals").first.get_attribute("href") or ""
    found = urlsplit(first)
    assert found.path.endswith("reference/tables.html")
    assert found.fragment == "berncert.estimators.BernsteinClassifier.counterfactuals"


@pytest.mark.parametrize(("scheme", "dark"), [("light", False), ("dark", True)])
def test_it_is_light_or_dark_as_the_system_is(
    site: Path, open_page: Callable[..., Any], scheme: str, dark: bool
) -> None:
    page = open_page(site / "proof.html", color_scheme=scheme, folder=site)
    page.wait_for_load_state("load")
    shade = "() => Math.max(...getComputedStyle(document.body).{}.match(/\\d+/g).slice(0, 3).map(Number))"
    paper, ink = (page.evaluate(shade.replace("{}", what)) for what in ("backgroundColor", "color"))
    assert (paper < ink) is dark
    assert page.evaluate(shade.replace("{}", "color").replace("document.body", "document.querySelector('math')")) == ink
