"""Delta tables on branches and in sessions: what merges, what conflicts, and under which name."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.errors import InvalidKey
from lake_core.lake.errors import Conflict, DatasetExists
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import SCHEMA, create_tables, ids, plain, rows

PATH = "t/matrix"


OPERATIONS: dict[str, Callable[[DeltaTable], object]] = {
    "append": lambda table: table.append(rows([100])),
    "append in p0": lambda table: table.append(rows([102])),
    "overwrite": lambda table: table.overwrite(rows([300])),
    "replace p0": lambda table: table.overwrite(rows([400]), where="p = 'p0'"),
    "replace p1": lambda table: table.overwrite(rows([401]), where="p = 'p1'"),
    "delete p0": lambda table: table.delete("p = 'p0'"),
    "delete id 1": lambda table: table.delete("id = 1"),
    "update p1": lambda table: table.update({"v": "1"}, "p = 'p1'"),
    "merge p1": lambda table: (
        table.merge(rows([1, 501], v=5), "t.id = s.id AND t.p = 'p1'")
        .when_matched_update("*")
        .when_not_matched_insert("*")
        .execute()
    ),
    "optimize": lambda table: table.optimize(),
    "add column": lambda table: table.add_columns(pa.schema([("extra", pa.int64())])),
    "property": lambda table: table.set_properties({"delta.appendOnly": "false"}),
    "delete nothing": lambda table: table.delete("id = 999"),
}


def _rows(table: DeltaTable) -> list[tuple[int, int]]:
    data = table.to_arrow()
    return sorted(zip(data["id"].to_pylist(), data["v"].to_pylist(), strict=True))


def _start(lake: Lake) -> None:
    with lake.session() as s:
        table = s.create_delta(PATH, SCHEMA, partition_by=["p"])
        table.append(rows(range(6)))
    with lake.session() as s:
        s.delta(PATH).append(rows(range(6, 10)))


def _conflict(lake: Lake, run: Callable[[], object]) -> str:
    try:
        run()
    except Conflict as error:
        assert error.datasets == (PATH,)
        assert PATH in str(error)
        return error.kinds[PATH]
    return ""


def _pairs() -> Iterator[object]:
    """Yield all pairs of operations; `make test` runs three of each operation, one of them with itself."""
    names = list(OPERATIONS)
    for later, earlier in itertools.product(names, names):
        usual = (names.index(earlier) - names.index(later)) % len(names) in (0, 1, 5)
        yield pytest.param(later, earlier, marks=[] if usual else pytest.mark.exhaustive)


@pytest.mark.parametrize(("later", "earlier"), list(_pairs()))
@pytest.mark.sampled(6)
def test_two_sessions_end_as_a_serial_history_or_conflict_as_plain_delta_does(
    later: str, earlier: str, empty: Lake, store: MemoryStore
) -> None:
    """Through the lake a pair conflicts where it conflicts on a plain table, and by the same name.

    Only an optimize gives way to what it conflicts with.
    """
    _start(empty)
    first, second = empty.session(), empty.session()
    OPERATIONS[earlier](first.delta(PATH))
    OPERATIONS[later](second.delta(PATH))
    first.publish()
    kind = _conflict(empty, second.publish)

    plain_store = MemoryStore()
    table = DeltaTable.create(plain_store, SCHEMA, partition_by=["p"])
    table.append(rows(range(6)))
    table.append(rows(range(6, 10)))
    stale = DeltaTable.open(plain_store)
    OPERATIONS[earlier](table)
    expected = ""
    try:
        OPERATIONS[later](stale)
    except Exception as error:
        expected = type(error).__name__
        if earlier == "optimize" != later:
            OPERATIONS[later](DeltaTable.open(plain_store))
            expected = ""
    assert kind == expected, f"{later} behind {earlier}"
    if not kind:
        table.refresh()
    assert _rows(empty.delta(PATH)) == _rows(plain(store, PATH)) == _rows(table)
    assert empty.maintenance.verify() == []


def test_branches_that_both_appended_merge_in_both_directions(lake: Lake, store: MemoryStore) -> None:
    lake.create_branch("dev")
    for round_ in range(3):
        with lake.session("dev") as s:
            s.delta("t/orders").append(rows([100 + round_]), txn=("dev", round_))
        with lake.session() as s:
            s.delta("t/orders").append(rows([200 + round_]), txn=("main", round_))
        lake.merge("dev")
        expected = sorted([*range(10), *(100 + n for n in range(round_ + 1)), *(200 + n for n in range(round_ + 1))])
        assert ids(lake.delta("t/orders")) == ids(plain(store, "t/orders")) == expected
        lake.merge("main", into="dev")
        assert ids(lake.delta("t/orders", ref="dev")) == expected
    assert plain(store, "t/orders").version == 6, "each publish and each merge is one version"
    assert lake.delta("t/orders", ref="dev").txn_version("main") == 2
    assert lake.maintenance.verify() == []


def test_update_against_delete_conflicts(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").update({"v": "1"}, "id = 3")
    with lake.session() as s:
        s.delta("t/orders").delete("id = 3")
    with pytest.raises(Conflict) as caught:
        lake.merge("dev")
    assert caught.value.datasets == ("t/orders",)
    assert ids(lake.delta("t/orders")) == [0, 1, 2, *range(4, 10)]


def test_a_stale_full_overwrite_against_an_append_conflicts(lake: Lake) -> None:
    """A log alone cannot tell that an overwrite of an empty table read it."""
    with lake.session() as s:
        s.create_delta("t/new", SCHEMA)
    session = lake.session()
    session.delta("t/new").overwrite(rows([1]))
    with lake.session() as s:
        s.delta("t/new").append(rows([2]))
    with pytest.raises(Conflict, match="added 1 file to"):
        session.publish()
    lake.create_branch("dev", at="main~1")
    with lake.session("dev") as s:
        s.delta("t/new").overwrite(rows([3]))
    with pytest.raises(Conflict):
        lake.merge("dev")


def test_a_rename_of_equal_content_against_a_deletion_keeps_the_file(lake: Lake) -> None:
    with lake.session() as s:
        s.put("a", b"other")
        s.put("z", b"same")
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.put("y", s.get("z"))
        s.delete(["z"])
    with lake.session() as s:
        s.delete(["z"])
    lake.merge("dev")
    assert {meta.key for meta in lake.at().list() if "/" not in meta.key} == {"a", "y", "notes.txt"}


def test_both_sides_adding_a_key_with_different_content_conflict(lake: Lake) -> None:
    with lake.session() as s:
        s.put("n", b"one")
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.put("m", b"one")
    with lake.session() as s:
        s.put("m", b"two")
    with pytest.raises(Conflict) as caught:
        lake.merge("dev")
    assert caught.value.kinds == {"m": "BothCreated"}


def test_sessions_that_create_the_same_table(lake: Lake, store: MemoryStore) -> None:
    first, second, third = lake.session(), lake.session(), lake.session()
    first.create_delta("t/new", SCHEMA, partition_by=["p"]).append(rows([1]))
    second.create_delta("t/new", SCHEMA, partition_by=["p"]).append(rows([2]))
    third.create_delta("t/new", SCHEMA).append(rows([3]))
    first.publish()
    assert second.publish().versions == {"t/new": 1}
    with pytest.raises(Conflict, match="another schema, partitioning"):
        third.publish()
    assert ids(lake.delta("t/new")) == ids(plain(store, "t/new")) == [1, 2]


def test_sessions_that_create_the_same_table_with_properties_of_their_own(lake: Lake) -> None:
    first, second, third = lake.session(), lake.session(), lake.session()
    first.create_delta("t/new", SCHEMA, properties={"team": "one", "of": "all"}).append(rows([1]))
    second.create_delta("t/new", SCHEMA, properties={"source": "two", "of": "all"}).append(rows([2]))
    third.create_delta("t/new", SCHEMA, properties={"team": "three"}).append(rows([3]))
    first.publish()
    second.publish()
    configuration = lake.delta("t/new").snapshot.metadata.configuration
    assert {name: configuration.get(name) for name in ("team", "source", "of")} == {
        "team": "one",
        "source": "two",
        "of": "all",
    }
    assert ids(lake.delta("t/new")) == [1, 2]
    with pytest.raises(Conflict, match="both sides have set the property 'team'"):
        third.publish()


def test_a_property_of_the_protocol_is_part_of_the_definition(lake: Lake) -> None:
    first, second = lake.session(), lake.session()
    first.create_delta("t/new", SCHEMA, properties={"delta.appendOnly": "true"})
    second.create_delta("t/new", SCHEMA)
    first.publish()
    with pytest.raises(Conflict, match="another schema, partitioning"):
        second.publish()


def test_a_dataset_where_another_session_put_files(lake: Lake) -> None:
    first, second = lake.session(), lake.session()
    first.create_delta("x/table", SCHEMA)
    second.put("x/table/file", b"1")
    second.put("x/other", b"1")
    first.publish()
    with pytest.raises(Conflict) as caught:
        second.publish()
    assert caught.value.kinds == {"x/table/file": "InsideDataset"}
    first, second = lake.session(), lake.session()
    first.put("y/table/file", b"1")
    second.create_delta("y/table", SCHEMA)
    first.publish()
    with pytest.raises(Conflict) as caught:
        second.publish()
    assert caught.value.kinds == {"y/table": "InsideDataset"}


def test_dropped_here_changed_there(lake: Lake) -> None:
    create_tables(lake, "t/a", "t/b")
    first, second = lake.session(), lake.session()
    first.drop("t/a")
    first.delta("t/b").append(rows([50]))
    second.delta("t/a").append(rows([51]))
    second.drop("t/b")
    first.publish()
    with pytest.raises(Conflict) as caught:
        second.publish()
    assert caught.value.kinds == {"t/a": "Dropped", "t/b": "Dropped"}


def test_schema_changes_travel_by_merge(lake: Lake, store: MemoryStore, time: ManualClock) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").add_columns(pa.schema([("extra", pa.int64())]))
        s.delta("t/orders").add_constraint("positive", "id >= 0")
    lake.merge("dev")
    table = plain(store, "t/orders")
    assert table.schema.names == ["id", "p", "v", "extra"]
    assert table.constraints == {"positive": "id >= 0"}
    lake.revert("main", parent=1)
    assert plain(store, "t/orders").schema.names == ["id", "p", "v"]
    assert plain(store, "t/orders").constraints == {}


def _configuration(lake: Lake) -> dict[str, str]:
    return dict(lake.delta("t/orders").snapshot.metadata.configuration)


def test_a_property_of_two_values_conflicts(lake: Lake) -> None:
    session = lake.session()
    session.delta("t/orders").set_properties({"team": "one"})
    with lake.session() as s:
        s.delta("t/orders").set_properties({"team": "two"})
    with pytest.raises(Conflict, match="both sides have set the property 'team'"):
        session.publish()
    assert _configuration(lake)["team"] == "two"


def test_a_property_stays_where_a_column_comes(lake: Lake) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t/orders").add_columns(pa.schema([("extra", pa.int64())]))
        s.delta("t/orders").set_properties({"owner": "dev"})
    with lake.session() as s:
        s.delta("t/orders").set_properties({"team": "two"})
    lake.merge("dev")
    assert _configuration(lake).items() >= {"team": "two", "owner": "dev"}.items()
    assert lake.delta("t/orders").schema.names == ["id", "p", "v", "extra"]


def test_a_table_that_is_created_again_conflicts_with_a_property_of_the_old_one(lake: Lake) -> None:
    session = lake.session()
    session.drop("t/orders")
    session.create_delta("t/orders", SCHEMA)
    with lake.session() as s:
        s.delta("t/orders").set_properties({"team": "two"})
    with pytest.raises(Conflict):
        session.publish()


def test_a_reverted_column_gives_its_id_to_no_other(lake: Lake) -> None:
    with lake.session() as s:
        s.create_delta(PATH, SCHEMA, properties={"delta.columnMapping.mode": "name"}).append(rows([1]))
    highest = len(SCHEMA)

    def add(name: str) -> int:
        with lake.session() as s:
            s.delta(PATH).add_columns(pa.schema([(name, pa.int64())]))
        return int(lake.delta(PATH).metadata.schema.field(name).metadata["delta.columnMapping.id"])

    assert add("first") == highest + 1
    lake.revert("main")
    assert lake.delta(PATH).properties["delta.columnMapping.maxColumnId"] == str(highest + 1)
    assert add("second") == highest + 2
    with lake.session() as s:
        s.delta(PATH).restore(0)
    assert add("third") == highest + 3


# The folders of dropped datasets


@pytest.fixture
def without_table(lake: Lake) -> Lake:
    """Give the lake a table `gone` that was dropped, and a branch from before it."""
    lake.create_branch("before")
    with lake.session() as session:
        session.create_delta("gone", SCHEMA)
    with lake.session() as session:
        session.drop("gone")
    return lake


def test_no_file_is_put_where_a_dropped_dataset_would_hide_it(without_table: Lake) -> None:
    with pytest.raises(InvalidKey, match="was dropped and keeps its log"):
        without_table.session().put("gone/file", b"1")


def test_no_file_is_put_where_the_session_itself_dropped_a_dataset(lake: Lake) -> None:
    with lake.session() as session:
        session.create_delta("gone", SCHEMA)
    session = lake.session()
    session.drop("gone")
    with pytest.raises(InvalidKey, match="was dropped and keeps its log"):
        session.put("gone/file", b"1")


def test_a_file_that_another_branch_put_where_a_dataset_was_dropped_conflicts(without_table: Lake) -> None:
    with without_table.session("before") as session:
        session.put("gone/file", b"1")
    with pytest.raises(Conflict) as caught:
        without_table.merge("before")
    assert caught.value.kinds == {"gone/file": "InsideDataset"}


def test_a_file_that_was_put_while_a_dataset_came_and_went_conflicts(lake: Lake) -> None:
    late = lake.session()
    late.put("gone/file", b"1")
    with lake.session() as session:
        session.create_delta("gone", SCHEMA)
    with lake.session() as session:
        session.drop("gone")
    with pytest.raises(Conflict) as caught:
        late.publish()
    assert caught.value.kinds == {"gone/file": "InsideDataset"}


def test_a_file_and_a_dataset_of_one_path_conflict_whichever_comes_first(lake: Lake) -> None:
    for path, steps in (("x", ("file", "table")), ("y", ("table", "file"))):
        sessions = [(lake.session(), step) for step in steps]
        for session, step in sessions:
            session.put(path, b"1") if step == "file" else session.create_delta(path, SCHEMA)
        sessions[0][0].publish()
        with pytest.raises(Conflict) as caught:
            sessions[1][0].publish()
        assert caught.value.kinds == {path: "InsideDataset"}


def test_no_dataset_is_created_where_a_file_is(lake: Lake) -> None:
    with lake.session() as session:
        session.put("gone", b"1")
    with pytest.raises(DatasetExists, match="plain files, such as 'gone'"):
        lake.session().create_delta("gone", SCHEMA)


def test_a_file_takes_the_place_of_a_dataset_that_its_session_drops(lake: Lake) -> None:
    with lake.session() as session:
        session.create_delta("gone", SCHEMA)
    with lake.session() as session:
        session.drop("gone")
        session.put("gone", b"1")
    assert bytes(lake.at().get("gone")) == b"1"


@pytest.mark.parametrize("outer", ["delta", "pool"])
@pytest.mark.parametrize("inner", ["delta", "pool"])
def test_a_dataset_below_one_that_the_other_branch_dropped_is_kept(empty: Lake, outer: str, inner: str) -> None:
    empty.create_branch("dev")
    options = {"delta": SCHEMA, "pool": "id"}
    with empty.session("dev") as s:
        s.create("a", outer, options[outer])
    with empty.session("dev") as s:
        s.drop("a")
    with empty.session() as s:
        s.create("a/b", inner, options[inner])
    empty.merge("main", into="dev")
    kept = [meta.key for meta in empty.at("main").list("a/b/")]
    empty.merge("dev", into="main")
    assert [meta.key for meta in empty.at("main").list("a/b/")] == kept


@pytest.mark.parametrize(("old", "new"), [("delta", "pool"), ("pool", "delta"), ("icechunk", "delta")])
@pytest.mark.parametrize("at_once", [False, True])
def test_a_dropped_dataset_keeps_its_path_for_its_format(empty: Lake, old: str, new: str, at_once: bool) -> None:
    arguments = {"delta": [SCHEMA], "pool": ["id"], "icechunk": []}
    with empty.session() as s:
        s.create("a", old, *arguments[old])
    session = empty.session()
    session.drop("a")
    if not at_once:
        session.publish()
        session = empty.session()
    with pytest.raises(DatasetExists, match=f"of the format '{old}' was dropped at 'a'"):
        session.create("a", new, *arguments[new])


def test_a_dataset_of_another_format_than_what_the_branch_dropped_conflicts(empty: Lake) -> None:
    empty.create_branch("dev")
    with empty.session("dev") as s:
        s.create_pool("a", key="id")
    empty.revert("dev", branch="dev")
    with empty.session() as s:
        s.create_delta("a", SCHEMA)
    with pytest.raises(Conflict) as caught:
        empty.merge("main", into="dev")
    assert caught.value.kinds == {"a": "OtherFormat"}
