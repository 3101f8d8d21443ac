"""A guard that keeps a write inside its slice. A row outside fails the write before anything is visible."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from lake_core.delta.operations.write import Write
from lake_core.delta.row_writer import ReplaceWhere
from lake_core.expression import InvalidExpression, parse_predicate
from lake_orch.assets.partitions import Partitions
from lake_orch.errors import DefinitionMismatch


@dataclass(frozen=True, slots=True)
class PartitionGuard:
    """The slice of a table that a write may change: the run's partitions, or the rows that `replace_where` selects."""

    where: str
    """Spark SQL that is true for the rows of the slice."""
    name: str = ""
    """The name of the slice in errors, if it is not its SQL."""
    remedy: str = ""
    """The advice in errors about rows outside."""

    def replace_where_of_source(self, schema: pa.Schema, rows: str) -> ReplaceWhere:
        """Parse the guard for the source of a merge. `rows` is the name of the source in errors.

        Raises DefinitionMismatch if the source lacks the columns of the slice.
        """
        try:
            predicate = parse_predicate(self.where, schema)
        except InvalidExpression as error:
            raise DefinitionMismatch(
                f"{rows} would be merged into the run's partitions, {self.where!r}, "
                f"but cannot be checked against them: {error}. Give them the columns that partition_expr names"
            ) from None
        return self._named(ReplaceWhere(self.where, predicate))

    def bound(self, write: Write) -> Write:
        """Return a write that raises for rows outside the slice, whether or not it replaces the slice."""
        replace_where = write.writer.replace_where or ReplaceWhere(
            self.where, parse_predicate(self.where, write.writer.metadata.arrow_schema)
        )
        return replace(write, writer=replace(write.writer, replace_where=self._named(replace_where)))

    def _named(self, replace_where: ReplaceWhere) -> ReplaceWhere:
        return replace(replace_where, name=self.name, remedy=self.remedy) if self.name else replace_where


def guard_of_partitions(
    where: str,
    keys: Sequence[str],
    asset: str,
    partitions: Partitions,
    columns: Sequence[str],
    schema: pa.Schema,
    replace_where: str | None = None,
) -> PartitionGuard:
    """Return a guard for the slice of a run's partitions, with errors that name the partitions.

    Args:
        where: The SQL of the slice.
        keys: The run's partitions.
        asset: The name of the asset in errors.
        partitions: The asset's partitions.
        columns: The columns that the partitions stand for.
        schema: The table's schema.
        replace_where: The SQL in the asset's metadata that narrows the slice.
    """
    if len(keys) == 1:
        name = f"partition {keys[0]!r} of {asset}"
    else:
        name = (
            f"the run's {len(keys)} partitions of {asset} "
            f"({', '.join(map(repr, keys[:2]))}{', …' if len(keys) > 2 else ''})"
        )
    remedy = (
        f"Give rows of the run's partitions only, by {' and '.join(f'`{name}`' for name in columns)} (partition_expr)"
    )
    texts = [
        child.name
        for child in schema
        if child.name.lower() in {name.lower() for name in columns} and pa.types.is_string(child.type)
    ]
    if texts and keys and partitions.only is not None and partitions.only.is_time:
        remedy += f"; `{texts[0]}` is text, whose values must be spelled as the partition keys are, such as {keys[0]!r}"
    if replace_where is None:
        return PartitionGuard(where, name, f"{remedy}. Nothing was written")
    narrowed = f"({where}) AND ({replace_where})"
    return PartitionGuard(
        narrowed, f"{name} and lake/replace_where {replace_where!r}", f"{remedy}. Nothing was written"
    )
