"""Merges of branches that conflict: which side a strategy takes, what a preview shows, and what the conflict says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.lake.publish.tree_update import MergeStrategy, Strategy
from lake_core.lake.session.private_session import Session
from lake_core.store import MemoryStore
from tests.lake.lakes import SCHEMA, ids, plain, rows, values

PATH = "t/orders"
BOTH = pytest.mark.parametrize("strategy", ["ours", "theirs"])


def diverge(lake: Lake, on_main: Callable[[Session], object], on_dev: Callable[[Session], object]) -> None:
    """Change the same state differently on `main` and on `dev`."""
    lake.create_branch("dev")
    with lake.session("dev", message="tried on dev") as s:
        on_dev(s)
    with lake.session("main", message="nightly load", metadata={"run": "r-17"}) as s:
        on_main(s)


def update(value: int, where: str | None = None) -> Callable[[Session], object]:
    return lambda s: s.delta(PATH).update({"v": str(value)}, where)


def put(key: str, data: bytes) -> Callable[[Session], object]:
    return lambda s: s.put(key, data)


@pytest.mark.parametrize(("strategy", "expected"), [("ours", 1), ("theirs", 2)])
def test_a_table_that_both_changed_is_taken_whole_from_one_side(
    lake: Lake, store: MemoryStore, strategy: Strategy, expected: int
) -> None:
    diverge(lake, update(1), update(2))
    published = lake.merge("dev", strategy=strategy)
    assert set(values(lake.delta(PATH)).values()) == {expected}
    assert set(values(plain(store, PATH)).values()) == {expected}, "a plain reader sees the same"
    assert published.resolved == {PATH: "ConcurrentAppend"}


@BOTH
def test_what_does_not_conflict_is_merged_from_both_sides(lake: Lake, strategy: Strategy) -> None:
    with lake.session() as s:
        s.create_delta("t/other", SCHEMA)

    def on_main(s: Session) -> None:
        update(1)(s)
        s.put("here.txt", b"here")
        s.delta("t/other").append(rows([1]))

    def on_dev(s: Session) -> None:
        update(2)(s)
        s.put("there.txt", b"there")
        s.delta("t/other").append(rows([2]))

    diverge(lake, on_main, on_dev)
    lake.merge("dev", strategy=strategy)
    state = lake.at()
    assert ids(state.delta("t/other")) == [1, 2]
    assert [state.exists(key) for key in ("here.txt", "there.txt")] == [True, True]


@pytest.mark.parametrize(("strategy", "expected"), [("ours", b"here"), ("theirs", b"there")])
def test_a_file_that_both_changed_is_taken_from_one_side(lake: Lake, strategy: Strategy, expected: bytes) -> None:
    diverge(lake, put("notes.txt", b"here"), put("notes.txt", b"there"))
    assert lake.merge("dev", strategy=strategy).resolved == {"notes.txt": "BothChanged"}
    assert bytes(lake.at().get("notes.txt")) == expected


@pytest.mark.parametrize(("strategy", "stays"), [("ours", True), ("theirs", False)])
def test_a_file_that_they_deleted_and_we_changed(lake: Lake, strategy: Strategy, stays: bool) -> None:
    diverge(lake, put("notes.txt", b"here"), lambda s: s.delete(["notes.txt"]))
    lake.merge("dev", strategy=strategy)
    assert lake.at().exists("notes.txt") is stays


@pytest.mark.parametrize(("strategy", "stays"), [("ours", False), ("theirs", True)])
def test_a_file_that_we_deleted_and_they_changed(lake: Lake, strategy: Strategy, stays: bool) -> None:
    diverge(lake, lambda s: s.delete(["notes.txt"]), put("notes.txt", b"there"))
    lake.merge("dev", strategy=strategy)
    assert lake.at().exists("notes.txt") is stays


@pytest.mark.parametrize(("strategy", "stays"), [("ours", True), ("theirs", False)])
def test_a_table_that_they_dropped_and_we_changed(lake: Lake, strategy: Strategy, stays: bool) -> None:
    diverge(lake, update(1), lambda s: s.drop(PATH))
    lake.merge("dev", strategy=strategy)
    assert (PATH in lake.at().datasets()) is stays


@pytest.mark.parametrize(("strategy", "stays"), [("ours", False), ("theirs", True)])
def test_a_table_that_we_dropped_and_they_changed(
    lake: Lake, store: MemoryStore, strategy: Strategy, stays: bool
) -> None:
    diverge(lake, lambda s: s.drop(PATH), update(2))
    lake.merge("dev", strategy=strategy)
    assert (PATH in lake.at().datasets()) is stays
    if stays:
        assert set(values(plain(store, PATH)).values()) == {2}


@pytest.mark.parametrize(
    ("strategy", "expected"), [("ours", ["id", "p", "v", "here"]), ("theirs", ["id", "p", "v", "there"])]
)
def test_columns_are_taken_with_the_rows(lake: Lake, strategy: Strategy, expected: list[str]) -> None:
    def adding(name: str) -> Callable[[Session], object]:
        return lambda s: s.delta(PATH).add_columns(pa.schema([(name, pa.int64())]))

    diverge(lake, adding("here"), adding("there"))
    lake.merge("dev", strategy=strategy)
    assert lake.delta(PATH).schema.names == expected


@pytest.mark.parametrize(("strategy", "app", "other"), [("ours", "here", "there"), ("theirs", "there", "here")])
def test_markers_are_taken_with_the_rows(lake: Lake, strategy: Strategy, app: str, other: str) -> None:
    def overwriting(name: str, id: int) -> Callable[[Session], object]:
        return lambda s: s.delta(PATH).overwrite(rows([id]), txn=(name, 7))

    diverge(lake, overwriting("here", 100), overwriting("there", 200))
    lake.merge("dev", strategy=strategy)
    with lake.session() as s:
        s.delta(PATH).append(rows([1]), txn=(app, 7))
        s.delta(PATH).append(rows([2]), txn=(other, 7))
    assert ids(lake.delta(PATH)) == sorted([2, 100 if app == "here" else 200]), (
        "what lies on the side taken is skipped, the other runs again"
    )


def test_a_compaction_of_theirs_gives_way_before_a_strategy_is_needed(lake: Lake) -> None:
    with lake.session() as s:
        s.delta(PATH).append(rows([10]))
    diverge(lake, lambda s: s.delta(PATH).delete("id < 5"), lambda s: s.delta(PATH).optimize())
    lake.merge("dev", strategy="theirs")
    assert ids(lake.delta(PATH)) == [*range(5, 11)]


@pytest.mark.parametrize(("strategy", "expected"), [("ours", ["id"]), ("theirs", ["name"])])
def test_a_table_that_both_created(lake: Lake, store: MemoryStore, strategy: Strategy, expected: list[str]) -> None:
    def creating(name: str, kind: pa.DataType) -> Callable[[Session], object]:
        return lambda s: s.create_delta("t/new", pa.schema([(name, kind)])).append(
            pa.table({name: pa.array([None], kind)})
        )

    diverge(lake, creating("id", pa.int64()), creating("name", pa.string()))
    lake.merge("dev", strategy=strategy)
    assert lake.delta("t/new").to_arrow().column_names == expected
    assert plain(store, "t/new").to_arrow().column_names == expected


@pytest.mark.parametrize(("strategy", "stays"), [("ours", True), ("theirs", None)])
def test_plain_files_where_they_have_a_table(lake: Lake, strategy: Strategy, stays: bool | None) -> None:
    diverge(lake, put("t/new/a.txt", b""), lambda s: s.create_delta("t/new", SCHEMA))
    if stays is None:
        with pytest.raises(Conflict):
            lake.merge("dev", strategy=strategy)
        return
    lake.merge("dev", strategy=strategy)
    assert lake.at().exists("t/new/a.txt")
    assert "t/new" not in lake.at().datasets()


@pytest.mark.parametrize(("strategy", "stays"), [("ours", True), ("theirs", None)])
def test_plain_files_of_theirs_where_we_have_a_table(lake: Lake, strategy: Strategy, stays: bool | None) -> None:
    diverge(lake, lambda s: s.create_delta("t/new", SCHEMA), put("t/new/a.txt", b""))
    if stays is None:
        with pytest.raises(Conflict):
            lake.merge("dev", strategy=strategy)
        return
    lake.merge("dev", strategy=strategy)
    assert "t/new" in lake.at().datasets()


def test_a_table_that_we_released_is_not_taken(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        update(2)(s)
    lake.maintenance.release(PATH)
    with pytest.raises(Conflict) as refused:
        lake.merge("dev", strategy="theirs")
    assert refused.value.kinds == {PATH: "Dropped"}
    lake.merge("dev", strategy="ours")
    assert PATH not in lake.at().datasets()


def test_the_change_feed_tells_what_a_strategy_took(lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta("t/feed", SCHEMA, properties={"delta.enableChangeDataFeed": "true"}).append(rows([1, 2]))
    diverge(lake, lambda s: s.delta("t/feed").overwrite(rows([3])), lambda s: s.delta("t/feed").overwrite(rows([4])))
    version = lake.merge("dev", strategy="theirs").versions["t/feed"]
    changes = lake.delta("t/feed").changes(version).read_all()
    assert sorted(zip(changes["id"].to_pylist(), changes["_change_type"].to_pylist(), strict=True)) == [
        (3, "delete"),
        (4, "insert"),
    ]


@BOTH
def test_two_merges_in_both_directions_end_alike(lake: Lake, strategy: Strategy) -> None:
    diverge(lake, put("notes.txt", b"here"), put("notes.txt", b"there"))
    lake.merge("dev", strategy=strategy)
    lake.merge("main", into="dev")
    assert bytes(lake.at("dev").get("notes.txt")) == bytes(lake.at("main").get("notes.txt"))


@BOTH
def test_a_merge_that_was_decided_does_not_conflict_again(lake: Lake, strategy: Strategy) -> None:
    diverge(lake, update(1), update(2))
    lake.merge("dev", strategy=strategy)
    lake.merge("main", into="dev")
    assert values(lake.delta(PATH, ref="dev")) == values(lake.delta(PATH))
    with lake.session("dev") as s:
        s.delta(PATH).append(rows([20]))
    lake.merge("dev")
    assert 20 in ids(lake.delta(PATH))


def test_a_commit_tells_what_its_strategy_decided(lake: Lake) -> None:
    diverge(lake, update(1), update(2))
    lake.merge("dev", strategy="ours")
    metadata = lake.log(limit=1)[0].metadata
    assert metadata["strategy"] == "ours"
    assert metadata["resolved"] == '{"t/orders": "ConcurrentAppend"}'


def test_rows_of_an_append_only_table_are_not_taken_back(lake: Lake) -> None:
    with lake.session() as s:
        s.delta(PATH).set_properties({"delta.appendOnly": "true"})
    diverge(
        lake,
        lambda s: s.delta(PATH).append(rows([20]), txn=("app", 1)),
        lambda s: s.delta(PATH).append(rows([30]), txn=("app", 2)),
    )
    with pytest.raises(Conflict) as refused:
        lake.merge("dev", strategy="theirs")
    assert refused.value.kinds == {PATH: "AppendOnlyTable"}


def test_an_unknown_strategy_is_refused(lake: Lake) -> None:
    lake.create_branch("dev")
    with pytest.raises(ValueError, match=r"'ours' or 'theirs' .*, not 'mine'"):
        lake.merge("dev", strategy="mine")  # type: ignore[arg-type]


def test_a_preview_tells_what_the_merge_then_does(lake: Lake) -> None:
    diverge(
        lake,
        put("here.txt", b""),
        lambda s: (s.delta(PATH).append(rows([20])), s.put("there.txt", b""), s.delete(["notes.txt"])),
    )
    preview = lake.preview_merge("dev")
    assert preview.keys == {"there.txt": "put", "notes.txt": "deleted"}
    assert preview.datasets[PATH].version == lake.merge("dev").versions[PATH]


def test_a_preview_of_a_branch_that_only_they_moved_tells_its_files(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.put("there.txt", b"")
    assert lake.preview_merge("dev").keys == {"there.txt": "put"}


def test_a_preview_writes_nothing(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as s:
        s.create_delta(PATH, SCHEMA, properties={"delta.enableChangeDataFeed": "true"}).append(rows(range(10)))
    lake.create_branch("dev")
    for id in (20, 21):
        with lake.session("dev") as s:
            s.delta(PATH).append(rows([id]))
            s.delta(PATH).delete(f"id = {id - 20}")
    with lake.session() as s:
        s.put("x", b"")
    before = sorted(path for path in tmp_path.rglob("*"))
    lake.preview_merge("dev")
    assert sorted(path for path in tmp_path.rglob("*")) == before


def test_a_preview_of_a_conflict_raises_it(lake: Lake) -> None:
    diverge(lake, update(1), update(2))
    with pytest.raises(Conflict):
        lake.preview_merge("dev")
    assert lake.preview_merge("dev", strategy="ours").resolved == {PATH: "ConcurrentAppend"}


def test_a_conflict_names_the_other_commit_and_its_run(lake: Lake) -> None:
    diverge(lake, update(1), update(2))
    head = lake.list_branches()["main"]
    with pytest.raises(
        Conflict, match=rf"last changed by commit {head[:12]} 'nightly load' \(by .*, run r-17"
    ) as refused:
        lake.merge("dev")
    (contradiction,) = refused.value.contradictions
    assert contradiction.commits[0].metadata["run"] == "r-17"


def test_a_conflict_names_no_commit_that_the_branch_already_has(lake: Lake) -> None:
    diverge(lake, update(1), update(2))
    head = lake.list_branches()["main"]
    with pytest.raises(Conflict) as refused:
        lake.merge("dev")
    assert [commit.id for commit in refused.value.contradictions[0].commits] == [head]


def test_a_conflict_names_the_commit_that_changed_a_file(lake: Lake) -> None:
    diverge(lake, put("notes.txt", b"here"), put("notes.txt", b"there"))
    changed = lake.list_branches()["main"]
    with lake.session() as s:
        s.put("another.txt", b"")
    with pytest.raises(
        Conflict, match=f"notes.txt: it was changed on both sides, last changed by commit {changed[:12]}"
    ):
        lake.merge("dev")


def test_a_conflict_counts_the_places_that_it_does_not_name(lake: Lake) -> None:
    def both(data: bytes) -> Callable[[Session], object]:
        return lambda s: [s.put(f"{number:02}.txt", data) for number in range(22)]

    diverge(lake, both(b"here"), both(b"there"))
    with pytest.raises(
        Conflict,
        match=r"in 22 places\. 00\.txt: it was created .*; 19\.txt: .*; and 2 more places\. Nothing was merged",
    ):
        lake.merge("dev")


def test_a_conflict_names_the_partitions(empty: Lake) -> None:
    with empty.session() as s:
        s.create_delta(PATH, SCHEMA, partition_by=["p"]).append(rows(range(10)))
    diverge(empty, update(1, "p = 'p1'"), update(2, "p = 'p1'"))
    with pytest.raises(Conflict, match=r"1 place\. .*added 1 file .*\(p=p1\)"):
        empty.merge("dev")


def test_a_conflict_of_a_session_says_what_to_do_with_it(lake: Lake) -> None:
    session = lake.session()
    update(1)(session)
    with lake.session() as s:
        update(2)(s)
    with pytest.raises(Conflict, match=f"lake.get_session\\('{session.id}'\\).fork\\(without="):
        session.publish()
    assert ".fork(" not in (lake.get_session(session.id).record.reason or "")


def test_a_conflict_of_branches_says_what_to_do_with_a_branch(lake: Lake) -> None:
    diverge(lake, update(1), update(2))
    with pytest.raises(Conflict, match="strategy='theirs' to take what dev has") as refused:
        lake.merge("dev")
    assert "refresh the table" not in str(refused.value)


@pytest.mark.parametrize(("strategy", "expected"), [("dest-wins", b"here"), ("source-wins", b"there")])
def test_strategies_have_the_names_that_lakefs_gives_them(lake: Lake, strategy: MergeStrategy, expected: bytes) -> None:
    diverge(lake, put("notes.txt", b"here"), put("notes.txt", b"there"))
    assert lake.preview_merge("dev", strategy=strategy).resolved == {"notes.txt": "BothChanged"}
    lake.merge("dev", strategy=strategy)
    assert lake.at().get("notes.txt") == expected
    assert lake.log(limit=1)[0].metadata["strategy"] in ("ours", "theirs")


def test_a_squashed_merge_is_one_commit_on_the_branch(lake: Lake) -> None:
    diverge(lake, put("here", b"1"), put("there", b"1"))
    with lake.session("dev") as s:
        s.delta(PATH).append(rows([77]))
    head = lake.list_branches()["main"]
    lake.settings.protect("main")
    published = lake.merge("dev", squash=True)
    (commit,) = lake.log(limit=1)
    assert commit.id == published.commit
    assert commit.parents == (head,)
    assert 77 in ids(lake.delta(PATH))
    assert {meta.key for meta in lake.at().list() if "here" in meta.key} == {"here", "there"}


def test_a_branch_that_was_squashed_can_be_merged_again(lake: Lake) -> None:
    diverge(lake, put("here", b"1"), put("there", b"1"))
    with lake.session("dev") as s:
        s.delta(PATH).append(rows([77]))
    lake.merge("dev", squash=True)
    with pytest.raises(NothingToApply, match="already has all of 'dev'"):
        lake.merge("dev", squash=True)
    with lake.session("dev") as s:
        s.delta(PATH).append(rows([78]))
    lake.merge("dev", squash=True)
    assert [id for id in ids(lake.delta(PATH)) if id > 70] == [77, 78]
    with pytest.raises(NothingToApply):
        lake.merge("dev")
    assert [id for id in ids(lake.delta(PATH)) if id > 70] == [77, 78]
