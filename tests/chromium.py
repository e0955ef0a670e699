"""A real browser for tests of pages; they are skipped where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync", "--no-first-run"),
]
Opener = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = os.environ.get("BERNCERT_CHROMIUM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        pytest.skip(f"no browser: install one of {', '.join(BROWSERS)}, or name one in BERNCERT_CHROMIUM")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Opener]:
    """Opens a file; at the end of the test nothing may have gone wrong in it, and it may have asked for nothing.

    What lies in `folder` belongs to the page.
    """
    troubles: list[str] = []
    contexts = []

    def opened(path: Path, *, width: int = 1280, folder: Path | None = None, **options: Any) -> Page:
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        context.set_default_timeout(5000)
        contexts.append(context)
        page = context.new_page()
        url = path.as_uri()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        asked = lambda request: troubles.append(f"asked for {request.url}")  # noqa: E731
        own = lambda of: of.startswith(folder.as_uri()) if folder else of.split("#")[0] == url  # noqa: E731
        page.on("request", lambda its: None if own(its.url) else asked(its))
        page.goto(url)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles, troubles
