"""What a report says of runs whose rows are known; and the file as a whole."""

from __future__ import annotations

import dataclasses
import math
import os
import re
from pathlib import Path

import numpy as np
import pytest
from sample_runs import NASTY, digits, make_run, random_rows

from berncert.certification.status import STATUSES, Claim, Status
from berncert.data import load
from berncert.reporting.curves import Curve, accuracy_table
from berncert.reporting.html import report, report_html, write_report
from berncert.reporting.html.chart import reading
from berncert.reporting.html.examples import MOST, STATUS_MEANINGS, broken_radii, chosen, singled_out
from berncert.runs.records import Run, read

RADII = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]


def eight(folder: Path, *, wrong: tuple[int, ...] = (6, 7), radii: list[float] = RADII, **options: object) -> Run:
    """Eight images with these radii, two of them wrong."""
    images = digits(8)
    rows = [(label + (k in wrong), radii[k]) for k, label in enumerate(images.labels.tolist())]
    return make_run(folder, rows, images=images, **options)  # type: ignore[arg-type]


def test_the_summary_of_eight_images_is_as_counted_by_hand(tmp_path: Path) -> None:
    made = report([("eight", eight(tmp_path))])
    (group,) = made.groups
    (entry,) = group.entries
    assert (entry.claim, entry.data, entry.images, entry.clean_accuracy) == (Claim.PROVEN, "digits test", "8", "75.0")
    assert entry.mean_radius == "0.2625"  # (0.1 + ... + 0.6) / 8
    assert entry.median_time == "4.00 ms"  # the fourth of eight, by nearest rank
    assert [group.scale.text(step) for step in group.summary_steps] == ["0.1", "0.2", "0.3", "0.4", "0.5", "0.6"]
    assert entry.reading is not None
    shares = [float(entry.reading.percent(step)) for step in group.summary_steps]
    assert shares == [75.0, 62.5, 50.0, 37.5, 25.0, 12.5]
    assert made.title == "Robustness report: eight"
    assert made.lead == (
        "Of 8 images of digits test, 75.0\u00a0% are classified correctly and 62.5\u00a0% are proven to stay so under "
        "every change whose \N{SCRIPT SMALL L}₂ norm is less than 0.18."
    )


@pytest.mark.parametrize("claim", [claim for claim in Claim if claim is not Claim.UNKNOWN])
def test_each_step_of_a_curve_is_what_the_run_says_there(tmp_path: Path, claim: Claim) -> None:
    images = digits(60)
    run = make_run(tmp_path, random_rows(images), images=images, claim=claim.name)
    (group,) = report([("run", run)]).groups
    read_off = reading(run, group.scale)
    assert np.array(read_off.counts) / read_off.of == pytest.approx(run.standing(group.scale.radii()))


def test_page_and_terminal_have_the_same_percentages(tmp_path: Path) -> None:
    images = load("digits", limit=160)
    rows = [(label, 1.0 if k < 142 else 0.1) for k, label in enumerate(images.labels.tolist())]
    run = make_run(tmp_path, rows, images=images)  # 88.75 % at 1
    (group,) = report([("run", run)]).groups
    curve = group.entries[0]
    assert curve.reading is not None
    radii = [float(group.scale.text(step)) for step in group.summary_steps]
    shares = [curve.reading.percent(step) for step in group.summary_steps]
    assert shares == accuracy_table([Curve("run", run)], radii).rows[0][-len(radii) :]
    assert shares[-1] == "88.8"


def test_where_an_attack_succeeded_is_rounded_up(tmp_path: Path) -> None:
    attack = eight(tmp_path, radii=[36 / 255] * 8, claim="ATTACK")
    (detail,) = report([("attack", attack)]).details
    assert detail.results is not None
    assert {row.radius for row in detail.results.examples.rows} == {"0.141177"}
    assert {radius for _, radius, _ in detail.results.quantiles} == {"0.1412"}


def test_summary_and_curves_are_of_common_images_and_each_run_by_itself_of_its_own(tmp_path: Path) -> None:
    images = digits(8)
    proven = eight(tmp_path / "a")
    few = make_run(
        tmp_path / "b", [(label, 0.9) for label in images.labels.tolist()[:4]], images=digits(4), claim="ATTACK"
    )
    runs = [("proven", proven), ("attack", few)]
    made = report(runs)
    (group,) = made.groups
    assert [entry.images for entry in group.entries] == ["4", "4"]
    assert [entry.clean_accuracy for entry in group.entries] == ["100.0", "100.0"]
    assert [curve.reading and curve.reading.of for curve in group.curves] == [4, 4]
    assert group.notes == ["compared on the 4 images of digits test that are in all runs (proven 8, attack 4)"]
    assert [detail.images for detail in made.details] == ["8", "4"]
    assert made.details[0].results is not None
    assert made.details[0].results.examples.of == 8
    own = report(runs, own_images=True)
    assert [entry.images for entry in own.groups[0].entries] == ["8", "4"]
    assert "compared on the 4 images" in report_html(report(runs))
    assert "compared on" not in report_html(report(runs, own_images=True))


def test_training_images_are_said_at_the_top_and_at_the_run(tmp_path: Path) -> None:
    seen = "these 8 images are training images of the model"
    run = eight(tmp_path, data={"split": "train", "seen_in_training": seen})
    text = report_html(report([("run", run)]))
    assert text.index(f"<strong>Training images.</strong> run: {seen}.") < text.index('id="summary"')
    assert f"<strong>Training images:</strong> {seen}." in text
    assert f"TRAINING IMAGES: run: {seen}" in text
    assert "Training images" not in report_html(report([("run", eight(tmp_path / "test"))]))


def test_a_long_option_is_cut(tmp_path: Path) -> None:
    rows = ",".join(map(str, range(5000)))
    text = report_html(report([("run", eight(tmp_path, data={"division": {"test_rows": rows}}))]))
    assert rows not in text
    assert f"… ({len(rows)} characters, in run.json)" in text


def test_what_is_not_proven_is_never_called_so(tmp_path: Path) -> None:
    for claim in ("ESTIMATE", "ATTACK", "PROBABLE"):
        made = report([("run", eight(tmp_path / claim, claim=claim))])
        assert "are proven" not in made.lead
    text = report_html(report([("run", read(tmp_path / "ESTIMATE"))]))
    assert "estimated, not proven" in text
    assert ">radius</button>" not in text


def test_the_least_and_the_most_robust_are_correct_and_the_certain_ones_wrong(tmp_path: Path) -> None:
    run = eight(tmp_path)
    least, most, certain = singled_out(run, 3)
    assert (least.tolist(), most.tolist(), certain.tolist()) == ([0, 1, 2], [5, 4, 3], [7, 6])


def test_an_abstention_is_neither_wrong_nor_certain(tmp_path: Path) -> None:
    images = digits(4)
    rows = [(label, 0.5) for label in images.labels.tolist()]
    run = make_run(tmp_path, [(-1, 0.0), *rows[1:3], (9, 0.4)], images=images, claim="PROBABLE")
    (detail,) = report([("run", run)]).details
    assert detail.results is not None
    assert [example.index for example in detail.results.examples.certain] == [3]
    assert [example.kind for example in detail.results.examples.rows] == ["abstained", "correct", "correct", "wrong"]
    assert detail.results.wrong is not None
    assert detail.results.wrong.total == 1
    assert detail.abstained == "1"


@pytest.mark.parametrize("limit", [1, 2, 5, 40, 200, 1000])
def test_examples_are_at_most_so_many_and_among_them_the_outermost(limit: int) -> None:
    outer = [np.arange(3, 15), np.arange(900, 912), np.arange(500, 512)]
    rows = chosen(1000, outer, limit)
    assert rows.tolist() == sorted({*rows.tolist()})
    assert len(rows) <= limit
    singled = min(MOST, -(-limit // 4))
    in_turn = [int(kind[k]) for k in range(singled) for kind in outer][:limit]
    assert {*in_turn} <= {*rows.tolist()} or limit < 3 * singled
    assert rows[0] < 10 or limit == 1
    if limit == 1000:
        assert len(rows) == 1000


def test_examples_are_spread_evenly_and_the_same_for_all_runs_over_the_same_images() -> None:
    none = np.array([], dtype=np.int64)
    spread = chosen(10_000, (none, none, none), 200)
    assert {*np.diff(spread).tolist()} <= {60, 61}
    assert {*spread.tolist()} <= {*chosen(10_000, (np.arange(7, 19), none, none), 200).tolist()}


def test_an_attack_adds_where_images_of_the_same_model_fell(tmp_path: Path) -> None:
    proven = eight(tmp_path / "a")
    falls = [0.3, math.inf, 0.5, 1.0, math.inf, 0.65, 0.0, 0.0]
    attack = eight(tmp_path / "b", radii=falls, claim="ATTACK")
    found = broken_radii(proven, [proven, attack])
    assert found is not None
    assert found.tolist() == falls
    one, *_, last = report([("proven", proven), ("attack", attack)]).details
    assert one.results is not None
    assert (
        one.results.check
        == "Of 6 correct images that were attacked, none fell within the proven radius: as it must be."
    )
    names = [column.name for column in one.results.examples.columns]
    place = names.index("broken at")
    assert [row.cells[place].text for row in one.results.examples.rows] == [
        *("0.3", "stands", "0.5", "1", "stands", "0.65", "0", "0")
    ]
    assert last.results is not None
    assert "broken at" not in [column.name for column in last.results.examples.columns]


@pytest.mark.parametrize("other", [{"norm": math.inf}, {"data": {"split": "train"}}])
def test_an_attack_on_something_else_adds_nothing(tmp_path: Path, other: dict[str, object]) -> None:
    proven, attack = eight(tmp_path / "a"), eight(tmp_path / "b", claim="ATTACK", **other)
    assert broken_radii(proven, [attack]) is None


def test_an_attack_on_the_network_says_nothing_of_randomized_smoothing(tmp_path: Path) -> None:
    smoothed, attack = eight(tmp_path / "a", claim="PROBABLE"), eight(tmp_path / "b", claim="ATTACK")
    assert broken_radii(smoothed, [attack]) is None


def test_an_estimate_that_an_attack_refutes_is_said_to_be_refuted(tmp_path: Path) -> None:
    estimate = eight(tmp_path / "a", claim="ESTIMATE")
    attack = eight(tmp_path / "b", radii=[0.05] * 3 + [5.0] * 3 + [0.0] * 2, claim="ATTACK")
    detail, _ = report([("estimate", estimate), ("attack", attack)]).details
    assert detail.results is not None
    assert detail.results.check.endswith("3 fell within the estimate: for these it is refuted.")


def test_a_contradiction_is_shouted(tmp_path: Path) -> None:
    proven, attack = eight(tmp_path / "a"), eight(tmp_path / "b", radii=[0.05] * 8, claim="ATTACK")
    text = report_html(report([("proven", proven), ("attack", attack)]))
    assert "6 fell within the proven radius: this cannot be" in text
    assert "CONTRADICTION" in text


def test_every_status_has_its_sentence(tmp_path: Path) -> None:
    assert all(STATUS_MEANINGS[status.name] == status.value for status in Status)
    assert set(STATUS_MEANINGS) == set().union(*STATUSES.values())
    text = report_html(report([("run", eight(tmp_path, statuses=("BUDGET", "UNHEARD")))]))
    assert str(Status.BUDGET) in text
    assert "UNHEARD" in text


def test_all_of_the_record_is_in_the_page_and_what_is_unknown_too(tmp_path: Path) -> None:
    rows = [{"name": "layers.0", "layer": "Conv2d", "shape": [4, 8, 8], "factor": 1.25, "running": 1.25}]
    run = eight(tmp_path, settings={"novelty": {"a": [1, "b"]}}, lipschitz={"norm": 2, "bound": 1.25, "rows": rows})
    text = report_html(report([("run", run)]))
    for part in (
        "novelty.a",
        "1, b",
        "something new.unheard",
        "berncert certify it",
        "ab" * 32,
        "1.2500000",
        "Conv2d",
    ):
        assert part in text


def test_the_same_runs_give_the_same_bytes(tmp_path: Path) -> None:
    runs = [("a", eight(tmp_path / "a")), ("b", eight(tmp_path / "b", claim="ATTACK"))]
    size = write_report(report(runs), tmp_path / "new" / "one.html")
    again = [(label, read(run.path)) for label, run in runs]
    assert write_report(report(again), tmp_path / "two.html") == size
    assert (tmp_path / "new" / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()
    assert len((tmp_path / "two.html").read_bytes()) == size


def test_whatever_a_run_says_is_escaped(tmp_path: Path) -> None:
    options = {"data": {"classes": [NASTY] * 10}, "settings": {NASTY: NASTY}, "statuses": (NASTY,)}
    text = report_html(report([(NASTY, eight(tmp_path, **options))], title=NASTY))
    assert NASTY not in text
    assert "<img src=x" not in text
    assert text.count("</script>") == 2  # the numbers of the chart, and the script


def test_the_page_names_nothing_outside_itself(tmp_path: Path) -> None:
    text = report_html(report([("run", eight(tmp_path))]))
    assert not re.findall(r"https?:|//[a-z]|url\(|@import|@font-face", text.replace("// ", ""))
    sources = re.findall(r'(?:src|href)="([^"]{0,22})', text)
    assert {source.split(";")[0].split(",")[0] for source in sources if source[0] != "#"} == {"data:", "data:image/png"}


def test_a_run_that_is_not_complete_is_said_to_be_so(tmp_path: Path) -> None:
    images = digits(10)
    run = make_run(tmp_path, random_rows(images)[:6], images=images)
    text = report_html(report([("run", run)]))
    assert "6 of 10" in text
    assert "<strong>incomplete</strong>" in text


def test_runs_without_rows_are_in_the_report_all_the_same(tmp_path: Path) -> None:
    empty = make_run(tmp_path / "empty", [], images=digits(8))
    alone = report([("empty", empty)])
    assert alone.lead == "None of these runs has rows yet."
    assert alone.details[0].results is None
    assert "None of these runs has rows yet" in report_html(report([("empty", empty)]))
    text = report_html(report([("full", eight(tmp_path / "full")), ("empty", empty)]))
    assert text.count('class="curve proven k') == 2 + 1 + 1 + 2  # summary, chart, legend, and each run's own


def test_rows_that_are_all_wrong_or_endless_or_nothing_are_shown(tmp_path: Path) -> None:
    wrong = eight(tmp_path / "a", wrong=tuple(range(8)))
    endless = eight(tmp_path / "b", radii=[math.inf] * 8, statuses=("WHOLE_CUBE",))
    nothing = eight(tmp_path / "c", claim="ESTIMATE")
    nothing = dataclasses.replace(nothing, rows={**nothing.rows, "radius": np.full(8, math.nan)})
    zero = eight(tmp_path / "d", radii=[0.0] * 8, statuses=("TIE",))
    for run in (wrong, endless, nothing, zero):
        assert "nan" not in re.sub(r"<style>.*?</style>|<script>.*?</script>", "", report_html(report([("run", run)])))
    text = report_html(report([("a", wrong), ("b", endless), ("c", nothing), ("d", zero)]))
    assert "∞" in text


def test_runs_of_different_norms_get_a_chart_each(tmp_path: Path) -> None:
    runs = [eight(tmp_path / str(p), norm=p) for p in (2.0, math.inf, 2.5, 2.0 + 1e-9)]
    made = report([(str(k), run) for k, run in enumerate(runs)])
    assert [group.norm.removeprefix("\N{SCRIPT SMALL L}") for group in made.groups][:3] == ["₂", "∞", "2.5"]
    assert report_html(report([(str(k), run) for k, run in enumerate(runs)])).count('<figure class="curves"') == 4


def test_a_lone_table_is_in_the_summary_and_the_curves_only(tmp_path: Path) -> None:
    table = tmp_path / "published.tsv"
    table.write_text(
        "idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01.5\n1\t1\t-1\t0.0\t0\t0:00:01"
    )
    made = report([("published", read(table))])
    assert not made.details
    assert made.groups[0].entries[0].abstained == "1"
    text = report_html(report([("published", read(table))]))
    assert "Run by run" not in text
    assert '<path class="curve unknown' in text
    assert ">unknown claim</td>" in text
    assert "probable" not in made.lead
    assert "does not say what it claims" in made.lead


def test_the_page_says_what_its_times_and_quantiles_are(tmp_path: Path) -> None:
    run = eight(tmp_path)
    text = report_html(report([("run", run)]))
    assert text.count("the mean over the images of its batch") == 1 + 1 + 1 + 1  # and a tool tip
    assert text.count("nearest rank") == 2
    (detail,) = report([("run", run)]).details
    assert detail.results is not None
    assert [time for _, _, time in detail.results.quantiles] == ["1.00 ms", "1.00 ms", "4.00 ms", "8.00 ms", "8.00 ms"]


@pytest.mark.parametrize("count", [0, 11])
def test_too_many_runs_and_none_are_refused(tmp_path: Path, count: int) -> None:
    run = eight(tmp_path)
    with pytest.raises(ValueError, match=f"expected 1 to 10 runs, got {count}"):
        report([("run", run)] * count)


def test_a_run_of_ten_thousand_rows_stays_small(tmp_path: Path) -> None:
    images = load("digits", limit=355)
    many = images.indices.repeat(29)[:10_000]
    rng = np.random.default_rng(0)
    rows = list(zip(images.labels[many].tolist(), rng.gamma(4.0, 0.25, 10_000).tolist(), strict=True))
    big = type(images)(
        images.name, images.split, images.images[many], images.labels[many], (many + 1).cumsum(0), images.classes
    )
    run = make_run(tmp_path, rows, images=big, data={"sha256": ""})
    assert len(report_html(report([("big", run)]))) < 250_000


@pytest.mark.skipif("BERNCERT_DATA" not in os.environ, reason="set BERNCERT_DATA to a folder with mnist/")
def test_two_hundred_examples_of_mnist_are_less_than_a_megabyte(tmp_path: Path) -> None:
    images = load("mnist", download=False)
    text = report_html(report([("mnist", make_run(tmp_path, random_rows(images), images=images))]))
    assert text.count("data:image/png") > 150
    assert len(text) < 500_000
