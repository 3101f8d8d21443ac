"""Variants: values of any shape, as two binaries that the Parquet format defines.

A column of variants is a struct of `value` and `metadata` (the names of fields). `to_python` and `to_json` decode a
column, `from_python` and `from_json` make one.
Protocol section: Variant Data Type. Format: Variant Encoding of Apache Parquet.
"""

from __future__ import annotations

import json
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.delta.errors import CorruptDataFile
from lake_core.delta.variant_encoding import encoded
from lake_core.variant_values import MOST_DIGITS, VARIANT, InvalidVariant, decoded, is_variant, json_text

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["VARIANT", "from_json", "from_python", "is_variant", "to_json", "to_python"]

# Decoding


def to_python(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Return variants as Python values: None, bool, int, float, Decimal, str, bytes, dates and times, dict and list.

    No value and the variant null are both None. Raises CorruptDataFile.
    """
    return [None if row is None else _decoded(row["metadata"], row["value"]) for row in column.to_pylist()]


def to_json(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return variants as JSON, as Spark's `to_json` writes them; null where there is none. Raises CorruptDataFile."""
    texts = (None if row is None else json_text(_decoded(row["metadata"], row["value"])) for row in column.to_pylist())
    return pa.array(texts, pa.string())


def _decoded(metadata: bytes, value: bytes) -> Any:
    try:
        return decoded(metadata, value)
    except InvalidVariant as error:
        raise CorruptDataFile(f"a variant cannot be decoded ({error}). Restore its file from a backup") from None


# Encoding


def from_python(values: Iterable[Any]) -> pa.Array:
    """Return Python values, of those that `to_python` returns, as variants. None is no value.

    Inside of lists and dicts, None is the variant null. Raises UnsupportedType for a value of another type.
    """
    return _column(None if value is None else encoded(value) for value in values)


def from_json(texts: Iterable[str | None]) -> pa.Array:
    """Return JSON texts as variants, as Spark's `parse_json` reads them. None is no value. Raises ValueError."""
    decoder = json.JSONDecoder(
        parse_float=_json_number, parse_constant=_refuse_constant, object_pairs_hook=_distinct_fields
    )
    return _column(None if text is None else encoded(decoder.decode(text)) for text in texts)


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a value of JSON")


def _distinct_fields(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(f"an object has a field twice: {[name for name, _ in pairs]}")
    return fields


def _json_number(text: str) -> Decimal | float:
    number = Decimal(text)
    digits, exponent = number.as_tuple().digits, number.as_tuple().exponent
    is_plain = "e" not in text.lower() and isinstance(exponent, int) and max(len(digits), -exponent) <= MOST_DIGITS
    return number if is_plain else float(text)


def _column(pairs: Iterable[tuple[bytes, bytes] | None]) -> pa.Array:
    rows = [None if pair is None else {"metadata": pair[0], "value": pair[1]} for pair in pairs]
    return pa.array(rows, VARIANT)
