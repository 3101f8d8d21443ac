"""Syncs of a real lake: what is done, interrupted, overtaken and refused."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lake_core import Lake
from lake_core.catalog import Catalog, Origin, RegisteredTable, sync_branch
from lake_core.catalog.definition import COMMIT, FINGERPRINT, LAKE, PATH, VERSION
from lake_core.catalog.errors import (
    CatalogChanged,
    CatalogRefused,
    CatalogUnavailable,
    InvalidTableName,
    TablesRefused,
)
from lake_core.delta import DeltaTable
from lake_core.delta.errors import UnsupportedReaderFeature
from lake_core.errors import InvalidUrl
from lake_core.lake.state.state_store import StateStore
from lake_core.store import MemoryStore
from lake_core.testing.catalog_suite import CatalogSuite, definition
from tests.catalog.memory_catalog import MemoryCatalog, ReplacingCatalog
from tests.examples import examples

SCHEMA = pa.schema([("id", pa.int64())])


class TestMemory(CatalogSuite):
    @pytest.fixture
    def catalog(self) -> Catalog:
        return MemoryCatalog()

    def create_foreign(self, catalog: Catalog, schema: str, name: str) -> None:
        assert isinstance(catalog, MemoryCatalog)
        catalog.add_foreign(schema, name)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake_core.runtime.sleep", lambda seconds: None)


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with the tables `orders` and `items`."""
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as s:
        s.create_delta("tables/orders", SCHEMA)
        s.create_delta("tables/items", SCHEMA)
    return lake


@pytest.fixture
def catalog() -> MemoryCatalog:
    return MemoryCatalog()


def add_rows(lake: Lake, path: str = "tables/orders", *, column: str | None = None) -> None:
    rows = pa.table({"id": [1]} if column is None else {"id": [1], column: ["x"]})
    with lake.session() as s:
        s.delta(path).append(rows, schema_mode="merge")


def shown(catalog: MemoryCatalog, schema: str = "db") -> dict[str, list[str]]:
    """The columns of each registered table."""
    tables = catalog.schemas.get(schema, {})
    return {name: catalog.definitions[schema, name].schema.names for name in tables if tables[name].origin is not None}


def columns(lake: Lake) -> dict[str, list[str]]:
    """What the catalog has to show."""
    return {
        record.path.removeprefix("tables/"): lake.delta(record.path).metadata.schema.names
        for record in lake.list_datasets()
    }


def actions(synced: object) -> list[tuple[str, str, tuple[str, ...]]]:
    return [(each.action, each.name, each.changed) for each in synced.tables]  # type: ignore[attr-defined]


def test_the_tables_of_main_are_registered_where_plain_readers_open_them(lake: Lake, catalog: MemoryCatalog) -> None:
    add_rows(lake)
    synced = sync_branch(lake, catalog, "db")
    assert actions(synced) == [("create", "items", ()), ("create", "orders", ())]
    location = catalog.schemas["db"]["orders"].location
    assert location is not None
    assert DeltaTable.open(location).to_arrow().num_rows == 1


def test_a_second_sync_writes_nothing(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "db")
    catalog.requests.clear()
    synced = sync_branch(lake, catalog, "db")
    assert (actions(synced), synced.unchanged, catalog.requests) == ([], 2, [])


def test_what_differs_is_said(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "db")
    add_rows(lake)
    assert actions(sync_branch(lake, catalog, "db")) == [("update", "orders", ("version",))]
    add_rows(lake, column="day")
    assert actions(sync_branch(lake, catalog, "db")) == [("update", "orders", ("schema",))]
    with lake.session() as s:
        s.drop("tables/items")
    assert actions(sync_branch(lake, catalog, "db")) == [("drop", "items", ())]
    assert shown(catalog) == columns(lake)


def test_a_catalog_that_cannot_change_tables_replaces_them_only_for_their_definition(lake: Lake) -> None:
    catalog = ReplacingCatalog()
    sync_branch(lake, catalog, "db")
    add_rows(lake)
    assert actions(sync_branch(lake, catalog, "db")) == []
    add_rows(lake, column="day")
    assert actions(sync_branch(lake, catalog, "db")) == [("update", "orders", ("schema",))]
    assert shown(catalog) == columns(lake)


def test_a_dry_run_writes_nothing(lake: Lake, catalog: MemoryCatalog) -> None:
    assert len(sync_branch(lake, catalog, "db", dry_run=True).tables) == 2
    assert catalog.schemas == {}


def test_tables_of_others_stay_and_are_named(lake: Lake, catalog: MemoryCatalog) -> None:
    catalog.add_foreign("db", "orders")
    catalog.add_foreign("db", "theirs")
    foreign = dict(catalog.schemas["db"])
    synced = sync_branch(lake, catalog, "db")
    assert {name: catalog.schemas["db"][name] for name in foreign} == foreign
    assert actions(synced) == [("create", "items", ())]
    with pytest.raises(TablesRefused, match="'orders' is in the catalog, and no lake registered it"):
        synced.check()


def test_two_lakes_share_a_schema_without_touching_one_another(
    lake: Lake, catalog: MemoryCatalog, tmp_path: Path
) -> None:
    other = Lake.create(tmp_path / "other")
    with other.session() as s:
        s.create_delta("tables/orders", SCHEMA)
        s.create_delta("tables/theirs", SCHEMA)
    sync_branch(lake, catalog, "db")
    synced = sync_branch(other, catalog, "db")
    assert actions(synced) == [("create", "theirs", ())]
    assert "another lake" in synced.refused[0].reason
    assert actions(sync_branch(lake, catalog, "db")) == []


def test_a_copy_of_a_lake_does_not_take_its_tables_over(lake: Lake, catalog: MemoryCatalog, tmp_path: Path) -> None:
    sync_branch(lake, catalog, "db")
    before = dict(catalog.schemas["db"])
    shutil.copytree(tmp_path / "lake", tmp_path / "copy")
    copy = Lake.open(tmp_path / "copy")
    with copy.session() as s:
        s.drop("tables/items")
    synced = sync_branch(copy, catalog, "db")
    assert catalog.schemas["db"] == before
    assert len(synced.refused) == 2


def test_a_lake_that_has_moved_updates_the_locations(lake: Lake, catalog: MemoryCatalog, tmp_path: Path) -> None:
    sync_branch(lake, catalog, "db")
    shutil.move(tmp_path / "lake", tmp_path / "moved")
    moved = Lake.open(tmp_path / "moved")
    synced = sync_branch(moved, catalog, "db", moved=True)
    assert actions(synced) == [("update", "items", ("location",)), ("update", "orders", ("location",))]
    assert catalog.schemas["db"]["orders"].location == f"{moved.url}/tables/orders"


def test_readers_may_open_the_lake_by_another_url(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "db", location="s3a://bucket/lake/")
    assert catalog.schemas["db"]["orders"].location == "s3a://bucket/lake/tables/orders"


def test_a_table_that_is_dropped_and_created_again_is_updated(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "db")
    with lake.session() as s:
        s.drop("tables/orders")
    with lake.session() as s:
        s.create_delta("tables/orders", pa.schema([("other", pa.string())]))
    assert actions(sync_branch(lake, catalog, "db")) == [("update", "orders", ("schema",))]
    assert shown(catalog) == columns(lake)


def test_a_released_table_is_forgotten_and_its_files_stay(lake: Lake, catalog: MemoryCatalog, tmp_path: Path) -> None:
    sync_branch(lake, catalog, "db")
    lake.maintenance.release("tables/items")
    assert ("drop", "items", ()) in actions(sync_branch(lake, catalog, "db"))
    assert DeltaTable.open(tmp_path / "lake" / "tables" / "items").version >= 0


def test_other_datasets_are_named(lake: Lake, catalog: MemoryCatalog) -> None:
    with lake.session() as s:
        s.create("pools/events", "pool")
    assert sync_branch(lake, catalog, "db").left_out == {"pools/events": "pool"}


def test_a_column_without_a_form_refuses_its_table_alone(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "db")
    add_rows(lake, column="unheard")
    synced = sync_branch(lake, catalog, "db")
    assert [(each.name, "place" in each.reason) for each in synced.refused] == [("tables/orders", True)]
    assert shown(catalog)["orders"] == ["id"]


def test_what_a_dead_publisher_left_is_checked_out_first(lake: Lake, catalog: MemoryCatalog, tmp_path: Path) -> None:
    add_rows(lake, column="day")
    log = tmp_path / "lake" / "tables" / "orders" / "_delta_log"
    (log / "00000000000000000001.json").unlink()
    assert lake.status().pending_checkout
    sync_branch(lake, catalog, "db")
    assert (log / "00000000000000000001.json").exists()


class Died(Exception):
    """The process was killed here."""


def histories(lake: Lake) -> Iterator[Callable[[], None]]:
    """What a sync finds: new tables, then changed, dropped and created ones."""
    yield lambda: None

    def change() -> None:
        add_rows(lake, column="day")
        with lake.session() as s:
            s.drop("tables/items")
            s.create_delta("tables/more", SCHEMA)

    yield change


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("kind", [MemoryCatalog, ReplacingCatalog])
def test_a_sync_that_dies_at_any_request_is_completed_by_the_next(
    lake: Lake, kind: type[MemoryCatalog], when: str
) -> None:
    catalog = kind()
    for change in histories(lake):
        change()
        for number in range(20):
            count = iter(range(1000))

            def die(request: str, count: Iterator[int] = count, number: int = number) -> None:
                if request != "tables" and next(count) == number:
                    raise Died

            saved = {schema: dict(tables) for schema, tables in catalog.schemas.items()}
            setattr(catalog, when, die)
            try:
                sync_branch(lake, catalog, "db")
                died = False
            except Died:
                died = True
            setattr(catalog, when, lambda request: None)
            sync_branch(lake, catalog, "db")
            assert shown(catalog) == columns(lake)
            if not died:
                assert number > 0
                break
            catalog.schemas = saved
        sync_branch(lake, catalog, "db")


def test_a_catalog_that_fails_says_what_is_done(lake: Lake, catalog: MemoryCatalog) -> None:
    def fail(request: str) -> None:
        if request == "create orders":
            raise CatalogUnavailable("no answer")

    catalog.before = fail
    with pytest.raises(CatalogUnavailable, match="1 change made before"):
        sync_branch(lake, catalog, "db")


def test_a_failing_catalog_does_not_fail_a_publish(lake: Lake, catalog: MemoryCatalog) -> None:
    def fail(request: str) -> None:
        raise CatalogUnavailable("no answer")

    catalog.before = fail
    with pytest.raises(CatalogUnavailable):
        sync_branch(lake, catalog, "db")
    add_rows(lake)
    assert lake.delta("tables/orders").version == 1


def test_a_table_that_the_catalog_refuses_does_not_hold_up_the_others(lake: Lake, catalog: MemoryCatalog) -> None:
    def refuse(request: str) -> None:
        if request == "create items":
            raise CatalogRefused("not allowed")

    catalog.before = refuse
    synced = sync_branch(lake, catalog, "db")
    assert actions(synced) == [("create", "orders", ())]
    assert [each.reason for each in synced.refused] == ["tables/items: not allowed"]


def test_a_table_that_cannot_be_read_is_refused_by_its_name(
    lake: Lake, catalog: MemoryCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after another release has written it: this one makes no such table."""
    read = StateStore.delta

    def delta(state: StateStore, path: str, **options: Any) -> DeltaTable:
        if path == "tables/items":
            raise UnsupportedReaderFeature("the table uses the feature 'x'", feature="x")
        return read(state, path, **options)

    monkeypatch.setattr(StateStore, "delta", delta)
    synced = sync_branch(lake, catalog, "db")
    assert [each.reason for each in synced.refused] == ["tables/items cannot be read: the table uses the feature 'x'"]
    assert list(catalog.schemas["db"]) == ["orders"]


OPERATIONS = st.sampled_from(["add", "widen", "drop", "foreign", "take away", "sync", "fail", "lose", "overtake"])


@given(
    st.lists(st.tuples(OPERATIONS, st.integers(0, 2)), max_size=14), st.sampled_from([MemoryCatalog, ReplacingCatalog])
)
@example([("add", 0), ("widen", 0), ("overtake", 0)], MemoryCatalog)
@settings(max_examples=examples(60))
def test_any_history_ends_with_what_main_has_and_leaves_others_alone(
    operations: list[tuple[str, int]], kind: type[MemoryCatalog]
) -> None:
    lake, catalog = Lake.create(MemoryStore()), kind()
    foreign: dict[str, RegisteredTable] = {}
    for operation, number in operations:
        path, name = f"tables/t{number}", f"t{number}"
        is_there = path in lake.at().datasets()
        counter = iter(range(100))

        def at_request(request: str, counter: Iterator[int] = counter, number: int = number) -> None:
            if request != "tables" and next(counter) == number:
                catalog.before = catalog.after = lambda request: None
                raise CatalogUnavailable("no answer")

        def overtake(request: str, counter: Iterator[int] = counter, number: int = number) -> None:
            if request != "tables" and next(counter) == number:
                catalog.before = lambda request: None
                if "tables/t0" in lake.at().datasets():
                    add_rows(lake, "tables/t0")
                else:
                    with lake.session() as s:
                        s.create_delta("tables/t0", SCHEMA).append(pa.table({"id": [1]}))
                sync_branch(lake, catalog, "db")

        match operation:
            case "add" if not is_there:
                with lake.session() as s:
                    s.create_delta(path, SCHEMA)
            case "widen" if is_there:
                add_rows(lake, path, column=f"c{len(lake.delta(path).metadata.schema.names)}")
            case "drop" if is_there:
                with lake.session() as s:
                    s.drop(path)
            case "foreign" if name not in catalog.schemas.get("db", {}):
                catalog.add_foreign("db", name)
                foreign[name] = catalog.schemas["db"][name]
            case "take away" if name in foreign:
                del catalog.schemas["db"][name], foreign[name]
            case "sync":
                sync_branch(lake, catalog, "db")
            case "fail" | "lose" | "overtake":
                if operation == "lose":
                    catalog.after = at_request
                else:
                    catalog.before = overtake if operation == "overtake" else at_request
                with suppress(CatalogUnavailable):
                    sync_branch(lake, catalog, "db")
                catalog.before = catalog.after = lambda request: None
        assert all(catalog.schemas["db"][each] == table for each, table in foreign.items())
    synced = sync_branch(lake, catalog, "db")
    free = {name: names for name, names in columns(lake).items() if name not in foreign}
    assert {name: names for name, names in shown(catalog).items() if name not in foreign} == free
    assert {each.name for each in synced.refused} == {f"tables/{name}" for name in columns(lake) if name in foreign}


def test_a_name_without_a_table_is_said(lake: Lake, catalog: MemoryCatalog) -> None:
    assert sync_branch(lake, catalog, "db", names={"tables/ordres": "all"}).unused_names == ["tables/ordres"]


@pytest.mark.parametrize("schema", ["", "a.b", "a/b", "a b", "a\n", "Sales", "x" * 129])
def test_a_schema_that_cannot_be_named_so_is_refused(lake: Lake, catalog: MemoryCatalog, schema: str) -> None:
    with pytest.raises(InvalidTableName):
        sync_branch(lake, catalog, schema)
    assert catalog.schemas == {}


@pytest.mark.parametrize("location", ["s3://key:secret@bucket/lake", "bucket/lake", ""])
def test_a_location_that_is_none_is_refused(lake: Lake, catalog: MemoryCatalog, location: str) -> None:
    with pytest.raises(InvalidUrl) as error:
        sync_branch(lake, catalog, "db", location=location)
    assert "secret" not in str(error.value)
    assert catalog.schemas == {}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (VERSION, "9" * 5000),
        (VERSION, "-1"),
        (VERSION, "٣"),
        (PATH, "tables/orders\x1b[2J"),
        (COMMIT, ""),
        (FINGERPRINT, None),
        (LAKE, 7),
    ],
)
def test_a_damaged_record_is_none(key: str, value: object) -> None:
    parameters = definition().origin.parameters()
    assert Origin.of(parameters) == definition().origin
    assert Origin.of({**parameters, key: value}) is None  # type: ignore[dict-item]


def test_a_table_whose_record_was_removed_is_left_alone(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "db")
    table = catalog.schemas["db"]["orders"]
    catalog.schemas["db"]["orders"] = RegisteredTable(table.name, table.location, None, table.handle)
    add_rows(lake)
    assert [each.name for each in sync_branch(lake, catalog, "db").refused] == ["tables/orders"]
    with lake.session() as s:
        s.drop("tables/orders")
    assert actions(sync_branch(lake, catalog, "db")) == []


def test_a_lost_answer_does_no_harm(lake: Lake, catalog: MemoryCatalog) -> None:
    lost = iter([True])

    def lose(request: str) -> None:
        if request == "create orders" and next(lost, False):
            raise CatalogUnavailable("no answer")

    catalog.after = lose
    with pytest.raises(CatalogUnavailable):
        sync_branch(lake, catalog, "db")
    assert actions(sync_branch(lake, catalog, "db")) == []
    assert shown(catalog) == columns(lake)


@pytest.mark.parametrize("request_", ["create_schema", "create items", "update orders", "drop items"])
@pytest.mark.parametrize("kind", [MemoryCatalog, ReplacingCatalog])
def test_a_sync_that_is_overtaken_leaves_nothing_outdated(lake: Lake, kind: type[MemoryCatalog], request_: str) -> None:
    """A later sync runs whole before one request of an earlier one."""
    catalog = kind()
    if request_ in ("update orders", "drop items"):
        sync_branch(lake, catalog, "db")
        add_rows(lake, column="day")
    if request_ == "drop items":
        with lake.session() as s:
            s.drop("tables/items")
    if request_ == "create items":
        catalog.create_schema("db")
    overtaken = iter([True])

    def overtake(request: str) -> None:
        if request == request_ and next(overtaken, False):
            other = Lake.open(lake.url)
            with other.session() as s:
                if request_ == "drop items":
                    s.create_delta("tables/items", pa.schema([("again", pa.int64())]))
                else:
                    s.drop("tables/items")
                s.delta("tables/orders").append(pa.table({"id": [1], "later": ["x"]}), schema_mode="merge")
            sync_branch(other, catalog, "db")

    catalog.before = overtake
    if kind is ReplacingCatalog and request_ == "update orders":
        request_ = "drop orders"
    sync_branch(lake, catalog, "db")
    assert next(overtaken, None) is None, "nothing was overtaken"
    assert shown(catalog) == columns(lake)


def test_a_sync_that_was_held_up_does_not_bring_a_dropped_table_back(tmp_path: Path, catalog: MemoryCatalog) -> None:
    lake = Lake.create(tmp_path / "lake")
    with lake.session() as s:
        s.create_delta("tables/only", SCHEMA)
    held_up = iter([True])

    def hold_up(request: str) -> None:
        if request == "create only" and next(held_up, False):
            other = Lake.open(lake.url)
            with other.session() as s:
                s.drop("tables/only")
            sync_branch(other, catalog, "db")

    catalog.before = hold_up
    sync_branch(lake, catalog, "db")
    assert catalog.requests == ["create_schema", "create only", "drop only"]


def test_a_table_of_others_that_appears_meanwhile_stays(lake: Lake, catalog: MemoryCatalog) -> None:
    def appear(request: str) -> None:
        if request == "create orders" and "orders" not in catalog.schemas["db"]:
            catalog.add_foreign("db", "orders")

    catalog.before = appear
    synced = sync_branch(lake, catalog, "db")
    assert catalog.schemas["db"]["orders"].origin is None
    assert [each.name for each in synced.refused] == ["tables/orders"]


def test_others_that_never_rest_end_a_sync(lake: Lake, catalog: MemoryCatalog) -> None:
    sync_branch(lake, catalog, "db")
    add_rows(lake)

    def touch(request: str) -> None:
        if request == "update orders":
            table = catalog.schemas["db"]["orders"]
            catalog.schemas["db"]["orders"] = RegisteredTable(table.name, table.location, table.origin, object())

    catalog.before = touch
    with pytest.raises(CatalogChanged, match="run the sync again"):
        sync_branch(lake, catalog, "db")


@pytest.mark.parametrize("kind", [MemoryCatalog, ReplacingCatalog])
def test_syncs_that_race_with_publishes_end_at_the_head(lake: Lake, kind: type[MemoryCatalog]) -> None:
    catalog = kind()

    def publish(number: int) -> None:
        with lake.session() as s:
            s.create_delta(f"tables/t{number}", SCHEMA)
            if number:
                s.drop(f"tables/t{number - 1}")
        add_rows(lake, column=f"c{number}")

    def sync(_: int) -> None:
        for _ in range(3):
            try:
                sync_branch(Lake.open(lake.url), catalog, "db")
            except CatalogChanged:
                continue

    with ThreadPoolExecutor(4) as pool:
        syncs = [pool.submit(sync, number) for number in range(3)]
        for number in range(6):
            publish(number)
        for each in syncs:
            each.result()
    sync_branch(lake, catalog, "db")
    assert shown(catalog) == columns(lake)
