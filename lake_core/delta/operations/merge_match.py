"""MERGE: which rows of the target match which rows of the source.

A hash join on the keys of ON, the rest for the pairs of rows that it leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, scalar
from lake_core.delta.numpy_arrays import booleans, integers
from lake_core.delta.operations.merge_clause import relation
from lake_core.expression import (
    FALSE,
    TRUE,
    And,
    Column,
    Comparison,
    EvaluationFailed,
    In,
    Literal,
    Predicate,
    columns,
    evaluate,
)
from lake_core.expression.arrays import array, valid, values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.delta.operations.merge_condition import Condition, Key

MANY_KEYS = 1000
"""The most keys of a source that are looked up one by one. More keys are looked up as a range."""
_PAIRS = 1 << 20
"""The number of pairs of rows that a join without keys tries at a time."""


def key_columns(rows: pa.Table, keys: Sequence[Key], *, target: bool) -> dict[str, pa.ChunkedArray]:
    """Return the join keys of rows in a form in which equal values have equal bytes.

    There is one zero and one NaN. A null in a null-safe key gets a column of its own. Raises EvaluationFailed.
    """
    key_values = {}
    for key in keys:
        column = _distinct_bytes(evaluate(key.target if target else key.source, rows).cast(key.type))
        if key.null_safe:
            key_values[f"{key.name}_null"] = pc.is_null(column)
            column = pc.fill_null(column, _any_value(column.type))
        key_values[key.name] = column
    return key_values


def _distinct_bytes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if not pa.types.is_floating(column.type):
        return column
    column = pc.if_else(pc.equal(column, 0.0), 0.0, pc.if_else(pc.is_nan(column), float("nan"), column))
    return pa.chunked_array([_reversed_bytes(chunk) for chunk in column.chunks], pa.int64())


def _reversed_bytes(doubles: pa.Array) -> pa.Array:
    # The last bytes of most doubles are zeros, for which Arrow's join has many times the collisions.
    where = valid(doubles)
    return array(values(doubles).view(np.int64).byteswap(), pa.int64(), where)


def _any_value(kind: pa.DataType) -> pa.Scalar:
    """Return a value of a key's type. It stands for null beside a column that says so."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return scalar("").cast(kind)
    return scalar(0, kind) if not pa.types.is_boolean(kind) else scalar(False)


def numbered_keys(rows: pa.Table, condition: Condition, *, target: bool) -> tuple[Condition, pa.Table]:
    """Return the join keys of the rows that can match, with the rows' numbers in a last column, `t` or `s`.

    A row for which a part of ON about its side alone is not true cannot match. A key that fails for one of the others
    is no key for these rows, but evaluated for pairs: they fail only where a pair needs its value. The condition is
    returned without such keys.
    """
    chosen = _possible(rows, condition.target_rows if target else condition.source_rows)
    possible = rows if len(chosen) == rows.num_rows else rows.take(integers(chosen))
    found: dict[str, pa.ChunkedArray] = {}
    failed = []
    for key in condition.keys:
        try:
            found |= key_columns(possible, [key], target=target)
        except EvaluationFailed:
            failed.append(key)
    return condition.without(failed), pa.table(found | {"t" if target else "s": integers(chosen)})


def _possible(rows: pa.Table, parts: Sequence[Predicate]) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows for which these parts of ON are true, of all rows where they fail for one."""
    chosen = np.arange(rows.num_rows)
    for part in parts:
        try:
            is_true = evaluate(part, rows if len(chosen) == rows.num_rows else rows.take(integers(chosen)))
        except EvaluationFailed:
            break
        chosen = chosen[booleans(pc.fill_null(is_true, FALSE_VALUE))]
    return chosen


@dataclass(frozen=True, slots=True)
class KeyValues:
    """The distinct values of a key, or, if they are many, the least and the greatest one."""

    values: pa.Array
    are_all: bool

    @classmethod
    def of(cls, column: pa.ChunkedArray) -> KeyValues:
        """Return the values of a column of keys."""
        # Most keys have many values, which the first rows show.
        if len(column.slice(0, 2 * MANY_KEYS).unique()) <= MANY_KEYS:
            distinct = column.unique()
            if len(distinct) <= MANY_KEYS:
                return cls(distinct, True)
        if pa.types.is_binary(column.type):
            return cls(pa.nulls(0, column.type), False)  # Arrow does not order bytes
        extremes = pc.min_max(column)
        return cls(pa.array([extremes["min"], extremes["max"]], column.type), False)

    @classmethod
    def together(cls, parts: Sequence[KeyValues], kind: pa.DataType) -> KeyValues:
        """Return the values of a column of this type from those of its parts."""
        joined = cls.of(pa.chunked_array([part.values for part in parts], kind))
        return cls(joined.values, joined.are_all and all(part.are_all for part in parts))


def range_predicate(keys: Sequence[tuple[Key, KeyValues]]) -> list[Predicate]:
    """Return predicates that every row of the table with a match in the source satisfies, by the source's keys."""
    ranges = [_range(key, values) for key, values in keys]
    return [predicate for predicate in ranges if predicate is not None]


def has_range(key: Key) -> bool:
    """Return whether the values of a key can tell which part of the table they match: that of a column."""
    return isinstance(key.target, Column) and not key.null_safe and not pa.types.is_floating(key.target.type)


def _range(key: Key, keys: KeyValues) -> Predicate | None:
    column = key.target
    assert isinstance(column, Column)
    try:
        values = keys.values.cast(column.type).drop_null()
    except pa.ArrowInvalid:
        return None  # a source key that the target's type cannot hold matches nothing, but says nothing of the others
    if keys.are_all:
        return In(column, tuple(values)) if len(values) else FALSE
    if not len(values) or pa.types.is_binary(column.type):
        return None
    extremes = pc.min_max(values)
    return And((Comparison(">=", column, Literal(extremes["min"])), Comparison("<=", column, Literal(extremes["max"]))))


def matching_pairs(
    condition: Condition, target: pa.Table, source: pa.Table, source_keys: pa.Table, aliases: tuple[str, str]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield pairs of row numbers (target's, source's) for which ON is true.

    `source_keys`: the source's `numbered_keys`.
    """
    if not target.num_rows or not source_keys.num_rows:
        return
    condition, target_keys = numbered_keys(target, condition, target=True)
    others = condition.others
    if others != TRUE:
        asked = [{column.path[1] for column in columns(others) if column.path[0] == alias} for alias in aliases]
        target, source = (_narrow(rows, names) for rows, names in zip((target, source), asked, strict=True))
    for left, right in _candidates(condition, target_keys, source_keys):
        if others != TRUE and len(left):
            scope = pa.table(
                {aliases[0]: relation(target.take(integers(left))), aliases[1]: relation(source.take(integers(right)))}
            )
            hits = np.asarray(others_hold(condition, scope))
            left, right = left[hits], right[hits]
        if len(left):
            yield left, right


def others_hold(condition: Condition, scope: pa.Table) -> pa.ChunkedArray:
    """Return for pairs of rows with equal keys (as a column each) whether the rest of ON is true."""
    return pc.fill_null(evaluate(condition.others, scope), FALSE_VALUE)


def _narrow(rows: pa.Table, names: set[str]) -> pa.Table:
    """Return rows with only these columns, or with one if there are none: without a column they have no number."""
    return rows.select([name for name in rows.column_names if name in names] or rows.column_names[:1])


def _within_each_other(target: pa.Table, source: pa.Table, name: str) -> tuple[pa.Table, pa.Table]:
    """Return the rows of both whose whole number lies in the range of the other's: a join costs more than that."""
    kind = target.schema.field(name).type
    if not pa.types.is_integer(kind) or kind != source.schema.field(name).type or not (len(target) and len(source)):
        return target, source
    keys = target[name], source[name]
    if any(key.null_count for key in keys):
        return target, source  # nulls may be equal keys
    ranges = [pc.min_max(key) for key in keys]
    least = pc.max_element_wise(*(each["min"] for each in ranges))
    greatest = pc.min_element_wise(*(each["max"] for each in ranges))

    def within(rows: pa.Table, own: pa.StructScalar) -> pa.Table:
        if own["min"].equals(least) and own["max"].equals(greatest):
            return rows
        return rows.filter(pc.and_(pc.greater_equal(rows[name], least), pc.less_equal(rows[name], greatest)))

    return within(target, ranges[0]), within(source, ranges[1])


def _candidates(
    condition: Condition, target: pa.Table, source: pa.Table
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield the pairs of rows with equal keys, of all rows if there are no keys."""
    if not target.num_rows or not source.num_rows:
        return
    if condition.keys:
        names = target.column_names[:-1]
        for name in names:
            target, source = _within_each_other(target, source, name)
        if not target.num_rows or not source.num_rows:
            return
        # The right side of Arrow's join is the one that it keeps in a hash table.
        smaller, larger = sorted((target, source.select([*names, "s"])), key=len)
        joined = larger.join(smaller, keys=names, join_type="inner").select(["t", "s"])
        left, right = np.asarray(joined["t"]), np.asarray(joined["s"])
        for start in range(0, len(left), _PAIRS):
            yield left[start : start + _PAIRS], right[start : start + _PAIRS]
        return
    targets, sources = np.asarray(target["t"]), np.asarray(source["s"])
    step = max(1, _PAIRS // len(sources))
    for start in range(0, len(targets), step):
        chunk = targets[start : start + step]
        for first in range(0, len(sources), _PAIRS):
            others = sources[first : first + _PAIRS]
            yield np.repeat(chunk, len(others)), np.tile(others, len(chunk))
