"""The predicate that selects the rows of Dagster's partitions."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from dagster import PartitionsDefinition

from lake_orch.assets.partitions import PartitionExpr
from lake_orch.assets.tables import partition_slice
from lake_orch.dagster.partitions import partitions_of


def slice_where(
    partitions_def: PartitionsDefinition,
    keys: Iterable[str],
    partition_expr: PartitionExpr,
    schema: pa.Schema,
    *,
    relation: str | None = None,
) -> str:
    """Return the predicate that holds for the rows of these partitions and no others.

    Args:
        partitions_def: The definition of the partitions.
        keys: The partitions.
        partition_expr: The column that they stand for, or a dict from dimension to column.
        schema: The table's schema, or that of the data before the table exists. Literals have the type of the column.
        relation: An alias that qualifies the columns, as in a merge.

    Raises:
        PartitionSliceError: No exact predicate exists. A wider one would overwrite rows of other partitions.
    """
    return partition_slice.slice_where(partitions_of(partitions_def), keys, partition_expr, schema, relation=relation)
