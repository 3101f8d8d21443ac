"""Changes of a table's schema, and every operation on files that were written under an earlier one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import ConstraintViolation, SchemaMismatch, UnsupportedType
from lake_core.delta.schema import ARROW_METADATA_KEY, walk
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, held, oracle, rows

MAPPED = {"delta.columnMapping.mode": "name"}


def comment(name: str, kind: pa.DataType, text: str, nullable: bool = True) -> pa.Field:
    return pa.field(name, kind, nullable, {b"comment": text.encode()})


def comments(table: DeltaTable) -> dict[str, str]:
    return {
        child.name: child.metadata["comment"] for child in walk(table.metadata.schema) if "comment" in child.metadata
    }


def mapping(table: DeltaTable) -> dict[str, tuple[int, str]]:
    prefix = "delta.columnMapping."
    return {
        child.name: (child.metadata[f"{prefix}id"], child.metadata[f"{prefix}physicalName"])
        for child in walk(table.metadata.schema)
    }


def test_columns_are_added_also_nested(store: MemoryStore) -> None:
    inner = pa.struct([("x", pa.int64())])
    schema = pa.schema([("id", pa.int64()), ("s", inner), ("l", pa.list_(inner)), ("m", pa.map_(pa.string(), inner))])
    table = DeltaTable.create(store, schema)
    table.append(
        pa.table(
            {"id": [1, 2], "s": [{"x": 1}, None], "l": [[{"x": 1}, None], None], "m": [[("k", {"x": 1})], []]},
            schema=schema,
        )
    )
    wide = pa.struct([("Y", pa.string()), ("x", pa.int64())])
    table.add_columns(
        pa.schema([("n", pa.int32()), ("S", wide), ("l", pa.list_(wide)), ("m", pa.map_(pa.string(), wide))])
    )
    assert table.schema.names == ["id", "s", "l", "m", "n"]
    first = {"x": 1, "Y": None}
    assert table.to_arrow().to_pylist() == [
        {"id": 1, "s": first, "l": [first, None], "m": [("k", first)], "n": None},
        {"id": 2, "s": None, "l": None, "m": [], "n": None},
    ]
    table.update({"s.y": "'y'", "n": "id"})
    assert [(row["s"], row["n"]) for row in table.to_arrow().to_pylist()] == [
        ({"x": 1, "Y": "y"}, 1),
        ({"x": None, "Y": "y"}, 2),
    ]
    version = table.version
    # The columns exist already.
    assert table.add_columns(pa.schema([("N", pa.int32()), ("id", pa.int16())])).version == version


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        ([("id", pa.string())], SchemaMismatch, "cannot be changed"),
        ([("s", pa.struct([("x", pa.string())]))], SchemaMismatch, "s.x"),
        ([("s", pa.int64())], SchemaMismatch, "cannot be changed"),
        ([("id", pa.struct([("x", pa.int64())]))], SchemaMismatch, "cannot be changed"),
        ([("n", pa.int64()), ("N", pa.int32())], SchemaMismatch, "same name"),
        ([("s", pa.struct([("y", pa.int64()), ("Y", pa.int64())]))], SchemaMismatch, "same name"),
        ([pa.field("n", pa.int64(), nullable=False)], SchemaMismatch, "NOT NULL"),
        ([("n", pa.time64("us"))], UnsupportedType, "time64"),
        ([("", pa.int64())], SchemaMismatch, "not empty"),
        ([pa.field("n", pa.int64(), metadata={ARROW_METADATA_KEY: b"{nope"})], SchemaMismatch, "field metadata"),
        ([pa.field("n", pa.int64(), metadata={ARROW_METADATA_KEY: b"[1]"})], SchemaMismatch, "field metadata"),
        ([pa.field("n", pa.int64(), metadata={ARROW_METADATA_KEY: b"[" * 100_000})], SchemaMismatch, "field metadata"),
        ([pa.field("n", pa.int64(), metadata={b"comment": b"\xff"})], SchemaMismatch, "comment"),
        (
            [pa.field("n", pa.int64(), metadata={ARROW_METADATA_KEY: b'{"delta.generationExpression": "id"}'})],
            SchemaMismatch,
            "rule",
        ),
    ],
)
def test_what_cannot_be_added_fails_before_anything_is_written(
    store: MemoryStore, fields: list[Any], error: type[Exception], text: str
) -> None:
    table = DeltaTable.create(store, pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64())]))]))
    before = [meta.key for meta in store.list()]
    with pytest.raises(error, match=text):
        table.add_columns(pa.schema(fields))
    assert [meta.key for meta in store.list()] == before
    assert table.refresh().version == 0


def test_an_append_that_merges_schemas(store: MemoryStore) -> None:
    table = DeltaTable.create(
        store, pa.schema([comment("id", pa.int64(), "key"), ("s", pa.struct([("x", pa.int64())]))])
    )
    table.append(pa.table({"id": [1], "s": [{"x": 1}]}))
    new = pa.table({"ID": pa.array([2], pa.int16()), "s": [{"y": "y"}], "extra": [1.5]})
    with pytest.raises(SchemaMismatch, match="extra"):
        table.append(new)
    table.append(new, schema_mode="merge")
    assert table.schema.names == ["id", "s", "extra"]
    assert comments(table) == {"id": "key"}
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "s": {"x": 1, "y": None}, "extra": None},
        {"id": 2, "s": {"x": None, "y": "y"}, "extra": 1.5},
    ]
    before = [meta.key for meta in store.list()]
    for bad in (
        {"id": ["x"]},
        {"id": [1], "n": [1], "N": [1]},
        {"id": [1], "s": [{"x": "text"}]},
        {"id": [1], "extra": [{"a": 1}]},
    ):
        with pytest.raises(SchemaMismatch):
            table.append(pa.table(bad), schema_mode="merge")
    assert [meta.key for meta in store.list()] == before
    with pytest.raises(SchemaMismatch, match="schema_mode"):
        table.append(new, schema_mode="overwrite")


def test_rows_bring_no_rules_of_the_table_they_were_read_from(store: MemoryStore) -> None:
    field = pa.field(
        "g", pa.int64(), metadata={ARROW_METADATA_KEY: b'{"delta.generationExpression": "id + 1", "comment": "kept"}'}
    )
    data = pa.table({"id": [5], "g": [0]}, schema=pa.schema([pa.field("id", pa.int64()), field]))
    operations: tuple[Callable[[DeltaTable], Any], ...] = (
        lambda table: table.append(data, schema_mode="merge"),
        lambda table: table.overwrite(data, schema_mode="overwrite"),
        lambda table: table.merge(data, "t.id = s.id").with_schema_evolution().when_not_matched_insert("*").execute(),
    )
    for operation in operations:
        table = DeltaTable.create(MemoryStore(), pa.schema([("id", pa.int64())]))
        operation(table)
        assert table.to_arrow().to_pylist() == [{"id": 5, "g": 0}]
        assert table.protocol.min_writer_version == 2
        assert "delta.generationExpression" not in table.metadata.schema_string


def test_nullability_widens_and_never_narrows(store: MemoryStore) -> None:
    inner = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    table = DeltaTable.create(store, pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", inner)]))
    table.append(pa.table({"id": [1], "s": [{"x": 1}]}, schema=table.schema))
    for bad in ({"id": [None], "s": [None]}, {"id": [1], "s": [{"x": None}]}):
        with pytest.raises(ConstraintViolation, match="NOT NULL"):
            table.append(pa.table(bad, schema=pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64())]))])))
    with pytest.raises(ConstraintViolation, match="NOT NULL"):
        table.update({"id": "NULL"})
    table.drop_not_null("ID")
    table.drop_not_null("s.x")
    table.append(
        pa.table(
            {"id": [None], "s": [{"x": None}]},
            schema=pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64())]))]),
        )
    )
    assert held(table) == Counter(map(str, [{"id": None, "s": {"x": None}}, {"id": 1, "s": {"x": 1}}]))
    version = table.version
    assert table.drop_not_null("id").version == version
    with pytest.raises(SchemaMismatch, match="no column 'zz'"):
        table.drop_not_null("zz")


def test_reordering(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    table.append(rows(0, 3))
    before = table.to_arrow()
    table.reorder_columns(["V", "p"])
    assert table.schema.names == ["v", "p", "id"]
    assert table.to_arrow().select(before.column_names).sort_by("id") == before.sort_by("id")
    table.append(rows(3, 4))
    assert table.to_arrow(where="id = 3").to_pylist() == [{"v": 1.5, "p": "p0", "id": 3}]
    for bad in (["zz"], ["v", "V"]):
        with pytest.raises(SchemaMismatch):
            table.reorder_columns(bad)


def test_rename_and_drop_need_mapping_and_upgrade_only_on_request(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    table.append(rows(0, 3))
    operations: tuple[Callable[[], Any], ...] = (
        lambda: table.rename_column("v", "w"),
        lambda: table.drop_columns(["v"]),
    )
    for operation in operations:
        with pytest.raises(SchemaMismatch, match="set_properties"):
            operation()
    assert table.refresh().protocol.min_reader_version == 1
    table.set_properties(MAPPED)
    assert (table.protocol.min_reader_version, table.protocol.min_writer_version) == (2, 5)
    assert table.to_arrow().num_rows == 3
    with pytest.raises(SchemaMismatch, match="same name"):
        table.rename_column("v", "ID")
    with pytest.raises(SchemaMismatch, match="is a partition column"):
        table.drop_columns(["p"])
    with pytest.raises(SchemaMismatch, match="no column would remain"):
        table.drop_columns(["id", "v"])
    with pytest.raises(SchemaMismatch, match="list of names"):
        table.drop_columns("id")
    with pytest.raises(SchemaMismatch, match="not empty"):
        table.rename_column("v", "")
    table.rename_column("v", "V")  # names differ in case only
    table.rename_column("P", "part")
    assert table.metadata.partition_columns == ("part",)
    assert table.to_arrow(where="part = 'p1'").to_pylist() == [{"id": 1, "part": "p1", "V": 0.5}]


def test_names_that_are_no_text(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties=MAPPED)
    for name in ("", "\ud800", None, 7, b"x"):
        with pytest.raises(SchemaMismatch):
            table.rename_column("v", name)  # type: ignore[arg-type]
    for wrong in ({"n": pa.int64()}, [("n", pa.int64())], None):
        with pytest.raises(SchemaMismatch, match="pyarrow Schema"):
            table.add_columns(wrong)
        with pytest.raises(SchemaMismatch, match="pyarrow Schema"):
            DeltaTable.create(MemoryStore(), wrong)
    assert table.refresh().version == 0


def test_a_name_that_comes_back_is_another_column(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, properties=MAPPED)
    table.append(rows(0, 3))
    table.drop_columns(["v"])
    table.add_columns(pa.schema([("v", pa.string())]))
    table.rename_column("id", "p2")
    table.rename_column("p", "id")
    assert table.to_arrow(where="p2 = 2").to_pylist() == [{"p2": 2, "id": "p2", "v": None}]
    table.update({"v": "'new'"}, "p2 < 2")
    assert Counter(table.to_arrow()["v"].to_pylist()) == {"new": 2, None: 1}
    ids = [number for number, _ in mapping(table).values()]
    assert len(set(ids)) == 3
    assert table.properties["delta.columnMapping.maxColumnId"] == "4" == str(max(ids))


def test_mapping_is_not_taken_over_from_another_table(store: MemoryStore) -> None:
    """The other table's ids would collide with the table's own, and its physical names belong to other files."""
    nested = pa.schema(
        [("id", pa.int64()), ("s", pa.struct([("x", pa.int64()), ("y", pa.struct([("z", pa.int64())]))]))]
    )
    first = DeltaTable.create(store, nested, properties=MAPPED)
    first.append(pa.table({"id": [1], "s": [{"x": 1, "y": {"z": 2}}]}, schema=nested))
    plain = DeltaTable.create(MemoryStore(), first.schema)
    assert "columnMapping" not in plain.metadata.schema_string
    plain.append(first.to_arrow())
    plain.set_properties(MAPPED)
    assert plain.to_arrow() == first.to_arrow()
    wide = pa.schema([(f"c{n}", pa.int64()) for n in range(6)])
    operations: tuple[Callable[[DeltaTable], Any], ...] = (
        lambda other: other.append(first.to_arrow(), schema_mode="merge"),
        lambda other: other.add_columns(first.schema),
        lambda other: (
            other.merge(first.to_arrow(), "FALSE")
            .with_schema_evolution()
            .when_not_matched_insert({"c0": "1"})
            .execute()
        ),
        lambda other: other.overwrite(first.to_arrow(), schema_mode="overwrite"),
    )
    for operation in operations:
        other = DeltaTable.create(MemoryStore(), wide, properties=MAPPED)
        operation(other)
        mapped = mapping(other)
        assert (
            len({number for number, _ in mapped.values()}) == len({name for _, name in mapped.values()}) == len(mapped)
        )
        assert not {name for _, name in mapped.values()} & {name for _, name in mapping(first).values()}
    copy = DeltaTable.create(MemoryStore(), first.schema, properties=MAPPED)
    assert not {name for _, name in mapping(copy).values()} & {name for _, name in mapping(first).values()}


@pytest.mark.parametrize("mapped", [False, True])
def test_an_overwrite_of_the_schema_keeps_what_is_said_of_columns_that_stay(store: MemoryStore, mapped: bool) -> None:
    inner = pa.struct([comment("x", pa.int64(), "inner"), ("gone", pa.int64())])
    schema = pa.schema(
        [
            comment("id", pa.int64(), "key"),
            comment("s", inner, "outer"),
            comment("t", pa.int64(), "number"),
            ("old", pa.int64()),
        ]
    )
    table = DeltaTable.create(store, schema, properties=MAPPED if mapped else None)
    table.append(pa.table({"id": [1], "s": [{"x": 1, "gone": 1}], "t": [1], "old": [1]}, schema=schema))
    names = mapping(table) if mapped else {}
    table.overwrite(pa.table({"new": [1], "s": [{"x": 2}], "id": [3], "t": ["now text"]}), schema_mode="overwrite")
    assert table.to_arrow().to_pylist() == [{"new": 1, "s": {"x": 2}, "id": 3, "t": "now text"}]
    assert comments(table) == {"id": "key", "s": "outer", "x": "inner"}
    if mapped:
        now = mapping(table)
        assert [now[name] == names[name] for name in ("id", "s", "x", "t")] == [True, True, True, False]
        assert len({number for number, _ in now.values()}) == len(now)
    assert DeltaTable.open(store, version=1).to_arrow().to_pylist() == [
        {"id": 1, "s": {"x": 1, "gone": 1}, "t": 1, "old": 1}
    ]
    table.overwrite(
        pa.table({"id": [3]}, schema=pa.schema([comment("id", pa.int64(), "other")])), schema_mode="overwrite"
    )
    assert comments(table) == {"id": "other"}


def test_an_overwrite_may_change_the_partitioning(store: MemoryStore) -> None:
    table = DeltaTable.create(store, SCHEMA, partition_by=["p"])
    table.append(rows(0, 6))
    before = [meta.key for meta in store.list()]
    wrong: list[tuple[Callable[[], Any], str]] = [
        (lambda: table.overwrite(rows(0, 1).drop_columns(["p"]), schema_mode="overwrite"), "'p' is not in the schema"),
        (
            lambda: table.overwrite(rows(0, 1), schema_mode="overwrite", partition_by=["zz"]),
            "'zz' is not in the schema",
        ),
        (lambda: table.overwrite(rows(0, 1), schema_mode="overwrite", partition_by=["p", "id", "v"]), "every column"),
        (lambda: table.overwrite(rows(0, 1), partition_by=["id"]), "schema_mode"),
        (lambda: table.overwrite(rows(0, 1), schema_mode="overwrite", where="id = 1"), "pass neither"),
        (lambda: table.overwrite(rows(0, 1), schema_mode="overwrite", dynamic=True), "pass neither"),
        (lambda: table.overwrite(rows(0, 1), schema_mode="sideways"), "schema_mode"),  # type: ignore[arg-type]
        (lambda: table.overwrite(pa.table({"a": [1], "A": [1]}), schema_mode="overwrite"), "same name"),
        (lambda: table.overwrite(rows(0, 1), dynamic=True, where="id = 1"), "only one of them"),
    ]
    for operation, text in wrong:
        with pytest.raises(SchemaMismatch, match=text):
            operation()
    assert [meta.key for meta in store.list()] == before
    table.overwrite(rows(0, 6), schema_mode="overwrite", partition_by=["id"])
    assert table.metadata.partition_columns == ("id",)
    assert table.files().num_rows == 6
    assert table.to_arrow(where="id = 4").to_pylist() == [{"id": 4, "p": "p1", "v": 2.0}]
    table.overwrite(rows(7, 9), schema_mode="overwrite", partition_by=[])
    assert not table.metadata.partition_columns
    assert table.files().num_rows == 1


def test_overwrites_of_a_part_that_add_columns(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, SCHEMA, partition_by=["p"], properties={"delta.enableChangeDataFeed": "true"})
    table.append(rows(0, 6))
    new = pa.table({"id": [4], "p": ["p1"], "v": [0.0], "n": [1]})
    table.overwrite(new, where="id = 4 OR n = 1", schema_mode="merge")
    table.overwrite(pa.table({"id": [3], "p": ["p0"], "v": [0.0], "m": ["x"]}), dynamic=True, schema_mode="merge")
    values = {row["id"]: (row["n"], row["m"]) for row in table.to_arrow().to_pylist()}
    assert values == {1: (None, None), 2: (None, None), 3: (None, "x"), 4: (1, None), 5: (None, None)}
    assert oracle(tmp_path) == held(table)


def evolved(folder: Path) -> DeltaTable:
    """Create a table with files of three schemas, none of which is the current one."""
    nested = pa.struct([("x", pa.int64())])
    schema = pa.schema(
        [("id", pa.int64()), ("s", nested), ("old", pa.string()), ("p", pa.string()), ("gone", pa.float32())]
    )
    table = DeltaTable.create(
        folder, schema, partition_by=["p"], properties={**MAPPED, "delta.enableChangeDataFeed": "true"}
    )
    first = {
        "id": [1, 2, 3],
        "s": [{"x": 1}, None, {"x": None}],
        "old": ["a", "b", "c"],
        "p": ["p", "", None],
        "gone": [1.0, 2.0, 3.0],
    }
    table.append(pa.table(first, schema=schema))
    table.add_columns(pa.schema([("new", pa.int32()), ("s", pa.struct([("y", pa.string())]))]))
    second = {
        "id": [4, 5],
        "s": [{"x": 4, "y": "y"}, None],
        "old": ["d", "e"],
        "p": ["p", "q"],
        "new": pa.array([7, 8], pa.int32()),
    }
    table.append(pa.table(second))
    table.rename_column("old", "text")
    table.rename_column("p", "part")
    table.rename_column("s.x", "z")
    table.drop_columns(["s.y", "gone"])
    table.reorder_columns(["part", "new"])
    return table


START = {
    1: ("p", None, {"z": 1}, "a"),
    2: (None, None, None, "b"),
    3: (None, None, {"z": None}, "c"),
    4: ("p", 7, {"z": 4}, "d"),
    5: ("q", 8, None, "e"),
}
SOURCE = pa.table({"ID": [1, 5, 9], "text": ["m1", "m5", "m9"]})


def _merge(table: DeltaTable) -> Any:
    merge = table.merge(SOURCE, "t.id = s.id").when_matched_update({"text": "s.text"})
    merge.when_not_matched_insert({"id": "s.id", "part": "s.text"})
    return merge.when_not_matched_by_source_update({"new": "coalesce(new, 0) + 1"}).execute()


OPERATIONS: dict[str, tuple[Callable[[DeltaTable], Any], dict[int, Any]]] = {
    "none": (lambda table: None, {}),
    "delete": (lambda table: table.delete("id IN (1, 4)"), {1: None, 4: None}),
    "delete by a new column": (lambda table: table.delete("new IS NULL AND part IS NULL"), {2: None, 3: None}),
    "update": (
        lambda table: table.update(
            {"TEXT": "concat(text, '!')", "S.Z": "id * 10", "Part": "'moved'"}, "new IS NULL AND id < 3"
        ),
        {1: ("moved", None, {"z": 10}, "a!"), 2: ("moved", None, {"z": 20}, "b!")},
    ),
    "merge": (
        _merge,
        {
            1: ("p", None, {"z": 1}, "m1"),
            2: (None, 1, None, "b"),
            3: (None, 1, {"z": None}, "c"),
            4: ("p", 8, {"z": 4}, "d"),
            5: ("q", 8, None, "m5"),
            9: ("m9", None, None, None),
        },
    ),
    "optimize": (lambda table: table.optimize(), {}),
    "zorder": (lambda table: table.optimize(zorder_by=["id", "TEXT", "s.z"]), {}),
    "overwrite": (
        lambda table: table.overwrite(pa.table({"part": ["p"], "id": [2]}), where="id < 3 OR text = 'd'"),
        {1: None, 2: ("p", None, None, None), 4: None},
    ),
    "dynamic": (
        lambda table: table.overwrite(pa.table({"part": [""], "id": [7]}), dynamic=True),
        {2: None, 3: None, 7: (None, None, None, None)},
    ),
}


@pytest.mark.parametrize("checkpoint", [False, True])
@pytest.mark.parametrize("kind", OPERATIONS)
def test_operations_on_files_of_earlier_schemas(tmp_path: Path, kind: str, checkpoint: bool) -> None:
    table = evolved(tmp_path)
    if checkpoint:
        table.checkpoint()
        table = DeltaTable.open(tmp_path)
    operation, changed = OPERATIONS[kind]
    operation(table)
    expected = {key: value for key, value in {**START, **changed}.items() if value is not None}
    records = table.to_arrow().to_pylist()
    assert {row["id"]: (row["part"], row["new"], row["s"], row["text"]) for row in records} == expected
    assert len(records) == len(expected)
    assert oracle(tmp_path) == held(table)
    assert table.schema.names == ["part", "new", "id", "s", "text"]


def test_restore_across_schemas(tmp_path: Path) -> None:
    table = evolved(tmp_path)
    table.restore(1)
    assert table.schema.names == ["id", "s", "old", "p", "gone"]
    assert table.metadata.partition_columns == ("p",)
    assert held(table) == held(DeltaTable.open(tmp_path, version=1)) == oracle(tmp_path)
    table.restore(8)
    assert held(table) == held(DeltaTable.open(tmp_path, version=8)) == oracle(tmp_path)
    assert table.schema.names[0] == "part"


def test_odd_names(tmp_path: Path) -> None:
    names = ["select", "a.b", "we`ird", 'qu"ote', "from", "sp ace", "ü", "{x}", "tab\t", "'"]
    table = DeltaTable.create(tmp_path, pa.schema([(name, pa.int64()) for name in names]), properties=MAPPED)
    table.append(pa.table({name: [1] for name in names}))
    table.update(
        {
            "a.b": "`select` + `a.b`",
            "WE`IRD": "`we``ird` + 1",
            'qu"ote': '`qu"ote` + 5',
            "sp ace": "`Ü`",
            "'": "`'` + `{x}`",
        }
    )
    source = pa.table({name: [1] for name in names})
    merge = table.merge(source, "t.`select` = s.`SELECT`").when_matched_update(
        {"a.b": "s.`a.b` + t.`a.b`"}, "t.`a.b` = 2"
    )
    merge.when_not_matched_insert("*").execute()
    table.merge(source, "t.`a.b` = s.`a.b`").when_not_matched_insert("*").execute()
    table.rename_column("a.b", "where")
    table.drop_columns(["tab\t", "from"])
    expected = [
        dict(zip(names, row, strict=True)) for row in ([1, 3, 2, 6, 0, 1, 1, 1, 0, 2], [1, 1, 1, 1, 0, 1, 1, 1, 0, 1])
    ]
    actual = [
        {"a.b": row.pop("where"), **row} for row in table.to_arrow(where='`where` > 0 AND `qu"ote` > 0').to_pylist()
    ]
    assert sorted(map(str, ({name: row[name] for name in names if name in row} for row in actual))) == sorted(
        str({name: value for name, value in row.items() if name not in ("tab\t", "from")}) for row in expected
    )
    assert oracle(tmp_path) == held(table)


def test_statistics_and_metadata_follow_names(tmp_path: Path) -> None:
    """After a rename files are skipped by the physical names that their statistics have."""
    table = evolved(tmp_path)
    from lake_core.delta.scan import plan_scan

    assert len(plan_scan(table.snapshot, None, "text = 'e'").files) == 1
    assert len(plan_scan(table.snapshot, None, "s.z = 4").files) == 1
    assert "gone" not in [child["name"] for child in json.loads(table.metadata.schema_string)["fields"]]


def test_comments(store: MemoryStore) -> None:
    table = DeltaTable.create(store, pa.schema([("id", pa.int64()), ("s", pa.struct([("x", pa.int64())]))]))
    table.append(pa.table({"id": [1], "s": [{"x": 1}]}, schema=table.schema))
    table.set_comments({"ID": "which one", "s.x": "inside"})
    fields = DeltaTable.open(store).metadata.schema.fields
    assert fields[0].metadata == {"comment": "which one"}
    assert table.to_arrow()["id"].to_pylist() == [1]
    version = table.version
    assert table.set_comments({"id": "which one"}).version == version
    table.set_comments({"id": None})
    assert DeltaTable.open(store).metadata.schema.fields[0].metadata == {}
    for bad in ({"zz": "x"}, {"id": 7}):
        with pytest.raises(SchemaMismatch):
            table.set_comments(bad)
