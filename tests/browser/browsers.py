"""A browser on this machine: Chromium or Chrome as it is installed, or the one that Playwright brings."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from playwright.sync_api import Playwright

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
