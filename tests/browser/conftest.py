"""The browser that the tests of the UI share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from tests.browser.browsers import NO_BROWSER, find_browser

expect.set_options(timeout=60_000)  # a busy machine answers late


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        path = find_browser(playwright)
        if path is None:
            pytest.skip(NO_BROWSER)
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(60_000)
        yield page
        browser.close()
