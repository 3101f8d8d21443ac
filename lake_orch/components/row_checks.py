"""Checks of the rows that a step is about to write, as SQL: a blocking one that fails keeps them from being published."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import dagster as dg
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from lake_core.expression import InvalidExpression, parse_predicate, truth
from lake_orch.components.references import described
from lake_orch.errors import InvalidDefinition
from lake_orch.tables.data import to_rows


class RowCheck(dg.Model, dg.Resolvable):
    """A condition that is to be true for every row that a step writes; null is not true."""

    name: Annotated[str, described("The asset check's name.")]
    expression: Annotated[str, described("Spark SQL over the columns of a row, such as amount >= 0.")]
    description: Annotated[str | None, described("What the UI says of it; by default the expression.")] = None
    blocking: Annotated[bool, described("Whether rows that break it are not published, and nothing downstream runs.")] = False
    severity: Annotated[Literal["ERROR", "WARN"], described("How bad a failure is; ERROR for one that blocks.")] = "ERROR"
    max_violations: Annotated[int, Field(ge=0), described("Rows that may break it.")] = 0

    def spec(self, key: dg.AssetKey) -> dg.AssetCheckSpec:
        """The check of an asset. Raises InvalidDefinition for one that blocks and only warns."""
        if self.blocking and self.severity != "ERROR":
            raise InvalidDefinition(f"check {self.name!r} of {key.to_user_string()} is blocking, and of severity WARN: choose one")
        return dg.AssetCheckSpec(self.name, asset=key, description=self.description or self.expression, blocking=self.blocking)

    def result(self, key: dg.AssetKey, rows: int, violations: int) -> dg.AssetCheckResult:
        """What was found."""
        return dg.AssetCheckResult(
            asset_key=key,
            check_name=self.name,
            passed=violations <= self.max_violations,
            severity=dg.AssetCheckSeverity(self.severity),
            metadata={"lake/rows": rows, "lake/violations": violations, "lake/expression": self.expression},
        )


def evaluate(checks: Sequence[RowCheck], value: Any, key: dg.AssetKey) -> Iterator[dg.AssetCheckResult]:
    """Try the checks on a value that can be written to a table. Raises UnsupportedData, InvalidDefinition."""
    rows = to_rows(value, f"the output of {key.to_user_string()}")
    if isinstance(rows, pa.RecordBatchReader):
        raise InvalidDefinition(f"checks of {key.to_user_string()} read its rows, and a stream can be read once: return a table")
    total, violations = _in_arrow(checks, rows, key) if isinstance(rows, pa.Table) else _in_spark(checks, rows)
    for check, broken in zip(checks, violations, strict=True):
        yield check.result(key, total, broken)


def _in_arrow(checks: Sequence[RowCheck], rows: pa.Table, key: dg.AssetKey) -> tuple[int, list[int]]:
    found = []
    for check in checks:
        try:
            predicate = parse_predicate(check.expression, rows.schema)
        except InvalidExpression as error:
            raise InvalidDefinition(f"check {check.name!r} of {key.to_user_string()} cannot be evaluated: {error}") from None
        true = pc.sum(pc.fill_null(truth(predicate, rows), False)).as_py() or 0
        found.append(len(rows) - int(true))
    return len(rows), found


def _in_spark(checks: Sequence[RowCheck], rows: Any) -> tuple[int, list[int]]:
    """All of them in one pass."""
    counts = [f"count_if(NOT coalesce(({check.expression}), false)) AS check_{number}" for number, check in enumerate(checks)]
    (row,) = rows.selectExpr("count(*) AS total", *counts).collect()
    return int(row["total"]), [int(row[f"check_{number}"]) for number in range(len(checks))]
