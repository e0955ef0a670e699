"""Thumbnails: the pixels of the image, and only of images that the run saw."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sample_runs import digits, make_run, random_rows

from berncert.data import load
from berncert.reporting.html import report, report_html
from berncert.reporting.html.pictures import LARGEST, Album, ImageFinder, thumbnail
from berncert.runs.records import Run


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def own_images(path: Path, images: np.ndarray) -> Path:
    np.savez(path, images=images, labels=np.arange(len(images)) % 2)
    return path


def run_over(folder: Path, data: Path) -> Run:
    images = load(data, "all")
    return make_run(folder, random_rows(images), images=images)


def test_a_thumbnail_has_the_pixels_of_the_image() -> None:
    grey = np.linspace(0, 1, 64, dtype=np.float32).reshape(1, 8, 8)
    assert np.array_equal(pixels(thumbnail(grey)), np.rint(grey[0] * 255))
    colour = np.random.default_rng(0).random((3, 5, 7), dtype=np.float32)
    assert np.array_equal(pixels(thumbnail(colour)), np.rint(colour * 255).transpose(1, 2, 0))


def test_a_large_image_is_made_small() -> None:
    assert pixels(thumbnail(np.zeros((3, 300, 150), dtype=np.float32))).shape == (LARGEST, LARGEST // 2, 3)


def test_a_point_is_a_dot_where_it_is() -> None:
    picture = pixels(thumbnail(np.array([0.25, 0.9], dtype=np.float32)))
    rows, columns = np.nonzero(picture < 100)
    assert columns.mean() / picture.shape[1] == pytest.approx(0.25, abs=0.05)
    assert 1 - rows.mean() / picture.shape[0] == pytest.approx(0.9, abs=0.06)


def test_the_examples_show_the_images_of_their_rows(tmp_path: Path) -> None:
    images = load("digits", skip=3, limit=30)
    run = make_run(tmp_path, random_rows(images), images=images, settings={"skip": 3})
    gallery = ImageFinder(None).gallery(run.about)
    assert gallery.missing == ""
    for k in (0, 7, 29):
        png = gallery.png(int(images.indices[k]))
        assert png is not None
        assert np.array_equal(pixels(png), np.rint(images.images[k, 0].numpy() * 255))
    assert gallery.png(1) is None  # left out by skip


def test_points_and_images_of_ones_own_are_shown(tmp_path: Path) -> None:
    points = load("moons", limit=20)
    text = report_html(report([("points", make_run(tmp_path / "a", random_rows(points), images=points))]))
    assert text.count("data:image/png") == 20
    data = own_images(tmp_path / "own.npz", np.random.default_rng(0).integers(0, 256, (6, 3, 9, 9), dtype=np.uint8))
    assert report_html(report([("own", run_over(tmp_path / "b", data))])).count("data:image/png") == 6


def test_without_the_images_the_report_comes_with_a_note(tmp_path: Path) -> None:
    data = own_images(tmp_path / "own.npz", np.zeros((6, 1, 4, 4), dtype=np.uint8))
    run = run_over(tmp_path / "run", data)
    data.unlink()
    text = report_html(report([("run", run)]))
    assert "data:image/png" not in text
    assert "own.npz are not shown: expected one of moons, digits" in text


def test_images_that_have_changed_since_the_run_are_not_shown(tmp_path: Path) -> None:
    data = own_images(tmp_path / "own.npz", np.zeros((6, 1, 4, 4), dtype=np.uint8))
    run = run_over(tmp_path / "run", data)
    own_images(data, np.ones((6, 1, 4, 4), dtype=np.uint8))
    text = report_html(report([("run", run)]))
    assert "data:image/png" not in text
    assert "they have changed since the run" in text


def test_inputs_that_are_no_pictures_are_not_shown(tmp_path: Path) -> None:
    data = own_images(tmp_path / "own.npz", np.zeros((6, 5), dtype=np.float32))
    assert "there is no picture of an input of shape 5" in report_html(report([("run", run_over(tmp_path, data))]))


def test_nothing_is_downloaded_for_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BERNCERT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    run = make_run(tmp_path / "run", random_rows(digits(5)), images=digits(5), data={"name": "cifar10"})
    assert "The images of cifar10 are not shown" in report_html(report([("run", run)], data_dir=tmp_path))


def test_a_picture_is_in_the_album_once() -> None:
    album = Album()
    first, second = thumbnail(np.zeros((1, 2, 2), dtype=np.float32)), thumbnail(np.ones((1, 2, 2), dtype=np.float32))
    number, source = album.place(first)
    assert source.startswith("data:image/png;base64,")
    assert album.place(second)[0] != number
    assert album.place(first) == (number, "")
