"""A browser on this machine: Chromium or Chrome as it is installed, or the one that Playwright brings."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, Playwright, expect, sync_playwright

SECONDS = 60
"""How late a busy machine may answer."""

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PATHS = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
NO_BROWSER = (
    "no browser was found: install Chromium or Chrome (Debian: apt-get install chromium), "
    "run `.venv/bin/playwright install chromium`, or name one in the environment variable CHROMIUM"
)


def find_browser(playwright: Playwright | None = None) -> str | None:
    """Return the path of a browser, None where there is none.

    Args:
        playwright: where to ask for the browser that Playwright has installed.
    """
    named = os.environ.get("CHROMIUM")
    if named:
        return named
    installed = next(filter(None, map(shutil.which, NAMES)), None) or next(
        (path for path in PATHS if Path(path).exists()), None
    )
    if installed is None and playwright is not None and Path(playwright.chromium.executable_path).exists():
        return playwright.chromium.executable_path
    return installed


@contextmanager
def open_page() -> Iterator[Page]:
    """Open a page in a browser. Where there is none, skip the test."""
    expect.set_options(timeout=SECONDS * 1000)
    with sync_playwright() as playwright:
        path = find_browser(playwright)
        if path is None:
            pytest.skip(NO_BROWSER)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(SECONDS * 1000)
        yield page
        browser.close()
