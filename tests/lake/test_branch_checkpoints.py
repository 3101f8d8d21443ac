"""Checkpoints of tables on branches: who uses them, who does not, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.log_segment import checkpoint_key, list_log
from lake_core.errors import NotFound
from lake_core.lake.state.derived import DERIVED
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, create_tables, forget_datasets, ids, plain, rows
from tests.store.round_trips import RoundTripStore

PATH = "t/orders"


def append(lake: Lake, branch: str, numbers: range) -> None:
    """Append each id in its own commit."""
    for number in numbers:
        with lake.session(branch) as s:
            s.delta(PATH).append(rows([number]))


def beside(lake: Lake) -> list[str]:
    """List the checkpoints that are beside the datasets."""
    keys = (meta.key for meta in lake.repository.root.list(f"{DERIVED}/"))
    return [key for key in keys if key.endswith(".parquet")]


def checkpoints(lake: Lake, ref: str) -> list[int]:
    """List the versions of the checkpoints that readers of a ref see."""
    return [files.version for files in list_log(lake.at(ref).dataset(PATH)).checkpoints]


def log_reads(inner: MemoryStore, read: Callable[[Lake], DeltaTable]) -> tuple[DeltaTable, int]:
    """Open a table as a new process does. Return it with the number of log objects that were read."""
    forget_datasets()
    store = RoundTripStore(inner)
    fresh = Lake.open(store)
    store.requests.clear()
    table = read(fresh)
    gets = [key for request in store.requests if request.startswith("get ") for key in request.split()[1:]]
    return table, sum(key.startswith((DERIVED, "_lake/objects/", f"{PATH}/_delta_log/")) for key in gets)


@pytest.mark.parametrize("commits", [35, pytest.param(300, marks=pytest.mark.extended)])
def test_a_branch_with_a_long_log_is_opened_from_a_checkpoint(commits: int) -> None:
    inner = MemoryStore()
    lake = Lake.create(inner)
    create_tables(lake, PATH)
    append(lake, "main", range(100, 112))
    lake.create_branch("dev")
    append(lake, "main", range(200, 210))
    append(lake, "dev", range(300, 300 + commits))
    lake.open_session("dev", id="shared")
    readers: list[Callable[[Lake], DeltaTable]] = [
        lambda fresh: fresh.delta(PATH, ref="dev"),
        lambda fresh: fresh.at("dev").delta(PATH),
        lambda fresh: fresh.session("dev").delta(PATH),
        lambda fresh: fresh.get_session("shared").join().delta(PATH),
    ]
    last = 12 + commits
    for reader in readers:
        table, reads = log_reads(inner, reader)
        assert table.version == last
        assert ids(table) == sorted([*range(10), *range(100, 112), *range(300, 300 + commits)])
        assert reads <= last % 10 + 5, f"of {last} log entries, {reads} were read"
    assert checkpoints(lake, "dev")[-1] == last - last % 10
    assert checkpoints(lake, "main") == [10, 20]


def test_branches_with_equal_versions_use_only_their_own_checkpoints(lake: Lake, store: MemoryStore) -> None:
    for branch, start in (("a", 1000), ("b", 2000)):
        lake.create_branch(branch)
        append(lake, branch, range(start, start + 11))
    append(lake, "main", range(3000, 3011))
    forget_datasets()
    fresh = Lake.open(store)
    assert [checkpoints(fresh, ref) for ref in ("a", "b", "main")] == [[10]] * 3
    assert len(beside(fresh)) == 2
    contents = {bytes(fresh.at(ref).dataset(PATH).get(checkpoint_key(10))) for ref in ("a", "b", "main")}
    assert len(contents) == 3
    for ref, start in (("a", 1000), ("b", 2000), ("main", 3000)):
        expected = [*range(10), *range(start, start + 11)]
        assert ids(fresh.delta(PATH, ref=ref)) == expected
    assert ids(plain(store, PATH)) == [*range(10), *range(3000, 3011)]
    with pytest.raises(NotFound, match="does not belong to"):
        fresh.at("a~5").dataset(PATH).get(checkpoint_key(10))
    # A commit at which a branch begins has what the branch had until then.
    fresh.create_branch("late", at="a")
    append(fresh, "late", range(4000, 4010))
    assert checkpoints(fresh, "late") == [10, 20]
    assert checkpoints(fresh, "a") == [10]


def test_a_branch_with_checkpoints_is_merged(lake: Lake, store: MemoryStore) -> None:
    lake.create_branch("dev")
    append(lake, "dev", range(1000, 1025))
    append(lake, "main", range(2000, 2012))
    lake.merge("dev")
    expected = sorted([*range(10), *range(1000, 1025), *range(2000, 2012)])
    forget_datasets()
    fresh = Lake.open(store)
    assert ids(fresh.delta(PATH)) == ids(plain(store, PATH)) == expected
    assert checkpoints(fresh, "main") == [10]
    in_the_folder = [meta.key for meta in store.list(f"{PATH}/_delta_log/") if "checkpoint." in meta.key]
    assert in_the_folder == [f"{PATH}/{checkpoint_key(10)}"]
    # The other way round, and once more to a branch that only follows.
    fresh.create_branch("follower", at="dev")
    fresh.merge("main", into="dev")
    append(fresh, "dev", range(5000, 5010))
    fresh.merge("dev", into="follower")
    assert ids(fresh.delta(PATH, ref="dev")) == ids(fresh.delta(PATH, ref="follower"))
    assert fresh.maintenance.verify() == []


def test_collection_keeps_the_newest_checkpoints_of_what_is_named(
    lake: Lake, store: MemoryStore, time: ManualClock
) -> None:
    lake.create_branch("dev")
    append(lake, "dev", range(1000, 1012))
    lake.create_tag("then", at="dev")
    append(lake, "dev", range(1012, 1062))
    lake.create_branch("gone", at="dev")
    append(lake, "gone", range(1062, 1072))
    lake.delete_branch("gone")
    assert len(beside(lake)) == 7
    time.pass_days(7)
    assert lake.maintenance.gc().keys == ()
    time.pass_days(33)
    planned = lake.maintenance.gc(dry_run=True)
    removed = [key for key in planned.keys if key.startswith(DERIVED) and key.endswith(".parquet")]
    assert len(removed) == 3, "those of versions 20 and 30, and the one of the deleted branch"
    lake.maintenance.gc()
    forget_datasets()
    fresh = Lake.open(store, clock=time)
    assert len(beside(fresh)) == 4
    assert [checkpoints(fresh, ref) for ref in ("then", "dev")] == [[10], [40, 50, 60]]
    assert ids(fresh.delta(PATH, ref="dev")) == [*range(10), *range(1000, 1062)]
    assert ids(fresh.delta(PATH, ref="then")) == [*range(10), *range(1000, 1012)]
    assert fresh.maintenance.verify() == []


def test_checkpoints_of_branches_may_be_lost_or_damaged(lake: Lake, store: MemoryStore) -> None:
    lake.create_branch("dev")
    append(lake, "dev", range(1000, 1021))
    expected = [*range(10), *range(1000, 1021)]
    first, second = sorted(beside(lake), key=lambda key: key[-40:])
    store.put(second, b"not a checkpoint")
    forget_datasets()
    with pytest.warns(UserWarning, match="rebuilt from older log files"):
        assert ids(Lake.open(store).delta(PATH, ref="dev")) == expected
    store.delete([meta.key for meta in store.list(f"{DERIVED}/")])
    forget_datasets()
    fresh = Lake.open(store)
    assert ids(fresh.delta(PATH, ref="dev")) == expected
    assert fresh.maintenance.verify() == []
    fresh.maintenance.checkpoint(PATH, "dev")
    assert checkpoints(fresh, "dev") == [21]
    assert first not in beside(fresh)


def test_an_imported_table_has_checkpoints_on_branches(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path / "lake")
    table = DeltaTable.create(tmp_path / "lake" / PATH, SCHEMA)
    for number in range(12):
        table.append(rows([number]))
    with lake.session() as s:
        s.import_delta(PATH)
    lake.create_branch("dev")
    lake.maintenance.checkpoint(PATH, "dev")
    append(lake, "dev", range(12, 32))
    assert checkpoints(lake, "dev") == [12, 20, 30]
    assert ids(Lake.open(tmp_path / "lake").delta(PATH, ref="dev")) == list(range(32))
    target = tmp_path / "export"
    lake.maintenance.export(target)
    assert not [path for path in target.rglob("*") if "derived" in path.parts]
