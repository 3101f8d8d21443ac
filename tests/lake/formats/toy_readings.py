"""A type of Python that tables store, and a task for tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lake_orch import TableSlice
from lake_orch.assets.maintenance import TaskContext


@dataclass
class Readings:
    values: list[float]


class ReadingsHandler:
    supported_types = (Readings,)

    def to_rows(self, value: Readings) -> pa.Table:
        return pa.table({"value": value.values})

    def from_table(self, part: TableSlice, annotation: type) -> Readings:
        return Readings(part.to_arrow()["value"].to_pylist())


READINGS = ReadingsHandler()


def drop_negative(context: TaskContext) -> dict[str, Any]:
    """Delete negative readings."""
    table = context.dataset()
    negative = table.to_arrow(where="value < 0").num_rows
    if negative and not context.config.dry_run:
        with context.lake.open().session(context.branch) as session:
            session.delta(context.target.path).delete("value < 0")
    return {"lake/negative": negative, "lake/due": negative > 0}
