"""The pages that act: each says what will happen first, and nothing else makes it happen."""

from __future__ import annotations

import html
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from starlette.testclient import TestClient

from lake_core import Lake
from lake_core.errors import StoreUnavailable
from lake_core.testing.manual_clock import ManualClock
from lake_core.ui import actions
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from lake_core.ui.visit import Visit
from tests.cli.commands import run_json
from tests.ui.conftest import BASE
from tests.ui.lakes import conflicting_session
from tests.ui.pages import page_of


def form_of(client: TestClient, address: str) -> dict[str, str]:
    """Open the page of an action, and return what its form would send."""
    response = client.get(address)
    assert response.status_code == 200, response.text
    assert "Nothing has happened yet" in response.text
    body = re.search(r'<form method="post".*?</form>', response.text, re.DOTALL)
    assert body is not None, response.text
    fields = re.findall(r'name="([^"]+)" value="([^"]*)"( checked|)', body[0])
    # A checkbox sends something only if it is checked.
    return {
        html.unescape(name): html.unescape(value)
        for name, value, checked in fields
        if checked or not name.startswith("without/")
    }


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
    assert "resolved conflicts: tables/orders" in page_of(writer, "/commit/main")


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


@pytest.mark.parametrize("kind", list(actions._ACTIONS))
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
        ("cherry-pick", "commit=dev", "main"),
        ("publish", "session=run-of-today", "main"),
    ],
)
def test_nothing_is_done_on_top_of_what_is_published_after_the_check(
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


@pytest.mark.parametrize("kind", ["publish", "abandon", "fork"])
def test_what_is_written_after_the_check_is_neither_published_nor_discarded_nor_forked(
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
    assert len(own_lake.list_sessions()) == 2


def test_a_merge_lists_what_changes_on_the_branch_apart_from_what_the_ref_changed(writer: TestClient) -> None:
    page = writer.get("/act/merge?ref=conflicting&strategy=ours").text
    assert "No dataset and no file of main changes" in page
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


def test_a_revert_in_conflict_says_where_and_cannot_be_sent(writer: TestClient, own_lake: Lake) -> None:
    loaded = next(commit for commit in own_lake.log() if commit.message == "load orders")
    page = writer.get(f"/act/revert?commit={loaded.id}").text
    assert "This cannot be done" in page
    assert '<td class="wrap">tables/orders</td>' in page
    assert '<form method="post"' not in page
    last = own_lake.log(limit=1)[0].id
    fields = form_of(writer, f"/act/revert?commit={last}")
    before = state_of(own_lake)
    response = writer.post("/act/revert", data=fields | {"commit": loaded.id})
    assert response.status_code == 403
    assert state_of(own_lake) == before


def test_a_revert_says_what_changes_on_the_branch(writer: TestClient, own_lake: Lake) -> None:
    commit = next(commit for commit in own_lake.log() if commit.message == "correct order 10 again")
    page = writer.get(f"/act/revert?commit={commit.id}").text
    assert "1 dataset of main changes, in one commit: tables/orders" in page
    assert "What would change on main" in page
    preview = own_lake.preview_revert(commit.id)
    shown = writer.get(f"/act/revert?commit={commit.id}&format=json").json()
    assert shown["datasets"]["tables/orders"]["version"] == preview.datasets["tables/orders"].version


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("publish?session=run-of-today", ["publish", "run-of-today", "--dry-run"]),
        ("revert?commit=main~1", ["revert", "main~1", "--dry-run"]),
        ("cherry-pick?commit=dev&onto=side", ["cherry-pick", "dev", "--onto", "side", "--dry-run"]),
        ("merge?ref=dev", ["merge", "dev", "--dry-run"]),
    ],
)
def test_the_json_of_an_action_is_what_a_dry_run_prints(
    writer: TestClient, own_lake: Lake, address: str, words: list[str]
) -> None:
    root = own_lake.url.removeprefix("file://")
    assert writer.get(f"/act/{address}&format=json").json() == run_json(root, *words)


def test_a_merge_is_reverted_to_the_parent_that_is_chosen(writer: TestClient, own_lake: Lake) -> None:
    (merge,) = own_lake.log(limit=1)
    assert len(merge.parents) == 2
    assert 'name="parent" value="1"' in writer.get(f"/act/revert?commit={merge.id}").text
    assert writer.get(f"/act/revert?commit={merge.id}&parent=3").status_code == 400
    page = writer.get(f"/act/revert?commit={merge.id}&parent=2").text
    assert "since its parent 2 of 2" in page
    fields = form_of(writer, f"/act/revert?commit={merge.id}&parent=1")
    writer.post("/act/revert", data=fields)
    assert not own_lake.at().exists("reports/side.txt")


def test_a_publish_in_conflict_says_so_first_and_is_forked_without_what_conflicts(
    writer: TestClient, own_lake: Lake
) -> None:
    conflicting_session(own_lake)
    page = writer.get("/act/publish?session=late").text
    assert "This cannot be done" in page
    assert '<td class="wrap">tables/orders</td>' in page
    assert '<form method="post"' not in page
    assert own_lake.get_session("late").record.state == "open"  # looking fails no session
    fields = form_of(writer, "/act/fork?session=late")
    assert fields["without/tables/orders"] == "1"
    assert "without/reports/late.txt" not in fields
    response = writer.post("/act/fork", data=fields, follow_redirects=False)
    forked = response.headers["location"].removeprefix("/session/")
    assert forked != "late"
    published = form_of(writer, f"/act/publish?session={forked}")
    assert writer.post("/act/publish", data=published).status_code == 200
    assert own_lake.at().exists("reports/late.txt")
    assert 12 in own_lake.delta("tables/orders").to_arrow()["id"].to_pylist()


def test_a_fork_leaves_out_only_what_the_session_has(writer: TestClient, own_lake: Lake) -> None:
    fields = form_of(writer, "/act/fork?session=run-of-today")
    before = state_of(own_lake)
    response = writer.post("/act/fork", data=fields | {"without/tables": "1"})
    assert response.status_code == 400
    assert state_of(own_lake) == before


def test_a_commit_is_picked_onto_the_branch_that_the_page_names(writer: TestClient, own_lake: Lake) -> None:
    commit = own_lake.log("dev", limit=1)[0].id
    page = writer.get(f"/act/cherry-pick?commit={commit}").text
    assert "1 dataset and 1 file of main change, in one commit: reports/today.txt, tables/orders" in page
    fields = form_of(writer, f"/act/cherry-pick?commit={commit}&onto=side")
    assert writer.post("/act/cherry-pick", data=fields).status_code == 200
    assert own_lake.log("side", limit=1)[0].metadata["cherry-pick-origin"] == commit
    again = writer.get(f"/act/cherry-pick?commit={commit}&onto=side").text
    assert "has commit" in again
    assert '<form method="post"' not in again
    assert writer.get(f"/act/cherry-pick?commit={commit}&onto=release-1").status_code == 404


def test_a_tag_is_deleted_for_good(writer: TestClient, own_lake: Lake) -> None:
    assert "/act/delete-tag?name=release-1" in writer.get("/").text
    page = writer.get("/act/delete-tag?name=release-1").text
    assert "goes for good" in page
    assert writer.post("/act/delete-tag", data=form_of(writer, "/act/delete-tag?name=release-1")).status_code == 200
    assert own_lake.list_tags() == {}
    assert writer.get("/act/delete-tag?name=release-1").status_code == 404
    response = writer.post("/act/tag", data=form_of(writer, "/act/tag?at=main") | {"name": "release-1"})
    assert response.status_code == 400
    assert "choose another one" in response.text
    assert '<form method="post"' in response.text


def test_a_branch_begins_at_the_commit_that_the_page_showed(writer: TestClient, own_lake: Lake) -> None:
    seen = own_lake.list_branches()["main"]
    fields = form_of(writer, "/act/branch?at=main") | {"name": "later"}
    with own_lake.session(message="unseen") as s:
        s.put("unseen", b"1")
    assert writer.post("/act/branch", data=fields).status_code == 200
    assert own_lake.list_branches()["later"] == seen
    assert writer.get("/act/branch?at=run-of-today").status_code == 400


def test_a_protected_branch_accepts_neither_a_publish_nor_a_revert(writer: TestClient, own_lake: Lake) -> None:
    own_lake.settings.protect("main")
    for address in ("publish?session=run-of-today", "revert?commit=main~1", "cherry-pick?commit=dev"):
        page = writer.get(f"/act/{address}").text
        assert "is protected" in page
        assert '<form method="post"' not in page


def test_a_message_that_is_left_as_it_is_stays_whole_and_the_page_shows_no_secret(
    writer: TestClient, own_lake: Lake
) -> None:
    message = "load from s3://key:hunter2@bucket\n\nwith a second line"
    with own_lake.session("dev", message=message) as s:
        s.put("loaded", b"1")
    page = writer.get("/act/cherry-pick?commit=dev").text
    assert "hunter2" not in page
    writer.post("/act/cherry-pick", data=form_of(writer, "/act/cherry-pick?commit=dev"))
    assert own_lake.log(limit=1)[0].message == message
    assert "hunter2" not in writer.get("/act/revert?commit=main").text
    fields = form_of(writer, "/act/revert?commit=main") | {"message": "my own"}
    writer.post("/act/revert", data=fields)
    assert own_lake.log(limit=1)[0].message == "my own"


@pytest.mark.parametrize("branch", ["a b", "x'\"<b>", "main"])
def test_odd_names_of_branches_are_refused_or_shown_as_text(writer: TestClient, own_lake: Lake, branch: str) -> None:
    fields = form_of(writer, "/act/branch?at=main") | {"name": branch}
    response = writer.post("/act/branch", data=fields, follow_redirects=False)
    assert response.status_code == 400
    assert "<b>" not in response.text
    assert "Nothing was done" in response.text


def test_the_loss_of_the_store_while_a_form_is_done_says_that_the_outcome_is_not_known(
    writer: TestClient, own_lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = form_of(writer, "/act/publish?session=run-of-today")
    plan, run = actions._ACTIONS["publish"]

    def run_and_lose_the_answer(visit: Visit) -> str:
        run(visit)
        raise StoreUnavailable("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(actions, "_ACTIONS", {**actions._ACTIONS, "publish": (plan, run_and_lose_the_answer)})
        response = writer.post("/act/publish", data=fields)
    assert response.status_code == 503
    assert "Whether it was done is not known" in response.text
    head = own_lake.list_branches()["main"]
    assert writer.post("/act/publish", data=fields).status_code == 403
    assert own_lake.list_branches()["main"] == head


def test_two_that_send_the_same_form_do_it_once(writer: TestClient, own_lake: Lake) -> None:
    fields = form_of(writer, "/act/cherry-pick?commit=dev")
    before = len(own_lake.log())
    with ThreadPoolExecutor(4) as pool:
        statuses = list(
            pool.map(
                lambda _: writer.post("/act/cherry-pick", data=fields, follow_redirects=False).status_code, range(4)
            )
        )
    assert sorted(statuses)[0] == 303
    assert statuses.count(303) == 1
    assert len(own_lake.log()) == before + 1


def test_a_fork_that_is_sent_twice_is_one(writer: TestClient, own_lake: Lake) -> None:
    fields = form_of(writer, "/act/fork?session=run-of-today")
    before = {each.id for each in own_lake.list_sessions()}
    with ThreadPoolExecutor(2) as pool:
        addresses = set(
            pool.map(
                lambda _: writer.post("/act/fork", data=fields, follow_redirects=False).headers["location"], range(2)
            )
        )
    assert len(addresses) == 1
    (forked,) = {each.id for each in own_lake.list_sessions()} - before
    assert addresses == {f"/session/{forked}"}
    assert form_of(writer, "/act/fork?session=run-of-today")["new"] != forked


def test_the_publish_of_an_empty_session_promises_no_commit(writer: TestClient, own_lake: Lake) -> None:
    own_lake.open_session(id="empty")
    page = writer.get("/act/publish?session=empty").text
    assert "becomes one commit" not in page
    assert "No dataset and no file of main changes" in page
    head = own_lake.list_branches()["main"]
    assert writer.post("/act/publish", data=form_of(writer, "/act/publish?session=empty")).status_code == 200
    assert own_lake.list_branches()["main"] == head


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("/merge?ref=side", ["merge", "side"]),
        ("/act/merge?ref=side", ["merge", "side"]),
        ("/act/merge?ref=conflicting", ["merge", "conflicting"]),
        ("/act/revert?commit=dev", ["revert", "dev"]),
        ("/act/cherry-pick?commit=main~1", ["cherry-pick", "main~1", "--onto", "main"]),
        ("/act/publish?session=ended", ["publish", "ended"]),
    ],
)
def test_the_json_of_what_cannot_be_done_is_that_of_a_dry_run(
    writer: TestClient, own_lake: Lake, address: str, words: list[str]
) -> None:
    own_lake.open_session(id="ended").abandon()
    root = own_lake.url.removeprefix("file://")
    printed = run_json(root, *words, "--dry-run", code=3 if "conflicting" in words else 1)
    answer = writer.get(f"{address}&format=json")
    assert answer.status_code >= 400
    shown = answer.json()
    assert shown.pop("remedy", "") != printed.pop("remedy", "") or "conflicting" not in words  # it names commands
    assert shown == printed


def test_the_page_of_a_publish_names_the_tasks_that_did_not_end(writer: TestClient, own_lake: Lake) -> None:
    session = own_lake.open_session(id="halfway")
    with session.join(task="whole") as task:
        task.put("whole", b"1")
    with pytest.raises(KeyError), session.join(task="torn") as task:
        task.put("torn", b"1")
        task.flush()
        raise KeyError
    page = writer.get("/act/publish?session=halfway").text
    assert "No end is recorded of &#39;torn&#39;" in page
    assert "No end is recorded" not in writer.get("/act/publish?session=run-of-today").text


@pytest.mark.parametrize(
    "address",
    [
        *("/", "/upkeep?check=verify", "/upkeep?check=gc", "/sessions?all=1", "/merge?ref=dev"),
        *("/act/merge?ref=dev", "/act/publish?session=run-of-today", "/act/fork?session=run-of-today"),
        *("/act/revert?commit=main~1", "/act/cherry-pick?commit=dev", "/act/abandon?session=run-of-today"),
        *("/act/tag?at=main&name=new", "/act/delete-branch?name=dev"),
    ],
)
def test_a_page_that_is_only_opened_changes_nothing_also_where_forms_may(
    writer: TestClient, own_lake: Lake, address: str
) -> None:
    def objects() -> object:
        return [(meta.key, meta.etag) for meta in own_lake.repository.root.list("")]

    before = objects()
    assert writer.get(address).status_code == 200
    assert objects() == before
