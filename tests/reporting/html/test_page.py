"""The page in a real browser: curves are read off, tables sorted and filtered, by pointer and by keys alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page
from sample_runs import digits, make_run, random_rows

from berncert.foundation.rounding import percent, percent_places
from berncert.reporting.html import report, write_report
from berncert.runs.records import Run

Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, Run]]:
    """Proven, attacked and estimated in l2, and proven in linf."""
    folder, images = tmp_path_factory.mktemp("runs"), digits(90)
    labels = images.labels.tolist()
    proven = random_rows(images)
    upper = {"feature_upper": [math.inf if k % 7 == 0 else radius * 1.01 for k, (_, radius) in enumerate(proven)]}
    falls = [math.inf if k % 3 else 4.0 for k in range(40)]
    attacked = [
        (predicted, at if predicted == label else 0.0)
        for (predicted, _), at, label in zip(proven[:40], falls, labels[:40], strict=True)
    ]
    return [
        ("proven", make_run(folder / "a", proven, images=images, columns=upper, statuses=("PROVEN", "BUDGET"))),
        ("attacked", make_run(folder / "b", attacked, images=digits(40), claim="ATTACK", statuses=("BROKEN",))),
        ("estimated", make_run(folder / "c", random_rows(images, seed=1), images=images, claim="ESTIMATE")),
        ("proven linf", make_run(folder / "d", random_rows(images, scale=0.05), images=images, norm=math.inf)),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def path(runs: list[tuple[str, Run]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("page") / "report.html"
    write_report(report(runs, own_images=True), made)
    return made


def legend(page: Page, chart: int = 1) -> tuple[float, list[str]]:
    """The radius that is read, and the values."""
    figure = page.locator(f"#chart-{chart}")
    return float(figure.locator("output").inner_text()), figure.locator(".value").all_inner_texts()


def shares(runs: list[tuple[str, Run]], radius: float) -> list[str]:
    """What a chart must say of its runs at that radius."""
    counts = [(round(float(run.standing(radius)[0]) * len(run)), len(run)) for _, run in runs]
    return [percent(count, of, percent_places(of)) for count, of in counts]


def column(page: Page, name: str) -> list[str]:
    """The values by which the visible rows of the shown table are sorted."""
    table = page.locator("article:visible table.examples")
    heads = [head.strip() for head in table.locator("thead th").all_inner_texts()]
    cells = table.locator(f"tbody tr:visible td:nth-child({heads.index(name) + 1})")
    return cells.evaluate_all("cells => cells.map(c => c.dataset.v ?? c.textContent)")


def head(page: Page, name: str) -> Locator:
    return page.locator("article:visible th").filter(has=page.get_by_role("button", name=name, exact=True))


def visibility(curve: Locator) -> str:
    return str(curve.evaluate("element => getComputedStyle(element).visibility"))


def test_pointing_at_a_chart_shows_the_accuracy_at_that_radius(
    open_page: Opener, path: Path, runs: list[tuple[str, Run]]
) -> None:
    page = open_page(path)
    for chart, shown in ((1, runs[:3]), (2, runs[3:])):
        plot = page.locator(f"#chart-{chart} .plot > svg")
        plot.scroll_into_view_if_needed()
        box = plot.bounding_box()
        assert box is not None
        seen = []
        for share in (0.0, 0.013, 0.2, 0.5, 0.77, 1.0):
            page.mouse.move(box["x"] + share * box["width"], box["y"] + 120)
            radius, values = legend(page, chart)
            assert values == shares(shown, radius)
            seen.append(radius)
        end = float(page.locator(f"#chart-{chart} .plot").get_attribute("aria-valuemax") or "")
        assert seen == pytest.approx([share * end for share in (0.0, 0.013, 0.2, 0.5, 0.77, 1.0)], abs=end / 200)


def test_the_dots_of_a_chart_are_on_its_curves(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    plot = page.locator("#chart-1 .plot")
    plot.focus()
    page.keyboard.press("Home")
    for _ in range(4):
        for _ in range(6):
            page.keyboard.press("PageUp")
        distances = plot.evaluate("""plot => [...plot.querySelectorAll('path')].map((path, i) => {
            const dot = plot.querySelectorAll('.dot')[i].getBoundingClientRect(), matrix = path.getScreenCTM();
            let least = Infinity;
            for (let at = 0, end = path.getTotalLength(); at <= end; at += end / 3000) {
                const point = path.getPointAtLength(at).matrixTransform(matrix);
                const x = point.x - (dot.x + dot.width / 2), y = point.y - (dot.y + dot.height / 2);
                least = Math.min(least, Math.hypot(x, y));
            }
            return least;
        })""")
        assert max(distances) < 1.5  # pixels


def test_arrow_keys_move_by_one_step_and_say_what_is_there(
    open_page: Opener, path: Path, runs: list[tuple[str, Run]]
) -> None:
    page = open_page(path)
    plot = page.get_by_role("slider").first
    plot.focus()
    start, _ = legend(page)
    page.keyboard.press("ArrowRight")
    there, values = legend(page)
    assert there > start
    assert values == shares(runs[:3], there)
    spoken = plot.get_attribute("aria-valuetext") or ""
    assert spoken.startswith("radius ")
    assert all(f"{label} {value} percent" in spoken for (label, _), value in zip(runs[:3], values, strict=True))
    page.keyboard.press("ArrowLeft")
    assert legend(page)[0] == start
    page.keyboard.press("Home")
    assert legend(page) == (0.0, shares(runs[:3], 0.0))
    page.keyboard.press("ArrowLeft")
    assert legend(page)[0] == 0.0
    page.keyboard.press("End")
    assert plot.get_attribute("aria-valuenow") == page.locator("#chart-1 output").inner_text()


def test_a_button_hides_its_curve_and_brings_it_back(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    button = page.locator("#chart-1").get_by_role("button", name="attacked")
    curve, dot = page.locator("#chart-1 path").nth(1), page.locator("#chart-1 .dot").nth(1)
    before = legend(page)[1]
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    assert [visibility(part) for part in (curve, dot)] == ["hidden", "hidden"]
    assert legend(page)[1] == [before[0], "", before[2]]
    assert "attacked" not in (page.get_by_role("slider").first.get_attribute("aria-valuetext") or "")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    assert [visibility(part) for part in (curve, dot)] == ["visible", "visible"]
    assert legend(page)[1] == before


def test_proven_curves_are_solid_and_all_others_broken_each_in_its_way(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    dashes = page.locator("#chart-1 path").evaluate_all("all => all.map(p => getComputedStyle(p).strokeDasharray)")
    assert dashes[0] == "none"
    assert len({*dashes}) == 3


def test_numbers_are_sorted_as_numbers_with_inf_and_nothing_last(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    assert head(page, "image").get_attribute("aria-sort") == "ascending"  # as it comes
    for name in ("radius", "feature upper", "broken at", "time, ms", "image"):
        for way in ("ascending", "descending"):
            head(page, name).get_by_role("button").click()
            assert head(page, name).get_attribute("aria-sort") == way
            assert page.locator("article:visible [aria-sort]").count() == 1
            values = column(page, name)
            numbers = [float(value) for value in values if value not in ("", "inf")]
            assert numbers == sorted(numbers, reverse=way == "descending")
            assert values[len(numbers) :] == sorted(values[len(numbers) :], reverse=True)  # inf before nothing
            assert name != "broken at" or {"", "inf", "4"} <= {*values}


def test_text_is_sorted_too(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    head(page, "status").get_by_role("button").click()
    statuses = column(page, "status")
    assert statuses == sorted(statuses)
    assert {*statuses} == {"BUDGET", "PROVEN"}


def test_the_filter_shows_the_kind_that_was_asked_for_and_counts_it(
    open_page: Opener, path: Path, runs: list[tuple[str, Run]]
) -> None:
    page = open_page(path)
    form, run = page.locator("article:visible form"), runs[0][1]
    for kind, expected in (("wrong", ~run.correct), ("correct", run.correct), ("all", run.correct | True)):
        form.get_by_label(kind, exact=True).check()
        assert column(page, "image") == [str(k) for k in np.flatnonzero(expected)]
        assert form.locator("output").inner_text() == f"{expected.sum()} shown"
    form.get_by_label("containing").fill("bud")
    assert {*column(page, "status")} == {"BUDGET"}
    assert len(column(page, "status")) == 45
    form.get_by_label("wrong", exact=True).check()
    assert {*column(page, "correct")} == {"no"}
    form.get_by_label("containing").press("Enter")  # sends nothing


def test_the_chooser_shows_one_run_at_a_time(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    assert page.locator("article:visible h3").all_inner_texts() == ["proven"]
    page.get_by_label("Run", exact=True).select_option(label="estimated")
    assert page.locator("article:visible h3").all_inner_texts() == ["estimated"]
    assert head(page, "estimate").count() == 1


def test_every_picture_is_there_though_each_is_in_the_file_once(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    pictures = page.locator("img").evaluate_all("all => all.map(i => [i.src, i.naturalWidth])")
    assert len(pictures) > 4 * 40
    assert {width for _, width in pictures} == {8}
    text = path.read_text("utf-8")
    assert all(text.count(source) == 1 for source in {source for source, _ in pictures})


def test_all_can_be_done_with_keys_alone(open_page: Opener, path: Path, runs: list[tuple[str, Run]]) -> None:
    page = open_page(path)
    focused = "document.activeElement"
    done = set()
    while True:
        page.keyboard.press("Tab")
        if page.evaluate(f"{focused} === document.body"):
            break
        outline = page.evaluate(f"getComputedStyle({focused}).outlineStyle")
        assert outline != "none", page.evaluate(f"{focused}.outerHTML")
        name, role = page.evaluate(f"[{focused}.textContent.trim(), {focused}.getAttribute('role')]")
        if page.evaluate(f"{focused}.id") == "theme":
            page.keyboard.press("Enter")
            done.add(page.evaluate("document.documentElement.dataset.theme"))
        elif role == "slider" and "slider" not in done:
            page.keyboard.press("ArrowUp")
            assert legend(page)[1] == shares(runs[:3], legend(page)[0])
            done.add("slider")
        elif name == "attacked":
            page.keyboard.press("Space")
            assert visibility(page.locator("#chart-1 path").nth(1)) == "hidden"
            done.add("toggle")
        elif page.evaluate(f"{focused}.id") == "run":
            page.keyboard.press("e")
            assert page.locator("article:visible h3").inner_text() == "estimated"
            done.add("run")
        elif page.evaluate(f"{focused}.type") == "radio":
            page.keyboard.press("ArrowRight")
            assert {*column(page, "correct")} == {"yes"}
            done.add("filter")
        elif name == "estimate":
            page.keyboard.press("Enter")
            values = [float(value) for value in column(page, "estimate")]
            assert values == sorted(values)
            done.add("sort")
        elif name.startswith("How it was made"):
            page.keyboard.press("Enter")
            assert page.locator("article:visible dl.options").first.is_visible()
            done.add("options")
    assert done == {"dark", "slider", "toggle", "run", "filter", "sort", "options"}


def test_the_script_writes_a_share_as_the_tables_do(open_page: Opener, path: Path) -> None:
    page = open_page(path)
    rng = np.random.default_rng(0)
    totals = rng.integers(1, 20000, 400)
    pairs = [(int(rng.integers(0, of + 1)), int(of)) for of in totals] + [(49, 400), (1, 8), (5, 16)]
    triples = [(count, of, places) for count, of in pairs for places in (1, 2)]
    script = "triples => triples.map(([count, of, places]) => percent(count, of, places))"
    assert page.evaluate(script, triples) == [percent(*triple) for triple in triples]
