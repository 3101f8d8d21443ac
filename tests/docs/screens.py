"""The pictures of the pages of `lake ui`: `python -m tests.docs.screens` takes them into docs/screens.

It serves the lake of the tests from memory, and needs a browser. Each picture is taken for light and for dark pages.
"""

from __future__ import annotations

import datetime as dt
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import uvicorn
from playwright.sync_api import sync_playwright

from lake_core import Lake
from lake_core.store import open_store
from lake_core.testing.manual_clock import ManualClock
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.browser.browsers import NO_BROWSER, find_browser
from tests.docs.blocks import DOCS
from tests.ui.lakes import create_lake

FOLDER = DOCS / "screens"
PAGES: Mapping[str, str] = {
    "home": "/",
    "history": "/history?ref=*",
    "rows": "/compare/dataset?from=main~5&to=main&path=tables/orders&kind=changed",
    "merge": "/merge?ref=conflicting",
    "array": "/dataset/arrays/weather?i0=2",
    "session": "/session/run-of-today",
}
ACTIONS: Mapping[str, str] = {"publish": "/act/publish?session=run-of-today"}
"""Pages that only a server with `--write` has."""
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
_SIZE = {"width": 1180, "height": 760}


def names() -> list[str]:
    """Return the names of the pictures."""
    return [f"{name}-{theme}.png" for name in (*PAGES, *ACTIONS) for theme in THEMES]


@contextmanager
def served(lake: Lake, *, writes: bool) -> Iterator[str]:
    """Serve a lake, and yield the address."""
    settings = PageSettings(dagster_url="http://localhost:3000", writes=writes)
    server = uvicorn.Server(uvicorn.Config(create_app(lake, settings), port=0, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.05)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


def main() -> None:
    """Take all pictures."""
    FOLDER.mkdir(exist_ok=True)
    os.environ["LAKE_COMMITTER"] = "ann"
    clock = ManualClock(dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(hours=10))
    lake = create_lake(open_store("memory://shop"), clock)
    with sync_playwright() as playwright:
        path = find_browser(playwright)
        if path is None:
            raise SystemExit(NO_BROWSER)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        for pages, writes in ((PAGES, False), (ACTIONS, True)):
            with served(lake, writes=writes) as address:
                for theme in THEMES:
                    page = browser.new_page(viewport=_SIZE, color_scheme=theme)
                    for name, place in pages.items():
                        page.goto(address + place)
                        page.goto(address + place)  # what the first visit had no time to count
                        page.screenshot(path=str(FOLDER / f"{name}-{theme}.png"))
        browser.close()


if __name__ == "__main__":
    main()
