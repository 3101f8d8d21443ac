"""Output metadata of a write to a pool: Dagster's own keys where it has them, `lake/…` for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import islice
from typing import Any

from lake_core.pool import DataObject, Pool, Scan
from lake_core.pool.arrow.fuse import fuse
from lake_core.pool.arrow.shapes import Shape
from lake_core.pool.fused_type import JSON, fused_types
from lake_core.pool.key_range import KeyRange
from lake_core.pool.order import compare_values
from lake_core.pool.types import Type, fields_of
from lake_core.pool.zng.writer import encode_values
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.type_text import format_type
from lake_core.readable import count_of
from lake_core.workspace import STAGED, Receipt
from lake_orch.assets.description import Column, ColumnSchema, Markdown
from lake_orch.assets.pools.settings import POOL_COMMIT
from lake_orch.assets.report import read_with
from lake_orch.assets.tables.markdown import markdown_table
from lake_orch.assets.tables.metadata import SIZE
from lake_orch.assets.tables.preview import PREVIEW
from lake_orch.location import table_name
from lake_pipes.metadata import PATH, SKIPPED, receipt_metadata

READING_CODE = "lake.at('{commit}').pool('{path}').scan().to_table()"
"""Python code that reads a dataset as of a commit."""

RECORDS_WRITTEN = "lake/records_written"
_LARGEST = 64 << 20
"""The largest size of data objects in bytes for which shapes are shown. Finding the shapes reads all objects."""
_MOST_SHAPES = 20
"""The number of shapes to show."""
_WIDTH = 200
"""The number of characters of a type to show."""


@dataclass(frozen=True, slots=True)
class PoolResult:
    """The result of one write."""

    commit: str
    """The id of the commit that recorded the write, or of the commit before if there was nothing to write."""
    objects: Sequence[DataObject] | None = ()
    """The data objects of the write, or None if an earlier attempt committed it."""

    @property
    def skipped(self) -> bool:
        """Return whether an earlier attempt committed the write."""
        return self.objects is None

    @property
    def records(self) -> int:
        """Return the number of written records."""
        return sum(each.count for each in self.objects or ())

    @property
    def bytes(self) -> int:
        """Return the size of the written data objects in bytes."""
        return sum(each.size for each in self.objects or ())


def pool_metadata(
    result: PoolResult,
    pool: Pool,
    *,
    url: str,
    path: str,
    operation: str,
    receipt: Receipt | None = None,
    preview_rows: int = 0,
) -> dict[str, Any]:
    """Describe a write, and the pool after it, as output metadata.

    Args:
        result: The result of the write.
        pool: The pool after the write.
        url: The URL of the pool's folder.
        path: The path of the pool below the lake's root.
        operation: The mode of the write.
        receipt: The commit or session of the write, in a lake.
        preview_rows: The number of written records to show.
    """
    staged = receipt is not None and receipt.state == STAGED
    objects, written = pool.objects(), list(result.objects or ())
    counts = (
        {}
        if result.skipped
        else {RECORDS_WRITTEN: result.records, "lake/bytes_written": result.bytes, "lake/files_added": len(written)}
    )
    return {
        **(receipt_metadata(receipt) if receipt is not None else {}),
        **({} if staged else {POOL_COMMIT: result.commit}),
        **read_with(None if receipt is None else receipt.commit, path, READING_CODE),
        **({SKIPPED: True} if result.skipped else {}),
        **_preview(pool, written, preview_rows),
        "dagster/row_count": sum(each.count for each in objects),
        **counts,
        "lake/num_files": len(objects),
        SIZE: sum(each.size for each in objects),
        **key_range(written),
        "lake/operation": operation,
        **_shapes(pool, written),
        "dagster/table_name": table_name(path),
        "dagster/uri": url,
        PATH: path,
    }


def key_range(objects: Sequence[DataObject]) -> dict[str, str]:
    """Describe the smallest and the largest key of data objects. The result is empty without data objects."""
    if not objects:
        return {}
    smallest = reduce(
        lambda one, other: other if compare_values(other, one) < 0 else one, (each.min for each in objects)
    )
    largest = reduce(
        lambda one, other: other if compare_values(other, one) > 0 else one, (each.max for each in objects)
    )
    return {"lake/key_range": f"{format_value(smallest)} to {format_value(largest)}"}


def _shapes(pool: Pool, objects: Sequence[DataObject]) -> dict[str, Any]:
    """Describe the types of records: how many have each, and the columns that they have in common."""
    if not objects or sum(each.size for each in objects) > _LARGEST:
        return {}
    shapes = sorted(Scan(pool.store, pool.config, objects, KeyRange()).shapes(), key=lambda shape: -shape.count)
    common = fused_types((shape.type for shape in shapes), "json", round_integers=True)
    return {
        "lake/num_shapes": len(shapes),
        "lake/shapes": Markdown(_shapes_table(shapes)),
        "dagster/column_schema": column_schema(common, pool),
    }


def _shapes_table(shapes: Sequence[Shape]) -> str:
    """Return the first shapes, with their numbers of records, as a table in Markdown."""
    lines = ["| records | shape |", "| ---: | --- |"]
    for shape in shapes[:_MOST_SHAPES]:
        text = format_type(shape.type)
        shown = text if len(text) <= _WIDTH else f"{text[: _WIDTH - 1]}…"
        lines.append(f"| {shape.count} | `` {shown.replace('|', chr(0x2502))} `` |")
    if len(shapes) > _MOST_SHAPES:
        lines.append(f"\nand {count_of(len(shapes) - _MOST_SHAPES, 'more shape')}")
    return "\n".join(lines)


def column_schema(type: Type, pool: Pool) -> ColumnSchema:
    """Describe the fields of records as columns, with their Zed types."""
    key = pool.config.keys[0][0]
    return ColumnSchema(
        [
            Column(
                each.name,
                format_type(each.type),
                "of several types" if each.type == JSON else None,
                other=["key of the pool"] if each.name == key else [],
            )
            for each in fields_of(type)
        ]
    )


def _preview(pool: Pool, objects: Sequence[DataObject], most: int) -> dict[str, Any]:
    """Show the first records of the smallest data object, because reading it costs the least."""
    if most <= 0 or not objects:
        return {}
    try:
        smallest = min(objects, key=lambda each: each.size)
        values = list(islice(Scan(pool.store, pool.config, [smallest], KeyRange()).values(), most))
        return {PREVIEW: Markdown(markdown_table(fuse(encode_values(values), conflicts="json"), most))}
    except Exception as error:
        # The records are committed, so a failed preview must not fail the step.
        return {PREVIEW: f"these records cannot be shown: {error}"[:300]}
