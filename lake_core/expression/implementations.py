"""The implementations of the functions and operators of the allow-list, on Arrow arrays.

They are separate from the type rules, which only binding needs, because this table is sent to Spark's executors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import pyarrow as pa

from lake_core.expression import nested, numeric, temporal, texts, variants
from lake_core.expression.tree import Call

Implementation: TypeAlias = Callable[[Call, Sequence[pa.Array]], pa.Array]

IMPLEMENTATIONS: Mapping[str, Implementation] = {
    "+": numeric.arithmetic,
    "-": numeric.arithmetic,
    "*": numeric.arithmetic,
    "rlike": texts.matches_regex,
    "md5": texts.md5,
    "parse_moment": temporal.parse_moment,
    "trim": texts.trim,
    "ltrim": texts.trim,
    "rtrim": texts.trim,
    "contains": texts.holds,
    "startswith": texts.holds,
    "endswith": texts.holds,
    "lpad": texts.pad,
    "rpad": texts.pad,
    "year": temporal.field,
    "quarter": temporal.field,
    "month": temporal.field,
    "day": temporal.field,
    "dayofweek": temporal.field,
    "dayofyear": temporal.field,
    "weekday": temporal.field,
    "weekofyear": temporal.field,
    "hour": temporal.field,
    "minute": temporal.field,
    "second": temporal.field,
    "/": numeric.divide,
    "div": numeric.whole_division,
    "%": numeric.remainder,
    "negative": numeric.negative,
    "isnan": numeric.is_nan,
    "greatest": numeric.extreme,
    "least": numeric.extreme,
    "abs": numeric.absolute,
    "round": numeric.round_half_up,
    "floor": numeric.round_to_whole,
    "ceil": numeric.round_to_whole,
    "sign": numeric.sign,
    "sqrt": numeric.square_root,
    "concat": texts.concat,
    "upper": texts.upper,
    "lower": texts.lower,
    "length": texts.length,
    "substring": texts.substring,
    "left": texts.left,
    "right": texts.right,
    "replace": texts.replace,
    "reverse": texts.reverse,
    "date_add": temporal.add_days,
    "date_sub": temporal.add_days,
    "datediff": temporal.days_between,
    "date_trunc": temporal.truncate,
    "trunc": temporal.truncate,
    "date_format": temporal.format_date,
    "unix_timestamp": temporal.to_seconds,
    "add_interval": temporal.add_interval,
    "struct": nested.make_struct,
    "array": nested.make_array,
    "size": nested.size,
    "array_contains": nested.holds_element,
    **dict.fromkeys(variants.VARIANT_FUNCTIONS, variants.variant_get),
}
