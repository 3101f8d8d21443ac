"""What the IO manager asks of rows, whatever holds them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

import pyarrow as pa
from dagster import AssetKey, TableColumnLineage

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.operations.merge import Merge
from lake_core.delta.operations.write import Write
from lake_core.delta.set_transaction import Txn
from lake_orch.tables.partition_guard import PartitionGuard


@dataclass(frozen=True, slots=True)
class RowCondition:
    """A condition that is to be true for every row; null is not true."""

    name: str
    """What errors call it."""
    sql: str
    shown: int
    """How many of the rows that break it are shown."""


@dataclass(frozen=True, slots=True)
class BrokenRows:
    """The rows that break one condition: how many, and the first of them."""

    count: int
    sample: pa.Table | None = None


class Rows(Protocol):
    """Rows of one schema: in memory, in a stream that is read once, or in a computation that has not run yet.

    Methods that change rows are lazy: they return other rows, and their checks run while those are written.
    """

    @property
    def data(self) -> Any:
        """The rows as their own library has them."""

    @property
    def schema(self) -> pa.Schema:
        """The columns and their types."""

    def cast(self, schema: pa.Schema, name: str) -> Self:
        """Return the columns of a schema in its types. A value that would change raises DefinitionMismatch once it is read.

        `name`: what errors call the rows.
        """

    def assume_utc(self, types: Mapping[str, pa.DataType]) -> Self:
        """Return the rows with clock times of no zone taken as UTC, in columns that get these types."""

    def guarded(self, guard: PartitionGuard, name: str) -> Self:
        """Return the rows, which raise RowsOutsidePredicate as they are read if one is outside the guard's slice."""

    def sorted_by(self, columns: Sequence[str]) -> Self:
        """Return the rows in the order of some columns, as far as they are at hand. Raises InvalidDefinition for types without order."""

    def with_unique(self, keys: Sequence[str]) -> Self:
        """Check that no two rows share their keys, where that can be told before a table is there. Raises DuplicateKeys, NullKeys."""

    def write(self, table: DeltaTable, plan: Write, txn: Txn) -> OperationResult:
        """Bring the rows into data files as a write was planned, and commit it. Raises what writing to a table raises."""

    def merge_into(self, table: DeltaTable, on: str, *, alias: tuple[str, str]) -> Merge:
        """Begin a merge of the rows into a table. `alias`: what expressions call the table and the rows."""

    def head(self, count: int) -> pa.Table | None:
        """Return the first rows; None for rows that can be read only once."""

    def tracked_as(self, asset_key: AssetKey) -> Self:
        """Label the rows with an asset's key, by which the lineage of what is computed from them names it."""

    def column_lineage(self, upstream: Iterable[AssetKey]) -> TableColumnLineage | None:
        """Return which columns of upstream assets the columns are computed from; None where nothing is known."""

    def broken(self, conditions: Sequence[RowCondition]) -> tuple[int, list[BrokenRows]]:
        """Count the rows, and find those that break each condition. Raises InvalidDefinition for SQL that cannot be evaluated, and
        for a stream, which is read once.
        """

    def held(self) -> AbstractContextManager[None]:
        """Keep the rows for the `with` block, so that they are the same each time they are read."""
