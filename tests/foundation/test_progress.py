"""The progress bar: silent off a terminal and on quick work, visible when asked for."""

from __future__ import annotations

import pytest

from berncert.foundation.progress import Bar


def test_nothing_is_written_off_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar("working", total=3) as bar:
        for done in range(4):
            bar.update(done)
    assert capfd.readouterr() == ("", "")


def test_a_bar_that_is_asked_for_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar("working", total=3, progress=True) as bar:
        bar.update(3)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "working" in captured.err
    assert "3/3" in captured.err
