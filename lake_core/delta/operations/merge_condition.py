"""MERGE: the parts of an ON condition.

An equality of two expressions, one over each side, is a key: both are computed for each row of their side, and equal
values are found by hashing. What keys do not decide is evaluated for the pairs of rows that they leave.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.expression import (
    TRUE,
    And,
    Case,
    Cast,
    Coalesce,
    Column,
    Comparison,
    Expression,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    columns,
    is_pushable,
    negated,
    with_columns,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Key:
    """target = source, or with `null_safe` target <=> source: an equality that each matching pair of rows fulfills."""

    name: str
    target: Expression
    """Over the table's own columns."""
    source: Expression
    """Over the source's own columns."""
    type: pa.DataType
    """The type in which both are compared."""
    null_safe: bool = False
    part: int | None = None
    """The number of the part of ON that the key decides. None if that part has to be evaluated, too."""


@dataclass(frozen=True, slots=True)
class Condition:
    """An ON condition, taken apart. Picklable."""

    parts: tuple[Predicate, ...]
    """The operands of its outermost AND, over both relations."""
    keys: tuple[Key, ...]
    target_rows: tuple[Predicate, ...]
    """The parts that name only the target, or nothing, over the table's own columns."""
    source_rows: tuple[Predicate, ...]
    """The parts that name only the source, over its own columns."""

    @property
    def whole(self) -> Predicate:
        """Return the condition."""
        return conjunction(self.parts)

    @property
    def others(self) -> Predicate:
        """Return what the keys do not decide, over both relations, in the order of the text."""
        decided = {key.part for key in self.keys}
        return conjunction([part for number, part in enumerate(self.parts) if number not in decided])

    @property
    def computed(self) -> tuple[Key, ...]:
        """Return the keys that a row may fail for: those that are not plain columns."""
        return tuple(
            key for key in self.keys if not (isinstance(key.target, Column) and isinstance(key.source, Column))
        )

    @property
    def target_files(self) -> tuple[Predicate, ...]:
        """Return the parts that can tell by a file's statistics that none of its rows match."""
        return tuple(part for part in self.target_rows if is_pushable(part))

    def without(self, keys: Collection[Key]) -> Condition:
        """Return the condition with fewer keys. The parts that they decide are evaluated."""
        return replace(self, keys=tuple(key for key in self.keys if key not in keys))


def conjunction(parts: Sequence[Predicate]) -> Predicate:
    """Join predicates by AND."""
    if not parts:
        return TRUE
    return And(tuple(parts)) if len(parts) > 1 else parts[0]


def take_apart(on: Predicate, target: str, source: str) -> Condition:
    """Find the keys of an ON condition over two relations, and what it says of each of them alone."""
    parts = tuple(_operands(on, And))
    keys: dict[tuple[Expression, Expression], Key] = {}
    target_rows: list[Predicate] = []
    source_rows: list[Predicate] = []
    for number, part in enumerate(parts):
        relations = _relations(part)
        if target not in relations:
            (source_rows if source in relations else target_rows).append(_without_relation(part))
            continue
        if source not in relations:
            target_rows.append(_without_relation(part))
            continue
        weaker = _weakened(part)
        for left, right in dict.fromkeys(_equalities(weaker, target, source)):
            strength = _implied(weaker, left, right)
            kind = common_type(left.type, right.type)
            if strength is None or kind is None:
                continue
            decided = number if isinstance(part, Comparison) and _implied(part, left, right) else None
            before = keys.get((left, right))
            if before is None or (before.null_safe and strength == "="):
                keys[left, right] = Key(
                    f"k{len(keys) if before is None else before.name[1:]}",
                    _without_relation(left),
                    _without_relation(right),
                    kind,
                    strength == "<=>",
                    decided,
                )
    return Condition(parts, tuple(keys.values()), tuple(target_rows), tuple(source_rows))


def common_type(a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """Return the type in which values of two types that a comparison accepts are equal exactly if it says so."""
    types = pa.types
    if types.is_integer(a) and types.is_integer(b):
        return pa.int64()
    if types.is_floating(a) and types.is_floating(b):
        return pa.float64()
    if types.is_decimal(a) and types.is_decimal(b):
        scale = max(a.scale, b.scale)
        precision = max(a.precision - a.scale, b.precision - b.scale) + scale
        return pa.decimal128(precision, scale) if precision <= 38 else None
    return None if a != b or types.is_nested(a) or types.is_null(a) else a


def _relations(expression: Expression) -> set[str]:
    return {column.path[0] for column in columns(expression)}


def _without_relation(expression: Expression) -> Expression:
    """Convert an expression over one relation to one over its columns."""
    return with_columns(expression, lambda column: Column(column.path[1:], column.type))


def _operands(predicate: Predicate, junction: type[And | Or]) -> Iterator[Predicate]:
    if not isinstance(predicate, junction):
        yield predicate
        return
    for operand in predicate.operands:
        yield from _operands(operand, junction)


def _weakened(predicate: Predicate) -> Predicate:
    """Return a condition of AND and OR that is true wherever the predicate is true."""
    match predicate:
        case And(operands=parts):
            return And(tuple(map(_weakened, parts)))
        case Or(operands=parts) | Coalesce(operands=parts):
            return Or(tuple(map(_weakened, parts)))
        case Case(branches=branches, otherwise=otherwise):
            taken = [And((_weakened(condition), _weakened(value))) for condition, value in branches]
            return Or((*taken, _weakened(otherwise)))
        case Comparison("=" | "<=>", left, Literal() as right) | Comparison("=" | "<=>", Literal() as right, left) if (
            pa.types.is_boolean(right.type) and right.value.as_py() is True
        ):
            return _weakened(left)
        case Not(operand=operand) if not isinstance(turned := negated(operand), Not):
            return _weakened(turned)
    return predicate


def _equalities(predicate: Predicate, target: str, source: str) -> Iterator[tuple[Expression, Expression]]:
    """Yield the expressions that a condition of AND and OR compares for equality: the target's, the source's."""
    match predicate:
        case And(operands=parts) | Or(operands=parts):
            for part in parts:
                yield from _equalities(part, target, source)
        case Comparison("=" | "<=>", left, right):
            sides = _relations(left), _relations(right)
            if sides == ({target}, {source}):
                yield left, right
            elif sides == ({source}, {target}):
                yield right, left


def _implied(predicate: Predicate, left: Expression, right: Expression) -> str | None:
    """Return the equality of two expressions that holds where a condition of AND and OR is true.

    Return `=`, `<=>` if both may be null, or None if they may differ.
    """
    match predicate:
        case Comparison("=" | "<=>" as operator, a, b) if (a, b) in ((left, right), (right, left)):
            return operator
        case And(operands=parts):
            found = [_implied(part, left, right) for part in parts]
            if "=" in found or "<=>" in found:
                return "=" if "=" in found else "<=>"
            nulls = [part.operand for part in parts if isinstance(part, IsNull)]
            return "<=>" if _null_with(left, nulls) and _null_with(right, nulls) else None
        case Or(operands=parts):
            found = [_implied(part, left, right) for part in parts]
            return None if None in found else "<=>" if "<=>" in found else "="
        case Literal(value=value) if value.as_py() is not True:
            return "="
    return None


def _null_with(expression: Expression, nulls: Sequence[Expression]) -> bool:
    """Return whether an expression is null where one of these is: a cast of null is null."""
    return expression in nulls or (isinstance(expression, Cast) and _null_with(expression.operand, nulls))
