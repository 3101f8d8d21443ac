"""Differences as lines for people, and as rows for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.cli.output import cell_text
from lake_core.readable import count_of, readable_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.dataset import DatasetComparison
    from lake_core.lake.publish.comparison import ChangedDataset, Comparison

_SIGNS = {"added": "+", "removed": "-", "dropped": "-", "changed": "~"}


def comparison_rows(comparison: Comparison) -> dict[str, list[dict[str, Any]]]:
    """Return everything that a comparison found as rows, each with its sign."""
    datasets = [
        {"sign": _SIGNS[each.kind], "path": each.path, "format": each.format, "kind": each.kind}
        | _fields(each.comparison)
        for each in comparison.datasets
    ]
    files = [
        {"sign": _SIGNS[each.kind], "key": each.key, "kind": each.kind, "size": each.size} for each in comparison.files
    ]
    return {"datasets": datasets, "files": files}


def _fields(comparison: DatasetComparison) -> dict[str, Any]:
    return {name: getattr(comparison, name) for name in comparison.__dataclass_fields__}


def comparison_lines(comparison: Comparison, refs: tuple[str, str] | None = None) -> Iterator[str]:
    """Describe what differs: a line for each dataset, with its details below it, and one for each plain file.

    The details are columns, arrays and sample rows. `refs` names the two sides where their versions have one number.
    """
    for each in comparison.datasets:
        yield dataset_line(each, refs)
        for column in each.comparison.columns:
            kinds = " -> ".join(kind for kind in (column.before, column.after) if kind is not None)
            yield f"    {_SIGNS[column.kind]} column {column.name} {kinds}"
        for node in each.comparison.nodes:
            chunks = f"  chunks +{node.chunks_written:,} -{node.chunks_erased:,}" if node.node == "array" else ""
            yield f"    {_SIGNS[node.kind]} {node.node} {node.path}{chunks}"
        yield from _sample_lines("-", each.comparison.sample_removed, each.comparison.rows_removed)
        yield from _sample_lines("+", each.comparison.sample_added, each.comparison.rows_added)
    for file in comparison.files:
        yield f"{_SIGNS[file.kind]} {file.key}  {readable_bytes(file.size)}"


def dataset_line(difference: ChangedDataset, refs: tuple[str, str] | None = None) -> str:
    """Describe in one line what differs in a dataset: its versions, rows and files."""
    compared = difference.comparison
    files = f"files +{compared.files_added} -{compared.files_removed}"
    if compared.nodes:
        return f"{_SIGNS[difference.kind]} {difference.path}  {files}"
    versions = f"version {compared.before} -> {compared.after}"
    if compared.before is None or compared.after is None:
        versions = f"version {compared.after if compared.before is None else compared.before}"
    elif compared.before == compared.after and refs is not None:
        versions = f"version {compared.before} of {refs[0]} -> {compared.after} of {refs[1]}"
    about = "" if compared.rows_exact else "about "
    rows = f"rows {about}{_count('+', compared.rows_added)} {_count('-', compared.rows_removed)}"
    return f"{_SIGNS[difference.kind]} {difference.path}  {versions}  {rows}  {files}"


def _count(sign: str, number: int | None) -> str:
    return f"{sign}?" if number is None else f"{sign}{number:,}"


def _sample_lines(sign: str, rows: Sequence[Mapping[str, Any]], count: int | None) -> Iterator[str]:
    for row in rows:
        yield f"    {sign} " + ", ".join(f"{name}={cell_text(value)}" for name, value in row.items())
    if count is not None and len(rows) and count > len(rows):
        yield f"    {sign} … and {count_of(count - len(rows), 'more row')}"
