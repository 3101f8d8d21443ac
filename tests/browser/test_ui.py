"""The real web server in a real browser: what a person sees of the demo's runs."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from playwright.sync_api import Page, expect

from lake_core.delta import DeltaTable
from tests.conftest import DEMO_SECONDS, ROOT, Demo

# The first test may run the demo.
pytestmark = [pytest.mark.browser, pytest.mark.exhaustive, pytest.mark.timeout(DEMO_SECONDS + 300)]


@pytest.fixture(scope="module")
def ui(demo: Demo, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start a web server on the demo's instance and yield its URL."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "dagster_webserver", "-w", "workspace.yaml", "-h", "127.0.0.1", "-p", str(port)]
    log = tmp_path_factory.mktemp("webserver") / "log"
    with (
        log.open("w") as out,
        subprocess.Popen(command, cwd=ROOT, env=demo.environment, stdout=out, stderr=out) as server,
    ):
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


NODE = """
query Node($key: [String!]!) { assetNodeOrError(assetKey: {path: $key}) { ... on AssetNode {
  kinds groupName
  assetMaterializations(limit: 1) { metadataEntries { ...entry } }
  assetObservations(limit: 1) { metadataEntries { ...entry } }
} } }
fragment entry on MetadataEntry { label
  ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue }
  ... on TableColumnLineageMetadataEntry { lineage { columnName columnDeps { assetKey { path } columnName } } }
}
"""


def ask(ui: str, query: str, **variables: object) -> Any:
    """Return the answer of Dagster's GraphQL API."""
    body = json.dumps({"query": query, "variables": variables}).encode()
    request = urllib.request.Request(f"{ui}/graphql", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        response = json.load(answer)
    assert "errors" not in response, response
    return response["data"]


def held_back(demo: Demo) -> dg.DagsterRun:
    """Return the run of the month whose data were broken."""
    with dg.DagsterInstance.from_config(demo.environment["DAGSTER_HOME"]) as instance:
        (run,) = instance.get_runs(dg.RunsFilter(job_name="month", statuses=[dg.DagsterRunStatus.FAILURE]))
        return run


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


def test_the_weather_is_shown_as_a_picture(page: Page, ui: str) -> None:
    page.goto(f"{ui}/assets/hourly_weather?view=overview")
    expect(page.get_by_text("lake/preview", exact=True).first).to_be_visible()
    page.get_by_text("Show Markdown", exact=False).last.click()
    picture = page.locator("img[src^='data:image/png']").first
    expect(picture).to_be_visible()
    width, height = picture.evaluate("image => [image.naturalWidth, image.naturalHeight]")
    assert width > 200
    assert height > 90, "three airports are no line of three pixels"


def test_numbers_plot(page: Page, ui: str) -> None:
    page.goto(f"{ui}/assets/maintenance/compaction?view=overview")
    page.get_by_text("Plots", exact=True).first.click()
    expect(page.locator("canvas").first).to_be_visible()
    page.goto(f"{ui}/assets/carrier_airport_summary?view=overview")
    page.get_by_text("Plots", exact=True).first.click()
    expect(page.locator("canvas").first).to_be_visible()


def test_the_checks_of_a_table_have_a_page(page: Page, ui: str) -> None:
    page.goto(f"{ui}/assets/flights?view=checks")
    for name in ("identified", "possible"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    page.get_by_text("identified", exact=True).first.click()
    page.get_by_text("Execution history", exact=True).first.click()
    expect(page.get_by_text("Failed", exact=True).first).to_be_visible()


def test_the_health_checks_of_a_table_have_a_page(page: Page, ui: str) -> None:
    page.goto(f"{ui}/assets/maintenance/health/flights?view=checks")
    for name in ("small_files", "uncheckpointed_commits"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()


def test_the_page_of_a_run_that_was_held_back(page: Page, ui: str, demo: Demo) -> None:
    failed = held_back(demo)
    page.goto(f"{ui}/runs/{failed.run_id}?logs=opened+on+branch")  # the log shows no more than its end at first
    expect(page.get_by_text(f"Session {failed.tags['lake/session']} opened on branch main").first).to_be_visible()
    page.goto(f"{ui}/runs/{failed.run_id}")
    expect(page.get_by_text("2 blocking asset checks failed with ERROR severity").first).to_be_visible()
    expect(page.get_by_text("lake/session", exact=False).first).to_be_visible()


def test_published_and_staged_are_told_apart(page: Page, ui: str) -> None:
    page.goto(f"{ui}/assets/flights?view=events")
    expect(page.get_by_text("published", exact=True).first).to_be_visible()
    expect(page.get_by_text("lake/commit", exact=True).first).to_be_visible()


def test_what_the_api_tells_of_an_asset(ui: str, demo: Demo) -> None:
    """The open-source UI has no page for column lineage: the API has it, and a table in the metadata shows it."""
    node = ask(ui, NODE, key=["delays_by_hour"])["assetNodeOrError"]
    assert set(node["kinds"]) == {"deltalake", "pyspark"}
    assert node["groupName"] == "delays"
    (latest,) = node["assetMaterializations"]
    entries = {entry["label"]: entry for entry in latest["metadataEntries"]}
    assert "lake/state" not in entries
    assert entries["lake/session"]["text"].startswith("run-")
    assert entries["dagster/row_count"]["intValue"] == rows(demo, "delays_by_hour")
    lineage = {column["columnName"]: column["columnDeps"] for column in entries["dagster/column_lineage"]["lineage"]}
    assert {"assetKey": {"path": ["flights"]}, "columnName": "dep_delay"} in lineage["mean_dep_delay"]
    assert "lake/column_lineage" in entries
    (observed,) = node["assetObservations"]
    metadata = {entry["label"]: entry for entry in observed["metadataEntries"]}
    assert metadata["lake/state"]["text"] == "published"
    assert len(metadata["lake/commit"]["text"]) == 64
    assert metadata["lake/session"]["text"] == entries["lake/session"]["text"]


def test_the_killed_run_and_its_re_execution_are_listed(page: Page, ui: str) -> None:
    page.goto(f"{ui}/runs")
    expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
