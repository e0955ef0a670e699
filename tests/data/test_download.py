"""Downloads: whatever the server does, a file arrives whole and right, or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from failing_server import Server, serving

from berncert.data import download as module
from berncert.data.download import checksum, download

CONTENT = np.random.default_rng(0).bytes(300_000)
KNOWN = checksum(CONTENT, "md5")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    with serving(monkeypatch) as server:
        server.files["/file"] = CONTENT
        yield server


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.endswith(".lock"))


def test_a_download_arrives_whole_under_its_name(server: Server, tmp_path: Path) -> None:
    download([server.url()], tmp_path / "new" / "file", KNOWN)
    assert (tmp_path / "new" / "file").read_bytes() == CONTENT
    assert left_in(tmp_path / "new") == ["file"]
    assert server.asked == [None]


def test_an_interrupted_download_resumes_where_it_stopped(server: Server, tmp_path: Path) -> None:
    server.cut_after = [100_000, 50_000]
    download([server.url()], tmp_path / "file", KNOWN)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=100000-", "bytes=150000-"]


def test_the_next_run_resumes_where_the_last_one_stopped(server: Server, tmp_path: Path) -> None:
    server.cut_after = [100_000, 0]
    with pytest.raises(ConnectionError, match="the connection ended early"):
        download([server.url()], tmp_path / "file", KNOWN)
    assert left_in(tmp_path) == ["file.part"]
    download([server.url()], tmp_path / "file", KNOWN)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert left_in(tmp_path) == ["file"]
    assert server.asked == [None, "bytes=100000-", "bytes=100000-"]


def test_a_download_that_lacked_only_its_name_is_finished_without_another_byte(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(CONTENT)
    download([server.url()], tmp_path / "file", KNOWN)
    assert server.asked == [f"bytes={len(CONTENT)}-"]
    assert left_in(tmp_path) == ["file"]


@pytest.mark.parametrize("beginning", [b"another file's" * 1000, CONTENT + b"too much"])
def test_what_was_left_of_another_file_is_thrown_away(beginning: bytes, server: Server, tmp_path: Path) -> None:
    (tmp_path / "file.part").write_bytes(beginning)
    download([server.url()], tmp_path / "file", KNOWN)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == [f"bytes={len(beginning)}-", None]


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.honours_ranges = False
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download([server.url()], tmp_path / "file", KNOWN)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_range_that_begins_earlier_than_asked_is_put_where_it_belongs(server: Server, tmp_path: Path) -> None:
    server.starts_earlier_by = 500
    (tmp_path / "file.part").write_bytes(CONTENT[:1000])
    download([server.url()], tmp_path / "file", KNOWN)
    assert (tmp_path / "file").read_bytes() == CONTENT
    assert server.asked == ["bytes=1000-"]


def test_an_answer_of_unknown_length_is_judged_by_its_checksum(server: Server, tmp_path: Path) -> None:
    server.tells_length = False
    download([server.url()], tmp_path / "file", KNOWN)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_a_wrong_file_is_refused_and_leaves_nothing_behind(server: Server, tmp_path: Path) -> None:
    server.files["/file"] = b"<html>please log in</html>"
    got = checksum(server.files["/file"], "md5")
    with pytest.raises(ConnectionError, match=f"expected {KNOWN}, got {got}"):
        download([server.url()], tmp_path / "file", KNOWN)
    assert left_in(tmp_path) == []


def test_the_next_address_is_tried_where_one_fails(server: Server, tmp_path: Path) -> None:
    server.files["/wrong"] = b"wrong"
    urls = ["http://127.0.0.1:9/file", server.url("missing"), server.url("wrong"), server.url()]
    download(urls, tmp_path / "file", KNOWN)
    assert (tmp_path / "file").read_bytes() == CONTENT


def test_when_all_addresses_fail_the_error_names_each(server: Server, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match=r"127.0.0.1:9/file: .*refused; .*/missing: the server answered 404"):
        download(["http://127.0.0.1:9/file", server.url("missing")], tmp_path / "file", KNOWN)
    assert left_in(tmp_path) == []


def test_a_server_that_always_breaks_off_is_left_in_the_end(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ATTEMPTS", 3)
    server.cut_after = [1000] * 10
    with pytest.raises(ConnectionError, match="interrupted 3 times; what has arrived is kept"):
        download([server.url()], tmp_path / "file", KNOWN)
    assert (tmp_path / "file.part").read_bytes() == CONTENT[:3000]


def test_two_runs_at_once_download_a_file_once(server: Server, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        for run in [pool.submit(download, [server.url()], tmp_path / "file", KNOWN) for _ in range(4)]:
            run.result()
    assert server.asked == [None]


def test_the_bar_counts_megabytes(server: Server, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server.files["/file"] = CONTENT * 10
    known = checksum(CONTENT * 10, "sha256")
    download([server.url()], tmp_path / "file", known, progress=True)
    assert "downloading file, MB" in (shown := capfd.readouterr().err)
    assert "3/3" in shown
