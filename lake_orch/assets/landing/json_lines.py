"""Files of JSON lines, read as a whole: only the last line tells which columns a file has, and of which types."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.nested_arrays import map_leaf_types
from lake_orch.assets.compression import PACKINGS, telling_damage
from lake_orch.assets.landing.rounded_numbers import check_json

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


def read_json(filesystem: AbstractFileSystem, path: str, format: Any, schema: pa.Schema | None) -> pa.Table:
    """Return the rows of a file, with the columns of a schema first, and those that only the file has.

    `format` is a `pyarrow.dataset.JsonFileFormat` with options, or anything else for the defaults. Raises ArrowInvalid.
    """
    import pyarrow.json as pa_json

    options = getattr(format, "default_fragment_scan_options", None)
    parsing = pa_json.ParseOptions() if options is None else options.parse_options
    with filesystem.open(path) as file:
        source: Any = pa.PythonFile(file, "r")
        packing = next((codec for extension, codec in PACKINGS.items() if path.endswith(extension)), None)
        if packing is not None:
            source = pa.CompressedInputStream(source, packing)
        with telling_damage(path):
            text = source.read()
    if not text or text.isspace():
        return (schema or pa.schema([])).empty_table()
    rows = pa_json.read_json(
        pa.BufferReader(text),
        read_options=None if options is None else options.read_options,
        parse_options=pa_json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=parsing.newlines_in_values,
            unexpected_field_behavior="infer",
        ),
    )
    check_json(text, rows)
    return rows


def moments_as_text(schema: pa.Schema) -> pa.Schema:
    """Return a schema with text for timestamps, at any level.

    Arrow's reader of JSON takes a time without a zone as UTC, and an instant as a time without a zone. Casts of text do
    not.
    """
    return pa.schema([child.with_type(map_leaf_types(child.type, _text_of_moment)) for child in schema])


def _text_of_moment(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_timestamp(kind) else kind
