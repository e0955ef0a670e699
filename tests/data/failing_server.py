"""A server on this machine that can be made to fail as servers do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from berncert.data import download


class Server(ThreadingHTTPServer):
    """Serves `files` by their paths, and remembers which ranges were asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str | None] = []
        self.cut_after: list[int] = []
        """How many bytes to send in the next answers before closing the connection."""
        self.honours_ranges = True
        self.starts_earlier_by = 0
        self.tells_length = True

    def url(self, name: str = "file") -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers["Range"]
        server.asked.append(wanted)
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        start = int(re.fullmatch(r"bytes=(\d+)-", wanted)[1]) if wanted and server.honours_ranges else 0  # type: ignore[index]
        if start and start >= len(content):
            self.send_error(416)
            return
        start = max(0, start - server.starts_earlier_by)
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.tells_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        end = start + server.cut_after.pop(0) if server.cut_after else len(content)
        self.wfile.write(content[start:end])

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server that runs, and a downloader that loses no time when it fails."""
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(download, "TIMEOUT_SECONDS", 5.0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with Server() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()
