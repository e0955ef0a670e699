"""Tables from files: numbers, categories, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from berncert.data.table_files import read_table

TEXT = "age,home,income,good\n30,rent,1.5,yes\n41,own,2.5,no\n52,rent,3.0,no\n"


def written(folder: Path, text: str) -> Path:
    path = folder / "table.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_numbers_stay_and_categories_become_columns(separator: str, tmp_path: Path) -> None:
    table = read_table(written(tmp_path, TEXT.replace(",", separator)), "good")
    assert table.columns == ("age", "home=own", "home=rent", "income")
    np.testing.assert_array_equal(table.values, [[30, 0, 1, 1.5], [41, 1, 0, 2.5], [52, 0, 1, 3.0]])
    assert table.target.tolist() == ["yes", "no", "no"]
    assert table.groups == (("home=own", "home=rent"),)
    assert table.whole == ("age",)


def test_parquet_is_read_like_csv(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    columns = {"age": [30, 41, 52], "home": ["rent", "own", "rent"], "income": [1.5, 2.5, 3.0], "good": list("ynn")}
    parquet.write_table(arrow.table(columns), tmp_path / "table.parquet")
    one = read_table(tmp_path / "table.parquet", "good")
    two = read_table(written(tmp_path, TEXT), "good")
    np.testing.assert_array_equal(one.values, two.values)
    assert one.columns == two.columns


def test_missing_values_are_named_or_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT + "NA,own,2,yes\n33,,1,yes\n")
    with pytest.raises(ValueError, match=r"got some in 2 of 5 rows: age \(1: 'NA'\), home \(1: empty\)"):
        read_table(path, "good")
    table = read_table(path, "good", drop_missing=True)
    assert table.numbers.tolist() == [0, 1, 2]


def test_none_is_a_category_in_csv(tmp_path: Path) -> None:
    table = read_table(written(tmp_path, TEXT + "33,none,2,yes\n34,None,2,yes\n"), "good")
    assert table.groups == (("home=None", "home=none", "home=own", "home=rent"),)


def test_only_nulls_are_missing_in_parquet(tmp_path: Path) -> None:
    parquet, arrow = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow")
    words = ["none", "NA", "null", "", "?", "nan"]
    columns = {"home": words, "age": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0], "good": ["none", "NA"] * 3}
    parquet.write_table(arrow.table(columns), tmp_path / "table.parquet")
    table = read_table(tmp_path / "table.parquet", "good")
    assert table.groups == (tuple(f"home={word}" for word in sorted(words)),)
    assert table.target.tolist() == ["none", "NA"] * 3
    holes = columns | {"home": [*words[:5], None], "age": [1.0, float("nan"), 3.0, 4.0, 5.0, None]}
    parquet.write_table(arrow.table(holes), tmp_path / "holes.parquet")
    with pytest.raises(ValueError, match=r"in 2 of 6 rows: home \(1: null\), age \(2: null\)"):
        read_table(tmp_path / "holes.parquet", "good")
    assert read_table(tmp_path / "holes.parquet", "good", drop_missing=True).numbers.tolist() == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        (TEXT, "goood", "got 'goood'; did you mean good"),
        ("a,a\n1,2\n", "a", "different names"),
        ("a,b\n1,2,3\n", "a", "expected 2 values in row 2"),
        ("a,b\n", "a", "a line of names and rows"),
        ("a\n1\n2\n", "a", "columns besides 'a'"),
        ("n,b\n" + "".join(f"name{i},{i}\n" for i in range(30)), "b", "30 different words such as 'name0'"),
        ("n,b\nnone,1\n" + "".join(f"{i},{i}\n" for i in range(30)), "b", "31 different words such as 'none'"),
    ],
)
def test_what_is_no_table_is_refused(text: str, target: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_table(written(tmp_path, text), target)


def test_tables_that_are_shipped_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = read_table("wine", "class", leave_out=["ash"])
    assert table.values.shape == (178, 12)
    assert "proline" in table.whole
    assert set(table.target) == {"class_0", "class_1", "class_2"}


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="which is not there"):
        read_table(tmp_path / "no.csv", "x")
