"""Parts of variants as values of a type: `variant_get` and `try_variant_get`."""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

from lake_core.expression.cast import cast_array, castable
from lake_core.expression.errors import EvaluationFailed, InvalidExpression
from lake_core.expression.numeric import constant
from lake_core.variant_values import InvalidVariant, decoded, json_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.expression.tree import Call

Path: TypeAlias = tuple[str | int, ...]

VARIANT_FUNCTIONS = ("variant_get", "try_variant_get")
_STEP = re.compile(r"""\.([^.\[\]'"]+)|\[(\d+)\]|\['([^']*)'\]|\["([^"]*)"\]""")
_MOST_DIGITS = 38


def parse_path(text: str) -> Path:
    """Return the steps of a path such as `$.a[0]['b c']`. Raises InvalidExpression."""
    steps: list[str | int] = []
    at = 1
    while text.startswith("$") and at < len(text) and (step := _STEP.match(text, at)):
        name, index, *quoted = step.groups()
        steps.append(int(index) if index is not None else next(each for each in (name, *quoted) if each is not None))
        at = step.end()
    if at != len(text) or not text.startswith("$"):
        raise InvalidExpression(f"{text!r} is not a path into a variant: write one such as $.a[0]['b c']")
    return tuple(steps)


def variant_get(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return the part of each variant at the path, cast to the call's type; null where it has none."""
    path = parse_path(constant(call, 1, None) or "$")
    groups: dict[pa.DataType, tuple[list[int], list[Any]]] = {}
    for row, variant in enumerate(arguments[0].to_pylist()):
        value = None if variant is None else _part(variant, path)
        if value is not None:
            kind, plain = _typed(value)
            rows, values = groups.setdefault(kind, ([], []))
            rows.append(row)
            values.append(plain)
    is_try = call.function == "try_variant_get"
    parts = [_cast(pa.array(values, kind), call.type, is_try) for kind, (_, values) in groups.items()]
    # After all parts comes one null, for the rows that have no value.
    source = np.full(len(arguments[0]), sum(map(len, parts)))
    source[[row for rows, _ in groups.values() for row in rows]] = np.arange(sum(map(len, parts)))
    return pa.concat_arrays([*parts, pa.nulls(1, call.type)]).take(pa.array(source))


def _part(variant: dict[str, bytes | None], path: Path) -> Any:
    metadata, value = variant["metadata"], variant["value"]
    if metadata is None or value is None:
        raise EvaluationFailed("a variant has no metadata or no value, though it is not null")
    try:
        part = decoded(metadata, value)
    except InvalidVariant as error:
        raise EvaluationFailed(f"a variant cannot be decoded ({error})") from None
    for step in path:
        if isinstance(step, int):
            part = part[step] if isinstance(part, list) and step < len(part) else None
        else:
            part = part.get(step) if isinstance(part, dict) else None
    return part


def _typed(value: Any) -> tuple[pa.DataType, Any]:
    """Return the type that a part of a variant has, and it as a value of that type."""
    match value:
        case bool():
            return pa.bool_(), value
        case int():
            return (
                (pa.int64(), value) if -(2**63) <= value < 2**63 else (pa.decimal128(_MOST_DIGITS, 0), Decimal(value))
            )
        case float():
            return pa.float64(), value
        case Decimal():
            exponent = value.as_tuple().exponent
            return pa.decimal128(_MOST_DIGITS, -exponent if isinstance(exponent, int) else 0), value
        case str():
            return pa.string(), value
        case bytes():
            return pa.binary(), value
        case dt.datetime():
            return pa.timestamp("us", None if value.tzinfo is None else "UTC"), value
        case dt.date():
            return pa.date32(), value
        case _:
            return _AS_JSON, json_text(value)


_AS_JSON = pa.large_string()
"""The type of what is a value of none: objects, arrays, times of day. It is only cast to text."""


def _cast(values: pa.Array, target: pa.DataType, is_try: bool) -> pa.Array:
    if values.type == _AS_JSON:
        if pa.types.is_string(target):
            return values.cast(target)
    elif castable(values.type, target):
        return cast_array(values, target, null_if_invalid=is_try)
    elif pa.types.is_string(target):
        # Spark would find a text here, so null is not the answer.
        raise EvaluationFailed(
            f"parts of variants that are {values.type} are not cast to text here: cast them to double"
        )
    if not is_try:
        shown = str(values[0].as_py())[:80]
        raise EvaluationFailed(
            f"{shown} in a variant cannot be cast to {target}; use try_variant_get to get null instead"
        )
    return pa.nulls(len(values), target)
