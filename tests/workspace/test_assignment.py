"""What an attempt is assigned to, as it goes to another process."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.workspace import Assignment, CallNumbers, DirectWrites, PublishedWrites, StagedWrites, open_workspace

NOON = datetime(2024, 1, 1, 12, tzinfo=UTC)
TO_BRANCH = Assignment(
    "lake", "task", "main", private_session="o-1", since=NOON, is_retry=True, message="m", metadata={"dagster/run": "r"}
)
ROWS = pa.table({"id": [1]})


@pytest.mark.parametrize(
    "assignment",
    [
        Assignment("folder", "task"),
        TO_BRANCH,
        Assignment("lake", "task", "main", "run-1", 2, 2_000_001, "token", "part"),
    ],
    ids=["folder", "branch", "session"],
)
def test_an_assignment_travels_as_json(assignment: Assignment) -> None:
    assert Assignment.from_json(json.loads(json.dumps(assignment.to_json()))) == assignment


def test_an_assignment_of_an_earlier_version_is_read() -> None:
    values = TO_BRANCH.to_json()
    values["output"] = values.pop("task")
    assert Assignment.from_json(values) == TO_BRANCH


def test_the_first_task_of_a_step_is_its_own() -> None:
    assert TO_BRANCH.numbered(1) == TO_BRANCH


def test_a_later_task_of_a_step_has_its_own_marker_and_session() -> None:
    second = TO_BRANCH.numbered(2)
    assert second.task_id == "task-2"
    assert second.private_session == "o-1-2"


def test_blocks_of_a_task_that_has_a_name_of_its_own_add_to_each_other(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    shared = lake.open_session("main", id="run-1", owner="run-1")
    assigned = Assignment(
        lake.url, "write", "main", shared.id, shared.epoch, 1, token="try", part="0", session_task="task"
    )
    for number in (1, 2):
        with open_workspace(assigned.numbered(number), None, lambda: lake) as work:
            assert isinstance(work, StagedWrites)
            assert not work.is_repeated
            table = work.find("tables/t", "delta") or work.create("tables/t", "delta", ROWS.schema)
            table.append(pa.table({"id": [number]}))
    with open_workspace(assigned.numbered(2), None, lambda: lake) as again:
        assert again.is_repeated
    shared.publish()
    assert sorted(lake.delta("tables/t").to_arrow()["id"].to_pylist()) == [1, 2]


def test_a_call_that_failed_gives_its_number_back() -> None:
    numbers = CallNumbers()
    assert [numbers.take(), numbers.take()] == [1, 2]
    numbers.give_back(1)
    assert [numbers.take(), numbers.take()] == [1, 3]


def test_a_folder_of_plain_tables_asks_for_no_lake(tmp_path: Path) -> None:
    def no_lake() -> Lake:
        raise AssertionError

    assert isinstance(open_workspace(Assignment(str(tmp_path), "task"), None, no_lake), DirectWrites)


def test_a_branch_gets_what_was_written_when_the_workspace_ends(tmp_path: Path) -> None:
    lake = Lake.create(str(tmp_path / "lake"))
    assignment = Assignment(str(tmp_path / "lake"), "task", "main", private_session="o-1")
    with open_workspace(assignment, None, lambda: lake) as workspace:
        workspace.create("tables/a", "delta", ROWS.schema).append(ROWS)
        assert lake.list_datasets() == []
    assert isinstance(workspace, PublishedWrites)
    assert workspace.receipt is not None
    assert list(workspace.receipt.versions) == ["tables/a"]
    assert workspace.after("tables/a", "delta").to_arrow() == ROWS


def test_a_second_attempt_at_what_is_published_is_known_as_one(tmp_path: Path) -> None:
    lake = Lake.create(str(tmp_path / "lake"))
    assignment = Assignment(str(tmp_path / "lake"), "task", "main", private_session="o-1")
    for _ in range(2):
        with open_workspace(assignment, None, lambda: lake) as workspace:
            workspace.store.put("files/note.txt", b"x")
    assert workspace.is_repeated
    assert len(lake.log()) == 2


def test_a_session_holds_what_was_written_until_it_is_published(tmp_path: Path) -> None:
    lake = Lake.create(str(tmp_path / "lake"))
    session = lake.open_session(id="run-1")
    assignment = Assignment(str(tmp_path / "lake"), "task", "main", "run-1", session.epoch, 1)
    with open_workspace(assignment, None, lambda: lake) as workspace:
        workspace.create("tables/a", "delta", ROWS.schema).append(ROWS)
    assert isinstance(workspace, StagedWrites)
    assert lake.list_datasets() == []
    assert workspace.after("tables/a", "delta").to_arrow() == ROWS


@pytest.mark.parametrize(
    ("token", "part", "expected"),
    [("first", "0", [1]), ("first", "1", [1, 2]), ("second", "0", [2])],
    ids=["the same", "another part", "another token"],
)
def test_a_second_process_of_an_attempt(tmp_path: Path, token: str, part: str, expected: list[int]) -> None:
    """The same part of the same attempt is a lost answer, and is said to be left out; another part adds."""
    lake = Lake.create(str(tmp_path / "lake"))
    session = lake.open_session(id="run-1")
    first = Assignment(str(tmp_path / "lake"), "task", "main", "run-1", session.epoch, 1, "first", "0")
    for id, assignment in ((1, first), (2, replace(first, token=token, part=part))):
        with open_workspace(assignment, None, lambda: lake) as workspace:
            table = workspace.find("tables/a", "delta") or workspace.create("tables/a", "delta", ROWS.schema)
            table.append(pa.table({"id": [id]}))
    assert sorted(lake.delta("tables/a", ref="run-1").to_arrow()["id"].to_pylist()) == expected
    assert workspace.receipt is not None
    assert workspace.receipt.skipped is workspace.is_repeated is (expected == [1])
