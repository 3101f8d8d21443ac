"""The pages in a real browser: what a stranger finds by clicks, and what no page may do."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from lake_core import Lake
from tests.browser.browsers import open_page
from tests.conftest import ROOT
from tests.processes import until
from tests.ui.lakes import add_hostile_values, conflicting_session

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@contextmanager
def served(root: Path, *options: str) -> Iterator[str]:
    """Serve a lake by the command, and yield its address."""
    command = [sys.executable, "-m", "lake_core.cli", "--lake", str(root), "ui", "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        line = server.stdout.readline()
        match = re.search(r"http://\S+", line)
        assert match is not None, line
        try:
            yield match[0].rstrip("/")
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with open_page() as page:
        yield page


@pytest.fixture(scope="module")
def site(built: Path) -> Iterator[str]:
    with served(built) as address:
        yield address


def test_which_run_changed_a_row_last(page: Page, site: str) -> None:
    page.goto(site)
    page.get_by_role("link", name="Data", exact=True).click()
    page.get_by_role("link", name="tables").click()
    page.get_by_role("link", name="orders").click()
    page.get_by_label("Condition, in Spark SQL").fill("id = 10")
    page.get_by_role("button", name="Show").last.click()
    page.get_by_role("link", name="history", exact=True).click()
    expect(page.get_by_role("heading", name="Changed by correct order 10 again")).to_be_visible()
    expect(page.locator("section").first).to_contain_text("run b8d5e2f0")


def test_what_the_failed_session_of_today_holds(page: Page, site: str) -> None:
    page.goto(site)
    page.get_by_role("status").get_by_role("link", name="run-of-today").click()
    expect(page.get_by_role("heading", name="orders of friday")).to_be_visible()
    page.get_by_role("link", name="tables/orders").click()
    expect(page.locator("tr.added")).to_have_count(20)


def test_whether_a_branch_can_be_merged_and_what_it_would_change(page: Page, site: str) -> None:
    page.goto(site)
    page.get_by_role("row", name=re.compile("^dev")).get_by_role("link", name="can it be merged?").click()
    expect(page.get_by_role("status")).to_contain_text("It can be merged")
    page.get_by_role("link", name="tables/orders").click()
    expect(page.locator("dl.numbers")).to_contain_text("60")


def test_pages_are_turned_and_rows_are_sorted(page: Page, site: str) -> None:
    page.goto(f"{site}/dataset/tables/orders")
    page.get_by_role("link", name="id", exact=True).click()
    expect(page.locator("tbody tr").first.locator("td").nth(1)).to_have_text("0")
    page.get_by_role("link", name="Next").click()
    expect(page.locator("tbody tr").first.locator("td").nth(1)).to_have_text("50")


def test_a_query_runs_by_the_keyboard_and_is_plotted(page: Page, site: str) -> None:
    page.goto(f"{site}/sql")
    page.keyboard.press("/")
    page.keyboard.type("select id, amount from orders order by id limit 30")
    page.keyboard.press("Control+Enter")
    expect(page.locator("tbody tr")).to_have_count(30)
    page.get_by_label("Plot").select_option("amount")
    page.get_by_label("over").select_option("id")
    page.get_by_role("button", name="Plot").click()
    expect(page.get_by_role("img", name="amount over id")).to_be_visible()


def test_a_slice_of_an_array_is_a_picture(page: Page, site: str) -> None:
    page.goto(f"{site}/dataset/arrays/weather")
    page.get_by_label("day, 0 to 3").fill("2")
    page.get_by_role("button", name="Show").last.click()
    picture = page.get_by_role("img", name=re.compile("The slice as colors"))
    expect(picture).to_be_visible()
    assert picture.evaluate("image => image.naturalWidth") >= 80
    expect(page.locator("table.facts").last).to_contain_text("30")


ADDRESSES = (
    *("/", "/history?ref=*", "/commit/main", "/data?prefix=tables", "/sessions", "/session/run-of-today", "/upkeep"),
    *("/dataset/tables/orders", "/dataset/tables/orders?tab=history", "/dataset/arrays/weather", "/compare"),
    *("/dataset/tables/hostile", "/dataset/tables/hostile?tab=schema", "/dataset/pools/hostile?as=text"),
    *(
        "/compare/dataset?from=main~2&to=main&path=tables/orders",
        "/compare/file?from=main&to=dev&path=reports/today.txt",
    ),
    *("/merge?ref=conflicting", "/sql?q=select+*+from+hostile", "/row/tables/orders?where=%60id%60+%3D+10"),
    "/compare/dataset?from=main~1&to=main&path=tables/hostile",
    *("/act/publish?session=run-of-today", "/act/fork?session=run-of-today", "/act/abandon?session=run-of-today"),
    *("/act/revert?commit=main", "/act/cherry-pick?commit=dev", "/act/merge?ref=dev", "/act/merge?ref=conflicting"),
    *("/act/tag?at=main", "/act/branch", "/act/delete-tag?name=release-1", "/act/delete-branch?name=dev"),
)


@pytest.fixture(scope="module")
def hostile_site(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("hostile") / "lake"
    shutil.copytree(built, root)
    add_hostile_values(Lake.open(str(root)))
    with served(root, "--write") as address:
        yield address


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_run_nothing_of_the_lake_and_fit_a_phone(page: Page, hostile_site: str, scheme: str) -> None:
    problems: list[str] = []
    page.on("dialog", lambda dialog: (problems.append(f"dialog {dialog.message}"), dialog.dismiss()))
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: None if request.url.startswith(hostile_site) else problems.append(request.url))
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": 390, "height": 800})
    for address in ADDRESSES:
        response = page.goto(hostile_site + address)
        assert response is not None
        assert response.status == 200, address
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, address
        assert page.evaluate(UNLABELED) == [], address
    page.set_viewport_size({"width": 1600, "height": 1000})
    assert problems == []


UNLABELED = """
[...document.querySelectorAll("input, select, textarea, button, a, img, svg[role=img]")].filter(each => {
  const named = (each.labels && each.labels.length) || each.ariaLabel || each.alt || each.textContent.trim();
  return each.type != "hidden" && !each.hidden && !named;
}).map(each => each.outerHTML)
"""
"""Elements that a screen reader could not name."""


def test_the_keyboard_reaches_the_content_first(page: Page, site: str) -> None:
    page.goto(site)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("#main$"))


def test_a_session_is_published_after_its_page_has_said_what_will_happen(
    page: Page, built: Path, tmp_path: Path
) -> None:
    shutil.copytree(built, tmp_path / "lake")
    with served(tmp_path / "lake", "--write") as address:
        page.goto(f"{address}/session/run-of-today")
        page.get_by_role("link", name="Publish…").click()
        expect(page.locator("main")).to_contain_text("becomes one commit on main")
        page.get_by_role("button", name="Publish on main").click()
        expect(page.get_by_role("heading", name="orders of friday")).to_be_visible()
        page.get_by_role("link", name="Revert…").click()
        page.get_by_role("button", name="Revert on main").click()
        expect(page.get_by_role("heading", name="Revert orders of friday")).to_be_visible()
    assert Lake.open(str(tmp_path / "lake")).delta("tables/orders").to_arrow().num_rows == 240


def test_a_session_in_conflict_is_carried_on_without_what_conflicts(page: Page, built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "lake")
    conflicting_session(Lake.open(str(tmp_path / "lake")))
    with served(tmp_path / "lake", "--write") as address:
        page.goto(address)
        page.get_by_role("link", name="late correction").click()
        page.get_by_role("link", name="Publish…").click()
        expect(page.get_by_role("alert")).to_contain_text("This cannot be done")
        expect(page.get_by_role("button", name="Publish on main")).to_have_count(0)
        page.get_by_role("link", name="Fork without what conflicts…").click()
        expect(page.get_by_label("tables/orders")).to_be_checked()
        expect(page.get_by_label("reports/late.txt")).not_to_be_checked()
        page.get_by_role("button", name="Open the new session").click()
        page.get_by_role("link", name="Publish…").click()
        expect(page.locator("main")).to_contain_text("1 file of main changes, in one commit: reports/late.txt")
        page.get_by_role("button", name="Publish on main").click()
        expect(page.get_by_role("heading", name="late correction")).to_be_visible()
    lake = Lake.open(str(tmp_path / "lake"))
    assert lake.at().exists("reports/late.txt")
    assert 12 in lake.delta("tables/orders").to_arrow()["id"].to_pylist()


def test_commits_are_picked_and_names_made_and_deleted_by_clicks(page: Page, built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "lake")
    with served(tmp_path / "lake", "--write") as address:
        page.goto(address)
        page.get_by_role("row", name=re.compile("^dev")).get_by_role("link").nth(1).click()
        page.get_by_role("link", name="Cherry-pick…").click()
        page.get_by_label("Onto the branch").fill("side")
        page.get_by_role("button", name="Look again").click()
        expect(page.locator("main")).to_contain_text("1 dataset and 1 file of side change")
        page.get_by_role("button", name="Apply it to side").click()
        page.get_by_role("link", name="Branch…").click()
        page.get_by_label("Name").fill("from-here")
        page.get_by_role("button", name="Create the branch").click()
        expect(page.get_by_role("heading", name="History of from-here")).to_be_visible()
        page.goto(address)
        tags = page.locator("section", has=page.get_by_role("heading", name="Tags")).last
        tags.get_by_role("link", name="delete…").click()
        page.get_by_role("button", name="Delete release-1").click()
        expect(page.get_by_text("There is no tag.")).to_be_visible()
    lake = Lake.open(str(tmp_path / "lake"))
    assert lake.list_tags() == {}
    assert lake.list_branches()["from-here"] == lake.list_branches()["side"]


def test_a_branch_that_conflicts_says_with_which_run_and_shows_both_sides(page: Page, site: str) -> None:
    page.goto(site)
    page.get_by_role("row", name=re.compile("^conflicting")).get_by_role("link", name="can it be merged?").click()
    expect(page.get_by_role("alert")).to_contain_text("It cannot be merged as it is")
    row = page.get_by_role("row", name="tables/orders ConcurrentAppend")
    expect(row.get_by_role("link", name="correct order 10 again")).to_be_visible()
    expect(row).to_contain_text("run b8d5e2f0")
    page.get_by_role("link", name="compare the two sides").click()
    expect(page.locator("dl.numbers")).to_contain_text("rows changed")


def test_a_store_that_goes_away_and_comes_back(page: Page, built: Path, tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "lake", tmp_path / "gone"
    shutil.copytree(built, root)
    with served(root) as address:
        page.goto(address)
        root.rename(elsewhere)
        page.get_by_role("link", name="Data", exact=True).click()
        expect(page.get_by_role("alert")).to_be_visible()
        elsewhere.rename(root)
        page.reload()
        expect(page.get_by_role("link", name="tables")).to_be_visible()


def test_other_machines_need_the_token(page: Page, built: Path) -> None:
    with served(built, "--host", "0.0.0.0") as address:
        plain, _, token = address.replace("0.0.0.0", "127.0.0.1").partition("/?token=")
        assert token
        response = page.goto(plain)
        assert response is not None
        assert response.status == 401
        page.goto(f"{plain}/?token={token}")
        expect(page.get_by_role("heading", name="Branches")).to_be_visible()
        assert "token" not in page.url


def test_a_double_click_sends_a_form_once(page: Page, built: Path, tmp_path: Path) -> None:
    shutil.copytree(built, tmp_path / "lake")
    with served(tmp_path / "lake", "--write") as address:
        page.goto(f"{address}/act/publish?session=run-of-today")
        sent: list[str] = []
        page.on("request", lambda request: sent.append(request.url) if request.method == "POST" else None)
        button = page.get_by_role("button", name="Publish on main")
        button.evaluate("button => { button.click(); setTimeout(() => button.click(), 1); }")
        expect(page).to_have_url(re.compile("/commit/"))
        assert sent == [f"{address}/act/publish"]


def test_what_is_wider_than_a_phone_is_scrolled_by_keys(page: Page, site: str) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    try:
        page.goto(f"{site}/row/tables/orders?where=id=10")
        area = page.locator(".scroll").first
        area.focus()
        page.keyboard.press("End")
        page.keyboard.press("ArrowRight")
        # The page's policy forbids `eval`, by which Playwright's own waiting would ask again.
        until(lambda: area.evaluate("area => area.scrollLeft > 0"), "the area to scroll", 10)
        assert area.get_attribute("tabindex") == "0"
    finally:
        page.set_viewport_size({"width": 1600, "height": 1000})
