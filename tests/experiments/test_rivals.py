"""The record of a picture: what is added to it, and what stays."""

from __future__ import annotations

from experiments.rivals.__main__ import joined


def test_an_added_curve_takes_the_place_of_one_with_its_label_and_the_others_stay() -> None:
    old = {"picture": "p", "command": "first", "curves": [{"label": "a", "x": 1}, {"label": "b", "x": 2}]}
    new = {"picture": "p", "command": "second", "curves": [{"label": "a", "x": 3}, {"label": "c", "x": 4}]}
    both = joined(old, new)
    assert [(curve["label"], curve["x"]) for curve in both["curves"]] == [("b", 2), ("a", 3), ("c", 4)]
    assert both["command"] == "first; second"
