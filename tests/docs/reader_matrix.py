"""Who reads the tables that this package writes: the table of docs/reference/readers.md.

`python -m tests.docs.reader_matrix` writes a table of each kind, reads it with each of the readers, and writes what
they found into the page; with DELTA_SPARK_PYTHON, as `make interop` sets it, with delta-spark, too.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

import deltalake
import duckdb
import polars as pl
import pyarrow as pa

from lake_core.delta import DeltaTable, variant
from tests.docs.blocks import DOCS

PAGE = DOCS / "reference" / "readers.md"
BEGIN, END = "<!-- begin of what tests/docs/reader_matrix.py writes -->", "<!-- end -->"
READS, OTHER = "✓", "**other rows**"
DELTA_SPARK = "delta-spark 4.4"

_SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("value", pa.float64())])


def _rows(start: int, stop: int) -> pa.Table:
    numbers = range(start, stop)
    return pa.table({"id": list(numbers), "part": [f"p{n % 2}" for n in numbers], "value": [n / 2 for n in numbers]})


def _update(table: DeltaTable) -> None:
    table.delete("id % 5 = 3")
    table.update({"value": "-1.0"}, "id < 4")
    table.append(_rows(100, 110))


@dataclass(frozen=True)
class Kind:
    """A kind of table, as it is made and changed."""

    properties: Mapping[str, str] = field(default_factory=dict)
    schema: pa.Schema = _SCHEMA
    rows: Callable[[], pa.Table] = lambda: _rows(0, 20)
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    change: Callable[[DeltaTable], object] = _update

    def write(self, url: str) -> DeltaTable:
        """Write a table of the kind."""
        table = DeltaTable.create(
            url, self.schema, partition_by=self.partition_by, cluster_by=self.cluster_by, properties=self.properties
        )
        table.append(self.rows())
        self.change(table)
        return table


def _nothing(table: DeltaTable) -> None:
    pass


def _renamed(table: DeltaTable) -> None:
    _update(table)
    table.rename_column("value", "amount")


def _checkpointed(table: DeltaTable) -> None:
    _update(table)
    table.checkpoint()


def _widened(table: DeltaTable) -> None:
    table.widen_column("n", pa.int64())
    table.append(pa.table({"n": [2**40]}, schema=table.schema))


def _cloned(table: DeltaTable) -> None:
    _update(table)
    table.optimize()
    table.compact_log()


_NESTED = pa.schema(
    [
        ("s", pa.struct([("a", pa.int32()), ("l", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.int64())),
        ("d", pa.decimal128(12, 2)),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("raw", pa.binary()),
    ]
)
_NESTED_ROWS = [
    {"s": {"a": 1, "l": ["x", None]}, "m": [("k", 2)], "d": Decimal("1.50"), "day": 19000, "at": 1, "raw": b"\0x"},
    {"s": None, "m": None, "d": None, "day": None, "at": None, "raw": None},
]

KINDS: Mapping[str, Kind] = {
    "plain": Kind(),
    "partitions": Kind(partition_by=("part",)),
    "nested types": Kind(
        schema=_NESTED, rows=lambda: pa.Table.from_pylist(_NESTED_ROWS, schema=_NESTED), change=_nothing
    ),
    "timestamps without a zone": Kind(
        {"delta.feature.timestampNtz": "supported"},
        pa.schema([("t", pa.timestamp("us"))]),
        lambda: pa.table({"t": pa.array([1, None], pa.timestamp("us"))}),
        change=_nothing,
    ),
    "constraints": Kind({"delta.constraints.positive": "id >= 0"}),
    "change data feed": Kind({"delta.enableChangeDataFeed": "true"}),
    "in-commit timestamps": Kind({"delta.enableInCommitTimestamps": "true"}),
    "column mapping by name": Kind({"delta.columnMapping.mode": "name"}, change=_renamed),
    "column mapping by id": Kind({"delta.columnMapping.mode": "id"}, change=_renamed),
    "deletion vectors": Kind({"delta.enableDeletionVectors": "true"}),
    "row tracking": Kind({"delta.enableRowTracking": "true"}),
    "clustering": Kind(cluster_by=("id", "part"), change=_cloned),
    "version 2 checkpoints": Kind({"delta.checkpointPolicy": "v2"}, change=_checkpointed),
    "statistics in columns": Kind(
        {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
        change=_checkpointed,
    ),
    "type widening": Kind(
        {"delta.enableTypeWidening": "true"},
        pa.schema([("n", pa.int32())]),
        lambda: pa.table({"n": pa.array([1, 2], pa.int32())}),
        change=_widened,
    ),
    "variants": Kind(
        schema=pa.schema([("v", variant.VARIANT)]),
        rows=lambda: pa.table({"v": variant.from_python([{"a": 1}, [1.5], None])}),
        change=_nothing,
    ),
    "shredded variants": Kind(
        {"delta.enableVariantShredding": "true"},
        pa.schema([("v", variant.VARIANT)]),
        lambda: pa.table({"v": variant.from_python([{"a": 1}, {"a": 2, "b": "x"}, [1.5], None])}),
        change=_nothing,
    ),
    "Iceberg compatibility V2": Kind({"delta.enableIcebergCompatV2": "true"}, partition_by=("part",)),
    "Iceberg compatibility V3": Kind({"delta.enableIcebergCompatV3": "true"}, partition_by=("part",)),
}

Reader: TypeAlias = Callable[[str], Iterable[Mapping[str, Any]]]


def _by_deltalake(url: str) -> Iterable[Mapping[str, Any]]:
    builder = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(url))
    return pa.table(builder.execute("select * from t").read_all()).to_pylist()


def _by_pandas(url: str) -> Iterable[Mapping[str, Any]]:
    frame = deltalake.DeltaTable(url).to_pandas(types_mapper=_kept)
    return pa.Table.from_pandas(frame, preserve_index=False).to_pylist()


def _kept(kind: pa.DataType) -> Any:
    """Return pandas' Arrow type, so that values are not rounded."""
    import pandas as pd

    return pd.ArrowDtype(kind)


def _by_polars(url: str) -> Iterable[Mapping[str, Any]]:
    return pl.scan_delta(url).collect().to_arrow().to_pylist()


def _by_duckdb(url: str) -> Iterable[Mapping[str, Any]]:
    rows = deltalake.DeltaTable(url).to_pyarrow_dataset()  # noqa: F841 - DuckDB finds it by its name
    return pa.table(duckdb.sql("select * from rows").arrow()).to_pylist()


READERS: Mapping[str, Reader] = {
    f"deltalake {deltalake.__version__}": _by_deltalake,
    f"pandas, by deltalake {deltalake.__version__}": _by_pandas,
    f"polars {pl.__version__}": _by_polars,
    f"DuckDB {duckdb.__version__}, over a dataset of deltalake": _by_duckdb,
}


def outcome(url: str, read: Reader) -> str:
    """Return what a reader finds in a table: the same rows, others, or the kind of its error."""
    expected = sorted(map(_text, DeltaTable.open(url).to_arrow().to_pylist()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            read_rows = sorted(map(_text, read(url)))
        except BaseException as error:  # Rust's panics are none of Exception
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
            return f"refuses ({type(error).__name__})"
    return READS if read_rows == expected else OTHER


def _text(row: Mapping[str, Any]) -> str:
    return str({name: _plain(row[name]) for name in sorted(row)})


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if hasattr(value, "timestamp"):
        return value.timestamp() if getattr(value, "tzinfo", None) else str(value)
    return value


def outcomes(name: str, readers: Mapping[str, Reader]) -> dict[str, str]:
    """Return what each reader finds in a table of a kind."""
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "table")
        KINDS[name].write(url)
        return {reader: outcome(url, read) for reader, read in readers.items()}


def written() -> dict[str, dict[str, str]]:
    """Return the page's outcomes by kind and reader."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0]: dict(zip(cells[0][1:], row[1:], strict=True)) for row in cells[2:]}


def lines(results: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Yield the lines of the page's table."""
    readers = list(next(iter(results.values())))
    yield f"| Tables with | {' | '.join(readers)} |"
    yield f"|{'---|' * (len(readers) + 1)}"
    for name, row in results.items():
        yield f"| {name} | {' | '.join(row[reader] for reader in readers)} |"


def _main() -> None:
    readers = dict(READERS)
    before = written()
    spark = None
    if os.environ.get("DELTA_SPARK_PYTHON"):
        from tests.interop.test_delta_spark import DeltaSpark

        spark = DeltaSpark()
    results = {}
    for name in KINDS:
        results[name] = outcomes(name, readers)
        recorded = before.get(name, {}).get(DELTA_SPARK, "not tried")
        results[name][DELTA_SPARK] = recorded if spark is None else by_spark(name, spark)
    text = PAGE.read_text()
    head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
    table = "\n".join(lines(results))
    PAGE.write_text(f"{head}{BEGIN}\n\n{table}\n\n{END}{tail}")
    if spark is not None:
        spark.close()


def by_spark(name: str, spark: Any) -> str:
    """Return what delta-spark finds in a table of a kind."""
    with tempfile.TemporaryDirectory() as folder:
        url = str(Path(folder) / "table")
        rows = KINDS[name].write(url).to_arrow()
        columns = [
            f"to_json(`{each}`) AS `{each}`" if _is_nested(rows[each]) else f"`{each}`" for each in rows.schema.names
        ]
        try:
            read_rows = spark.sql(f"SELECT {', '.join(columns)} FROM delta.`{url}`")
        except Exception as error:
            return f"refuses ({type(error).__name__})"
    expected = {each: _as_in_spark(rows[each]) for each in rows.schema.names}
    as_text = (Counter(map(_in_json, each)) for each in (read_rows, pa.table(expected).to_pylist()))
    return READS if next(as_text) == next(as_text) else OTHER


def _is_nested(column: pa.ChunkedArray) -> bool:
    return pa.types.is_nested(column.type)


def _as_in_spark(column: pa.ChunkedArray) -> pa.ChunkedArray | pa.Array:
    """Return values as Python gets them from Spark, whose session is in UTC."""
    if _is_nested(column):
        return _json_texts(column)
    return column.cast(pa.timestamp("us")) if pa.types.is_timestamp(column.type) else column


def _json_texts(column: pa.ChunkedArray) -> pa.Array:
    """Return values as Spark's to_json has them, without the fields that are null."""
    if variant.is_variant(column.type):
        return variant.to_json(column)
    values = [dict(value) if pa.types.is_map(column.type) and value else value for value in column.to_pylist()]
    return pa.array([None if value is None else json.dumps(value, separators=(",", ":")) for value in values])


def _in_json(row: Mapping[str, Any]) -> str:
    return json.dumps(row, default=str, sort_keys=True)


if __name__ == "__main__":
    _main()
