"""SQL checks of the rows that a step writes. A failed blocking check keeps the rows from being published."""

# No `from __future__ import annotations` here: components' fields are read as objects.

import warnings
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from lake_core.readable import count_of
from lake_orch.assets.tables.markdown import ROWS, markdown_table
from lake_orch.assets.tables.rows import BrokenRows, RowCondition, Rows
from lake_orch.components.references import described
from lake_orch.errors import InvalidDefinition


class RowCheck(dg.Model, dg.Resolvable):
    """A condition that must be true for every row that a step writes. Null is not true."""

    name: Annotated[str, described("The asset check's name.")]
    expression: Annotated[str, described("Spark SQL over the columns of a row, such as amount >= 0.")]
    description: Annotated[str | None, described("The description in the UI; by default the expression.")] = None
    blocking: Annotated[
        bool, described("Whether a failure prevents publishing the rows and running downstream assets.")
    ] = False
    severity: Annotated[
        Literal["ERROR", "WARN"], described("The severity of a failure; ERROR for a blocking check.")
    ] = "ERROR"
    max_violations: Annotated[int, Field(ge=0), described("The most rows that may break it.")] = 0
    sample_rows: Annotated[
        int, Field(ge=0, le=50), described("The most violating rows that the result shows; 0 for secret data.")
    ] = ROWS

    def spec(self, key: dg.AssetKey, partitions: dg.PartitionsDefinition[str] | None) -> dg.AssetCheckSpec:
        """Return the check spec of an asset, whose results are of its partitions.

        Raises InvalidDefinition for a blocking check of severity WARN.
        """
        if self.blocking and self.severity != "ERROR":
            raise InvalidDefinition(
                f"check {self.name!r} of {key.to_user_string()} is blocking, and of severity WARN: choose one"
            )
        with warnings.catch_warnings():
            # Otherwise each project with such a check is told that Dagster's parameter is new.
            warnings.simplefilter("ignore", dg.PreviewWarning)
            return dg.AssetCheckSpec(
                self.name,
                asset=key,
                description=self.description or self.expression,
                blocking=self.blocking,
                partitions_def=partitions,
            )

    def result(self, key: dg.AssetKey, rows: int, broken: BrokenRows) -> dg.AssetCheckResult:
        """Return a check result with the number of rows that break the condition, and some of these rows."""
        metadata: dict[str, Any] = {
            "lake/rows": rows,
            "lake/violations": broken.count,
            "lake/expression": self.expression,
        }
        if broken.sample is not None and len(broken.sample):
            metadata["lake/broken_rows"] = dg.MetadataValue.md(markdown_table(broken.sample, self.sample_rows))
        return dg.AssetCheckResult(
            asset_key=key,
            check_name=self.name,
            passed=broken.count <= self.max_violations,
            severity=dg.AssetCheckSeverity(self.severity),
            description=f"{broken.count:,} of {count_of(rows, 'row')} break {self.expression}"[:300]
            if broken.count
            else None,
            metadata=metadata,
        )


def evaluate(checks: Sequence[RowCheck], rows: Rows, key: dg.AssetKey) -> Iterator[dg.AssetCheckResult]:
    """Evaluate the checks on rows before they are written. Raises InvalidDefinition."""
    asset = key.to_user_string()
    total, broken = rows.broken(
        [RowCondition(f"check {check.name!r} of {asset}", check.expression, check.sample_rows) for check in checks]
    )
    for check, broken_rows in zip(checks, broken, strict=True):
        yield check.result(key, total, broken_rows)
