"""The struct of arrays that a certifier returns."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from random_heads import random_head

import berncert


@pytest.fixture(scope="module")
def certificates() -> berncert.Certificates:
    rng = np.random.default_rng(0)
    return berncert.certify(random_head(rng, 3, (2, 2)), rng.uniform(size=(6, 2)))


def test_rows_come_one_by_one(certificates: berncert.Certificates) -> None:
    rows = list(certificates)
    assert len(rows) == len(certificates) == 6
    for i, row in enumerate(rows):
        assert row.radius == certificates.radius[i]
        assert row.witness.shape == (2,)
        assert isinstance(row.status, berncert.Status)


def test_a_selection_of_rows_is_again_certificates(certificates: berncert.Certificates) -> None:
    correct = certificates[certificates.predicted == certificates.predicted[0]]
    assert isinstance(correct, berncert.Certificates)
    assert (correct.predicted == certificates.predicted[0]).all()
    assert len(certificates[1:3]) == 2


def test_certificates_cannot_be_changed(certificates: berncert.Certificates) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificates.radius = certificates.upper  # type: ignore[misc]


def test_every_status_explains_itself() -> None:
    assert all(len(status.value.split()) >= 5 for status in berncert.Status)


def test_many_rows_print_as_a_summary_and_one_row_in_full(certificates: berncert.Certificates) -> None:
    printed = repr(certificates)
    assert len(printed) < 300
    assert printed.startswith("Certificates(6 rows: radius ")
    assert sum(int(part.split()[0]) for part in printed.split("; ")[1].split(", ")) == 6
    assert f"radius={certificates[2].radius!r}" in repr(certificates[2])
    assert repr(certificates[:0]).startswith("Certificates(no rows;")
