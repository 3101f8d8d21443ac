"""The protocol of rows, which the IO manager uses for every kind of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, Self

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.operations.write import Write
from lake_core.txn import Txn
from lake_orch.assets.description import AssetPath, ColumnLineage
from lake_orch.assets.tables.rows.partition_guard import PartitionGuard

if TYPE_CHECKING:
    from lake_core.delta.operations.merge import Merge


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition that must be true for every row. Null is not true."""

    name: str
    """Its name in errors."""
    sql: str
    shown: int
    """The number of rows that break it to show."""


@dataclass(frozen=True, slots=True)
class BrokenRows:
    """The number of rows that break one condition, and the first of them."""

    count: int
    sample: pa.Table | None = None


class Rows(Protocol):
    """Rows of one schema: in memory, in a stream that is read once, or in a computation that has not run yet.

    Methods that change rows are lazy: they return new rows, and the checks run when these are written.
    """

    @property
    def data(self) -> Any:
        """Return the rows as an object of their library."""

    @property
    def schema(self) -> pa.Schema:
        """Return the columns and their types."""

    def cast(self, schema: pa.Schema, name: str) -> Self:
        """Return the columns of a schema in its types. Reading a value that would change raises DefinitionMismatch.

        `name` is the name of the rows in errors.
        """

    def assume_utc(self, types: Mapping[str, pa.DataType]) -> Self:
        """Return the rows with timestamps without a zone taken as UTC, in the columns of `types`."""

    def guarded(self, guard: PartitionGuard, name: str) -> Self:
        """Return the rows with a check: reading a row outside the guard's slice raises RowsOutsidePredicate."""

    def mapped(self, change: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> Self | None:
        """Return the rows as changed by a function, which returns tables of a schema.

        Return None for rows of Spark, because its executors may lack the packages that the function needs.
        """

    def sorted_by(self, columns: Sequence[str]) -> Self:
        """Return sorted rows. Spark sorts each partition, and a stream keeps its order.

        Raises InvalidDefinition for types without order.
        """

    def with_unique(self, keys: Sequence[str]) -> Self:
        """Check that keys are unique, if that is possible before the table exists. Raises DuplicateKeys, NullKeys."""

    def write(self, table: DeltaTable, plan: Write, txn: Txn) -> OperationResult:
        """Write the rows to data files as planned, and commit. Raises the errors of writing to a table."""

    def merge_into(self, table: DeltaTable, on: str, *, alias: tuple[str, str]) -> Merge:
        """Return a merge of the rows into a table. `alias` has the names of the table and the rows in expressions."""

    def head(self, count: int) -> pa.Table | None:
        """Return the first rows, or None for rows that can be read only once."""

    def tracked_as(self, asset_key: AssetPath) -> Self:
        """Label the rows with an asset's key for the lineage of what is computed from them."""

    def column_lineage(self, upstream: Iterable[AssetPath]) -> ColumnLineage | None:
        """Return the columns of upstream assets that the columns are computed from, or None if unknown."""

    def broken(self, conditions: Sequence[RowCondition]) -> tuple[int, list[BrokenRows]]:
        """Count the rows, and find those that break each condition.

        Raises InvalidDefinition for SQL that cannot be evaluated, and for a stream, which can be read only once.
        """

    def held(self) -> AbstractContextManager[None]:
        """Cache the rows for the `with` block, so that every read returns the same rows."""
