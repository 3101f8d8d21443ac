"""MERGE: which rows of the target match which rows of the source.

A hash join on the equalities in ON, the rest row by row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.operations.merge_clause import relation
from lake_core.delta.statistics import leaf_values
from lake_core.expression import FALSE, And, Column, Comparison, In, Literal, Or, Predicate, columns, evaluate, is_leaf

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MANY_KEYS = 1000
"""The most keys of a source that are looked up one by one. More keys are looked up as a range."""
_PAIRS = 1 << 20
"""The number of pairs of rows that a join without keys tries at a time."""


@dataclass(frozen=True, slots=True)
class Key:
    """target = source, or with `null_safe` target <=> source: one equality of an ON condition."""

    target: tuple[str, ...]
    source: tuple[str, ...]
    """Names inside the relations."""
    type: pa.DataType
    """The type in which both are compared."""
    null_safe: bool = False


@dataclass(frozen=True, slots=True)
class Condition:
    """An ON condition, taken apart. Picklable."""

    whole: Predicate
    keys: tuple[Key, ...]
    others: tuple[Predicate, ...]
    """The other conditions besides equality of the keys, over both relations."""
    target_only: tuple[Predicate, ...]
    """Those parts of it that name only the target, over the table's own columns."""


def take_apart(on: Predicate, target: str, source: str) -> Condition:
    """Find the keys of an ON condition over two relations."""
    keys: list[Key] = []
    others: list[Predicate] = []
    target_only: list[Predicate] = []
    for part in on.operands if isinstance(on, And) else (on,):
        named = {column.path[0] for column in columns(part)}
        key = _key(part, target) if named == {target, source} else None
        if key is not None:
            keys.append(key)
            continue
        others.append(part)
        if named == {target} and (stripped := _without_relation(part)) is not None:
            target_only.append(stripped)
    return Condition(on, tuple(keys), tuple(others), tuple(target_only))


def _key(part: Predicate, target: str) -> Key | None:
    match part:
        case Comparison(operator="=" | "<=>" as operator, left=Column() as left, right=Column() as right):
            target_column, other = (left, right) if left.path[0] == target else (right, left)
            kind = _common(target_column.type, other.type)
            return None if kind is None else Key(target_column.path[1:], other.path[1:], kind, operator == "<=>")
    return None


def _common(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    types = pa.types
    if types.is_integer(a) and types.is_integer(b):
        return pa.int64()
    if types.is_floating(a) and types.is_floating(b):
        return pa.float64()
    if pa.types.is_nested(a) or a != b:
        return None
    return a


def _without_relation(part: Predicate) -> Predicate | None:
    """Convert a predicate over one relation to one over its columns; None for kinds that are not worth it."""
    match part:
        case Comparison(operator=operator, left=Column() as column, right=Literal() as value) if is_leaf(part):
            return Comparison(operator, Column(column.path[1:], column.type), value)
        case In(operand=Column() as column, values=values) if is_leaf(part):
            return In(Column(column.path[1:], column.type), values)
        case And(operands=operands) | Or(operands=operands):
            inner = [_without_relation(operand) for operand in operands]
            return (
                None
                if any(operand is None for operand in inner)
                else type(part)(tuple(operand for operand in inner if operand is not None))
            )
        case _:
            return None


def key_columns(rows: pa.Table, keys: Sequence[Key], *, target: bool) -> dict[str, pa.ChunkedArray]:
    """Return the join keys of rows in a form in which equal values have equal bytes.

    There is one zero and one NaN. A null in a null-safe key gets a column of its own.
    """
    key_values = {}
    for number, key in enumerate(keys):
        column = leaf_values(rows, key.target if target else key.source)
        column = column.cast(key.type)
        if pa.types.is_floating(key.type):
            column = pc.if_else(pc.equal(column, 0.0), 0.0, pc.if_else(pc.is_nan(column), float("nan"), column))
            column = pa.chunked_array([chunk.view(pa.int64()) for chunk in column.chunks], pa.int64())
        if key.null_safe:
            key_values[f"n{number}"] = pc.is_null(column)
            column = _filled(column)
        key_values[f"k{number}"] = column
    return key_values


def _filled(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values as text or bytes, with a value for the nulls, which another key separates from it."""
    return pc.fill_null(column, b"") if pa.types.is_binary(column.type) else pc.fill_null(column.cast(pa.string()), "")


def range_predicate(table: pa.Schema, keys: Sequence[Key], source: pa.Table) -> list[Predicate]:
    """Return predicates that every row of the table with a match in the source satisfies, by the source's keys."""
    ranges = [range_of_key(table, key, leaf_values(source, key.source).unique()) for key in keys]
    return [predicate for predicate in ranges if predicate is not None]


def range_of_key(table: pa.Schema, key: Key, values: pa.Array, *, whole: bool = True) -> Predicate | None:
    """Return a predicate for the part of the table that these source keys can match; None if they exclude nothing.

    `whole`: these are all values. Otherwise they contain at least the least and the greatest value.
    """
    kind = _leaf_type(table, key.target)
    if key.null_safe or pa.types.is_floating(kind):
        return None
    try:
        values = values.cast(kind).drop_null()
    except pa.ArrowInvalid:
        return None  # a source key that the target's type cannot hold matches nothing, but says nothing of the others
    if not len(values):
        return FALSE
    column = Column(key.target, kind)
    if whole and len(values) <= MANY_KEYS:
        return In(column, tuple(values))
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        return None
    extremes = pc.min_max(values)
    return And((Comparison(">=", column, Literal(extremes["min"])), Comparison("<=", column, Literal(extremes["max"]))))


def _leaf_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    kind = pa.struct(list(schema))
    for name in path:
        kind = kind.field(name).type
    return kind


def matching_pairs(
    condition: Condition, target: pa.Table, source: pa.Table, source_keys: pa.Table, aliases: tuple[str, str]
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    """Yield pairs of row numbers (target's, source's) for which ON is true.

    `source_keys`: the source's `numbered_keys`.
    """
    for left, right in _candidates(condition, target, source_keys):
        if condition.others and len(left):
            scope = pa.table(
                {aliases[0]: relation(target.take(pa.array(left))), aliases[1]: relation(source.take(pa.array(right)))}
            )
            hits = np.asarray(others_hold(condition, scope))
            left, right = left[hits], right[hits]
        if len(left):
            yield left, right


def others_hold(condition: Condition, scope: pa.Table) -> pa.ChunkedArray:
    """Return for pairs of rows with equal keys (as a column each) whether the rest of ON is true."""
    if not condition.others:
        return pa.chunked_array([pa.repeat(True, scope.num_rows)])
    return pc.fill_null(
        evaluate(And(condition.others) if len(condition.others) > 1 else condition.others[0], scope), False
    )


def numbered_keys(rows: pa.Table, keys: Sequence[Key], *, target: bool) -> pa.Table:
    """Return the join keys of rows, with the rows' numbers in a last column."""
    return pa.table(
        key_columns(rows, keys, target=target) | {"t" if target else "s": pa.array(np.arange(rows.num_rows))}
    )


def _candidates(
    condition: Condition, target: pa.Table, source: pa.Table
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]:
    if not target.num_rows or not source.num_rows:
        return
    if condition.keys:
        target_keys = numbered_keys(target, condition.keys, target=True)
        names = target_keys.column_names[:-1]
        # The right side of Arrow's join is the one that it keeps in a hash table.
        smaller, larger = sorted((target_keys, source), key=len)
        joined = larger.join(smaller, keys=names, join_type="inner").select(["t", "s"])
        left, right = np.asarray(joined["t"]), np.asarray(joined["s"])
        for start in range(0, len(left), _PAIRS):
            yield left[start : start + _PAIRS], right[start : start + _PAIRS]
        return
    step = max(1, _PAIRS // source.num_rows)
    for start in range(0, target.num_rows, step):
        chunk = np.arange(start, min(start + step, target.num_rows))
        for first in range(0, source.num_rows, _PAIRS):
            others = np.arange(first, min(first + _PAIRS, source.num_rows))
            yield np.repeat(chunk, len(others)), np.tile(others, len(chunk))
