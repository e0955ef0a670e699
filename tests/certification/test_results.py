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


def test_parts_concatenate_to_the_whole(certificates: berncert.Certificates) -> None:
    both = berncert.Certificates.concatenate([certificates[:2], certificates[2:]])
    for name, column in certificates.as_columns().items():
        np.testing.assert_array_equal(both.as_columns()[name], column)
    with pytest.raises(TypeError, match="expected a list of Certificates to concatenate, got nothing"):
        berncert.Certificates.concatenate([])


def test_rows_of_images_hold_rows_of_features() -> None:
    model, images = berncert.load("digits"), berncert.data.load("digits", limit=5).images
    c = berncert.certify(model, images)
    assert isinstance(c.in_features, berncert.Certificates)
    np.testing.assert_array_equal(c[2:4].in_features.witness, c.in_features.witness[2:4])
    assert c[3].in_features.radius == c.in_features.radius[3] == c.feature_radius[3]
    both = berncert.ImageCertificates.concatenate([c[:1], c[1:]])
    np.testing.assert_array_equal(both.in_features.upper, c.in_features.upper)


def test_certified_accuracy_counts_what_is_correct_and_holds(certificates: berncert.Certificates) -> None:
    labels = np.where(np.arange(6) < 4, certificates.predicted, certificates.predicted + 1)
    held = np.sort(certificates.radius[:4])
    assert certificates.certified_accuracy(labels, 0.0) == 4 / 6
    assert certificates.certified_accuracy(labels, held).tolist() == [4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert certificates.certified_accuracy(labels, [held[-1] * 1.01, np.inf]).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("labels", "radii"), [([0, 1], 0.1), (np.zeros(6), 0.1), (np.zeros(6, int), -1.0), (np.zeros(6, int), np.nan)]
)
def test_labels_or_radii_that_make_no_sense_are_refused(
    certificates: berncert.Certificates, labels: object, radii: float
) -> None:
    with pytest.raises(ValueError, match="expected"):
        certificates.certified_accuracy(labels, radii)


def test_a_table_of_pandas_has_a_column_for_each_field() -> None:
    c = berncert.certify(berncert.load("digits"), berncert.data.load("digits", limit=3).images)
    table = c.to_pandas()
    assert table["radius"].tolist() == c.radius.tolist()
    assert table["in_features.upper"].tolist() == c.in_features.upper.tolist()
    np.testing.assert_array_equal(np.stack(table["features"]), c.features)


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
