"""Runs on tables: constraints that a file's columns imply hold in every line that is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import train_test_split

from berncert.runs.table_settings import TableSettings
from berncert.runs.tables import execute_table


def test_a_category_that_training_never_saw_is_named_and_stays_a_category(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": np.round(rng.lognormal(1, 0.5, 60), 2), "job": rng.choice(["clerk", "boss"], 60)})
    table["approved"] = np.where(table["income"] + 2 * (table["job"] == "boss") > 4, "yes", "no")
    path, settings = tmp_path / "rare.csv", TableSettings(target="approved", model="logistic", degree=2)
    labels = np.asarray(table["approved"])
    held_out = train_test_split(np.arange(60), test_size=settings.test, random_state=settings.seed, stratify=labels)[1]
    table.loc[held_out.min(), "job"] = "king"
    table.to_csv(path, index=False)
    with pytest.warns(UserWarning, match="got none of job=king"):
        run = execute_table(path, tmp_path / "run", settings, threads=1, progress=False)
    members = [run.about["data"]["columns"].index(f"job={name}") for name in ("boss", "clerk", "king")]
    for name in ("row", "counterfactual"):
        part = run.vectors(name)[:, members]
        part = part[np.isfinite(part).all(axis=1)]
        assert len(part)
        assert (np.sort(part, axis=1) == [0, 0, 1]).all()
    assert (run.vectors("row")[:, members[2]] == 1).sum() == 1
