"""Ways in which rows and files were once lost or doubled, each held shut by a test."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.file_name import new_name
from lake_core.errors import InvalidKey
from lake_core.lake.errors import (
    Conflict,
    DatasetExists,
    DatasetNotFound,
    InvalidRef,
    RefNotFound,
    SessionClosed,
    StaleAttempt,
)
from lake_core.store import FolderStore, MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, create_tables, ids, plain, rows


def _foreign(store: MemoryStore, time: ManualClock, path: str, appends: int = 1) -> FolderStore:
    """Create a table in the lake's folder with another writer."""
    folder = FolderStore(store, path)
    DeltaTable.create(folder, SCHEMA, clock=time)
    for number in range(appends):
        DeltaTable.open(folder, clock=time).append(rows([number]))
    return folder


def test_what_an_abandoned_import_named_is_never_collected(empty: Lake, store: MemoryStore, time: ManualClock) -> None:
    _foreign(store, time, "ext/t")
    session = empty.session()
    session.import_delta("ext/t")
    session.abandon()
    empty.create_branch("dev")
    with empty.session("dev") as s:
        s.import_delta("ext/t")
    empty.delete_branch("dev")
    time.pass_days(60)
    empty.maintenance.gc()
    assert ids(plain(store, "ext/t")) == [0]


def test_an_imported_table_is_collected_like_others_once_main_has_it(
    empty: Lake, store: MemoryStore, time: ManualClock
) -> None:
    _foreign(store, time, "ext/t")
    with empty.session() as s:
        s.import_delta("ext/t")
    orphan = f"ext/t/{new_name(0)}"
    store.put(orphan, b"x")
    time.pass_days(60)
    assert empty.maintenance.gc().keys == (orphan,)
    assert ids(plain(store, "ext/t")) == [0]


def test_a_picked_commit_that_was_rewritten_since_is_not_merged_again(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").append(rows([100]))
    lake.cherry_pick("dev", onto="main")
    with lake.session() as s:
        s.delta("t/orders").optimize()
    lake.merge("dev", into="main")
    assert ids(lake.delta("t/orders")) == [*range(10), 100]


def test_a_picked_commit_that_stands_is_merged_once(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").append(rows([100]))
    lake.cherry_pick("dev", onto="main")
    with lake.session("dev") as s:
        s.delta("t/orders").append(rows([200]))
    lake.merge("dev", into="main")
    assert ids(lake.delta("t/orders")) == [*range(10), 100, 200]


def test_criss_cross_merges_double_no_row(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").append(rows([100]))
    with lake.session() as s:
        s.delta("t/orders").append(rows([200]))
    lake.merge("dev", into="main")
    lake.merge("main~1", into="dev")
    with lake.session() as s:
        s.delta("t/orders").optimize()
    lake.merge("dev", into="main")
    assert ids(lake.delta("t/orders")) == [*range(10), 100, 200]


def test_a_table_imported_on_both_branches_is_not_doubled(empty: Lake, store: MemoryStore, time: ManualClock) -> None:
    _foreign(store, time, "ext/t", appends=3)
    empty.create_branch("dev")
    for branch in ("main", "dev"):
        with empty.session(branch) as s:
            s.import_delta("ext/t")
    with empty.session() as s:
        s.delta("ext/t").optimize()
    empty.merge("dev", into="main")
    assert ids(empty.delta("ext/t")) == [0, 1, 2]


def test_a_log_that_was_cut_short_before_its_import_takes_part_in_everything(
    empty: Lake, store: MemoryStore, time: ManualClock
) -> None:
    folder = _foreign(store, time, "ext/t", appends=11)
    DeltaTable.open(folder, clock=time).checkpoint()
    store.delete([f"ext/t/_delta_log/{version:020}.json" for version in range(11)])
    with empty.session() as s:
        s.import_delta("ext/t").append(rows([50]))
    empty.create_branch("dev")
    with empty.session("dev") as s:
        s.delta("ext/t").append(rows([51]))
    with empty.session() as s:
        s.delta("ext/t").append(rows([52]))
    empty.merge("dev", into="main")
    assert ids(plain(store, "ext/t")) == ids(empty.delta("ext/t")) == [*range(11), 50, 51, 52]


def test_foreign_commits_whose_log_was_cleaned_up_are_not_passed_by(
    empty: Lake, store: MemoryStore, time: ManualClock
) -> None:
    create_tables(empty, "t/o", managed=False)
    folder = FolderStore(store, "t/o")
    for number in range(100, 104):
        DeltaTable.open(folder, clock=time).append(rows([number]))
    DeltaTable.open(folder, clock=time).checkpoint()
    store.delete([f"t/o/_delta_log/{version:020}.json" for version in range(4)])
    with pytest.raises(Conflict, match="release"), empty.session() as s:
        s.delta("t/o").append(rows([999]))
    empty.maintenance.release("t/o")
    with empty.session() as s:
        s.import_delta("t/o").append(rows([999]))
    assert ids(plain(store, "t/o")) == ids(empty.delta("t/o")) == [*range(10), *range(100, 104), 999]


def test_a_revert_is_never_half_skipped_by_a_later_marker(lake: Lake) -> None:
    create_tables(lake, "t/other")
    with lake.session() as s:
        s.delta("t/orders").append(rows([100]), txn=("app", 1))
        s.delta("t/other").append(rows([100]))
    first = lake.list_branches()["main"]
    with lake.session() as s:
        s.delta("t/orders").append(rows([101]), txn=("app", 2))
    with pytest.raises(Conflict):
        lake.revert(first)
    assert ids(lake.delta("t/other")) == [*range(10), 100]


def test_an_append_only_table_refuses_a_revert(empty: Lake) -> None:
    create_tables(empty, "t/o", properties={"delta.appendOnly": "true"})
    with empty.session() as s:
        s.delta("t/o").append(rows([100]))
    with pytest.raises(Conflict) as caught:
        empty.revert("main")
    assert caught.value.kinds == {"t/o": "AppendOnlyTable"}


@pytest.mark.parametrize(
    "properties", [{"delta.constraints.positive": "v >= 0"}, {"delta.enableDeletionVectors": "true"}]
)
def test_tables_of_other_rules_do_not_become_one(empty: Lake, properties: dict[str, str]) -> None:
    first, other = empty.session(), empty.session()
    first.create_delta("t/o", SCHEMA, properties=properties).append(rows([1]))
    other.create_delta("t/o", SCHEMA).append(rows([2], v=-5))
    first.publish()
    with pytest.raises(Conflict):
        other.publish()


@pytest.mark.parametrize("to", ["_lake/datasets/", "t/orders/_delta_log/", "../", "a//"])
def test_objects_are_not_named_where_they_do_not_belong(lake: Lake, store: MemoryStore, to: str) -> None:
    store.put("raw/00000000000000000002.json", b"{}")
    session = lake.session()
    with pytest.raises(InvalidKey):
        session.import_objects("raw/", to=to)
    session.abandon()


@pytest.mark.parametrize("ref", [f"main~{'9' * 5000}", f"main^{'9' * 5000}", "main@{0001-01-01T00:00:00+14:00}"])
def test_refs_beyond_all_measure_are_invalid(lake: Lake, ref: str) -> None:
    with pytest.raises(InvalidRef):
        lake.at(ref)


def test_a_diverged_table_holds_up_nothing_else(tmp_path: Path) -> None:
    """Both removed the same row between the check and the checkout.

    The table has to be repaired by hand; the rest of the lake goes on.
    """
    import deltalake

    root = str(tmp_path / "lake")
    lake = Lake.create(root)
    deltalake.write_deltalake(f"{root}/legacy/events", rows(range(3)))
    with lake.session() as s:
        s.import_delta("legacy/events")
    with lake.session() as s:
        s.delta("legacy/events").delete("id = 1")
    Path(root, "legacy/events/_delta_log/00000000000000000001.json").unlink()
    deltalake.DeltaTable(f"{root}/legacy/events").delete("id = 2")
    for number in range(3):
        with lake.session() as s:
            s.put(f"other-{number}", b"1")
        with lake.session() as s:
            s.create_delta(f"t/{number}", SCHEMA).append(rows([number]))
    assert ids(plain(lake.repository.root, "t/2")) == [2]
    with pytest.raises(Conflict), lake.session() as s:
        s.delta("legacy/events").append(rows([50]))
    lake.maintenance.release("legacy/events")
    lake.maintenance.checkout()
    with lake.session() as s:
        s.import_delta("legacy/events")
    assert ids(lake.delta("legacy/events")) == [0, 1]
    assert lake.maintenance.verify() == []


def test_an_attempt_that_wrote_nothing_still_fences_older_ones(lake: Lake) -> None:
    opened = lake.open_session()
    zombie = opened.join(task="orders", attempt=1)
    zombie.delta("t/orders").append(rows([666]))
    with opened.join(task="orders", attempt=2):
        pass
    with pytest.raises(StaleAttempt):
        zombie.flush()
    opened.publish()
    assert ids(lake.delta("t/orders")) == list(range(10))


def test_an_attempt_that_died_half_way_is_made_again(lake: Lake) -> None:
    opened = lake.open_session()
    dead = opened.join(task="orders")
    dead.delta("t/orders").append(rows([50]))
    dead.flush()
    with opened.join(task="orders") as part:
        part.delta("t/orders").append(rows([50]))
        part.flush()
        part.delta("t/orders").append(rows([51]))
    with opened.join(task="orders") as again:
        again.delta("t/orders").append(rows([52]))
    opened.publish()
    assert ids(lake.delta("t/orders")) == [*range(10), 50, 51]


def test_other_files_in_a_tables_folder_are_nobodys_garbage(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    hidden = ["t/orders/README.md", "t/orders/_manifest/manifest", "t/orders/.hidden.parquet", "t/orders/_SUCCESS"]
    foreign = [
        *hidden,
        "t/orders/mine.parquet",
        "t/orders/part-00000-0f8fad5b-d9cb-469f-a165-70867728950e-c000.snappy.parquet",
    ]
    orphan = f"t/orders/{new_name(0)}"
    for key in [*foreign, orphan]:
        store.put(key, b"1")
    time.pass_days(60)
    lake.maintenance.gc()
    assert all(store.exists(key) for key in foreign)
    assert not store.exists(orphan)


def test_files_in_the_way_of_a_table_say_how_they_are_brought_in(lake: Lake, store: MemoryStore) -> None:
    DeltaTable.create(FolderStore(store, "tables/e"), SCHEMA)
    with (
        pytest.raises(DatasetExists, match=r"`lake import tables/e`.*session\.import_delta\('tables/e'\)"),
        lake.session() as session,
    ):
        session.create_delta("tables/e", SCHEMA)


def test_adopting_what_is_no_dataset_says_how_it_is_brought_in(lake: Lake) -> None:
    with pytest.raises(DatasetNotFound, match="import it with `lake import tables/e`"):
        lake.maintenance.adopt("tables/e")


def test_an_imported_table_is_released_not_emptied(lake: Lake, store: MemoryStore) -> None:
    DeltaTable.create(FolderStore(store, "ext"), SCHEMA).append(rows([1]))
    with lake.session() as s:
        s.import_delta("ext")
    with pytest.raises(Conflict) as caught:
        lake.revert("main")
    assert caught.value.kinds == {"ext": "Imported"}
    with pytest.raises(Conflict), lake.session() as s:
        s.drop("ext")
    lake.maintenance.release("ext")
    assert ids(plain(store, "ext")) == [1]
    assert "ext" not in lake.at().datasets()


def test_parents_that_are_not_there(lake: Lake) -> None:
    for number in (0, -1, 2):
        with pytest.raises(RefNotFound):
            lake.revert("main", parent=number)


def test_what_has_ended_is_not_forked(lake: Lake) -> None:
    opened = lake.open_session()
    opened.publish()
    with pytest.raises(SessionClosed):
        opened.fork()


def test_an_imported_history_may_hold_an_optimize(lake: Lake, store: MemoryStore) -> None:
    table = DeltaTable.create(FolderStore(store, "ext"), SCHEMA)
    for id in range(4):
        table.append(rows([id]))
    table.optimize()
    with lake.session() as s:
        s.import_delta("ext").append(rows([9]))
    assert ids(lake.delta("ext")) == ids(plain(store, "ext")) == [0, 1, 2, 3, 9]


def test_paths_in_another_normal_form_are_one_path(lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta("t/cafe\u0301", SCHEMA).append(rows([1]))
    assert ids(lake.delta("t/caf\u00e9")) == ids(lake.delta("t/cafe\u0301")) == [1]
    for wrong in (None, 7, "t/\ud800", ""):
        with pytest.raises(InvalidKey), lake.session() as s:
            s.create_delta(wrong, SCHEMA)  # type: ignore[arg-type]


def test_writes_to_a_dataset_in_the_folder_of_a_dropped_one_are_published(
    empty: Lake, store: MemoryStore, time: ManualClock
) -> None:
    create_tables(empty, "t/a")
    with empty.session() as s:
        s.drop("t/a")
    with empty.session() as s:
        s.create_delta("t/a/b", SCHEMA).append(rows([0]))
    for number in range(1, 4):
        with empty.session() as s:
            s.delta("t/a/b").overwrite(rows([number]))
    assert ids(empty.delta("t/a/b")) == ids(plain(store, "t/a/b")) == [3]
    time.pass_days(20)
    empty.maintenance.gc()
    assert [ids(empty.delta("t/a/b", ref=f"main~{back}")) for back in range(4)] == [[3], [2], [1], [0]]


def test_a_folder_that_holds_a_dropped_dataset_is_said_to_hold_it(empty: Lake) -> None:
    with empty.session() as s:
        s.create_delta("day/orders", SCHEMA).append(rows([1]))
    with empty.session() as s:
        s.drop("day/orders")
    with empty.session() as s, pytest.raises(DatasetExists, match="holds the files of 'day/orders'"):
        s.create_delta("day", SCHEMA)


def test_a_dataset_inside_one_that_the_session_drops_is_refused_at_once(empty: Lake) -> None:
    with empty.session() as s:
        s.create_delta("day", SCHEMA)
    with empty.session() as s:
        s.drop("day")
        with pytest.raises(DatasetExists, match="stays until this session is published"):
            s.create_delta("day/orders", SCHEMA)
    with empty.session() as s:
        s.create_delta("day/orders", SCHEMA).append(rows([1]))
    assert ids(empty.delta("day/orders")) == [1]
