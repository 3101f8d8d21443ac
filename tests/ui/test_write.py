"""The pages that act: each says what will happen first, and nothing else makes it happen."""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime, timedelta

import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.testing.manual_clock import ManualClock
from lake_core.ui import actions
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from lake_core.ui.visit import Visit
from tests.ui.conftest import BASE


def form_of(client: TestClient, address: str) -> dict[str, str]:
    """Open the page of an action, and return what its form would send."""
    response = client.get(address)
    assert response.status_code == 200, response.text
    assert "Nothing has happened yet" in response.text
    body = re.search(r'<form method="post".*?</form>', response.text, re.DOTALL)
    assert body is not None, response.text
    fields = re.findall(r'name="([^"]+)" value="([^"]*)"', body[0])
    return {name: html.unescape(value) for name, value in fields}


def state_of(lake: Lake) -> object:
    return lake.list_branches(), lake.list_tags(), [(each.id, each.state) for each in lake.list_sessions()]


def test_publish_says_what_it_will_do_and_does_it(writer: TestClient, own_lake: Lake) -> None:
    page = writer.get("/act/publish?session=run-of-today").text
    assert "becomes one commit on main" in page
    assert '<span class="plus">+20</span>' in page
    fields = form_of(writer, "/act/publish?session=run-of-today")
    response = writer.post("/act/publish", data=fields, follow_redirects=False)
    assert response.status_code == 303
    assert response.headers["location"] == f"/commit/{own_lake.list_branches()['main']}"
    assert own_lake.delta("tables/orders").to_arrow().num_rows == 260


def test_abandon_ends_a_session(writer: TestClient, own_lake: Lake) -> None:
    writer.post("/act/abandon", data=form_of(writer, "/act/abandon?session=backfill-2025"))
    assert [each.id for each in own_lake.list_sessions()] == ["run-of-today"]
    assert "it has ended already" in writer.get("/act/abandon?session=backfill-2025").text


def test_merge_takes_the_strategy_and_the_message(writer: TestClient, own_lake: Lake) -> None:
    fields = form_of(writer, "/act/merge?ref=conflicting&strategy=theirs") | {"message": "take it"}
    response = writer.post("/act/merge", data=fields, follow_redirects=False)
    assert response.status_code == 303, response.text
    (commit,) = own_lake.log(limit=1)
    assert commit.message == "take it"
    assert "resolved" in commit.metadata
    assert "resolved conflicts: tables/orders" in writer.get("/commit/main").text


def test_a_merge_in_conflict_cannot_be_sent(writer: TestClient) -> None:
    page = writer.get("/act/merge?ref=conflicting").text
    assert "This cannot be done" in page
    assert '<form method="post"' not in page


def test_revert_tag_branch_and_delete(writer: TestClient, own_lake: Lake) -> None:
    head = own_lake.list_branches()["main"]
    assert writer.post("/act/tag", data=form_of(writer, "/act/tag?at=main") | {"name": "v9"}).status_code == 200
    assert own_lake.list_tags()["v9"] == head
    assert writer.post("/act/branch", data=form_of(writer, "/act/branch?at=main~1") | {"name": "b9"}).status_code == 200
    assert own_lake.list_branches()["b9"] == own_lake.log("main~1", limit=1)[0].id
    assert writer.post("/act/delete-branch", data=form_of(writer, "/act/delete-branch?name=b9")).status_code == 200
    assert "b9" not in own_lake.list_branches()
    commit = own_lake.log("main~1", limit=1)[0].id
    response = writer.post("/act/revert", data=form_of(writer, f"/act/revert?commit={commit}"))
    assert response.status_code == 200
    assert own_lake.log(limit=1)[0].metadata["revert"] == commit
    assert "it cannot be deleted" in writer.get("/act/delete-branch?name=main").text


def test_a_form_is_refused_if_what_it_showed_has_moved(writer: TestClient, own_lake: Lake) -> None:
    fields = form_of(writer, "/act/merge?ref=dev")
    with own_lake.session(message="meanwhile") as s:
        s.put("meanwhile", b"1")
    before = state_of(own_lake)
    response = writer.post("/act/merge", data=fields)
    assert response.status_code == 403
    assert "has changed in the meantime" in response.text
    assert state_of(own_lake) == before


@pytest.mark.parametrize(
    ("headers", "change"),
    [
        ({"Origin": "http://evil.example"}, {}),
        ({"Origin": "null"}, {}),
        ({"Origin": BASE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, {}),
        ({"Origin": BASE}, {"form_token": "wrong"}),
        ({"Origin": BASE}, {"form_token": "ü"}),
        ({"Origin": BASE}, {"form_token": ""}),
    ],
)
def test_a_form_of_another_page_does_nothing(
    writer: TestClient, own_lake: Lake, headers: dict[str, str], change: dict[str, str]
) -> None:
    fields = form_of(writer, "/act/abandon?session=run-of-today") | change
    before = state_of(own_lake)
    assert writer.post("/act/abandon", data=fields, headers=headers).status_code == 403
    assert state_of(own_lake) == before


def test_a_form_without_an_origin_does_nothing(writer: TestClient, own_lake: Lake) -> None:
    fields = form_of(writer, "/act/abandon?session=run-of-today")
    before = state_of(own_lake)
    del writer.headers["Origin"]
    assert writer.post("/act/abandon", data=fields).status_code == 403
    assert writer.post("/act/abandon", headers={"Origin": BASE}).status_code == 403  # an empty form
    assert state_of(own_lake) == before


@pytest.mark.parametrize("kind", ["publish", "abandon", "merge", "revert", "tag", "branch", "delete-branch"])
def test_pages_that_only_read_have_no_actions(client: TestClient, lake: Lake, kind: str) -> None:
    before = state_of(lake)
    assert client.get(f"/act/{kind}?session=run-of-today&ref=dev&commit=main&name=dev").status_code == 403
    assert client.post(f"/act/{kind}", data={"session": "run-of-today"}, headers={"Origin": BASE}).status_code == 403
    assert state_of(lake) == before
    assert "/act/" not in client.get("/session/run-of-today").text
    assert "/act/" not in client.get("/commit/main").text


def test_looking_changes_nothing_in_the_store(client: TestClient, lake: Lake) -> None:
    def keys() -> object:
        return [(meta.key, meta.etag) for meta in lake.repository.root.list("")]

    before = keys()
    for address in ("/", "/sessions?all=1", "/session/run-of-today", "/merge?ref=dev", "/upkeep?check=gc",
                    "/upkeep?check=verify", "/compare?from=main&to=run-of-today", "/history?ref=*"):  # fmt: skip
        assert client.get(address).status_code == 200
    assert keys() == before


@pytest.mark.parametrize(
    ("kind", "query", "branch"),
    [
        ("merge", "ref=dev", "dev"),
        ("merge", "ref=dev", "main"),
        ("revert", "commit=main~1", "main"),
    ],
)
def test_what_is_published_after_the_check_is_neither_merged_nor_reverted_on(
    writer: TestClient, own_lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str, query: str, branch: str
) -> None:
    fields = form_of(writer, f"/act/{kind}?{query}")
    plan, run = actions._ACTIONS[kind]

    def run_after_another(visit: Visit) -> str:
        with own_lake.session(branch, message="unseen") as s:
            s.put("unseen", b"1")
        return run(visit)

    monkeypatch.setattr(actions, "_ACTIONS", {**actions._ACTIONS, kind: (plan, run_after_another)})
    head = own_lake.list_branches()["main"]
    response = writer.post(f"/act/{kind}", data=fields, follow_redirects=False)
    if branch == "dev":
        assert own_lake.log(limit=1)[0].metadata["merge"] == fields["seen"].split()[1]
    else:
        assert response.status_code == 403
        assert own_lake.log(limit=1)[0].parents == (head,)


@pytest.mark.parametrize("kind", ["publish", "abandon"])
def test_what_is_written_after_the_check_is_neither_published_nor_discarded(
    writer: TestClient, own_lake: Lake, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    fields = form_of(writer, f"/act/{kind}?session=backfill-2025")
    plan, run = actions._ACTIONS[kind]

    def run_after_another(visit: Visit) -> str:
        with own_lake.get_session("backfill-2025").join(task="late") as late:
            late.put("unseen", b"1")
        return run(visit)

    monkeypatch.setattr(actions, "_ACTIONS", {**actions._ACTIONS, kind: (plan, run_after_another)})
    assert writer.post(f"/act/{kind}", data=fields).status_code == 403
    assert own_lake.get_session("backfill-2025").get("unseen") == b"1"


def test_a_merge_lists_what_changes_on_the_branch_apart_from_what_the_ref_changed(writer: TestClient) -> None:
    page = writer.get("/act/merge?ref=conflicting&strategy=ours").text
    assert "0 datasets and 0 files of main change" in page
    assert "What conflicting changed since" in page


def test_a_session_whose_time_is_over_says_so_and_cannot_be_published(own_lake: Lake) -> None:
    later = Lake.open(own_lake.repository.root, clock=ManualClock(datetime.now(UTC) + timedelta(days=9)))
    pages = TestClient(create_app(later, PageSettings(writes=True)), base_url=BASE)
    page = pages.get("/session/run-of-today").text
    assert "can be neither written nor published any more" in page
    assert "/act/publish" not in page
    action = pages.get("/act/publish?session=run-of-today").text
    assert "the session is expired: it cannot be published" in action
    assert '<form method="post"' not in action
    assert "session failed" not in pages.get("/").text
