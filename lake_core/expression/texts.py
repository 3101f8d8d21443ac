"""Functions of text, by code points, as Spark counts them."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, scalar
from lake_core.expression.arrays import Values, array, booleans, valid, values
from lake_core.expression.errors import EvaluationFailed
from lake_core.expression.numeric import constant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.expression.tree import Call

_LONGEST = 1 << 20


def upper(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Convert to upper case by Unicode's rules, as Java does."""
    return _change_case(arguments[0], pc.ascii_upper, str.upper)


def lower(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Convert to lower case by Unicode's rules, as Java does."""
    return _change_case(arguments[0], pc.ascii_lower, str.lower)


def _change_case(text: pa.Array, ascii_: Callable[[pa.Array], pa.Array], unicode: Callable[[str], str]) -> pa.Array:
    if pc.all(pc.string_is_ascii(text)).as_py() is not False:
        return ascii_(text)
    # Arrow maps a letter to one letter (ß stays one), so Python converts, which knows the full mappings. It converts
    # each distinct text once.
    encoded = text.dictionary_encode()
    changed = pa.array([unicode(each) for each in encoded.dictionary.to_pylist()], pa.string())
    return changed.take(encoded.indices)


def length(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Count the characters of texts, and the bytes of binary values."""
    (text,) = arguments
    return pc.binary_length(text) if pa.types.is_binary(text.type) else pc.utf8_length(text)


def trim(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Trim blanks (U+0020) only, as Spark does."""
    cut = {"ltrim": pc.utf8_ltrim, "rtrim": pc.utf8_rtrim}.get(call.function, pc.utf8_trim)
    return cut(arguments[0], " ")


def concat(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Join the arguments row by row. The result is null where one of them is."""
    if len(arguments) == 1:
        return arguments[0]
    return pc.binary_join_element_wise(*arguments, scalar("" if pa.types.is_string(call.type) else b"", call.type))


def substring(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Cut texts from a position. Positions count from 1, negative ones from the end, and 0 means 1."""
    text, position = arguments[0], values(arguments[1]).astype(np.int64)
    longest = np.int64(1 << 31)
    lengths = values(arguments[2]).astype(np.int64) if len(arguments) > 2 else np.full(len(text), longest)
    return _cut(text, position, lengths, _all_valid(arguments))


def left(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return the first characters, or "" for a count below 1."""
    text, count = arguments[0], values(arguments[1]).astype(np.int64)
    return _cut(text, np.ones(len(text), np.int64), count, _all_valid(arguments))


def right(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Return the last characters, or "" for a count below 1."""
    text, count = arguments[0], values(arguments[1]).astype(np.int64)
    return _cut(text, -np.maximum(count, 0), np.where(count <= 0, 0, np.int64(1 << 31)), _all_valid(arguments))


def _all_valid(arguments: Sequence[pa.Array]) -> Values:
    where: Values = np.logical_and.reduce([valid(argument) for argument in arguments])
    return where


def _cut(text: pa.Array, position: Values, lengths: Values, where: Values) -> pa.Array:
    """Cut substrings, with one call of Arrow for each distinct pair of ends."""
    size = np.where(where, values(pc.fill_null(pc.utf8_length(text), 0)), 0).astype(np.int64)
    position, lengths = np.where(where, position, 0), np.where(where, lengths, 0)
    start = np.where(position > 0, position - 1, np.where(position < 0, size + position, 0))
    stop = np.clip(start + lengths, 0, size)
    # All ends at or after the end of a text are the same end. Constant arguments then make one pair.
    stop = np.where(stop >= size, np.int64(1 << 31), stop)
    start = np.minimum(np.maximum(start, 0), stop)
    ends = np.stack([start, stop])
    pairs, pair_index = np.unique(ends, axis=1, return_inverse=True)
    pair_index = pair_index.reshape(-1)
    parts = []
    for number in range(pairs.shape[1]):
        chosen = text if pairs.shape[1] == 1 else text.filter(booleans(pair_index == number))
        parts.append(pc.utf8_slice_codeunits(chosen, int(pairs[0, number]), int(pairs[1, number])))
    if not parts:
        return text
    order = np.empty(len(text), np.int64)
    order[np.argsort(pair_index, kind="stable")] = np.arange(len(text))
    joined = parts[0] if len(parts) == 1 else pa.concat_arrays(parts).take(array(order, pa.int64()))
    return joined if where.all() else pc.if_else(booleans(where), joined, scalar(None, joined.type))


def replace(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Replace every occurrence of a constant text.

    The text "" occurs nowhere. A null text gives null.
    """
    search, replacement = constant(call, 1, None), constant(call, 2, "")
    if search is None or replacement is None:
        return pa.nulls(len(arguments[0]), pa.string())
    return pc.replace_substring(arguments[0], search, replacement) if search else arguments[0]


def holds(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Compute CONTAINS, STARTSWITH and ENDSWITH."""
    find = {"contains": pc.match_substring, "startswith": pc.starts_with, "endswith": pc.ends_with}[call.function]
    sought = constant(call, 1, None)
    return pa.nulls(len(arguments[0]), pa.bool_()) if sought is None else find(arguments[0], sought)


def matches_regex(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    r"""Return whether texts contain a match of RE2's pattern. There is another one for those that end with `\r\n`."""
    text, pattern, pattern_after_crlf = arguments[0], constant(call, 1, ""), constant(call, 2, "")
    found = pc.match_substring_regex(text, pattern)
    after_crlf = pc.fill_null(pc.ends_with(text, "\r\n"), FALSE_VALUE)
    if pattern == pattern_after_crlf or not pc.any(after_crlf).as_py():
        return found
    return pc.if_else(after_crlf, pc.match_substring_regex(text, pattern_after_crlf), found)


def md5(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Compute the MD5 checksums of bytes, or of texts in UTF-8, in hexadecimal. Each distinct value is read once."""
    encoded = arguments[0].cast(pa.binary()).dictionary_encode()
    digests = [hashlib.md5(value, usedforsecurity=False).hexdigest() for value in encoded.dictionary.to_pylist()]
    return pa.array(digests, pa.string()).take(encoded.indices)


def pad(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Pad texts to a length, and cut longer ones."""
    width, filler = constant(call, 1, None), constant(call, 2, " ")
    if width is None or filler is None:
        return pa.nulls(len(arguments[0]), pa.string())
    width = max(width, 0)
    if width > _LONGEST:
        raise EvaluationFailed(f"{call.function} to {width} characters is too long (at most {_LONGEST})")
    fill = pc.utf8_lpad if call.function == "lpad" else pc.utf8_rpad
    return pc.utf8_slice_codeunits(fill(arguments[0], width, filler), 0, width)


def reverse(call: Call, arguments: Sequence[pa.Array]) -> pa.Array:
    """Reverse the order of the characters."""
    return pc.utf8_reverse(arguments[0])
