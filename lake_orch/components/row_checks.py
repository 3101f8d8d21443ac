"""Checks of the rows that a step is about to write, as SQL: a blocking one that fails keeps them from being published."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from lake_core.expression import InvalidExpression, parse_predicate, truth
from lake_core.readable import count_of
from lake_orch.components.references import described
from lake_orch.errors import InvalidDefinition
from lake_orch.tables.data import to_rows
from lake_orch.tables.markdown import ROWS, markdown_table


class RowCheck(dg.Model, dg.Resolvable):
    """A condition that is to be true for every row that a step writes; null is not true."""

    name: Annotated[str, described("The asset check's name.")]
    expression: Annotated[str, described("Spark SQL over the columns of a row, such as amount >= 0.")]
    description: Annotated[str | None, described("What the UI says of it; by default the expression.")] = None
    blocking: Annotated[bool, described("Whether rows that break it are not published, and nothing downstream runs.")] = False
    severity: Annotated[Literal["ERROR", "WARN"], described("How bad a failure is; ERROR for one that blocks.")] = "ERROR"
    max_violations: Annotated[int, Field(ge=0), described("Rows that may break it.")] = 0
    sample_rows: Annotated[int, Field(ge=0, le=50), described("Rows that break it which the result shows; 0 for secret data.")] = ROWS

    def spec(self, key: dg.AssetKey) -> dg.AssetCheckSpec:
        """The check of an asset. Raises InvalidDefinition for one that blocks and only warns."""
        if self.blocking and self.severity != "ERROR":
            raise InvalidDefinition(f"check {self.name!r} of {key.to_user_string()} is blocking, and of severity WARN: choose one")
        return dg.AssetCheckSpec(self.name, asset=key, description=self.description or self.expression, blocking=self.blocking)

    def result(self, key: dg.AssetKey, rows: int, broken: "BrokenRows") -> dg.AssetCheckResult:
        """Report how many rows break it, and show some of them."""
        metadata: dict[str, Any] = {"lake/rows": rows, "lake/violations": broken.count, "lake/expression": self.expression}
        if broken.sample is not None and len(broken.sample):
            metadata["lake/broken_rows"] = dg.MetadataValue.md(markdown_table(broken.sample, self.sample_rows))
        return dg.AssetCheckResult(
            asset_key=key,
            check_name=self.name,
            passed=broken.count <= self.max_violations,
            severity=dg.AssetCheckSeverity(self.severity),
            description=f"{broken.count:,} of {count_of(rows, 'row')} break {self.expression}"[:300] if broken.count else None,
            metadata=metadata,
        )


@dataclass(frozen=True, slots=True)
class BrokenRows:
    """The rows that break one check: how many, and the first of them."""

    count: int
    sample: pa.Table | None = None


def evaluate(checks: Sequence[RowCheck], value: Any, key: dg.AssetKey) -> Iterator[dg.AssetCheckResult]:
    """Try the checks on a value that can be written to a table. Raises UnsupportedData, InvalidDefinition."""
    rows = to_rows(value, f"the output of {key.to_user_string()}")
    if isinstance(rows, pa.RecordBatchReader):
        raise InvalidDefinition(f"checks of {key.to_user_string()} read its rows, and a stream can be read once: return a table")
    total, broken = _in_arrow(checks, rows, key) if isinstance(rows, pa.Table) else _in_spark(checks, rows)
    for check, of_check in zip(checks, broken, strict=True):
        yield check.result(key, total, of_check)


def _in_arrow(checks: Sequence[RowCheck], rows: pa.Table, key: dg.AssetKey) -> tuple[int, list[BrokenRows]]:
    broken = []
    for check in checks:
        try:
            predicate = parse_predicate(check.expression, rows.schema)
        except InvalidExpression as error:
            raise InvalidDefinition(f"check {check.name!r} of {key.to_user_string()} cannot be evaluated: {error}") from None
        breaks = pc.invert(pc.fill_null(truth(predicate, rows), False))
        first = pc.indices_nonzero(breaks)[: check.sample_rows]
        broken.append(BrokenRows(int(pc.sum(breaks).as_py() or 0), rows.take(first)))
    return len(rows), broken


def _in_spark(checks: Sequence[RowCheck], rows: Any) -> tuple[int, list[BrokenRows]]:
    """Count all of them in one pass; a check that some rows break has a second for its sample."""
    breaks = [f"NOT coalesce(({check.expression}), false)" for check in checks]
    counts = [f"count_if({condition}) AS check_{number}" for number, condition in enumerate(breaks)]
    (row,) = rows.selectExpr("count(*) AS total", *counts).collect()
    broken = []
    for number, (check, condition) in enumerate(zip(checks, breaks, strict=True)):
        count, sample = int(row[f"check_{number}"]), None
        if count and check.sample_rows:
            sample = pa.Table.from_pylist([one.asDict(recursive=True) for one in rows.where(condition).limit(check.sample_rows).collect()])
        broken.append(BrokenRows(count, sample))
    return int(row["total"]), broken
