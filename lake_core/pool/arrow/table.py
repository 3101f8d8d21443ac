"""Arrow tables of values of one type, and values of Arrow tables.

Metadata keeps the Zed types: of each field, and of the table.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from lake_core.pool.arrow.arrow_type import arrow_type, inferred_type
from lake_core.pool.arrow.bodies import validity
from lake_core.pool.arrow.type_key import DELTA_KEY, TYPE_KEY
from lake_core.pool.errors import InvalidType, InvalidValue, InvalidZson
from lake_core.pool.types import Field, RecordType, Type, under
from lake_core.pool.zson.reader import parse_type
from lake_core.pool.zson.type_text import format_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.pool.arrow.arrays import Mask

WHOLE: Final = "this"
"""The name of the single column of a table whose values are null, or are not records."""


def to_table(type: Type, arrays: Sequence[pa.Array]) -> pa.Table:
    """Return values of one type as a table.

    Each field of a record is a column. Values that are not records, records without fields and records that are null
    become a single column, `this`.

    Args:
        type: The values' type.
        arrays: The values, of its Arrow type.
    """
    record = under(type)
    metadata = {TYPE_KEY: format_type(type).encode()}
    chunked = pa.chunked_array(arrays, arrow_type(type))
    if not isinstance(record, RecordType) or not record.fields or chunked.null_count:
        return pa.Table.from_arrays([chunked], schema=pa.schema([_field(WHOLE, type)], metadata))
    schema = pa.schema([_field(each.name, each.type) for each in record.fields], metadata)
    columns = [
        pa.chunked_array([array.field(number) for array in arrays], arrow_type(each.type))
        for number, each in enumerate(record.fields)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _field(name: str, type: Type) -> pa.Field:
    return pa.field(name, arrow_type(type), metadata={TYPE_KEY: format_type(type).encode()})


def from_table(table: pa.Table) -> tuple[Type, list[pa.Array]]:
    """Return the values of a table: their type, and arrays of them.

    Columns without such metadata get the Zed type that corresponds to their Arrow type.

    Raises:
        InvalidType: A column has no Zed type.
        InvalidValue: The metadata is not valid.
    """
    type = stated_type(table.schema.metadata)
    if type is not None and table.column_names == [WHOLE] and stated_type(table.schema.field(0).metadata) == type:
        return type, table.column(0).chunks
    fields = tuple(Field(field.name, stated_type(field.metadata) or _inferred(field)) for field in table.schema)
    record = under(type) if type is not None else None
    if type is None or not isinstance(record, RecordType) or record.fields != fields:
        type = RecordType(fields)
    return type, [_struct(batch) for batch in table.to_batches()]


def _inferred(field: pa.Field) -> Type:
    try:
        return inferred_type(field.type)
    except InvalidType as error:
        hint = ", such as float64 or string" if pa.types.is_decimal(field.type) else ""
        raise InvalidType(f"the column {field.name!r}: {error}{hint}") from None


def stated_type(metadata: dict[bytes, bytes] | None) -> Type | None:
    """Return the Zed type that the metadata of a field or schema names, or None. Raises InvalidValue."""
    metadata = metadata or {}
    text = metadata.get(TYPE_KEY)
    try:
        if text is None and DELTA_KEY in metadata:
            column = json.loads(metadata[DELTA_KEY])
            text = (
                column[TYPE_KEY.decode()].encode() if isinstance(column, dict) and TYPE_KEY.decode() in column else None
            )
        return None if text is None else _parsed_type(text)
    except (InvalidZson, ValueError, AttributeError) as error:
        raise InvalidValue(
            f"the metadata {TYPE_KEY.decode()!r} is not a Zed type: {error}; remove it from the field or schema"
        ) from None


@lru_cache(maxsize=1024)
def _parsed_type(text: bytes) -> Type:
    """Return a type, given its text. Each batch of a stream has the same ones. Raises InvalidZson, ValueError."""
    return parse_type(text.decode())


def _struct(batch: pa.RecordBatch) -> pa.Array:
    return struct_array([field.name for field in batch.schema], batch.columns, batch.num_rows)


def struct_array(
    names: Sequence[str], columns: Sequence[pa.Array], rows: int, *, is_valid: Mask | None = None
) -> pa.Array:
    """Return columns as a struct array. `is_valid`: which structs are not null; by default, all."""
    type = pa.struct([pa.field(name, column.type) for name, column in zip(names, columns, strict=True)])
    bitmap = None if is_valid is None else validity(is_valid)
    return pa.Array.from_buffers(type, rows, [bitmap], children=list(columns))
