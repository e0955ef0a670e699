"""The page for everyone: in light and dark, wide and narrow, printed, for those who cannot see it; and its safety."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page
from sample_runs import NASTY, digits, make_run, random_rows

from berncert.reporting.html import report, write_report

Opener = Callable[..., Page]
LEAST_CONTRAST = 4.5
CONTRASTS = """() => {
    const parsed = text => {
        const parts = text.match(/[\\d.]+/g).map(Number);
        return parts.length < 4 ? [...parts, 1] : parts;
    };
    const light = ([r, g, b]) => [r, g, b].map(v => v / 255)
        .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = element => {
        for (; element; element = element.parentElement) {
            const colour = parsed(getComputedStyle(element).backgroundColor);
            if (colour[3] === 1) return colour;
        }
        return [255, 255, 255, 1];
    };
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
    while (texts.nextNode()) {
        const element = texts.currentNode.parentElement;
        if (!texts.currentNode.textContent.trim() || !element.checkVisibility() || element.closest('script')) continue;
        const style = getComputedStyle(element);
        const ink = parsed(element instanceof SVGElement ? style.fill : style.color);
        const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
        found.push([(a + 0.05) / (b + 0.05), element.outerHTML.slice(0, 120)]);
    }
    return found;
}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All there is to show at once, with names that try to break out."""
    folder, images = tmp_path_factory.mktemp("runs"), digits(40)
    rows = random_rows(images)
    abstaining = [(-1, 0.0) if k % 9 == 0 else row for k, row in enumerate(rows)]
    falls = [(predicted, 0.3 if k % 2 else math.inf) for k, (predicted, _) in enumerate(rows)]
    names = {"classes": [f"{NASTY}{k}" for k in range(10)]}
    layers = {"bound": 0.5, "rows": [{"name": NASTY, "layer": "Linear", "shape": [3], "factor": 0.5, "running": 0.5}]}
    options = {"note": NASTY, "alpha": 0.001}
    statuses = ("PROVEN", NASTY)
    runs = [
        (NASTY, make_run(folder / "a", rows, images=images, data=names, lipschitz=layers, statuses=statuses)),
        ("smoothed", make_run(folder / "b", abstaining, images=images, claim="PROBABLE", settings=options)),
        ("a name without an end" * 5, make_run(folder / "c", rows[:20], images=images, norm=math.inf)),
        ("attacked", make_run(folder / "d", falls, images=images, claim="ATTACK")),
        ("estimated", make_run(folder / "e", rows, images=images, claim="ESTIMATE", data={"name": NASTY})),
        ("nothing yet", make_run(folder / "f", [], images=images)),
    ]
    made = folder / "report.html"
    write_report(report(runs, title=f"{NASTY} & more"), made)
    return made


def each_run(page: Page) -> list[str]:
    return page.locator("#run option").evaluate_all("all => all.map(option => option.value)")


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach(its => its.open = true)")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_text_stands_out_from_what_is_behind_it(open_page: Opener, path: Path, theme: str) -> None:
    page = open_page(path, color_scheme=theme)
    unfold(page)
    for run in each_run(page):
        page.select_option("#run", run)
        faint = [(ratio, text) for ratio, text in page.evaluate(CONTRASTS) if ratio < LEAST_CONTRAST]
        assert not faint


@pytest.fixture(scope="module")
def ten(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many curves as there may be."""
    folder, images = tmp_path_factory.mktemp("ten"), digits(30)
    runs = [(str(k), make_run(folder / str(k), random_rows(images, seed=k), images=images)) for k in range(10)]
    write_report(report(runs, examples=1), folder / "ten.html")
    return folder / "ten.html"


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_curve_stands_out_as_well(open_page: Opener, ten: Path, theme: str) -> None:
    page = open_page(ten, color_scheme=theme)
    # the same measure, with each curve's colour in the place of a text's
    inks = page.locator("#chart-1 path").evaluate_all("all => all.map(path => getComputedStyle(path).stroke)")
    assert len({*inks}) == 10
    page.evaluate("inks => inks.forEach(ink => { const p = document.createElement('p'); p.textContent = 'ink'; "
                  "p.style.color = ink; document.body.append(p); })", inks)  # fmt: skip
    ratios = [ratio for ratio, text in page.evaluate(CONTRASTS) if ">ink<" in text]
    assert len(ratios) == 10
    assert min(ratios) >= 3  # what graphics need


def test_the_theme_is_that_of_the_system_until_the_button_is_pressed(open_page: Opener, path: Path) -> None:
    page = open_page(path, color_scheme="dark")
    paper = "getComputedStyle(document.body).backgroundColor"
    button = page.get_by_role("button", name="Dark")
    assert button.get_attribute("aria-pressed") == "true"
    dark = page.evaluate(paper)
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert page.evaluate(paper) == "rgb(255, 255, 255)" != dark
    page.emulate_media(color_scheme="light")
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    button.click()
    assert page.evaluate(paper) == dark
    page.emulate_media(media="print")
    assert page.evaluate(paper) == "rgb(255, 255, 255)"
    assert not button.is_visible()


@pytest.mark.parametrize("width", [360, 768, 1280])
def test_the_page_never_scrolls_sideways(open_page: Opener, path: Path, width: int) -> None:
    page = open_page(path, width=width)
    unfold(page)
    for run in each_run(page):
        page.select_option("#run", run)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_names_that_try_to_break_out_are_only_names(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    assert page.title() == f"{NASTY} & more"
    assert page.locator("h1").inner_text() == f"{NASTY} & more"
    assert page.locator("article:visible h3").inner_text() == NASTY
    assert page.locator("article:visible tbody td").filter(has_text=f"{NASTY}3").count() > 0
    assert page.locator("img:not([src^='data:image/png'])").count() == 0
    assert page.locator("script").count() == 1 + 2  # the page's own, and the numbers of two charts
    attributes = page.evaluate("[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())")
    assert not [name for name in attributes if name.startswith("on") or name == "style"]


def test_a_script_or_a_style_that_got_in_would_not_count(browser: Browser, path: Path, tmp_path: Path) -> None:
    smuggled = "<script>document.title = 'taken'</script><style>body { color: red }</style><img src='file:///x.png'>"
    (tmp_path / "changed.html").write_text(
        path.read_text("utf-8").replace("</footer>", f"{smuggled}</footer>"), "utf-8"
    )
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda message: refused.append(message.text))
    page.goto((tmp_path / "changed.html").as_uri())
    assert page.title() == f"{NASTY} & more"
    assert page.evaluate("getComputedStyle(document.body).color") != "rgb(255, 0, 0)"
    assert sum("Content Security Policy" in message for message in refused) == 3
    page.close()


def test_the_page_is_in_order(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    unfold(page)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    assert len(ids) == len({*ids})
    named = ("aria-labelledby", "aria-describedby", "for", "data-like")
    for name in named:
        wanted = page.evaluate(f"[...document.querySelectorAll('[{name}]')].map(e => e.getAttribute('{name}'))")
        assert {*wanted} <= {*ids}
    assert page.locator("html").get_attribute("lang") == "en"
    assert [page.locator(tag).count() for tag in ("main", "header", "footer", "nav", "h1")] == [1] * 5
    assert page.evaluate("[...document.images].every(image => image.alt && image.width === image.height)")
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(b <= a + 1 for a, b in pairwise(levels))
    for run in each_run(page):
        page.select_option("#run", run)
        scrolling = page.evaluate("""[...document.querySelectorAll('main *')].filter(e => e.checkVisibility()
            && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.tabIndex !== 0).map(e => e.outerHTML)""")
        assert not scrolling
        for role in ("button", "combobox", "radio", "searchbox", "region", "slider", "img"):
            unnamed = page.get_by_role(role, name=re.compile("^$"))
            assert not unnamed.evaluate_all("all => all.map(its => its.outerHTML)")


def test_without_scripts_everything_is_still_there_to_read(open_page: Opener, path: Path) -> None:
    page = open_page(path, java_script_enabled=False)
    assert page.locator("article:visible").count() == 6
    assert page.locator("#chart-1 path").first.is_visible()
    assert page.locator("noscript").count() == 1
