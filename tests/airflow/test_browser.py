"""Airflow's pages in a real browser: what people see of lakes, their commits and their assets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
from playwright.sync_api import Locator, Page, expect

from lake_core import Lake
from lake_core.graveler import Commit
from tests.airflow.scenes import FOLLOWED, connection_of, root_of
from tests.airflow.standalone import DEADLINE, Run, Standalone, until
from tests.browser.browsers import open_page

pytestmark = [pytest.mark.airflow, pytest.mark.newest, pytest.mark.browser, pytest.mark.timeout(1200)]

SCENE = "shown"
TOTALS = f"{connection_of(SCENE)}/main/tables/totals"
SECRET = '{"secret_access_key": "not to be seen"}'


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_page() as page:
        yield page


@dataclass(frozen=True, slots=True)
class PublishedScene:
    """A run that has published, and the DAG that its asset starts has run, too."""

    run: Run
    lake: Lake
    commit: Commit

    @property
    def path(self) -> str:
        """Return the path of the page of the run."""
        return f"/dags/{self.run.dag_id}/runs/{self.run.run_id}"


@pytest.fixture(scope="module")
def published(airflow: Standalone) -> PublishedScene:
    run = airflow.run(SCENE, datetime(2026, 1, 2, tzinfo=UTC))
    assert run.end() == "success"
    (after,) = until(lambda: airflow.runs(FOLLOWED[SCENE]), "the DAG that its asset starts", DEADLINE)
    assert after.end() == "success"
    lake = Lake.open(str(root_of(airflow.home, SCENE)))
    return PublishedScene(run, lake, lake.log(limit=1)[0])


def choose_lake(page: Page, airflow: Standalone) -> Locator:
    """Open the form of a new connection, choose the type of lakes, and return the form."""
    page.goto(f"{airflow.url}/connections")
    page.get_by_role("button", name="Add Connection").click()
    form = page.get_by_role("dialog")
    form.get_by_role("combobox").fill("lake")
    page.get_by_role("option", name="Lake", exact=True).click()
    return form


@pytest.fixture(scope="module")
def saved(page: Page, airflow: Standalone) -> str:
    """Save a connection in the form, and return its id."""
    form = choose_lake(page, airflow)
    form.get_by_label("Connection ID").fill("of_the_form")
    form.get_by_label("Root").fill(str(root_of(airflow.home, SCENE)))
    form.get_by_label("Storage options (JSON, secret)").fill(SECRET)
    form.get_by_role("button", name="Save").click()
    expect(row_of(page, "of_the_form")).to_be_visible()
    return "of_the_form"


def row_of(page: Page, connection: str) -> Locator:
    """Return the row of a connection in the list."""
    return page.get_by_role("row").filter(has_text=connection)


def test_the_form_of_a_lake_has_its_own_fields_and_no_others(page: Page, airflow: Standalone) -> None:
    form = choose_lake(page, airflow)
    names = ["Connection ID", "Connection Type", "Description", "Root", "Storage options (JSON, secret)"]
    expect(form.locator("label")).to_have_text([re.compile(rf"^{re.escape(name)}( \*)?$") for name in names])


def test_the_form_of_a_lake_shows_what_a_root_looks_like(page: Page, airflow: Standalone) -> None:
    expect(choose_lake(page, airflow).get_by_label("Root")).to_have_attribute("placeholder", "s3://bucket/lake")


def test_a_connection_that_was_saved_in_the_form_opens_the_lake(airflow: Standalone, saved: str) -> None:
    outcome = airflow.call("POST", "/connections/test", {"connection_id": saved, "conn_type": "lake"})
    assert outcome["message"].startswith(f"The lake is open at {Lake.open(str(root_of(airflow.home, SCENE))).url}")


def test_the_secret_is_masked_when_the_form_is_opened_again(page: Page, airflow: Standalone, saved: str) -> None:
    page.goto(f"{airflow.url}/connections")
    row_of(page, saved).get_by_role("button", name="Edit Connection").click()
    field = page.get_by_role("dialog").get_by_label("Storage options (JSON, secret)")
    expect(field).to_have_value("***")


def open_details(page: Page, airflow: Standalone, published: PublishedScene, task: str) -> None:
    """Open the page of a task, and there the details, which have its links."""
    page.goto(f"{airflow.url}{published.path}/tasks/session.{task}")
    page.get_by_role("link", name="Details", exact=True).click()


@pytest.mark.parametrize("name", ["Commit", "Comparison", "Session"])
def test_publish_links_to_what_it_did(page: Page, airflow: Standalone, published: PublishedScene, name: str) -> None:
    commit = published.commit
    targets = {
        "Commit": f"commit={commit.id}",
        "Comparison": f"diff={commit.parents[0]}..{commit.id}",
        "Session": f"session={commit.metadata['session']}",
    }
    open_details(page, airflow, published, "publish")
    link = page.get_by_role("link", name=name, exact=True)
    expect(link).to_have_attribute("href", re.compile(f"#{re.escape(f'{published.lake.url}#{targets[name]}')}$"))


def test_a_link_stays_on_its_page_and_says_what_to_look_for_in_the_address(
    page: Page, airflow: Standalone, published: PublishedScene
) -> None:
    open_details(page, airflow, published, "publish")
    page.get_by_role("link", name="Commit", exact=True).click()
    expect(page).to_have_url(re.compile(f"/tasks/session.publish/details#.*#commit={published.commit.id}$"))
    expect(page.get_by_role("link", name="Commit", exact=True)).to_be_visible()


def test_a_task_of_the_session_links_to_the_session_alone(
    page: Page, airflow: Standalone, published: PublishedScene
) -> None:
    open_details(page, airflow, published, "day")
    expect(page.get_by_role("link", name=re.compile("^(Commit|Comparison|Session)$"))).to_have_text(["Session"])


def open_asset(page: Page, airflow: Standalone) -> str:
    """Open the page of the asset of the totals from the list of assets, and return the id of the asset."""
    page.goto(f"{airflow.url}/assets")
    page.get_by_role("link", name=TOTALS, exact=True).click()
    page.wait_for_url(re.compile(r"/assets/\d+$"))
    return page.url.rpartition("/")[2]


def test_the_graph_of_an_asset_leads_from_the_dag_that_writes_it_to_the_dag_that_it_starts(
    page: Page, airflow: Standalone, published: PublishedScene
) -> None:
    asset = f"asset:{open_asset(page, airflow)}"
    alias = f"asset-alias:{SCENE}.session"
    for edge in ((f"dag:{SCENE}", alias), (alias, asset), (asset, f"dag:{FOLLOWED[SCENE]}")):
        expect(page.get_by_label("Edge from {} to {}".format(*edge), exact=True)).to_be_attached()


def test_the_graph_of_an_asset_has_nothing_that_has_no_events(
    page: Page, airflow: Standalone, published: PublishedScene
) -> None:
    open_asset(page, airflow)
    tables = [f"{connection_of(SCENE)}/main/tables/{name}" for name in ("days", "lines", "totals")]
    nodes = page.locator(".react-flow__node")
    for name in (SCENE, f"{SCENE}.session", *tables, FOLLOWED[SCENE]):
        expect(nodes.filter(has_text=re.compile(f"^{re.escape(name)}$"))).to_be_visible()
    expect(nodes).to_have_count(6)


def test_the_last_event_of_an_asset_says_which_commit_it_is(
    page: Page, airflow: Standalone, published: PublishedScene
) -> None:
    # In a narrow window, the lines of the extra are broken.
    page.set_viewport_size({"width": 3200, "height": 1000})
    open_asset(page, airflow)
    page.get_by_title("Click to expand the range.").first.click()
    expect(page.get_by_role("code").first).to_contain_text(f'"commit": "{published.commit.id}"')
    page.set_viewport_size({"width": 1600, "height": 1000})


def test_the_last_event_of_an_asset_leads_to_the_task_that_published(
    page: Page, airflow: Standalone, published: PublishedScene
) -> None:
    open_asset(page, airflow)
    # The graph beside the list of events has a link of this name as well.
    source = page.get_by_test_id("card-list").get_by_role("link", name=SCENE, exact=True)
    expect(source).to_have_attribute("href", f"{published.path}/tasks/session.publish")
