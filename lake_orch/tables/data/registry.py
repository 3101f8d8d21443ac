"""Which handler serves a value or an annotation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lake_orch.errors import UnsupportedData
from lake_orch.tables.data.arrow_dataset import ArrowDatasets
from lake_orch.tables.data.arrow_rows import ArrowReaders, ArrowTables
from lake_orch.tables.data.delta_table import DeltaTables
from lake_orch.tables.data.handler import Rows, TableSlice, TypeHandler, resolved
from lake_orch.tables.data.pandas_frame import PandasFrames
from lake_orch.tables.data.polars_frame import PolarsFrames, PolarsLazyFrames
from lake_orch.tables.data.spark_frame import SparkFrames, is_spark_dataframe

HANDLERS: tuple[TypeHandler, ...] = (
    ArrowTables(),
    ArrowReaders(),
    ArrowDatasets(),
    PandasFrames(),
    PolarsFrames(),
    PolarsLazyFrames(),
    SparkFrames(),
    DeltaTables(),
)
"""Those that come with this package."""


def to_rows(value: object, what: str, handlers: Sequence[TypeHandler] = HANDLERS) -> Rows:
    """The rows of a value. Raises UnsupportedData where no handler knows its type."""
    for handler in handlers:
        if any((kind := resolved(named)) is not None and isinstance(value, kind) for named in handler.supported_types):
            rows = handler.to_rows(value)
            if not isinstance(rows, pa.Table | pa.RecordBatchReader) and not is_spark_dataframe(rows):
                raise UnsupportedData(
                    f"{type(handler).__qualname__}.to_rows gave a {_name(type(rows))} for {what}: it is to give a pyarrow.Table, a "
                    f"pyarrow.RecordBatchReader or a pyspark.sql.DataFrame"
                )
            return rows
    raise UnsupportedData(f"{what} is a {_name(type(value))}: return one of {_known(handlers, returned=True)}")


def handler_of_annotation(annotation: object, handlers: Sequence[TypeHandler] = HANDLERS) -> TypeHandler | None:
    """The handler of a type; None for what is no type, or one that nobody handles."""
    if not isinstance(annotation, type):
        return None
    for handler in handlers:
        if any((kind := resolved(named)) is not None and issubclass(annotation, kind) for named in handler.supported_types):
            return handler
    return None


def load(part: TableSlice, annotation: object, what: str, handlers: Sequence[TypeHandler] = HANDLERS) -> Any:
    """Read rows as the type that a parameter is annotated with.

    Raises UnsupportedData for a missing annotation, or one that stands for none of the types.
    """
    handler = handler_of_annotation(annotation, handlers)
    if handler is None:
        raise UnsupportedData(f"{what} is annotated as {annotation!r}: annotate the parameter as one of {_known(handlers)}")
    assert isinstance(annotation, type)
    return handler.from_table(part, annotation)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _known(handlers: Sequence[TypeHandler], *, returned: bool = False) -> str:
    known = [handler for handler in handlers if not (returned and isinstance(handler, DeltaTables))]
    names = [named if isinstance(named, str) else _name(named) for handler in known for named in handler.supported_types]
    return ", ".join(name.replace("pyarrow.lib.", "pyarrow.").replace("pyarrow._dataset.", "pyarrow.dataset.") for name in names)
