"""AND and OR of many predicates: comparisons of one column become one flat list, which is looked up at once."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from lake_core.expression.tree import And, Column, Comparison, In, Literal, Or, Predicate, is_leaf, negated

if TYPE_CHECKING:
    import pyarrow as pa

_MANY_INEQUALITIES = 64


def any_of(parts: list[Predicate]) -> Predicate:
    """Join the parts by OR.

    Equalities on one column become one list, which needs a single look-up and no nesting.
    """
    equalities: dict[Column, list[Predicate]] = {}
    others: list[Predicate] = []
    for part in dict.fromkeys(parts):
        match part:
            case In(operand=Column() as column) if is_leaf(part):
                equalities.setdefault(column, []).append(part)
            case Comparison(operator="=", left=Column() as column, right=Literal()) if is_leaf(part):
                equalities.setdefault(column, []).append(part)
            case _:
                others.append(part)
    joined = [*itertools.starmap(_in_list, equalities.items()), *others]
    return joined[0] if len(joined) == 1 else Or(tuple(joined))


def all_of(parts: list[Predicate]) -> Predicate:
    """Join the parts by AND.

    Many inequalities on one column become one list. A few stay as they are, because statistics decide them.
    """
    unequal: dict[Column, list[Predicate]] = {}
    distinct = list(dict.fromkeys(parts))
    for part in distinct:
        match part:
            case Comparison(operator="!=", left=Column() as column, right=Literal()) if is_leaf(part):
                unequal.setdefault(column, []).append(part)
    many = {column: leaves for column, leaves in unequal.items() if len(leaves) > _MANY_INEQUALITIES}
    listed = {id(part) for leaves in many.values() for part in leaves}
    others = [part for part in distinct if id(part) not in listed]
    joined = [*(negated(_in_list(column, leaves)) for column, leaves in many.items()), *others]
    return joined[0] if len(joined) == 1 else And(tuple(joined))


def _in_list(column: Column, parts: list[Predicate]) -> Predicate:
    """Join the values that the parts compare the column with to one list. Return a single part as it is."""
    if len(parts) == 1:
        return parts[0]
    values: list[pa.Scalar] = []
    for part in parts:
        match part:
            case In(values=several):
                values.extend(several)
            case Comparison(right=Literal(value=value)):
                values.append(value)
    return In(column, tuple(values))
