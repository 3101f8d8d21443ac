"""Differences between two refs as rows for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lake_core.dataset import DatasetComparison
    from lake_core.lake.publish.comparison import Comparison

SIGNS = {"added": "+", "removed": "-", "dropped": "-", "changed": "~"}
"""The signs of changes by their kinds."""


def comparison_rows(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    """Return everything that a comparison found as rows, each with its sign."""
    datasets = [
        {"sign": SIGNS[each.kind], "path": each.path, "format": each.format, "kind": each.kind}
        | _fields(each.comparison)
        for each in comparison.datasets
    ]
    files = [
        {"sign": SIGNS[each.kind], "key": each.key, "kind": each.kind, "size": each.size} for each in comparison.files
    ]
    return {"datasets": datasets, "files": files}


def _fields(comparison: DatasetComparison) -> dict[str, Any]:
    return {name: getattr(comparison, name) for name in comparison.__dataclass_fields__}
