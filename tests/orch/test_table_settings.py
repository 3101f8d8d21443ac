"""What an asset's metadata says of its table is checked before anything is written, applied, and kept."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import (
    ConstraintViolation,
    DuplicateKeys,
    NullKeys,
    RowsOutsidePredicate,
    SchemaMismatch,
    UnsupportedType,
)
from lake_orch import DefinitionMismatch, DeltaIOManager, InvalidDefinition, LakeResource, SparkResource, TableNotEmpty
from lake_orch.assets.tables.merge_settings import MergeSettings
from lake_orch.assets.tables.settings import TableSettings
from lake_orch.spark.type_name import arrow_type_of, spark_type_name

ROWS = pa.table({"id": [1, 2], "v": [10, 20]})


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def write(root: str, rows: Any, metadata: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Materialize the asset `orders` with these rows, and return its metadata."""
    lake = LakeResource(root=root)

    @dg.asset(metadata=metadata)
    def orders() -> Any:
        return rows

    result = dg.materialize([orders], resources={"io_manager": DeltaIOManager(lake=lake, **options), "lake": lake})
    (event,) = result.get_asset_materialization_events()
    return {name: entry.value for name, entry in event.materialization.metadata.items()}


def table(root: str) -> DeltaTable:
    return DeltaTable.open(f"{root}/tables/orders")


def sorted_rows(root: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table(root).to_arrow().to_pylist())


# what cannot be followed


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"lake/mode": "upsert"}, "use one of overwrite"),
        ({"lake/mode": "merge"}, "give it the keys"),
        ({"lake/mode": "append", "lake/merge": ["id"]}, "use mode 'merge'"),
        ({"lake/merge": []}, "names of the columns"),
        ({"lake/merge": 7}, "give keys"),
        ({"lake/merge": {"keys": ["id"], "on": "t.id = s.id"}}, "both keys and on"),
        ({"lake/merge": {"when_matched_update": "*"}}, "neither keys nor on"),
        ({"lake/merge": {"keys": ["id"], "when_matched": "*"}}, "has 'when_matched'"),
        ({"lake/merge": {"keys": ["id"], "when_matched_update": 7}}, "when_matched_update"),
        (
            {"lake/merge": {"keys": ["id"], "when_not_matched_by_source_update": "*"}},
            "when_not_matched_by_source_update",
        ),
        ({"lake/mode": "replace_where"}, "is missing"),
        ({"lake/mode": "append", "lake/replace_where": "id > 1"}, "use mode 'replace_where'"),
        ({"lake/replace_where": " "}, "use text"),
        ({"lake/schema_mode": "evolve"}, "use one of none, fill, merge, overwrite"),
        ({"lake/mode": "append", "lake/schema_mode": "overwrite"}, "mode 'overwrite' only"),
        ({"lake/properties": {"a": 1}}, "texts by name"),
        ({"lake/constraints": ["v > 0"]}, "texts by name"),
        ({"lake/schema": {"id": "bigint"}}, "use a pyarrow.Schema"),
        ({"lake/partition_by": 7}, "list of column names"),
        ({"dagster/column_schema": dg.TableSchema([dg.TableColumn("id", "nonsense")])}, "'nonsense' is not a type"),
        ({"dagster/column_schema": dg.TableSchema([dg.TableColumn("id"), dg.TableColumn("ID")])}, "twice"),
        ({"lake/generated": {"x": "no_such + 1"}}, "cannot be computed"),
        ({"lake/cluster_by": ["no_such"]}, "names the column 'no_such'"),
        ({"lake/mod": "append"}, "use 'lake/mode'"),
        ({"lake/constraint": {"a": "v > 0"}}, "use 'lake/constraints'"),
    ],
)
def test_nothing_is_written_for_what_cannot_be_followed(root: str, metadata: dict[str, Any], match: str) -> None:
    with pytest.raises(InvalidDefinition, match=match):
        write(root, ROWS, metadata)
    assert not DeltaTable.exists(f"{root}/tables/orders")


def test_metadata_of_others_is_left_alone(root: str) -> None:
    write(root, ROWS, {"lake/session": "x", "owner": "me", "lake/path": dg.MetadataValue.text("tables/orders")})
    assert len(sorted_rows(root)) == 2


# modes


def test_the_manager_says_how_where_metadata_does_not(root: str) -> None:
    for _ in range(2):
        write(root, ROWS, {}, mode="append")
    write(root, pa.table({"id": [3], "v": [30], "new": ["x"]}), {}, mode="append", schema_mode="merge")
    assert len(sorted_rows(root)) == 5
    write(root, ROWS.append_column("new", [["a", "b"]]), {"lake/mode": "overwrite"}, mode="append")
    assert len(sorted_rows(root)) == 2


def test_replace_where(root: str) -> None:
    write(root, ROWS, {})
    metadata = write(root, pa.table({"id": [2, 3], "v": [0, 0]}), {"lake/replace_where": "id >= 2"})
    assert sorted_rows(root) == [(1, 10), (2, 0), (3, 0)]
    assert (metadata["lake/operation"], metadata["lake/rows_written"], metadata["dagster/row_count"]) == (
        "replace_where",
        2,
        3,
    )
    with pytest.raises(RowsOutsidePredicate):
        write(root, ROWS, {"lake/replace_where": "id >= 2"})
    write(root, ROWS.slice(0, 0), {"lake/replace_where": "id >= 2"})
    assert sorted_rows(root) == [(1, 10)]


def test_overwrite_partitions_replaces_those_that_get_rows(root: str) -> None:
    metadata = {"lake/mode": "overwrite_partitions", "lake/partition_by": ["id"]}
    write(root, ROWS, metadata)
    write(root, pa.table({"id": [2], "v": [0]}), metadata)
    assert sorted_rows(root) == [(1, 10), (2, 0)]


def test_error_and_ignore_write_only_first_rows(root: str) -> None:
    write(root, ROWS, {"lake/mode": "error"})
    with pytest.raises(TableNotEmpty):
        write(root, ROWS, {"lake/mode": "error"})
    metadata = write(root, pa.table({"id": [9], "v": [9]}), {"lake/mode": "ignore"})
    assert len(sorted_rows(root)) == 2
    assert (metadata["lake/rows_written"], metadata["dagster/row_count"]) == (0, 2)


CHANGES = pa.table({"id": [2, 3, 4], "v": [21, 31, 41], "gone": [True, False, False]})


MERGES: list[tuple[Any, list[tuple[int, int]] | None]] = [
    (["id"], None),  # upsert: "*" wants the source's columns to be the table's
    (
        {
            "keys": ["id"],
            "when_matched_update": {"v": "t.v + s.v"},
            "when_not_matched_insert": {"id": "s.id", "v": "s.v"},
        },
        [(1, 10), (2, 41), (3, 61), (4, 41)],
    ),
    (
        # The delete has a condition and is applied first, wherever it is listed.
        {"on": "t.id = s.id", "when_matched_update": {"v": "s.v"}, "when_matched_delete": "s.gone"},
        [(1, 10), (3, 31)],
    ),
    (
        {
            "keys": "id",
            "when_matched_update": [{"set": {"v": "0"}, "condition": "s.gone"}, {"set": {"v": "s.v"}}],
            "when_not_matched_by_source_delete": True,
        },
        [(2, 0), (3, 31)],
    ),
    (
        {"keys": ["id"], "when_matched_delete": True, "when_not_matched_by_source_update": {"v": "v + 1"}},
        [(1, 11)],
    ),
]


@pytest.mark.parametrize(("how", "expected"), MERGES)
def test_merges(root: str, how: Any, expected: list[tuple[int, int]] | None) -> None:
    _check_merge(root, CHANGES, how, expected)


@pytest.mark.extended
@pytest.mark.parametrize(
    ("how", "expected"),
    [pytest.param(*merge, marks=[] if number == 3 else pytest.mark.exhaustive) for number, merge in enumerate(MERGES)],
)
def test_merges_in_spark(root: str, spark: SparkSession, how: Any, expected: list[tuple[int, int]] | None) -> None:
    _check_merge(root, spark.createDataFrame(CHANGES), how, expected)


def _check_merge(root: str, changes: Any, how: Any, expected: list[tuple[int, int]] | None) -> None:
    write(root, pa.table({"id": [1, 2, 3], "v": [10, 20, 30]}), {})
    if expected is None:
        write(root, changes.select(["id", "v"]), {"lake/merge": how})
        expected = [(1, 10), (2, 21), (3, 31), (4, 41)]
    else:
        write(root, changes, {"lake/merge": how})
    assert sorted_rows(root) == expected


def test_a_merge_may_add_columns(root: str) -> None:
    write(root, pa.table({"id": [1], "v": [10]}), {})
    write(root, CHANGES, {"lake/merge": ["id"], "lake/schema_mode": "merge"})
    assert sorted_rows(root) == [(1, 10, None), (2, 21, True), (3, 31, False), (4, 41, False)]


@pytest.mark.parametrize("first", [True, False])
def test_a_merge_by_keys_refuses_rows_that_share_a_key(root: str, first: bool) -> None:
    if not first:
        write(root, ROWS, {})
    rows = pa.table({"id": [7, 7, 8], "v": [1, 2, 3]})
    with pytest.raises(DuplicateKeys, match="such as 7"):
        write(root, rows, {"lake/merge": ["id"]})
    assert DeltaTable.exists(f"{root}/tables/orders") is not first


@pytest.mark.parametrize("first", [True, False])
def test_a_merge_by_keys_refuses_rows_without_a_key(root: str, first: bool) -> None:
    if not first:
        write(root, ROWS, {})
    with pytest.raises(NullKeys):
        write(
            root,
            pa.table({"id": pa.array([None, 8], pa.int64()), "v": [1, 2]}).to_reader(),
            {"lake/merge": {"keys": ["id"]}},
        )
    assert DeltaTable.exists(f"{root}/tables/orders") is not first


@pytest.mark.extended
@pytest.mark.parametrize(("ids", "error"), [([7, 7], DuplicateKeys), ([None, 7], NullKeys)])
def test_a_merge_by_keys_in_spark_refuses_the_same(
    root: str, spark: SparkSession, ids: list[int | None], error: type[Exception]
) -> None:
    write(root, ROWS, {})
    with pytest.raises(error):
        write(root, spark.createDataFrame([(id, 1) for id in ids], "id bigint, v bigint"), {"lake/merge": ["id"]})
    assert len(sorted_rows(root)) == 2


@pytest.mark.parametrize(("column", "values"), [("id", [1.5]), ("v", [1.9])])
def test_a_merge_by_keys_takes_no_values_that_the_table_cannot_hold(
    root: str, column: str, values: list[float]
) -> None:
    write(root, ROWS, {})
    before = sorted_rows(root)
    rows = {"id": pa.array([1], pa.int64()), "v": pa.array([1], pa.int64())} | {column: pa.array(values)}
    with pytest.raises(SchemaMismatch, match=f"column '{column}' is double in the data"):
        write(root, pa.table(rows), {"lake/merge": ["id"]})
    assert sorted_rows(root) == before


def test_a_merge_by_keys_that_lacks_a_column_names_what_works(root: str) -> None:
    write(root, ROWS, {})
    with pytest.raises(SchemaMismatch, match="by clauses in lake/merge"):
        write(root, pa.table({"id": [7]}), {"lake/merge": ["id"]})
    write(root, pa.table({"id": [7]}), {"lake/merge": {"keys": ["id"], "when_not_matched_insert": {"id": "s.id"}}})
    assert (7, None) in sorted_rows(root)


def test_clauses_may_take_several_rows_of_a_key(root: str) -> None:
    """What a condition of a clause decides is the caller's own business."""
    rows = pa.table({"id": [7, 7, None], "v": [1, 2, 3]})
    write(root, rows, {"lake/merge": {"keys": ["id"], "when_not_matched_insert": "*"}})
    assert len(table(root).to_arrow()) == 3


def test_clauses_are_read_in_their_order() -> None:
    how = {"keys": ["a b"], "when_matched_delete": ["s.x", "s.y"], "when_matched_update": "*"}
    settings = MergeSettings.parse(how, "m")
    assert settings.on == "t.`a b` = s.`a b`"
    assert [(clause.name, clause.condition) for clause in settings.clauses] == [
        ("when_matched_delete", "s.x"),
        ("when_matched_delete", "s.y"),
        ("when_matched_update", None),
    ]


# schemas


def test_other_columns_need_a_policy(root: str) -> None:
    write(root, ROWS, {})
    wider = ROWS.append_column("new", [["x", "y"]])
    with pytest.raises(SchemaMismatch, match="columns that the table lacks: new"):
        write(root, wider, {})
    write(root, wider, {"lake/schema_mode": "merge"})
    assert table(root).schema.names == ["id", "v", "new"]
    with pytest.raises(SchemaMismatch):
        write(root, pa.table({"id": ["text"]}), {"lake/schema_mode": "merge"})
    write(root, pa.table({"id": ["text"], "p": [1]}), {"lake/schema_mode": "overwrite", "lake/partition_by": ["p"]})
    assert sorted_rows(root) == [("text", 1)]
    assert table(root).metadata.partition_columns == ("p",)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_naive_timestamps_fit_columns_without_a_zone_in_any_unit(root: str, unit: str) -> None:
    columns = {"id": [1], "t": [NAIVE], "l": [[NAIVE]], "r": [{"t": NAIVE}]}
    write(root, pa.table(columns), {"lake/naive_timestamps": "ntz"})
    kind = pa.timestamp(unit)
    types = {"id": pa.int64(), "t": kind, "l": pa.list_(kind), "r": pa.struct([("t", kind)]), "new": pa.list_(kind)}
    rows = pa.table({**columns, "new": [[NAIVE]]}, schema=pa.schema(types))
    settings = {"lake/naive_timestamps": "utc", "lake/mode": "append", "lake/schema_mode": "merge"}
    write(root, rows, settings)
    added = {**{name: values[0] for name, values in columns.items()}, "new": [NAIVE.replace(tzinfo=UTC)]}
    assert added in table(root).to_arrow().to_pylist()


def test_naive_timestamps_are_refused_with_the_cast(root: str) -> None:
    with pytest.raises(UnsupportedType, match="assume_timezone"):
        write(root, pa.table({"at": [datetime(2024, 1, 1)]}), {})
    assert not DeltaTable.exists(f"{root}/tables/orders")
    write(
        root, pa.table({"at": [datetime(2024, 1, 1)]}), {"lake/properties": {"delta.feature.timestampNtz": "supported"}}
    )
    assert sorted_rows(root) == [(datetime(2024, 1, 1),)]


NAIVE = datetime(2024, 1, 1, 12)
SCHEMA = pa.schema(
    [("id", pa.int32()), ("price", pa.decimal128(10, 2)), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32())]
)


@pytest.mark.parametrize("stream", [False, True])
def test_rows_are_brought_into_a_declared_schema(root: str, stream: bool) -> None:
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    rows = pa.table(
        {
            "day": pa.array([date(2024, 1, 1)], pa.date64()),
            "at": pa.array([moment], pa.timestamp("ns", "UTC")),
            "id": pa.array([1], pa.int64()),
            "price": pa.array([Decimal("1.5")], pa.decimal128(20, 4)),
        }
    )
    write(root, rows.to_reader() if stream else rows, {"lake/schema": SCHEMA})
    assert table(root).schema.equals(SCHEMA)
    assert sorted_rows(root) == [(1, Decimal("1.50"), moment, date(2024, 1, 1))]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"id": [2**40]}, "not int"),
        ({"id": ["1"]}, "id is string instead of int"),
        ({"at": [datetime(2024, 1, 1)]}, "at is timestamp_ntz instead of timestamp"),
        ({"more": [1]}, "it has more too"),
        ({"day": None}, "it lacks day"),
        ({"price": [Decimal("1.005")]}, r"not decimal\(10,2\)"),
    ],
)
def test_rows_that_do_not_fit_a_declared_schema_are_refused(root: str, change: dict[str, Any], match: str) -> None:
    values: dict[str, Any] = {
        "id": [1],
        "price": [Decimal("1.50")],
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC)], pa.timestamp("us", "UTC")),
        "day": [date(2024, 1, 1)],
    } | change
    with pytest.raises(DefinitionMismatch, match=match):
        write(
            root,
            pa.table({name: column for name, column in values.items() if column is not None}),
            {"lake/schema": SCHEMA},
        )
    assert not DeltaTable.exists(f"{root}/tables/orders")


COLUMNS = dg.TableSchema(
    [
        dg.TableColumn(
            "id", "bigint", "which one", dg.TableColumnConstraints(nullable=False, unique=True), tags={"pii": ""}
        ),
        dg.TableColumn("v", "bigint", "how much", dg.TableColumnConstraints(other=["in euros"])),
    ]
)


def test_a_declared_column_schema_makes_the_table_and_is_shown(root: str) -> None:
    narrow = pa.table({"id": pa.array([1, 2], pa.int32()), "v": [10, 20]})
    metadata = write(
        root, narrow, {"dagster/column_schema": COLUMNS, "lake/constraints": {"few": "v < 100", "both": "v > id"}}
    )
    id, v = metadata["dagster/column_schema"].columns
    assert (id.type, id.description, id.constraints.nullable, id.constraints.unique, id.tags) == (
        "bigint",
        "which one",
        False,
        True,
        {"pii": ""},
    )
    assert (v.type, v.constraints.nullable, list(v.constraints.other)) == ("bigint", True, ["v < 100", "in euros"])
    assert list(metadata["dagster/column_schema"].constraints.other) == ["v > id"]
    assert table(root).schema.field("id").nullable is False


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (pa.table({"id": ["1"], "v": [1]}), DefinitionMismatch),
        (pa.table({"v": [1]}), DefinitionMismatch),
        (pa.table({"id": [1], "v": ["x"]}), DefinitionMismatch),
        (pa.table({"id": pa.array([None], pa.int64()), "v": [1]}), ConstraintViolation),
    ],
)
def test_rows_are_checked_against_a_declared_column_schema(root: str, rows: pa.Table, error: type[Exception]) -> None:
    write(root, ROWS, {"dagster/column_schema": COLUMNS})
    before = table(root).version
    with pytest.raises(error):
        write(root, rows, {"dagster/column_schema": COLUMNS})
    assert table(root).version == before


# definitions that are kept


def test_a_table_is_clustered_itself_if_its_properties_ask_for_it(root: str) -> None:
    asked = {"lake/properties": {"delta.feature.clustering": "supported"}}
    write(root, ROWS, {**asked, "lake/cluster_by": ["v"]})
    assert table(root).detail().clustering_columns == ("v",)
    assert "lake.clusterBy" not in table(root).properties
    versions = table(root).version
    write(root, ROWS, {**asked, "lake/cluster_by": ["v"]})
    assert table(root).version == versions + 1
    write(root, ROWS, {**asked, "lake/cluster_by": ["id"]})
    assert table(root).detail().clustering_columns == ("id",)


@pytest.mark.parametrize("lake", [False, True])
def test_a_definition_is_applied_and_kept(root: str, lake: bool) -> None:
    if lake:
        Lake.create(root)
    first = {
        "lake/properties": {"delta.enableChangeDataFeed": "true"},
        "lake/generated": {"twice": "v * 2"},
        "lake/cluster_by": ["v"],
    }
    write(root, pa.table({"id": [1, 2], "v": [20, 10]}), first)
    delta_table = table(root)
    assert delta_table.properties["delta.enableChangeDataFeed"] == "true"
    assert delta_table.properties["lake.clusterBy"] == '["v"]'
    assert delta_table.to_arrow().to_pydict() == {"id": [2, 1], "v": [10, 20], "twice": [20, 40]}, (
        "rows stand in the order of v"
    )
    second = first | {
        "lake/properties": {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "50"},
        "lake/constraints": {"positive": "v > 0"},
        "dagster/column_schema": dg.TableSchema([dg.TableColumn("v", "bigint", "how much")]),
    }
    write(root, ROWS, second)
    delta_table = table(root)
    assert delta_table.properties["delta.checkpointInterval"] == "50"
    assert delta_table.constraints == {"positive": "v > 0"}
    versions = delta_table.version
    metadata = write(root, ROWS, second)
    assert table(root).version == versions + 1, "what is as it should be makes no commit"
    assert metadata["dagster/column_schema"].columns[1].description == "how much"
    with pytest.raises(ConstraintViolation):
        write(root, pa.table({"id": [1], "v": [-1]}), second)


@pytest.mark.parametrize(
    ("metadata", "match"),
    [
        ({"lake/partition_by": ["v"]}, "lake/schema_mode 'overwrite'"),
        ({"lake/constraints": {"positive": "v > 1"}}, "another name, or drop"),
        ({"lake/generated": {"twice": "v * 2"}}, "only a new table can get generated columns"),
        ({"dagster/column_schema": COLUMNS}, "'id_not_null': 'id IS NOT NULL'"),
    ],
)
def test_what_cannot_be_changed_safely_says_how_it_can(root: str, metadata: dict[str, Any], match: str) -> None:
    write(root, ROWS, {"lake/constraints": {"positive": "v > 0"}})
    before = table(root).version
    with pytest.raises(DefinitionMismatch, match=match):
        write(root, ROWS, metadata)
    assert table(root).version == before


def test_a_constraint_that_rows_break_is_not_added(root: str) -> None:
    write(root, ROWS, {})
    with pytest.raises(ConstraintViolation, match="2 rows of the table break"):
        write(root, ROWS, {"lake/mode": "append", "lake/constraints": {"none": "v > 100"}})
    assert len(sorted_rows(root)) == 2
    assert table(root).constraints == {}


def test_declared_lineage_is_carried(root: str) -> None:
    dep = dg.TableColumnDep(asset_key=dg.AssetKey(["raw", "orders"]), column_name="amount")
    metadata = write(root, ROWS, {"dagster/column_lineage": dg.TableColumnLineage({"v": [dep]})})
    assert metadata["dagster/column_lineage"].deps_by_column == {"v": [dep]}
    assert [record.data for record in metadata["lake/column_lineage"].records] == [
        {"column": "v", "from asset": "raw/orders", "from column": "amount"}
    ]


@pytest.mark.parametrize("with_column_lineage", [True, False])
def test_lineage_is_told_by_the_plan_of_spark(root: str, spark: SparkSession, with_column_lineage: bool) -> None:
    @dg.asset(key=["raw", "orders"])
    def orders() -> pa.Table:
        return ROWS

    @dg.asset(ins={"orders": dg.AssetIn(["raw", "orders"])})
    def totals(orders: DataFrame) -> DataFrame:
        return orders.groupBy("id").agg({"v": "sum"}).withColumnRenamed("sum(v)", "total")

    lake, resource = LakeResource(root=root), SparkResource()
    io_manager = DeltaIOManager(lake=lake, spark=resource, with_column_lineage=with_column_lineage)
    result = dg.materialize([orders, totals], resources={"io_manager": io_manager, "lake": lake})
    event = next(
        event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey("totals")
    )
    metadata = event.materialization.metadata
    if not with_column_lineage:
        assert metadata.keys().isdisjoint({"dagster/column_lineage", "lake/column_lineage"})
        return
    deps = metadata["dagster/column_lineage"].value.deps_by_column
    upstream = dg.AssetKey(["raw", "orders"])
    assert deps == {"id": [dg.TableColumnDep(upstream, "id")], "total": [dg.TableColumnDep(upstream, "v")]}


# Spark


@pytest.mark.extended
def test_definitions_hold_for_spark_too(root: str, spark: SparkSession) -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    metadata = {"lake/schema": schema, "lake/cluster_by": ["v"], "lake/constraints": {"positive": "v > 0"}}
    write(root, spark.createDataFrame([(1, 3), (2, 1)], "v int, id int"), metadata)
    assert sorted_rows(root) == [(1, 2), (3, 1)]
    assert table(root).schema.equals(schema)
    with pytest.raises(DefinitionMismatch, match="it has x too"):
        write(root, spark.sql("SELECT 1 AS id, 1 AS v, 1 AS x"), metadata)
    with pytest.raises(ConstraintViolation):
        write(root, spark.sql("SELECT 1 AS id, -1 AS v"), metadata)


@pytest.mark.extended
def test_a_merge_of_spark_stays_in_its_partitions(root: str, spark: SparkSession) -> None:
    days = dg.DailyPartitionsDefinition("2024-01-01", end_date="2024-02-01")
    lake, resource = LakeResource(root=root), SparkResource()
    queries = iter(
        [
            "SELECT DATE '2024-01-01' AS day, 1 AS id",
            "SELECT DATE '2024-01-02' AS day, 1 AS id",
            "SELECT DATE '2024-01-03' AS day, 1 AS id",
        ]
    )

    @dg.asset(partitions_def=days, metadata={"partition_expr": "day", "lake/merge": ["id"]})
    def orders(spark: SparkResource) -> DataFrame:
        return spark.session.sql(next(queries))

    resources = {"io_manager": DeltaIOManager(lake=lake, spark=resource), "lake": lake, "spark": resource}
    for key in ("2024-01-01", "2024-01-02"):
        assert dg.materialize([orders], partition_key=key, resources=resources).success
    with pytest.raises(
        RowsOutsidePredicate,
        match=r"rows lie outside partition '2024-01-02' of asset orders: `day` is 2024-01-03\.",
    ):
        dg.materialize([orders], partition_key="2024-01-02", resources=resources)
    assert [day.day for day, _ in sorted_rows(root)] == [1, 2]


# types


@pytest.mark.parametrize(
    "name",
    [
        "bigint",
        "decimal(10,2)",
        "array<string>",
        "map<string,array<int>>",
        "struct<a:int,b:struct<c:timestamp>>",
        "timestamp_ntz",
        "boolean",
    ],
)
def test_names_of_types_are_read_as_they_are_written(name: str) -> None:
    assert spark_type_name(arrow_type_of(name)) == name


def test_settings_are_values() -> None:
    settings = TableSettings.parse(["a", "b"], {"lake/merge": ["id"]}, "x")
    assert settings == TableSettings.parse(["a", "b"], {"lake/merge": ["id"]}, "x")
    assert settings.path == "tables/a/b"
