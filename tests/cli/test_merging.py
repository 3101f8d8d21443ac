"""`lake merge` and `lake publish` where two sides conflict: what is said, previewed, decided."""

from __future__ import annotations

import pytest

from lake_core import Lake
from tests.cli.commands import run, run_json
from tests.lake.lakes import rows, values


@pytest.fixture
def diverged(root: str, lake: Lake) -> str:
    """`main` and `dev` have both updated the table, and `dev` has a file of its own."""
    lake.create_branch("dev")
    with lake.session("dev", message="tried") as s:
        s.delta("t/orders").update({"v": "2"})
        s.put("there.txt", b"")
    with lake.session("main", message="nightly load", metadata={"dagster/run": "run-18"}) as s:
        s.delta("t/orders").update({"v": "1"})
    return root


def test_a_conflict_says_whose_and_what_to_do_with_a_branch(diverged: str) -> None:
    output = run(diverged, "merge", "dev", code=3)
    assert "conflicts with these changes in 1 place. t/orders: version 1 added 1 file" in output
    assert "'nightly load' (by " in output
    assert "dagster/run run-18" in output
    assert "Run `lake merge dev --strategy theirs` to take what dev has" in output
    assert "refresh the table" not in output


def test_a_conflict_in_json_names_the_commits(diverged: str, lake: Lake) -> None:
    error = run_json(diverged, "merge", "dev", code=3)
    (contradiction,) = error["contradictions"]
    assert contradiction["path"] == "t/orders"
    assert contradiction["commits"][0]["id"] == lake.list_branches()["main"]
    assert "--strategy" in error["remedy"]


def test_a_dry_run_says_what_conflicts_and_writes_nothing(diverged: str, lake: Lake) -> None:
    before = lake.list_branches()
    assert "conflicts with these changes in 1 place" in run(diverged, "merge", "dev", "--dry-run", code=3)
    assert lake.list_branches() == before


def test_a_dry_run_says_what_a_strategy_would_do(diverged: str, lake: Lake) -> None:
    before = lake.list_branches()
    output = run(diverged, "merge", "dev", "--dry-run", "--strategy", "theirs")
    assert "~ t/orders  version 2" in output
    assert "+ there.txt" in output
    assert "! t/orders  conflicts, theirs is taken" in output
    assert lake.list_branches() == before


@pytest.mark.parametrize(("strategy", "expected"), [("ours", 1), ("theirs", 2)])
def test_a_strategy_decides_what_conflicts(diverged: str, lake: Lake, strategy: str, expected: int) -> None:
    assert f"{strategy} of 1 place in conflict" in run(diverged, "merge", "dev", "--strategy", strategy)
    assert set(values(lake.delta("t/orders")).values()) == {expected}
    assert lake.at().exists("there.txt")


def test_a_publish_in_conflict_names_the_fork(root: str, lake: Lake) -> None:
    opened = lake.open_session()
    with opened.join() as part:
        part.delta("t/orders").update({"v": "2"})
    with lake.session() as s:
        s.delta("t/orders").append(rows([20]))
    assert f"`lake session fork {opened.id} --without PATH`" in run(root, "publish", opened.id, code=3)


def test_places_have_a_plural(root: str, lake: Lake) -> None:
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as s:
            s.put("a", branch.encode())
            s.put("b", branch.encode())
    assert "conflicts with these changes in 2 places" in run(root, "merge", "dev", code=3)


def test_writes_that_are_skipped_by_their_markers_are_told(root: str, lake: Lake) -> None:
    with lake.session() as s:
        s.delta("t/orders").append(rows([50]), txn=("app", 1))
    lake.create_branch("dev")
    for branch in ("main", "dev"):
        with lake.session(branch) as s:
            s.delta("t/orders").append(rows([51]), txn=("app", 3))
    skipped = "= t/orders  skipped: main has version 3 of the application 'app', or a later one"
    assert skipped in run(root, "merge", "dev", "--dry-run")
    assert skipped in run(root, "merge", "dev")


def test_dry_runs_say_what_would_be_done_and_write_nothing(diverged: str, lake: Lake) -> None:
    head, picked = lake.list_branches()["main"], lake.list_branches()["dev"]
    lake.open_session(id="s1")
    with lake.get_session("s1").join() as writer:
        writer.put("new.txt", b"")
    assert "+ new.txt" in run(diverged, "publish", "s1", "--dry-run")
    assert "would revert commit" in run(diverged, "revert", head, "--dry-run")
    assert "Nothing was cherry-picked" in run(diverged, "cherry-pick", picked, "--onto", "main", "--dry-run", code=3)
    assert lake.list_branches()["main"] == head
    assert lake.get_session("s1").record.state == "open"
