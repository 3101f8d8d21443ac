"""The real web server in a real browser: what a person sees of the demo's runs."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from lake_core.delta import DeltaTable
from tests.conftest import ROOT, Demo

pytestmark = pytest.mark.browser

CHROMIUM = "/usr/bin/chromium"


@pytest.fixture(scope="module")
def ui(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a web server on the demo's instance."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("webserver") / "log"
    with log.open("w") as out, subprocess.Popen(command, cwd=ROOT, env=demo.environment, stdout=out, stderr=out) as server:
        try:
            _wait_for(f"{url}/server_info", server, log)
            yield url
        finally:
            server.terminate()  # it stops its code server before it ends
            server.wait(30)


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(240):
        assert server.poll() is None, log.read_text()
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except OSError:
            time.sleep(0.25)
    pytest.fail(f"the web server did not answer:\n{log.read_text()}")


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1600, "height": 1000})
        page.set_default_timeout(30_000)
        yield page
        browser.close()


def rows(demo: Demo, name: str) -> int:
    return DeltaTable.open(f"{demo.lake}/tables/{name}").to_arrow().num_rows


def test_the_lineage_graph_shows_the_assets_and_their_kinds(page: Page, ui: str) -> None:
    page.goto(f"{ui}/assets/flights?view=lineage&lineageScope=downstream")
    for name in ("flights", "delays_by_hour", "departure_log", "carrier_airport_summary"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.goto(f"{ui}/assets/carrier_airport_summary?view=lineage&lineageScope=upstream")
    for name in ("flights", "airlines", "airports", "planes", "carrier_airport_summary"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    for kind in ("Delta Lake", "PySpark", "Arrow"):
        expect(page.get_by_text(kind, exact=True).first).to_be_visible()


@pytest.mark.parametrize("name", ["carrier_airport_summary", "airports"])
def test_the_row_count_is_that_of_the_table(page: Page, ui: str, demo: Demo, name: str) -> None:
    page.goto(f"{ui}/assets/{name}?view=overview")
    expect(page.get_by_text("Row count", exact=True).first).to_be_visible()
    expect(page.get_by_text(f"{rows(demo, name):,}", exact=True).first).to_be_visible()


def test_the_columns_and_the_checks_are_shown(page: Page, ui: str) -> None:
    page.goto(f"{ui}/assets/flights?view=overview")
    expect(page.get_by_text("minutes, negative if early; null if cancelled or diverted").first).to_be_visible()
    page.goto(f"{ui}/assets/flights?view=checks")
    expect(page.get_by_text("flights_as_in_source", exact=True).first).to_be_visible()


def test_the_killed_run_and_its_re_execution_are_listed(page: Page, ui: str) -> None:
    page.goto(f"{ui}/runs")
    expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
