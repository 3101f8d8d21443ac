"""Events of assets, watchers, maintenance, and tasks that publish by themselves."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest

from lake_core import Lake
from tests.airflow.test_lives import life, meant, new_life, published  # noqa: F401

pytestmark = [pytest.mark.airflow, pytest.mark.newest]

ROWS = pa.table({"x": [1, 2, 3]})
_days = count()


def run(dag_id: str, url: str | None = None) -> Any:
    from tests.airflow.scheduler import Life

    made = Life(dag_id, datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=next(_days)))
    if url is not None:
        made.dag.get_task("session.land").zone["url"] = url
    return made


def events(since: int = 0) -> list[dict[str, Any]]:
    """Return the newest events of assets, oldest first."""
    return [{"path": each["name"].split("/", 2)[2], **each["extra"]} for each in _newest() if each["id"] > since]


def newest_event() -> int:
    return max((each["id"] for each in _newest()), default=0)


def _newest() -> list[dict[str, Any]]:
    from tests.airflow.scheduler import api

    answer = api().get("/api/v2/assets/events?limit=100&order_by=-timestamp").json()
    return list(reversed(answer["asset_events"]))


def test_a_publish_has_an_event_for_the_datasets_that_it_changed(life: Any, lake_root: Path) -> None:  # noqa: F811
    before = newest_event()
    life.go()
    head = next(iter(Lake.open(str(lake_root)).log(limit=1))).id
    found = {each["path"]: (each["commit"], each["branch"], each["rows"]) for each in events(before)}
    assert found["tables/own"] == (head, "main", 2)
    assert {each["path"] for each in events(before)} >= {"tables/own"}


def test_a_run_that_changed_nothing_again_has_no_event(life: Any, lake_root: Path) -> None:  # noqa: F811
    life.go()
    before = newest_event()
    life.clear("session.choose")
    assert life.go() == "success"
    assert events(before) == []


def test_a_task_without_a_session_publishes_by_itself(lake_root: Path) -> None:
    before = newest_event()
    alone = run("alone")
    assert alone.go() == "success"
    rows = Lake.open(str(lake_root)).delta("tables/own").to_arrow().num_rows
    assert (rows, [each["path"] for each in events(before)]) == (2, ["tables/own"])


def test_a_task_without_a_session_replaces_its_rows_when_it_is_cleared(lake_root: Path) -> None:
    alone = run("alone")
    alone.go()
    first = Lake.open(str(lake_root)).delta("tables/own").to_arrow()["n"].to_pylist()
    alone.clear("one")
    assert alone.go() == "success"
    again = Lake.open(str(lake_root)).delta("tables/own").to_arrow()["n"].to_pylist()
    assert (len(again), set(again) & set(first)) == (2, set())


def targets(links: dict[str, str | None]) -> dict[str, str]:
    """Return what is to be looked for in a lake, by the names of the links that have something."""
    return {name: link.rpartition("#")[2].partition("=")[2] for name, link in links.items() if link}


def test_a_publish_links_to_its_commit_and_to_what_that_changed(life: Any, lake_root: Path) -> None:  # noqa: F811
    life.go()
    after, before = Lake.open(str(lake_root)).log(limit=2)
    links = targets(life.links("session.publish"))
    assert (links["Commit"], links["Comparison"]) == (after.id, f"{before.id}..{after.id}")


def test_a_link_leads_to_the_page_of_its_task_and_names_the_lake(life: Any, lake_root: Path) -> None:  # noqa: F811
    life.go()
    page, _, target = str(life.links("session.line", 1)["Session"]).partition("#")
    assert page == f"dags/lives/runs/{quote(life.run_id, safe='')}/tasks/session.line/mapped/1/details"
    assert target.startswith(f"{Lake.open(str(lake_root)).url}#session=")


def test_a_task_of_a_session_links_to_the_session_alone(life: Any, lake_root: Path) -> None:  # noqa: F811
    life.go()
    (commit,) = Lake.open(str(lake_root)).log(limit=1)
    assert targets(life.links("session.day")) == {"Session": commit.metadata["session"]}


def test_a_publish_that_fails_links_to_the_session_alone(life: Any, lake_root: Path) -> None:  # noqa: F811
    life.go(until=lambda task: task == "session.publish")
    with Lake.open(str(lake_root)).session() as session:
        session.create_delta("tables/own", pa.schema([("other", pa.string())]))
    life.go()
    assert set(targets(life.links("session.publish"))) == {"Session"}


def test_a_close_that_publishes_links_to_the_commit(life: Any, lake_root: Path) -> None:  # noqa: F811
    life.go()
    life.clear("session.day")
    life.go()
    assert targets(life.links("session.close"))["Commit"] == Lake.open(str(lake_root)).list_branches()["main"]


@pytest.fixture
def pages(lake_root: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Say in the connection where `lake ui` serves the lake."""
    ui_url = "http://lake.example:7117"
    connection = {"conn_type": "lake", "host": str(lake_root), "extra": {"ui_url": ui_url}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps(connection))
    return ui_url


def test_links_lead_to_the_pages_of_the_lake(pages: str, life: Any, lake_root: Path) -> None:  # noqa: F811
    life.go()
    after, before = Lake.open(str(lake_root)).log(limit=2)
    links = life.links("session.publish")
    session = f"{pages}/session/{after.metadata['session']}"
    assert links["Commit"] == f"{pages}/commit/{after.id}"
    assert links["Comparison"] == f"{pages}/compare?from={before.id}&to={after.id}"
    assert links["Session"] == session
    assert not links["Dataset"]
    links = life.links("session.day")
    assert links["Session"] == session
    assert links["Dataset"].endswith(f"?at={after.metadata['session']}")
    assert not links["Commit"]


def test_a_task_that_publishes_by_itself_links_to_its_dataset(pages: str, lake_root: Path) -> None:
    alone = run("alone")
    alone.go()
    head = Lake.open(str(lake_root)).list_branches()["main"]
    assert alone.links("one")["Dataset"] == f"{pages}/dataset/tables/own?at={head}"


def test_events_link_to_the_pages_of_the_lake(pages: str, lake_root: Path) -> None:
    before = newest_event()
    run("alone").go()
    head = Lake.open(str(lake_root)).list_branches()["main"]
    (event,) = events(before)
    assert event["page"] == f"{pages}/dataset/tables/own?at={head}"
    assert event["commit_page"] == f"{pages}/commit/{head}"
    assert event["changes_page"] == f"{pages}/compare/dataset?from={head}~1&to={head}&path=tables%2Fown"


@pytest.mark.parametrize("ui_url", ["lake.example:7117", "http://lake.example/?token=abc", 7])
def test_an_address_that_is_no_page_or_holds_a_secret_is_refused(
    lake_root: Path, monkeypatch: pytest.MonkeyPatch, ui_url: object
) -> None:
    from lake_orch.airflow.hook import LakeHook
    from lake_orch.errors import InvalidDefinition

    connection = {"conn_type": "lake", "host": str(lake_root), "extra": {"ui_url": ui_url}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE_DEFAULT", json.dumps(connection))
    with pytest.raises(InvalidDefinition, match="ui_url"):
        LakeHook().place()


def test_a_task_that_publishes_by_itself_links_to_its_commit(lake_root: Path) -> None:
    alone = run("alone")
    alone.go()
    assert targets(alone.links("one"))["Commit"] == Lake.open(str(lake_root)).list_branches()["main"]


def test_a_watcher_tells_the_commits_of_others(lake_root: Path) -> None:
    from lake_orch.airflow.watcher import LakeCommitTrigger

    lake = Lake.open(str(lake_root))
    trigger = LakeCommitTrigger(connection="lake_default", path="tables/outside", poll_seconds=0.01)

    async def first() -> Any:
        stream = trigger.run()
        waiting = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0.5)
        with lake.session(message="rates") as session:
            session.create_delta("tables/outside", ROWS.schema).append(ROWS)
        return await asyncio.wait_for(waiting, 30)

    payload = asyncio.run(first()).payload
    assert (payload["message"], payload["rows"], payload["commit"]) == ("rates", 3, lake.list_branches()["main"])


def test_a_watcher_goes_on_with_a_branch_that_was_made_anew(lake_root: Path, caplog: pytest.LogCaptureFixture) -> None:
    from lake_orch.airflow.watcher import LakeCommitTrigger

    lake = Lake.open(str(lake_root))
    trigger = LakeCommitTrigger(connection="lake_default", path="tables/outside", branch="dev")
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.create_delta("tables/outside", ROWS.schema)
    last = lake.list_branches()["dev"]
    lake.delete_branch("dev")
    lake.create_branch("dev")
    assert trigger._look(last) == (lake.list_branches()["main"], [])
    assert "is no longer on the branch dev" in caplog.text


def test_a_watcher_leaves_out_the_commits_of_this_airflow(life: Any, lake_root: Path) -> None:  # noqa: F811
    from lake_orch.airflow.watcher import LakeCommitTrigger

    root = Lake.open(str(lake_root)).list_branches()["main"]
    life.go()
    trigger = LakeCommitTrigger(connection="lake_default", path="tables/own")
    assert trigger._look(root) == (Lake.open(str(lake_root)).list_branches()["main"], [])


def test_maintenance_compacts_and_settles_what_nobody_closed(life: Any, lake_root: Path) -> None:  # noqa: F811
    lake = Lake.open(str(lake_root))
    with lake.session() as session:
        session.create_delta("tables/small", ROWS.schema)
    for _ in range(12):
        with lake.session() as session:
            session.delta("tables/small").append(ROWS)
    life.go(until=lambda task: task == "session.publish")
    life.end()
    upkeep = run("upkeep")
    assert upkeep.go() == "success"
    sessions = {record.metadata.get("airflow/run"): record.state for record in lake.list_sessions()}
    assert sessions == {life.run_id: "failed"}
    assert (len(lake.delta("tables/small").files(["path"])), lake.delta("tables/small").to_arrow().num_rows) == (1, 36)
    life.delete()
    again = new_life(life.run_id)
    assert again.go() == "success"
    assert published(lake_root) == meant(again) != Counter()


def test_maintenance_that_fails_is_red_though_it_collects(lake_root: Path) -> None:
    upkeep = run("upkeep_of_what_is_missing")
    assert upkeep.go() == "failed"
    assert upkeep.state_of("collect") == "success"


def test_another_process_writes_in_place_of_a_task_and_files_land_once(lake_root: Path) -> None:
    (lake_root.parent / "landing").mkdir()
    (lake_root.parent / "landing" / "one.csv").write_text("x\n1\n2\n")
    elsewhere = run("elsewhere", url=str(lake_root.parent / "landing"))
    assert elsewhere.go() == "success"
    lake = Lake.open(str(lake_root))
    assert lake.delta("tables/own").to_arrow()["n"].to_pylist() == [1, 2]
    assert lake.delta("tables/landed").to_arrow()["x"].to_pylist() == [1, 2]
    assert set(targets(elsewhere.links("session.land"))) == {"Session"}
    (lake_root.parent / "landing" / "two.csv").write_text("x\n3\n")
    elsewhere.clear()
    assert elsewhere.go() == "success"
    assert sorted(lake.delta("tables/own").to_arrow()["n"].to_pylist()) == [1, 2]
    assert sorted(lake.delta("tables/landed").to_arrow()["x"].to_pylist()) == [1, 2, 3]


def test_files_land_in_a_pool_once(lake_root: Path) -> None:
    folder = lake_root.parent / "landing"
    folder.mkdir()
    for name, line in (("one", '{"k": 1}'), ("two", '{"k": 2, "shape": "other"}')):
        (folder / f"{name}.ndjson").write_text(f"{line}\n")
        assert run("any_shape", url=str(folder)).go() == "success"
    records = Lake.open(str(lake_root)).pool("pools/landed").scan().to_zson().splitlines()
    assert records == ["{k:1}", '{k:2,shape:"other"}']


def test_each_format_is_written_and_loaded_as_annotated(lake_root: Path) -> None:
    formats = run("formats")
    assert formats.go() == "success"
    loaded = formats.xcom("session.all_of_them")
    assert loaded == {
        "hours": 2,
        "readings": 2,
        "field": 6.0,
        "events": 2,
        "report": {"rows": 2},
        "raw": "tables/hours",
    }


def test_the_slices_of_two_intervals_stand_beside_one_another_and_each_replaces_itself(lake_root: Path) -> None:
    one, other = run("formats"), run("formats")
    assert (one.go(), other.go()) == ("success", "success")
    one.clear()
    assert one.go() == "success"
    lake = Lake.open(str(lake_root))
    counts = lake.delta("tables/hours").to_arrow().num_rows, lake.pool("pools/events").scan().to_table().num_rows
    assert counts == (4, 4)
