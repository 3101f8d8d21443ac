"""polars: frames in memory, and lazy frames that are written and read as streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from lake_orch.assets.tables.data.handler import TableData, TableSlice
from lake_orch.errors import UnsupportedData

_CHUNK_ROWS = 1 << 17
_NOT_IN_ARROW = ("Object", "Int128", "UInt128")


class PolarsFrames:
    """`polars.DataFrame`."""

    supported_types = ("polars.DataFrame",)

    def to_rows(self, value: Any) -> TableData:
        """Return the whole frame as one Arrow table. Raises UnsupportedData for types that Arrow lacks."""
        _check_types(value.schema)
        return value.to_arrow()

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Read the rows into a frame in memory."""
        import polars as pl

        return pl.DataFrame(part.to_arrow())


class PolarsLazyFrames:
    """`polars.LazyFrame`. The query of a returned one runs while it is written, chunk by chunk.

    A loaded one reads files when its query needs them, and only the columns that the query uses.
    """

    supported_types = ("polars.LazyFrame",)

    def to_rows(self, value: Any) -> TableData:
        """Return a stream that runs the query chunk by chunk. Before version 1.34, polars collects all rows at once.

        Raises UnsupportedData for types that Arrow lacks.
        """
        columns = value.collect_schema()
        _check_types(columns)
        schema = columns.to_frame().to_arrow().schema
        if not hasattr(value, "collect_batches"):
            return value.collect(engine="streaming").to_arrow()

        def batches() -> Iterator[pa.RecordBatch]:
            for chunk in value.collect_batches(chunk_size=_CHUNK_ROWS, maintain_order=True, lazy=True):
                yield from chunk.to_arrow().cast(schema).to_batches()

        return pa.RecordBatchReader.from_batches(schema, batches())

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return a lazy frame that reads only the columns its query uses, and stops at its limit."""
        import polars as pl
        from polars.io.plugins import register_io_source

        if part.table is None:
            return pl.DataFrame(part.to_arrow()).lazy()
        table, where = part.table, part.where
        schema = pl.DataFrame(part.schema.empty_table()).schema
        names = list(schema)

        def source(columns: list[str] | None, predicate: Any, rows: int | None, _: int | None) -> Iterator[Any]:
            # A predicate may use columns that are not in the result.
            read_columns = (
                names if columns is None else [name for name in names if name in {*columns, *_roots(predicate)}]
            )
            rows_left = rows
            for batch in table.to_batches(read_columns or names[:1], where):
                frame = pl.DataFrame(batch)
                if predicate is not None:
                    frame = frame.filter(predicate)
                if columns is not None:
                    frame = frame.select(columns)
                if rows_left is not None:
                    frame = frame.head(rows_left)
                    rows_left -= frame.height
                yield frame
                if rows_left is not None and rows_left <= 0:
                    return

        return register_io_source(source, schema=schema)


def _roots(predicate: Any) -> list[str]:
    return [] if predicate is None else list(predicate.meta.root_names())


def _check_types(schema: Mapping[str, Any]) -> None:
    """Raise UnsupportedData for a column whose type Arrow lacks: polars would hand out the addresses of objects."""
    for name, kind in schema.items():
        odd = next((leaf for leaf in _leaves(kind) if str(leaf) in _NOT_IN_ARROW), None)
        if odd is not None:
            raise UnsupportedData(
                f"column {name!r} of this polars frame has the type {odd}, which Arrow lacks: cast it to text, numbers "
                "or a decimal"
            )


def _leaves(kind: Any) -> Iterator[Any]:
    if hasattr(kind, "fields"):
        for child in kind.fields:
            yield from _leaves(child.dtype)
    elif getattr(kind, "inner", None) is not None:
        yield from _leaves(kind.inner)
    else:
        yield kind
