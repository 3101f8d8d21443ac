"""Differences as lines for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.readable import count_of, readable_bytes
from lake_core.report.comparison import SIGNS
from lake_core.report.values import cell_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from lake_core.lake.publish.comparison import ChangedDataset, Comparison


def comparison_lines(comparison: Comparison, refs: tuple[str, str] | None = None) -> Iterator[str]:
    """Describe what differs: a line for each dataset, with its details below it, and one for each plain file.

    The details are columns, arrays and sample rows. `refs` names the two sides where their versions have one number.
    """
    for each in comparison.datasets:
        yield dataset_line(each, refs)
        for column in each.comparison.columns:
            kinds = " -> ".join(kind for kind in (column.before, column.after) if kind is not None)
            yield f"    {SIGNS[column.kind]} column {column.name} {kinds}"
        for node in each.comparison.nodes:
            chunks = f"  chunks +{node.chunks_written:,} -{node.chunks_erased:,}" if node.node == "array" else ""
            yield f"    {SIGNS[node.kind]} {node.node} {node.path}{chunks}"
        yield from _sample_lines("-", each.comparison.sample_removed, each.comparison.rows_removed)
        yield from _sample_lines("+", each.comparison.sample_added, each.comparison.rows_added)
    for file in comparison.files:
        yield f"{SIGNS[file.kind]} {file.key}  {readable_bytes(file.size)}"


def dataset_line(difference: ChangedDataset, refs: tuple[str, str] | None = None) -> str:
    """Describe in one line what differs in a dataset: its versions, rows and files."""
    compared = difference.comparison
    files = f"files +{compared.files_added} -{compared.files_removed}"
    if compared.nodes:
        return f"{SIGNS[difference.kind]} {difference.path}  {files}"
    versions = f"version {compared.before} -> {compared.after}"
    if compared.before is None or compared.after is None:
        versions = f"version {compared.after if compared.before is None else compared.before}"
    elif compared.before == compared.after and refs is not None:
        versions = f"version {compared.before} of {refs[0]} -> {compared.after} of {refs[1]}"
    about = "" if compared.rows_exact else "about "
    rows = f"rows {about}{_count('+', compared.rows_added)} {_count('-', compared.rows_removed)}"
    return f"{SIGNS[difference.kind]} {difference.path}  {versions}  {rows}  {files}"


def _count(sign: str, number: int | None) -> str:
    return f"{sign}?" if number is None else f"{sign}{number:,}"


def _sample_lines(sign: str, rows: Sequence[Mapping[str, Any]], count: int | None) -> Iterator[str]:
    for row in rows:
        yield f"    {sign} " + ", ".join(f"{name}={cell_text(value)}" for name, value in row.items())
    if count is not None and len(rows) and count > len(rows):
        yield f"    {sign} … and {count_of(count - len(rows), 'more row')}"
