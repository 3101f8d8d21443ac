"""Exports of a pool: its values as columns for Parquet files and Delta tables, with their Zed types in the metadata."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.pool.arrow.columns import Column
from lake_core.pool.arrow.fuse import InexactInteger, widen_columns
from lake_core.pool.arrow.table import to_table
from lake_core.pool.arrow.type_key import DELTA_KEY, TYPE_KEY
from lake_core.pool.errors import InvalidJson, InvalidValue
from lake_core.pool.fused_type import column_type, with_rounded_integers
from lake_core.pool.types import Field, RecordType, Type, fields_of, under

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.pool.scan import Scan


def to_columns(scan: Scan) -> pa.RecordBatchReader:
    """Return the values of a scan as an Arrow stream that Parquet files can hold.

    Types without a common type become JSON text, and so do unions. Integers and floats become float64 if that holds
    each of the integers exactly. Otherwise all such fields become JSON text. The metadata of each field holds its Zed
    type under `zed.type`.

    Raises:
        DamagedLake: A data object cannot be read, also while the stream is read.
        InvalidJson: A number that is to become JSON text is infinite or not a number.
    """
    type, rounded = column_type(scan.type), column_type(with_rounded_integers(scan.type))
    if rounded != type and _fits(scan, rounded):
        type = rounded
    if type == scan.type:
        return scan.to_reader()
    # From the types that the values have: records in JSON text get no fields of others.
    schema = to_table(type, []).schema
    return pa.RecordBatchReader.from_batches(schema, _widened(scan, type, schema))


def _fits(scan: Scan, type: Type) -> bool:
    """Return whether a type with rounded integers holds each value exactly. Read all of them once."""
    try:
        for batch in scan.batches():
            _widen(batch.batch.columns(), type)
    except (InexactInteger, pa.ArrowNotImplementedError):
        # Arrow does not convert the values of a union that is a field's own type.
        return False
    return True


def _widened(scan: Scan, type: Type, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    is_record = isinstance(under(type), RecordType)
    for batch in scan.batches():
        for array in _widen(batch.batch.columns(), type):
            columns = [array.field(number) for number in range(len(schema))] if is_record else [array]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _widen(columns: Sequence[Column], type: Type) -> list[pa.Array]:
    """Return the values of columns, widened to a type; see `widen_columns`. Raises InvalidJson, with the field."""
    try:
        return widen_columns(columns, type)
    except InvalidJson as error:
        names = [each.name for each in fields_of(type) if any(_is_inexpressible(each, column) for column in columns)]
        if not names:
            raise
        raise InvalidJson(
            f"the field {names[0]!r} becomes JSON text: {error}; or leave out the field by columns= of the scan"
        ) from None


def _is_inexpressible(field: Field, column: Column) -> bool:
    """Return whether a field of records has a value that cannot become JSON text."""
    for number, each in enumerate(fields_of(column.type)):
        if each.name == field.name:
            try:
                widen_columns([Column(each.type, column.values.field(number), column.rows)], field.type)
            except InvalidJson:
                return True
    return False


def to_delta_columns(scan: Scan) -> pa.RecordBatchReader:
    """Return the values of a scan as an Arrow stream that Delta tables can hold.

    Durations become their nanoseconds, and columns of nulls become text. The metadata that Delta tables store holds the
    Zed types.

    Raises:
        DamagedLake: A data object cannot be read, also while the stream is read.
        InvalidJson: As in `to_columns`.
        InvalidValue: A time is finer than microseconds.
    """
    columns = to_columns(scan)
    schema = pa.schema([_delta_field(field) for field in columns.schema])
    return pa.RecordBatchReader.from_batches(schema, _cast(columns, schema))


def _delta_field(field: pa.Field) -> pa.Field:
    text = (field.metadata or {}).get(TYPE_KEY, b"").decode()
    metadata = {DELTA_KEY: json.dumps({TYPE_KEY.decode(): text}).encode()}
    return pa.field(field.name, _delta_type(field.type), metadata=metadata)


def _delta_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_duration(type):
        return pa.int64()
    if pa.types.is_null(type):
        return pa.string()
    if pa.types.is_timestamp(type):
        return pa.timestamp("us", type.tz)
    if pa.types.is_dictionary(type):
        return _delta_type(type.value_type)
    if pa.types.is_struct(type):
        return pa.struct(
            [
                pa.field(each.name, _delta_type(each.type))
                for each in (type.field(number) for number in range(type.num_fields))
            ]
        )
    if pa.types.is_list(type):
        return pa.list_(pa.field("item", _delta_type(type.value_type)))
    return type


def _cast(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [_delta_column(column, field) for column, field in zip(batch.columns, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _delta_column(column: pa.Array, field: pa.Field) -> pa.Array:
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise InvalidValue(
            f"the field {field.name!r}: Delta tables store times in microseconds: {error}; export to Parquet, which "
            "keeps nanoseconds, or leave out the field by columns= of the scan"
        ) from None
