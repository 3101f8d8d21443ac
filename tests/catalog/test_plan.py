"""What a sync decides, from states alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lake_core.catalog import Origin, RegisteredTable
from lake_core.catalog.names import names_of, table_name
from lake_core.catalog.plan import CreateTable, DropTable, LakeTable, Plan, Position, Source, UpdateTable, plan_sync

LAKE, ROOT = "lake-1", "s3://bucket/lake"
SOURCE = Source(LAKE, "main", {}, 128, ROOT)


def table(path: str = "tables/orders", version: int = 3, root: str = ROOT) -> LakeTable:
    return LakeTable(path, f"id of {path}", version, f"{root}/{path}")


def registered(
    name: str = "orders",
    path: str = "tables/orders",
    version: int = 3,
    *,
    lake: str = LAKE,
    branch: str = "main",
    commit: str = "c3",
    root: str = ROOT,
) -> RegisteredTable:
    origin = Origin(lake, branch, path, f"id of {path}", commit, version, "fingerprint")
    return RegisteredTable(name, f"{root}/{path}", origin)


def reached(commit: str) -> Position:
    return Position.REACHED


def plan(
    tables: list[LakeTable],
    tables_there: list[RegisteredTable],
    source: Source = SOURCE,
    position: Position = Position.REACHED,
) -> Plan:
    return plan_sync(tables, {each.name: each for each in tables_there}, source, lambda commit: position)


def test_a_new_table_is_created() -> None:
    assert plan([table()], []).changes == [CreateTable("orders", table())]


def test_a_table_as_it_is_is_not_written() -> None:
    assert plan([table()], [registered()]) == Plan([], [], [], unchanged=1)


def test_a_new_version_is_written() -> None:
    assert plan([table(version=4)], [registered()]).changes == [UpdateTable("orders", table(version=4), registered())]


def test_another_dataset_at_the_path_is_written() -> None:
    other = replace(table(), dataset="another")
    assert plan([other], [registered()]).changes == [UpdateTable("orders", other, registered())]


def test_a_dropped_table_is_dropped() -> None:
    assert plan([], [registered()]).changes == [DropTable("orders", registered())]


def test_a_table_under_another_name_is_created_before_the_old_name_is_dropped() -> None:
    source = replace(SOURCE, names={"tables/orders": "all_orders"})
    there = registered()
    assert plan([table()], [there], source).changes == [CreateTable("all_orders", table()), DropTable("orders", there)]


def test_two_tables_may_swap_their_names() -> None:
    source = replace(SOURCE, names={"a": "b", "b": "a"})
    there = [registered("a", "a"), registered("b", "b")]
    result = plan([table("a"), table("b")], there, source)
    assert result.changes == [UpdateTable("b", table("a"), there[1]), UpdateTable("a", table("b"), there[0])]


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (RegisteredTable("orders", f"{ROOT}/tables/orders", None), "no lake registered it"),
        (registered(lake="lake-2"), "another lake"),
        (registered(branch="dev"), "from the branch 'dev'"),
    ],
)
def test_a_table_of_others_is_neither_overwritten_nor_dropped(there: RegisteredTable, words: str) -> None:
    result = plan([table(version=9)], [there], replace(SOURCE, moved=True))
    assert result.changes == []
    assert words in result.refused[0].reason
    assert plan([], [there]).changes == []


def test_what_a_later_sync_has_written_stays() -> None:
    assert plan([table(version=2)], [registered()], position=Position.LATER) == Plan([], [], ["orders"])
    assert plan([], [registered()], position=Position.LATER) == Plan([], [], ["orders"])


def test_a_commit_that_the_branch_lacks_is_refused_unless_the_lake_has_moved() -> None:
    unknown = plan([table(version=4)], [registered()], position=Position.UNKNOWN)
    assert unknown.changes == []
    assert "--moved" in unknown.refused[0].reason
    moved = plan([table(version=4)], [registered()], replace(SOURCE, moved=True), Position.UNKNOWN)
    assert moved.changes == [UpdateTable("orders", table(version=4), registered())]


def test_another_location_is_refused_unless_the_lake_has_moved() -> None:
    there = registered(root="s3://old/lake")
    refused = plan([table()], [there])
    assert refused.changes == []
    assert "s3://old/lake/tables/orders" in refused.refused[0].reason
    assert plan([table()], [there], replace(SOURCE, moved=True)).changes == [UpdateTable("orders", table(), there)]


def test_a_copy_of_a_lake_does_not_drop_what_the_original_registered() -> None:
    result = plan([], [registered(root="s3://original/lake")])
    assert result.changes == []
    assert "--moved" in result.refused[0].reason


def test_two_tables_of_one_name_are_both_refused() -> None:
    result = plan([table("a/b"), table("a_b")], [])
    assert result.changes == []
    assert [each.name for each in result.refused] == ["a/b", "a_b"]


def test_a_registered_table_keeps_its_name_when_another_one_asks_for_it() -> None:
    result = plan([table("a/b"), table("a_b", 4)], [registered("a_b", "a_b")])
    assert [(type(each), each.name) for each in result.changes] == [(UpdateTable, "a_b")]
    assert [each.name for each in result.refused] == ["a/b"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("tables/orders", "orders"),
        ("tables/Sales/Daily-2024.v1", "sales_daily_2024_v1"),
        ("raw/orders", "raw_orders"),
        ("tables/tables/orders", "tables_orders"),
    ],
)
def test_names_follow_from_paths(path: str, name: str) -> None:
    assert table_name(path, 128) == name


@pytest.mark.parametrize("path", ["tables/größe", "tables/a;drop", "tables/a'b", "tables/日本", "tables/" + "x" * 129])
def test_a_path_without_a_name_is_refused_with_what_to_do(path: str) -> None:
    names, refused = names_of([path], {}, 128, {})
    assert names == {}
    assert f"--name '{path}=NAME'" in refused[path]


@pytest.mark.parametrize("name", ["Orders", "a.b", "", "a b", "a`b"])
def test_a_chosen_name_is_checked_too(name: str) -> None:
    assert names_of(["orders"], {"orders": name}, 128, {})[0] == {}


PATHS = st.sampled_from(["tables/a", "tables/b", "a", "x/y", "x_y", "tables/Ü"])
THERE = st.builds(
    registered,
    name=st.sampled_from(["a", "b", "x_y", "other"]),
    path=PATHS,
    version=st.integers(0, 2),
    lake=st.sampled_from([LAKE, LAKE, "lake-2"]),
    branch=st.sampled_from(["main", "main", "dev"]),
    commit=st.sampled_from(["reached", "later", "unknown"]),
    root=st.sampled_from([ROOT, ROOT, "s3://old"]),
)


@given(
    st.dictionaries(PATHS, st.integers(0, 2)),
    st.lists(THERE, unique_by=lambda each: each.name),
    st.booleans(),
)
def test_every_plan_keeps_its_promises(versions: dict[str, int], there: list[RegisteredTable], moved: bool) -> None:
    by_name = {each.name: each for each in there}
    tables = [table(path, version) for path, version in versions.items()]
    result = plan_sync(tables, by_name, replace(SOURCE, moved=moved), Position)
    handled: list[str] = []
    for change in result.changes:
        if isinstance(change, CreateTable):
            assert change.name not in by_name
        else:
            origin = by_name[change.name].origin
            assert origin is not None
            assert (origin.lake, origin.branch) == (LAKE, "main")
            assert origin.commit != "later"
            assert moved or (origin.commit == "reached" and by_name[change.name].location == f"{ROOT}/{origin.path}")
        if not isinstance(change, DropTable):
            handled.append(change.table.path)
    assert len({change.name for change in result.changes}) == len(result.changes)
    written = [origin.path for each in there if (origin := each.origin) is not None and each.name not in result.later]
    refused = {refusal.name for refusal in result.refused}
    for each in tables:  # no table of the branch is left out in silence
        assert each.path in handled or each.path in refused or each.path in written or result.later
