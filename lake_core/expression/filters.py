"""Filters as values, such as `[("id", "=", 7)]`: the form that PyArrow, pandas and deltalake take.

They need no SQL, so a value of the program is never quoted, and the parser is not imported.
"""

from __future__ import annotations

import numbers
from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from lake_core.expression.errors import InvalidExpression, short
from lake_core.expression.junction import all_of, any_of
from lake_core.expression.literal import compare, literal_of, one_of
from lake_core.expression.name import Names
from lake_core.expression.parse import parse_predicate
from lake_core.expression.spark_sql import predicate_sql
from lake_core.expression.tree import Operator, Predicate, negated

if TYPE_CHECKING:
    import pyarrow as pa

    from lake_core.expression.tree import Column

Filter: TypeAlias = tuple[str, str, Any]
"""A column, an operator and a value."""
Filters: TypeAlias = Sequence[Filter] | Sequence[Sequence[Filter]]
"""Filters that are all true for a row; or several such lists, of which one is true."""

_OPERATORS: dict[str, Operator] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}


def bind_filters(filters: Filters, schema: pa.Schema) -> Predicate:
    """Return the predicate that filters over the columns of a schema mean.

    The operators are `=`, `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` and `not in`. Values are compared as the literals of
    SQL are: exactly, and null is neither equal nor unequal to a value. Names ignore case. A name that no column has
    leads to a nested field by its dots.

    Raises:
        InvalidExpression: A filter has another form, names an unknown column, or has a value that the column cannot.
    """
    if isinstance(filters, str) or not isinstance(filters, Sequence) or not filters:
        raise _invalid(filters)
    groups = [filters] if isinstance(filters[0], tuple) else filters
    return any_of([_all_true(cast("Sequence[Filter]", group), schema) for group in groups])


def parse_where(where: str | Filters, schema: pa.Schema, *, now: int | None = None) -> tuple[Predicate, str]:
    """Return a condition of SQL or of filters as a predicate, and as SQL.

    `now` is that of `parse_predicate`. Raises InvalidExpression.
    """
    if isinstance(where, str):
        return parse_predicate(where, schema, now=now), where
    predicate = bind_filters(where, schema)
    text = predicate_sql(predicate)
    assert text is not None, "filters are leaves"
    return predicate, text


def _all_true(group: Sequence[Filter], schema: pa.Schema) -> Predicate:
    if isinstance(group, (str, tuple)) or not isinstance(group, Sequence) or not group:
        raise _invalid(group)
    return all_of([_leaf(each, schema) for each in group])


def _leaf(condition: Filter, schema: pa.Schema) -> Predicate:
    match condition:
        case (str(name), str(operator), value):
            pass
        case _:
            raise _invalid(condition)
    text = f"filter {short(repr(condition))}"
    folded = {own.lower() for own in schema.names}
    names = [name] if name.lower() in folded else name.split(".")
    column = Names(text, schema, relations=False).column(names)
    if operator in ("in", "not in"):
        if isinstance(value, (str, bytes)) or not isinstance(value, Collection) or not len(value):
            raise InvalidExpression(f"{text}: {operator!r} needs a list of values")
        listed = one_of(column, [_literal(column, each, text) for each in value])
        return listed if operator == "in" else negated(listed)
    if operator not in _OPERATORS:
        raise InvalidExpression(f"{text}: the operators are {', '.join(_OPERATORS)}, in, not in")
    return compare(_OPERATORS[operator], column, _literal(column, value, text))


def _literal(column: Column, value: object, text: str) -> pa.Scalar | Decimal:
    if value is None:
        name = ".".join(column.path)
        raise InvalidExpression(f'{text}: null is not equal to anything; write "{name} IS NULL" as text')
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        # Also of NumPy. Every integer has a decimal, and every float of 32 bits has a double.
        value = Decimal(int(value)) if isinstance(value, numbers.Integral) else float(value)
    return literal_of(column, value, text, short(repr(value)))


def _invalid(filters: object) -> InvalidExpression:
    return InvalidExpression(
        f'{short(repr(filters))} is not a list of filters such as [("id", "=", 7)], nor a list of such lists'
    )
