"""The protocol of type handlers, which convert values of one library to rows of a table, and back.

Tables alone have type handlers. `lake_orch.assets.arrays.data` and `lake_orch.assets.pools.data` convert for arrays
and pools.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from lake_core.delta import DeltaTable
from lake_core.delta.errors import TableNotFound
from lake_core.delta.scan import chosen_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from lake_orch.assets.spark_source import SparkSource

TableData: TypeAlias = "pa.Table | pa.RecordBatchReader | DataFrame"
"""The types in which a handler returns rows: Arrow, whole or as a stream, or a DataFrame of PySpark."""


@dataclass(frozen=True, slots=True)
class TableSlice:
    """The part of a table to read: one version, some columns, and the rows for which `where` is true."""

    table: DeltaTable | None
    """None before the table exists. Then an empty value is loaded."""
    columns: Sequence[str] | None = None
    where: str | None = None
    spark: SparkSource | None = None
    declared: pa.Schema | None = None
    """The columns that the asset declares, for a table that does not exist yet."""
    path: str = ""

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of the rows to read. Raises SchemaMismatch for a missing column."""
        whole = self.table.schema if self.table is not None else self.declared or pa.schema([])
        if self.columns is None or (self.table is None and self.declared is None):
            return whole
        return chosen_columns(whole, self.columns)

    def opened(self) -> DeltaTable:
        """Return the table. Raises TableNotFound before it exists."""
        if self.table is None:
            raise TableNotFound(f"no table at {self.path!r} yet: materialize it first")
        return self.table

    def to_arrow(self) -> pa.Table:
        """Read the rows into memory."""
        return self.schema.empty_table() if self.table is None else self.table.to_arrow(self.columns, self.where)

    def to_batches(self) -> pa.RecordBatchReader:
        """Read the rows as a stream of batches, file by file."""
        return self.to_arrow().to_reader() if self.table is None else self.table.to_batches(self.columns, self.where)


@runtime_checkable
class TypeHandler(Protocol):
    """Stores and loads values of some Python types. `DeltaIOManager.type_handlers` explains how to add a handler.

    Example:
        .. code-block:: python

            class IbisTables:
                supported_types = ("ibis.expr.types.Table",)

                def to_rows(self, value):
                    return value.to_pyarrow_batches()

                def from_table(self, part, annotation):
                    return ibis.memtable(part.to_arrow())

    A table does not keep metadata of Arrow columns, such as extension types. A handler that needs it must store it in
    columns.
    """

    @property
    def supported_types(self) -> Sequence[type | str]:
        """Return the types that the handler serves, with their subclasses.

        Types of optional libraries are text (`polars.DataFrame`).
        """

    def to_rows(self, value: Any) -> TableData:
        """Return the rows of a value that an asset returned.

        Raises UnsupportedData for a value or types that cannot be stored.
        """

    def from_table(self, part: TableSlice, annotation: type) -> Any:
        """Return the value for a parameter that is annotated with one of the types."""


def annotation_text(annotation: object) -> str:
    """Describe a parameter's annotation for an error. For Dagster, a missing annotation is Any."""
    return "has no type annotation" if annotation in (None, Any) else f"is annotated as {annotation!r}"


def resolved(kind: type | str) -> type | None:
    """Return the class that a handler names, or None while its library is not imported."""
    if not isinstance(kind, str):
        return kind
    module, _, name = kind.rpartition(".")
    value = getattr(sys.modules.get(module), name, None)
    return value if isinstance(value, type) else None
