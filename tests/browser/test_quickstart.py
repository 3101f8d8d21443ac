"""The quickstart as a reader follows it: commands typed in a shell, clicks made in a browser, its own servers."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Page, expect

from lake_core import Lake
from tests import processes
from tests.docs.typed import Terminal, blocks, write_files

PAGE = "quickstart.md"
IN_ONE_PROCESS = (
    'lake_executor.configured({"in_process": {}}, name="lake_executor")'  # a process for each step takes a minute
)

pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("quickstart")]
until = partial(processes.until, seconds=300)


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    return Terminal(tmp_path_factory.mktemp("quickstart"))


@pytest.fixture(scope="module")
def first_day(terminal: Terminal) -> dict[str, str]:
    """Return what each command of the first day prints, by command."""
    _, *install = blocks(PAGE, "console", "Install")  # the first one makes the environment that the tests run in
    for lines in install:
        terminal.run(lines)
    write_files(PAGE, terminal.folder, "Two tables, a check, a schedule")
    definitions = terminal.folder / "definitions.py"
    definitions.write_text(definitions.read_text().replace("executor=lake_executor,", f"executor={IN_ONE_PROCESS},"))
    write_files(PAGE, terminal.folder, "The first day, by command")
    commands = "".join(blocks(PAGE, "console", "The first day, by command")).splitlines()
    return {command: terminal.run(command) for command in commands}


def amounts(folder: Path, table: str, ref: str = "main") -> list[float]:
    rows = Lake.open(folder / "lake").delta(f"tables/{table}", ref=ref).to_arrow()
    return sorted(rows["amount"].to_pylist())


def newest_run(terminal: Terminal, besides: str = "") -> dg.DagsterRun:
    """Wait for the newest run other than `besides` to end, and return it."""

    def ended() -> dg.DagsterRun | None:
        with dg.DagsterInstance.from_config(terminal.environment["DAGSTER_HOME"]) as instance:
            runs = [run for run in instance.get_runs(limit=1) if run.run_id != besides and run.is_finished]
        return runs[0] if runs else None

    run: dg.DagsterRun = until(ended, "the end of the newest run")
    return run


def materialize(page: Page, url: str, day: str) -> None:
    """Click what the page says: *Jobs*, `daily`, *Materialize all*, the partition, *Launch 1 run*."""
    page.goto(f"{url}/jobs")
    page.get_by_role("button", name="Skip", exact=True).click()  # what Dagster asks in a new instance
    page.get_by_text("daily", exact=True).first.click()
    page.get_by_role("button", name="Materialize all").first.click()
    dialog = page.get_by_role("dialog")
    partitions = dialog.locator("input[type=text]").first
    partitions.fill(day)
    partitions.press("Enter")
    dialog.get_by_role("button", name="Launch 1 run", exact=True).click()


@pytest.mark.extended
def test_the_first_day_is_published_by_command(first_day: dict[str, str], terminal: Terminal) -> None:
    logged, shown = first_day["lake log"], first_day["python look.py"]
    assert "tables/orders@0, tables/revenue@0" in logged
    assert "2025-01-01" in shown
    assert "14.5" in shown
    assert amounts(terminal.folder, "orders") == [4.0, 10.5]


@pytest.mark.exhaustive
@pytest.mark.browser
def test_a_broken_day_is_held_back_mended_and_run_again_in_the_ui(
    first_day: dict[str, str], terminal: Terminal, page: Page
) -> None:
    serve, look, mend, look_again = blocks(PAGE, "console", "The second day, in the UI")
    with terminal.serving(serve) as url:
        launched = newest_run(terminal)
        materialize(page, url, "2025-01-02")
        failed = newest_run(terminal, besides=launched.run_id)
        assert failed.status is dg.DagsterRunStatus.FAILURE
        page.goto(f"{url}/runs/{failed.run_id}")
        expect(page.get_by_text("Nothing of this run is published").first).to_be_visible()

        output = terminal.run(look)
        assert first_day["lake log"] in output
        assert first_day["python look.py"] in output, "main is as it was"
        assert "failed" in output
        assert failed.tags["lake/session"] in output
        assert -99.0 in amounts(terminal.folder, "orders", ref=failed.tags["lake/session"]), "the session can be read"

        terminal.run(mend)
        page.get_by_role("button", name="Re-execute all").click()
        mended = newest_run(terminal, besides=failed.run_id)
        assert mended.status is dg.DagsterRunStatus.SUCCESS

        page.goto(f"{url}/runs/{launched.run_id}")
        page.get_by_role("button", name="Re-execute all").click()
        expect(
            page.get_by_text("Expected non-None value").first
        ).to_be_visible()  # a run of `dg launch`, as the page says
    output = terminal.run(look_again)
    assert "tables/orders@1, tables/revenue@1" in output
    assert "105.0" in output
    assert amounts(terminal.folder, "orders") == [4.0, 6.0, 10.5, 99.0]
    terminal.run("".join(blocks(PAGE, "console", "What else is there")))
    with dg.DagsterInstance.from_config(terminal.environment["DAGSTER_HOME"]) as instance:
        assert instance.get_latest_materialization_event(dg.AssetKey(["maintenance", "compaction"])) is not None


@pytest.mark.exhaustive
@pytest.mark.browser
def test_components_go_on_from_failure_once_the_file_is_mended(
    first_day: dict[str, str], terminal: Terminal, page: Page
) -> None:
    make, serve, mend_and_look = blocks(PAGE, "console", "The same as components")
    terminal.run(make)
    write_files(PAGE, terminal.folder, "The same as components")
    *before, command = serve.splitlines()
    terminal.run("\n".join(before))
    with terminal.serving(command) as url:
        materialize(page, url, "2025-01-02")
        failed = newest_run(terminal)
        assert failed.status is dg.DagsterRunStatus.FAILURE
        assert not Lake.open(terminal.folder / "lake").list_datasets()
        *mend, look = mend_and_look.splitlines()
        terminal.run("\n".join(mend))
        page.goto(f"{url}/runs/{failed.run_id}")
        page.get_by_role("button", name="Re-execute all").locator("xpath=following::button[1]").click()
        page.get_by_role("menuitem").get_by_text("From failure", exact=True).click()
        resumed = newest_run(terminal, besides=failed.run_id)
    assert resumed.status is dg.DagsterRunStatus.SUCCESS
    assert resumed.tags["lake/session"] == failed.tags["lake/session"], "the session was carried on"
    assert "tables/orders@0, tables/revenue@0" in terminal.run(look)
    assert amounts(terminal.folder, "orders") == [6.0, 99.0]
