"""Runs as a user names them: folders, tables, published rows, with labels that differ."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import make_run, make_table

from berncert.runs.lookup import LEVELS, PUBLISHED, named_runs


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with published tables, each with as many rows as its place among the levels; nothing else is known."""
    monkeypatch.delenv("BERNCERT_DATA", raising=False)
    for published in PUBLISHED.values():
        for rows, noise in enumerate(LEVELS, 1):
            make_table(tmp_path / "data" / published.table.format(noise), [0.1] * rows)
    return tmp_path / "data"


def labels(*words: object, data_dir: Path | None = None) -> list[str]:
    return [label for label, _ in named_runs(map(str, words), data_dir)]


def test_a_folder_has_its_name_and_a_table_that_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run(tmp_path / "mnist-exact", [0.1])
    tables = [make_table(tmp_path / name, [0.1]) for name in ("x.y.tsv", "sigma_0.25")]
    assert labels(run, f"{run}/", *tables) == ["mnist-exact", "mnist-exact (2)", "x.y", "sigma_0.25"]
    monkeypatch.chdir(run)
    assert labels(".") == ["mnist-exact"]


def test_the_rows_of_a_run_are_the_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", [0.1], norm=1)
    ((label, found),) = named_runs([str(run / "certificates.tsv")])
    assert (label, found.norm, found.claim.name) == ("a", 1, "PROVEN")


@pytest.mark.parametrize("claim", ["PROVEN", "ATTACK"])
def test_the_rows_of_a_run_without_its_record_are_refused(tmp_path: Path, claim: str) -> None:
    run = make_run(tmp_path / "a", [0.1], claim=claim)
    (run / "run.json").unlink()
    (table,) = run.glob("*.tsv")
    with pytest.raises(ValueError, match=r"expected the folder of a run, got .* alone; .* in run\.json"):
        labels(table)


@pytest.mark.parametrize(
    "label", ["x", "a_b & c%", "[red]x[/]", "=", "a=b", "==", "日本語 é", "very long " * 60 + ".", "-", "a/b", "cohen"]
)
def test_a_label_may_be_anything(tmp_path: Path, label: str) -> None:
    assert labels(f"{label}={make_run(tmp_path / 'run', [0.1])}") == [label]


@given(label=st.text(max_size=40))
def test_labels_are_on_one_line_and_cannot_steer_a_terminal(
    tmp_path_factory: pytest.TempPathFactory, label: str
) -> None:
    place = tmp_path_factory.getbasetemp() / "labelled"
    run = place if place.is_dir() else make_run(place, [0.1])
    (told,) = labels(f"{label}={run}")
    assert told.isprintable()
    assert told == told.strip() != ""


def test_a_path_with_an_equals_sign_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "sigma=0.5", [0.1])
    make_run(tmp_path / "a=b=c", [0.1])
    monkeypatch.chdir(tmp_path)
    assert labels("sigma=0.5", "x=sigma=0.5", "y=z=sigma=0.5", "a=b=c") == ["sigma=0.5", "x", "y=z", "a=b=c"]


def test_a_home_is_found_after_a_label(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_run(tmp_path / "run", [0.1])
    monkeypatch.setenv("HOME", str(tmp_path))
    assert labels("x=~/run", "~/run") == ["x", "run"]


def test_equal_names_get_as_much_of_their_paths_as_it_takes(tmp_path: Path) -> None:
    a, b, c = (make_run(tmp_path / place, [0.1]) for place in ("p/one/run", "p/two/run", "q/two/run"))
    assert labels(a, b) == ["one/run", "two/run"]
    assert labels(a, b, c) == ["p/one/run", "p/two/run", "q/two/run"]
    assert labels(a, b, a) == ["one/run", "two/run", "one/run (2)"]
    assert labels(f"run={a}", b) == ["run", "run (2)"]


@given(given_labels=st.lists(st.sampled_from(["x", "x (2)", "x (3)", "y"]), min_size=1, max_size=7))
def test_labels_always_differ(tmp_path_factory: pytest.TempPathFactory, given_labels: list[str]) -> None:
    place = tmp_path_factory.getbasetemp() / "the-run"
    run = place if place.is_dir() else make_run(place, [0.1])
    told = labels(*(f"{label}={run}" for label in given_labels))
    assert len(set(told)) == len(given_labels)
    assert told[0] == given_labels[0]


def test_a_published_name_stands_for_all_levels_of_noise_or_for_one(data_dir: Path) -> None:
    runs = named_runs(["cohen2019", "salman2019:0.25", "old=cohen2019:1", "all=salman2019"], data_dir)
    assert [label for label, _ in runs] == [
        *(f"Cohen 2019, sigma {noise}" for noise in LEVELS),
        "Salman 2019, sigma 0.25",
        "old",
        *(f"all, sigma {noise}" for noise in LEVELS),
    ]
    assert [len(run) for _, run in runs] == [1, 2, 3, 4, 2, 4, 1, 2, 3, 4]


def test_published_rows_are_found_where_the_variable_says(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERNCERT_DATA", str(data_dir))
    (data_dir / "elsewhere").mkdir()
    assert labels("cohen2019:0.5", data_dir=data_dir / "elsewhere") == ["Cohen 2019, sigma 0.50"]


def test_a_folder_of_data_that_is_not_there_is_an_error_whatever_is_asked_for(
    data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", [0.1])
    monkeypatch.setenv("BERNCERT_DATA", str(data_dir))
    for word in (run, "cohen2019:0.5"):
        with pytest.raises(FileNotFoundError, match=r"expected data_dir to name a folder, got .*mistyped"):
            labels(word, data_dir=tmp_path / "mistyped")
    monkeypatch.setenv("BERNCERT_DATA", str(tmp_path / "mistyped"))
    assert labels(run) == ["run"]  # which needs no data
    with pytest.raises(FileNotFoundError, match="variable BERNCERT_DATA to name a folder"):
        labels("cohen2019:0.5")


def test_published_rows_keep_their_claim_by_name_and_only_so(data_dir: Path) -> None:
    ((_, by_name),) = named_runs(["cohen2019:0.25"], data_dir)
    ((_, by_path),) = named_runs([str(by_name.path)])
    assert (by_name.claim.word, by_path.claim.word) == ("probable", "unknown claim")


def test_a_folder_of_published_rows_does_not_hide_their_name(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(data_dir / "published")
    assert labels("cohen2019:.12", data_dir=data_dir) == ["Cohen 2019, sigma 0.12"]
    assert len(labels("cohen2019", data_dir=data_dir)) == len(LEVELS)


@pytest.mark.parametrize("level", ["", "0.3", "x", "nan"])
def test_an_unknown_level_of_noise_is_told_with_those_there_are(data_dir: Path, level: str) -> None:
    with pytest.raises(ValueError, match=rf"expected cohen2019 or cohen2019:0\.12, .* got cohen2019:{level}"):
        labels(f"cohen2019:{level}", data_dir=data_dir)


def test_missing_published_rows_are_told_with_file_and_folder(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = r"published/cohen2019/cifar10/resnet110_noise_0\.12_test_sigma_0\.12\.tsv"
    with pytest.raises(FileNotFoundError, match=rf"{table} in the folder .* neither is given\. .*locuslab/smoothing"):
        labels("cohen2019")
    monkeypatch.setenv("BERNCERT_DATA", str(data_dir / "b"))
    for name in "ab":
        (data_dir / name).mkdir()
    with pytest.raises(FileNotFoundError, match=rf"{table} in the folder .* is not in .*/a or .*/b\."):
        labels("cohen2019", data_dir=data_dir / "a")


def test_what_is_not_there_is_told_without_its_label(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"got .*/nothing, which is not there"):
        labels(f"x={tmp_path}/nothing")
    with pytest.raises(ValueError, match=r"it has no run\.json"):
        labels(tmp_path)
