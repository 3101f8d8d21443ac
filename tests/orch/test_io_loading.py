"""What parameters get: the type that they are annotated with, as a stream if it is one, from the state they ask for."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.delta.errors import DataFileMissing
from lake_orch import DeltaIOManager, InvalidDefinition, LakeResource, TableSlice, TypeHandler, UnsupportedData
from lake_orch.assets.tables.data import load, to_rows
from lake_orch.assets.tables.state import table_state

DAY, NOON, NOON_UTC = date(2024, 1, 1), datetime(2024, 1, 1, 12), datetime(2024, 1, 1, 12, tzinfo=UTC)
WIDE = pl.List(pl.Struct({"x": pl.Int128}))
SCHEMA = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("v", pa.string())])


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


def resources(root: str) -> dict[str, Any]:
    lake = LakeResource(root=root)
    return {"lake": lake, "io_manager": DeltaIOManager(lake=lake)}


def loaded(root: str, annotation: Any, **metadata: Any) -> Any:
    """Return what a parameter on the table `source` gets."""
    received: list[Any] = []

    def reader(source) -> None:
        received.append(source)

    reader.__annotations__ = {"source": annotation, "return": None}
    names = {"columns": "columns"}
    ins = {"source": dg.AssetIn(metadata={names.get(name, f"lake/{name}"): value for name, value in metadata.items()})}
    assert dg.materialize([dg.AssetSpec("source"), dg.asset(reader, ins=ins)], resources=resources(root)).success
    return received[0]


def rows_of(first: int, last: int) -> pa.Table:
    ids = list(range(first, last))
    return (
        pa.table({"day": [id // 5 for id in ids], "id": ids, "v": [f"v{id}" for id in ids]})
        .cast(pa.schema([("day", pa.int32()), ("id", pa.int64()), ("v", pa.string())]))
        .set_column(0, "day", pa.array([id // 5 for id in ids], pa.int32()).cast(pa.date32()))
    )


@pytest.fixture
def source(root: str) -> DeltaTable:
    """Create a table of four files in two partitions."""
    table = DeltaTable.create(f"{root}/tables/source", SCHEMA, partition_by=["day"])
    for first in (0, 5):
        table.append(rows_of(first, first + 3))
        table.append(rows_of(first + 3, first + 5))
    return table


def ids(value: Any) -> list[int]:
    """Return the sorted ids of a loaded value of any type."""
    match value:
        case pa.RecordBatchReader():
            value = value.read_all()
        case ds.Dataset():
            value = value.to_table()
        case pl.LazyFrame():
            value = value.collect()
        case DeltaTable():
            value = value.to_arrow()
    column = value["id"]
    return sorted(column.to_pylist() if hasattr(column, "to_pylist") else list(column))


TYPES = [pa.Table, pa.RecordBatch, pa.RecordBatchReader, ds.Dataset, pd.DataFrame, pl.DataFrame, pl.LazyFrame]


@pytest.mark.parametrize("annotation", TYPES)
def test_columns_and_rows_are_chosen(root: str, source: DeltaTable, annotation: type) -> None:
    assert ids(loaded(root, annotation)) == list(range(10))
    assert ids(loaded(root, annotation, columns=["id"], where="day = DATE '1970-01-02'")) == [5, 6, 7, 8, 9]
    assert ids(loaded(root, annotation, columns=["id"], where="id >= 4 AND day < DATE '1970-01-02'")) == [4]
    assert ids(loaded(root, annotation, columns=["id", "v"], where="v LIKE 'v_' AND id + 1 > 9")) == [9]


@pytest.mark.parametrize("annotation", TYPES)
def test_no_rows_are_no_error(root: str, annotation: type) -> None:
    DeltaTable.create(f"{root}/tables/source", SCHEMA)
    assert ids(loaded(root, annotation)) == []


@pytest.mark.extended
def test_renamed_columns_are_read_right(root: str) -> None:
    properties = {"delta.columnMapping.mode": "name"}
    table = DeltaTable.create(f"{root}/tables/source", pa.schema([("old", pa.int64())]), properties=properties)
    table.append(pa.table({"old": [1, 2]}))
    table.rename_column("old", "id")
    table.append(pa.table({"id": [3]}))
    for annotation in TYPES:
        assert ids(loaded(root, annotation)) == [1, 2, 3]


@pytest.mark.parametrize("annotation", [pa.RecordBatchReader, pl.LazyFrame, ds.Dataset])
def test_a_stream_opens_files_as_it_comes_to_them(root: str, source: DeltaTable, annotation: type) -> None:
    files = source.files(["path"])["path"].to_pylist()
    value = loaded(root, annotation)
    for path in files[1:]:
        (Path(root) / "tables/source" / path).unlink()
    if annotation is pa.RecordBatchReader:
        assert value.read_next_batch().num_rows  # the first file is there
        with pytest.raises(DataFileMissing):
            value.read_all()
    elif annotation is pl.LazyFrame:
        assert value.head(1).collect().height == 1
        with pytest.raises(Exception, match="is gone"):
            value.collect()
    else:
        with pytest.raises(Exception, match="part-"):
            value.to_table()


def test_a_stream_takes_little_memory(root: str) -> None:
    """64 MiB, of which no more than a few batches are there at a time."""
    piece = pa.RecordBatch.from_pydict({"n": pa.array([7] * (1 << 17), pa.int64())})
    sizes = []

    @dg.asset
    def stream() -> pa.RecordBatchReader:
        return pa.RecordBatchReader.from_batches(piece.schema, (piece for _ in range(64)))

    @dg.asset
    def reader(stream: pa.RecordBatchReader) -> None:
        before = pa.total_allocated_bytes()
        sizes.extend((batch.num_rows, pa.total_allocated_bytes() - before) for batch in stream)

    assert dg.materialize([stream, reader], resources=resources(root)).success
    assert sum(rows for rows, _ in sizes) == 64 << 17
    assert max(held for _, held in sizes) < 8 << 20


@pytest.mark.parametrize("kind", ["reader", "lazy"])
def test_a_stream_that_fails_half_way_leaves_nothing(root: str, source: DeltaTable, kind: str) -> None:
    def pieces() -> Iterator[pa.RecordBatch]:
        yield rows_of(0, 3).to_batches()[0]
        raise RuntimeError("half-way")

    def failing(frame: pl.DataFrame) -> pl.DataFrame:
        raise RuntimeError("half-way")

    @dg.asset(metadata={"lake/path": "tables/source"})
    def broken_stream() -> Any:
        if kind == "lazy":
            return loaded(root, pl.LazyFrame).map_batches(
                failing, schema={"day": pl.Date, "id": pl.Int64, "v": pl.String}
            )
        return pa.RecordBatchReader.from_batches(rows_of(0, 1).schema, pieces())

    before = source.version
    with pytest.raises(Exception, match="half-way"):
        dg.materialize([broken_stream], resources=resources(root))
    assert source.refresh().version == before
    assert source.to_arrow().num_rows == 10


def test_a_lazy_frame_reads_only_the_columns_of_its_query(root: str, source: DeltaTable) -> None:
    frame = loaded(root, pl.LazyFrame)
    plan = frame.filter(pl.col("id") > 7).select("v").explain()
    assert "PROJECT 2/3 COLUMNS" in plan
    assert "SELECTION" in plan
    assert sorted(frame.filter(pl.col("id") > 7).select("v").collect()["v"]) == ["v8", "v9"]
    assert frame.select(pl.len()).collect().item() == 10
    assert frame.group_by("day").agg(pl.col("id").sum()).sort("day").collect()["id"].to_list() == [10, 35]


def test_earlier_versions(root: str, source: DeltaTable) -> None:
    assert ids(loaded(root, pa.Table, version=1)) == [0, 1, 2]
    timestamps = {commit["version"]: commit["timestamp"] for commit in source.history()}
    at = datetime.fromtimestamp(timestamps[2] / 1000, UTC).isoformat()
    assert ids(loaded(root, pa.Table, timestamp=at)) in ([0, 1, 2, 3, 4], list(range(8)), list(range(10)))
    assert ids(loaded(root, pl.LazyFrame, version=2, where="id > 1")) == [2, 3, 4]
    for wrong in ({"version": "1"}, {"version": 1, "timestamp": at}, {"where": 7}, {"columns": "id"}):
        with pytest.raises(InvalidDefinition):
            loaded(root, pa.Table, **wrong)


@pytest.mark.parametrize("name", ["mode", "shape", "other"])
def test_a_setting_that_has_no_effect_on_an_input_is_refused(root: str, source: DeltaTable, name: str) -> None:
    with pytest.raises(InvalidDefinition, match=rf"'lake/{name}', which has no effect: .* columns, lake/where"):
        loaded(root, pa.Table, **{name: "append"})


def test_other_refs(root: str) -> None:
    lake = Lake.create(root)
    with lake.session() as session:
        session.create_delta("tables/source", SCHEMA).append(rows_of(0, 2))
    lake.create_tag("v1", at="main")
    lake.create_branch("dev")
    with lake.session("dev") as session:
        session.delta("tables/source").append(rows_of(2, 4))
    with lake.session() as session:
        session.delta("tables/source").append(rows_of(4, 5))
    assert ids(loaded(root, pa.Table)) == [0, 1, 4]
    assert ids(loaded(root, pa.Table, ref="v1")) == [0, 1]
    assert ids(loaded(root, pa.Table, ref="dev")) == [0, 1, 2, 3]
    assert ids(loaded(root, pl.LazyFrame, ref=lake.log()[1].id)) == [0, 1]
    assert ids(loaded(root, pa.Table, ref="main", version=0)) in ([], [0, 1])


# types of one's own


@dataclass
class Measurements:
    """A type that nobody else knows."""

    values: list[int]


@dataclass
class MeasurementsHandler:
    supported_types = (Measurements, "not_installed.Anything")

    def to_rows(self, value: Measurements) -> pa.Table:
        return pa.table({"id": value.values})

    def from_table(self, part: TableSlice, annotation: type) -> Measurements:
        return Measurements(part.to_arrow()["id"].to_pylist())


class OwnIOManager(DeltaIOManager):
    @classmethod
    def type_handlers(cls) -> tuple[TypeHandler, ...]:
        return (MeasurementsHandler(), *super().type_handlers())


def test_a_handler_of_ones_own(root: str) -> None:
    received = []

    @dg.asset
    def measured() -> Measurements:
        return Measurements([1, 2])

    @dg.asset
    def reader(measured: Measurements) -> pa.Table:
        received.append(measured)
        return pa.table({"n": [len(measured.values)]})

    lake = LakeResource(root=root)
    assert isinstance(MeasurementsHandler(), TypeHandler)
    assert dg.materialize([measured, reader], resources={"io_manager": OwnIOManager(lake=lake), "lake": lake}).success
    assert received == [Measurements([1, 2])]
    with pytest.raises(
        UnsupportedData,
        match=r"Measurements: return one of pyarrow\.Table, .*pyspark\.sql\.DataFrame, duckdb\.DuckDBPyRelation$",
    ):
        to_rows(Measurements([]), "x")


@pytest.mark.parametrize("key", ["io_manager", "own"], ids=["its own IO manager", "another of the job"])
def test_a_handler_of_ones_own_serves_what_a_step_writes_by_itself(root: str, key: str) -> None:
    @dg.asset
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        table = lake.table(context)
        table.append(Measurements([1, 2]))
        return dg.MaterializeResult(metadata=table.metadata())

    lake = LakeResource(root=root)
    assert dg.materialize([by_hand], resources={key: OwnIOManager(lake=lake), "lake": lake}).success
    assert DeltaTable.open(f"{root}/tables/by_hand").to_arrow()["id"].to_pylist() == [1, 2]


def test_a_handler_of_ones_own_serves_a_session_of_a_step(tmp_path: Path) -> None:
    @dg.op
    def writes(context: dg.OpExecutionContext, lake: LakeResource) -> None:
        with lake.session(context) as session:
            session.table("tables/measured").append(Measurements([1, 2]))

    @dg.job(
        resource_defs={
            "lake": LakeResource(root=str(tmp_path)),
            "own": OwnIOManager(lake=LakeResource(root=str(tmp_path))),
        }
    )
    def measures() -> None:
        writes()

    lake = Lake.create(tmp_path)
    assert measures.execute_in_process().success
    assert lake.at("main").delta("tables/measured").to_arrow()["id"].to_pylist() == [1, 2]


def test_a_handler_of_an_io_manager_that_a_function_makes_serves_its_steps(root: str) -> None:
    @dg.io_manager
    def build_io_manager() -> dg.IOManager:
        return OwnIOManager(lake=LakeResource(root=root))

    @dg.asset
    def returned(context: dg.AssetExecutionContext, lake: LakeResource) -> Measurements:
        lake.table(context, "tables/by_hand").append(Measurements([1, 2]))
        return Measurements([3])

    assert dg.materialize(
        [returned], resources={"io_manager": build_io_manager, "lake": LakeResource(root=root)}
    ).success
    assert DeltaTable.open(f"{root}/tables/by_hand").to_arrow()["id"].to_pylist() == [1, 2]


def test_libraries_that_nobody_uses_are_not_imported() -> None:
    code = (
        "import sys, pyarrow as pa, lake_orch; "
        "from lake_orch.assets.tables.data import to_rows, handler_of_annotation; "
        "to_rows(pa.table({'a': [1]}), 'x'); handler_of_annotation(pa.Table); handler_of_annotation(int); "
        "print([name for name in ('polars', 'pyspark', 'duckdb', 'zarr') if name in sys.modules])"
    )
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert process.stdout.strip() == "[]"


# pandas


def test_a_named_index_becomes_columns_and_others_go() -> None:
    frame = pd.DataFrame({"id": [1, 2], "v": ["a", "b"]})
    assert to_rows(frame[frame["id"] > 1], "x").data.to_pydict() == {"id": [2], "v": ["b"]}
    assert to_rows(frame.set_index("id"), "x").data.to_pydict() == {"v": ["a", "b"], "id": [1, 2]}
    assert to_rows(frame, "x").schema.metadata is None


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (pd.DataFrame({1: [1]}), "is called 1: column names are text"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns 'a'"),
        (pd.DataFrame({"a": [1]}, index=pd.Index([1], name="a")), "give each a name of its own"),
        (pd.DataFrame({"a": [1, "x", object()]}), "mixed Python objects"),
        (pd.DataFrame({"a": pd.Series([2**70, 1], dtype=object)}), "Arrow has no type for"),
        (pd.DataFrame({"a": [1 + 2j]}), "Arrow has no type for"),
        (pd.DataFrame({"a": [Decimal("Infinity")]}), "Arrow has no type for"),
        (pd.DataFrame({"a": pd.arrays.SparseArray([0, 1])}), "Arrow has no type for"),
        (pd.DataFrame({"a": ["\ud800"]}), "Arrow has no type for"),
        (pd.DataFrame({"a": pd.Series([DAY, NOON], dtype=object)}), "'a' .*mixes dates and times without a zone"),
        (pd.DataFrame({"a": pd.Series([NOON, NOON_UTC], dtype=object)}), "mixes times with a zone and times without"),
        (pd.DataFrame({"a": pd.Series([NOON_UTC, pd.NaT, NOON], dtype=object)}), "mixes times with a zone"),
        (pd.DataFrame({"a": [{"t": [NOON_UTC, NOON]}]}), r"'a\.t\.element' .*mixes times"),
        (pl.DataFrame({"a": pl.Series([object()], dtype=pl.Object)}), "'a' of this polars frame has the type Object"),
        (pl.DataFrame({"a": pl.Series([2**100], dtype=pl.Int128)}).lazy(), "has the type Int128"),
        (pl.DataFrame({"a": pl.Series([[{"x": 2**100}]], dtype=WIDE)}), "has the type Int128"),
    ],
)
def test_frames_that_are_no_tables(frame: Any, match: str) -> None:
    with pytest.raises(UnsupportedData, match=match):
        to_rows(frame, "x")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[], [("a", 1)], None], pa.map_(pa.string(), pa.int64())),
        ([[(1, "x"), (2, None)]], pa.map_(pa.int64(), pa.string())),
        ([[(1, 2), (1, 3)]], pa.list_(pa.list_(pa.int64()))),
        ([[(0.5, 1.0), (1.5, 2.0)]], pa.list_(pa.list_(pa.float64()))),
        ([[(1, 2)], [(1, 2, 3)]], pa.list_(pa.list_(pa.int64()))),
    ],
)
def test_pairs_of_different_keys_are_maps(values: list[Any], kind: pa.DataType) -> None:
    rows = to_rows(pd.DataFrame({"m": values}), "x").data
    assert rows.schema.field("m").type == kind
    as_lists = [value if value is None or pa.types.is_map(kind) else list(map(list, value)) for value in values]
    assert rows["m"].to_pylist() == as_lists


def test_dates_and_times_of_one_kind_are_a_column() -> None:
    records = [{"d": DAY, "t": NOON}, {"d": DAY, "t": NOON}]
    other_zone = NOON_UTC.astimezone(timezone(timedelta(hours=2)))
    frame = pd.DataFrame({"r": records, "t": pd.Series([NOON_UTC, other_zone], dtype=object), "d": [DAY, None]})
    rows = to_rows(frame, "x").data
    assert rows["r"].to_pylist() == records
    assert rows["t"].cast(pa.int64()).to_pylist() == [int(NOON_UTC.timestamp()) * 1_000_000] * 2
    assert rows["d"].to_pylist() == [DAY, None]


# shapes of assets


def test_values_in_results_and_chosen_outputs(root: str) -> None:
    @dg.asset
    def whole():
        return dg.MaterializeResult(value=pl.DataFrame({"n": [1]}), metadata={"mine": "x"})

    @dg.multi_asset(outs={name: dg.AssetOut(is_required=False) for name in ("a", "b")}, can_subset=True)
    def several(context: dg.AssetExecutionContext):
        for name in sorted(context.selected_output_names):
            yield dg.Output(pa.table({"n": [2]}), name)

    result = dg.materialize([whole, several], selection=["whole", "b"], resources=resources(root))
    assert result.success
    assert [DeltaTable.exists(f"{root}/tables/{name}") for name in ("whole", "a", "b")] == [True, False, True]
    event = next(
        event for event in result.get_asset_materialization_events() if event.asset_key == dg.AssetKey("whole")
    )
    assert event.materialization.metadata["mine"].value == "x"
    assert event.materialization.metadata["lake/rows_written"].value == 1


def test_outputs_of_dynamic_ops_have_a_table_each(root: str) -> None:
    numbers = []

    @dg.op(out=dg.DynamicOut(pa.Table, metadata={"lake/path": "work/parts"}))
    def parts():
        for number in range(3):
            yield dg.DynamicOutput(pa.table({"n": [number]}), mapping_key=f"k{number}")

    @dg.op(out=dg.Out(pa.Table, metadata={"lake/path": "work/doubled"}))
    def doubled(part: pa.Table) -> pa.Table:
        return pa.table({"n": [part["n"][0].as_py() * 2]})

    @dg.op(out=dg.Out(metadata={"lake/path": "work/none"}))
    def collect(values: list[pa.Table]) -> None:
        numbers.extend(value["n"][0].as_py() for value in values)

    @dg.job(resource_defs=resources(root))
    def job():
        collect(parts().map(doubled).collect())

    assert job.execute_in_process().success
    assert DeltaTable.open(f"{root}/work/parts/k1").to_arrow()["n"].to_pylist() == [1]
    assert sorted(numbers) == [0, 2, 4]


def test_values_are_loaded_outside_of_runs(root: str, source: DeltaTable) -> None:
    definitions = dg.Definitions(assets=[dg.AssetSpec("source")], resources=resources(root))
    assert ids(definitions.load_asset_value("source", python_type=pl.LazyFrame)) == list(range(10))
    assert ids(definitions.load_asset_value("source", python_type=pa.Table, metadata={"lake/version": 1})) == [0, 1, 2]


def test_a_step_can_merge_by_hand(root: str) -> None:
    @dg.asset(retry_policy=dg.RetryPolicy(max_retries=1))
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        table = lake.table(context)
        table.append(pl.DataFrame({"id": [1, 2], "v": [1, 1]}))
        result = table.merge(pd.DataFrame({"id": [2, 3], "v": [5, 5]}), ["id"])
        assert result.skipped is (context.retry_number == 1)
        assert result.rows == 2
        if context.retry_number == 0:
            raise RuntimeError("again")
        return dg.MaterializeResult(metadata=table.metadata())

    assert dg.materialize([by_hand], resources=resources(root)).success
    rows = DeltaTable.open(f"{root}/tables/by_hand").to_arrow().sort_by("id")
    assert rows.to_pydict() == {"id": [1, 2, 3], "v": [1, 5, 5]}


# data versions


def test_the_data_version_is_that_of_the_data(root: str, source: DeltaTable) -> None:
    first = table_state(source)
    source.set_properties({"delta.checkpointInterval": "7"})
    source.checkpoint()
    assert table_state(DeltaTable.open(source.store)) == first, "a commit that leaves the data as it is"
    january = table_state(source, "day = DATE '1970-01-01'")
    assert (first.files, first.rows, january.slice_rows) == (4, 10, 5)
    source.append(rows_of(7, 8))
    assert table_state(source).data_version != first.data_version
    assert table_state(source, "day = DATE '1970-01-01'").data_version == january.data_version, (
        "another partition's rows"
    )
    source.add_columns(pa.schema([("new", pa.int64())]))
    assert table_state(source, "day = DATE '1970-01-01'").data_version != january.data_version
    assert table_state(source, "id = 7").slice_rows is None


def test_runs_record_it_and_a_skipped_retry_keeps_it(root: str) -> None:
    tries = []

    @dg.multi_asset(outs={"n": dg.AssetOut(), "m": dg.AssetOut()}, retry_policy=dg.RetryPolicy(max_retries=1))
    def two(context: dg.AssetExecutionContext):
        yield dg.Output(pa.table({"n": [1]}), "n")
        tries.append(table_state(DeltaTable.open(f"{root}/tables/n")).data_version)
        if context.retry_number == 0:
            raise RuntimeError("half-way")
        yield dg.Output(pa.table({"n": [1]}), "m")

    @dg.asset
    def own() -> dg.Output[pa.Table]:
        return dg.Output(pa.table({"n": [1]}), data_version=dg.DataVersion("mine"))

    result = dg.materialize([two, own], resources=resources(root))
    assert result.success
    assert len(set(tries)) == 1
    versions = {
        (event.asset_key.to_user_string(), event.materialization.tags["dagster/data_version"])
        for event in result.get_asset_materialization_events()
    }
    assert ("n", tries[0]) in versions
    assert ("own", "mine") in versions
    assert {name for name, _ in versions} == {"n", "m", "own"}
    assert len(versions) == 3


def test_a_slice_of_no_table_is_empty() -> None:
    declared = pa.schema([("id", pa.int64()), ("v", pa.string())])
    for annotation in (pa.Table, pl.LazyFrame, ds.Dataset, pd.DataFrame):
        assert ids(load(TableSlice(None, declared=declared), annotation, "x")) == []
    assert load(TableSlice(None, ["v"], declared=declared), pa.Table, "x").column_names == ["v"]
    assert load(TableSlice(None), pa.Table, "x").num_columns == 0


@pytest.mark.parametrize(
    "name", ["krs-table-with-dv-small", "golden-dv-with-columnmapping", "kerneljava-basic-dv-no-checkpoint"]
)
def test_rows_that_a_deletion_vector_takes_out_stay_out(cases: Path, name: str) -> None:
    part = TableSlice(DeltaTable.open(cases / "delta" / name))
    expected = part.to_arrow().num_rows
    assert expected < int(sum(part.opened().files(["num_records"])["num_records"].to_pylist()))
    assert load(part, ds.Dataset, "x").count_rows() == expected
    assert load(part, pl.LazyFrame, "x").select(pl.len()).collect().item() == expected
    assert load(part, pa.RecordBatchReader, "x").read_all().num_rows == expected
    assert table_state(part.opened()).rows == expected
