"""What is read from files of others: folders that are there, records that are no trap."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from berncert.foundation.safe_reading import DEEPEST, check_unpacked, data_folders, parsed_json, parsed_toml

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(value=PLAIN)
def test_json_is_read_as_it_is(value: Any) -> None:
    assert parsed_json(json.dumps(value)) == value


@pytest.mark.parametrize("levels", [DEEPEST + 1, 900, 100_000])
@pytest.mark.parametrize(
    ("parse", "text"),
    [
        (parsed_json, lambda n: "[" * n + "]" * n),
        (parsed_json, lambda n: '{"a":' * n + "0" + "}" * n),
        (parsed_toml, lambda n: f"a = {'[' * min(n, 10_000) + ']' * min(n, 10_000)}"),
        (parsed_toml, lambda n: f"{'.'.join('a' * min(n, 2000))} = 1"),
    ],
)
def test_what_is_nested_too_deep_is_a_plain_error(
    parse: Callable[[str], Any], text: Callable[[int], str], levels: int
) -> None:
    with pytest.raises(ValueError, match="expected at most 100 levels"):
        parse(text(levels))


def test_a_recipe_is_short() -> None:
    with pytest.raises(ValueError, match="expected at most 32768 characters, got 200003"):
        parsed_toml(f"{'a.' * 100_000}a=1"[:200_003])


@pytest.mark.parametrize("parse", [parsed_json, parsed_toml])
def test_as_many_levels_as_a_record_has_are_read(parse: Callable[[str], Any]) -> None:
    text = "[" * (DEEPEST - 2) + "]" * (DEEPEST - 2)
    assert parse(text if parse is parsed_json else f"a = {text}")


def test_folders_come_in_their_order_and_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERNCERT_DATA", raising=False)
    given_one, named = tmp_path / "given", tmp_path / "named"
    assert data_folders(None) == []
    with pytest.raises(
        FileNotFoundError, match=r"expected data_dir to name a folder, got '.*given', which is not there"
    ):
        data_folders(given_one)
    with pytest.raises(FileNotFoundError, match="expected data_dir to name a folder, got ''"):
        data_folders("")
    given_one.mkdir()
    monkeypatch.setenv("BERNCERT_DATA", str(named))
    with pytest.raises(
        FileNotFoundError, match=r"variable BERNCERT_DATA to name a folder, got '.*named'.*; correct it"
    ):
        data_folders(given_one)
    named.mkdir()
    assert data_folders(given_one) == [given_one, named]
    monkeypatch.setenv("BERNCERT_DATA", "")
    assert data_folders(None) == []


def test_the_limit_of_what_may_be_unpacked_can_be_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BERNCERT_MAX_GIB", raising=False)
    check_unpacked("it", 2 * 2**30)
    with pytest.raises(
        ValueError, match=r"expected it to unpack to at most 2 GiB, got more \(4 GiB\); .* BERNCERT_MAX_GIB"
    ):
        check_unpacked("it", 4 * 2**30)
    monkeypatch.setenv("BERNCERT_MAX_GIB", "4")
    check_unpacked("it", 4 * 2**30)
