"""Parses Spark SQL text to an expression over a schema. Text that is not supported is refused, never skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.expression.errors import InvalidExpression

if TYPE_CHECKING:
    import pyarrow as pa

    from lake_core.expression.tree import Expression, Predicate

# The parser takes longer to import than most tables take to open, so only text that is parsed waits for it.


def parse_expression(text: str, schema: pa.Schema, *, relations: bool = False, now: int | None = None) -> Expression:
    """Parse a scalar Spark SQL expression over the columns of `schema`, with the types that Spark's ANSI mode gives it.

    Timestamps are UTC.

    Args:
        text: The expression.
        schema: The columns.
        relations: The columns of `schema` are relations: structs of their fields. `t.id` is the field `id` of `t`. A
            name without a relation is looked up in all of them.
        now: The value of CURRENT_TIMESTAMP, in milliseconds since the epoch. Without it, CURRENT_TIMESTAMP is refused.

    Raises:
        InvalidExpression: The text does not parse, calls a function that is not supported, or combines types that
            cannot be combined.
    """
    from lake_core.expression.bind import Binder
    from lake_core.expression.name import Names
    from lake_core.expression.sql import parse_sql, too_deep

    tree = parse_sql(text)
    try:
        return Binder(text, Names(text, schema, relations=relations), now).bind(tree)
    except RecursionError:
        raise too_deep(text) from None


def parse_predicate(text: str, schema: pa.Schema, *, relations: bool = False, now: int | None = None) -> Predicate:
    """Parse a boolean Spark SQL expression over the columns of `schema`.

    Some predicates can skip files: `= == != <> < <= > >= <=>`, IN, BETWEEN, LIKE and IS [NOT] NULL of a column and
    literals, and boolean columns. Literals may have any primitive type, and may be typed (`DATE '…'`, `TIMESTAMP '…'`,
    CAST of a literal). Any other expression is bound as in `parse_expression`, with its `relations` and `now`, and
    evaluated row by row.

    Column names ignore case. Nested fields are named with dots. A timestamp literal without a zone is UTC. Integers and
    decimals are compared exactly, whatever the literal's type. Floats are compared as doubles: a FLOAT column is equal
    to `0.1F`, not to `0.1`. Raises InvalidExpression.
    """
    from lake_core.expression.bind import Binder
    from lake_core.expression.bind_predicate import bind_predicate
    from lake_core.expression.leaf import LeafBinder
    from lake_core.expression.name import Names
    from lake_core.expression.sql import parse_sql, too_deep

    tree = parse_sql(text)
    names = Names(text, schema, relations=relations)
    binder = Binder(text, names, now)
    try:
        return bind_predicate(tree, LeafBinder(text, names, binder), binder)
    except RecursionError:
        raise too_deep(text) from None


def parse_known(text: str, schema: pa.Schema) -> list[Predicate]:
    """Parse the operands of a predicate's outermost AND that use only columns of `schema`. Leave out the others.

    The names of the columns must be spelled exactly as in `schema`: one that differs by case may be another column.
    If one of them is not true for a row, the row does not match the whole predicate. Raises InvalidExpression for text
    that does not parse.
    """
    from sqlglot import exp

    from lake_core.expression.bind import Binder
    from lake_core.expression.bind_predicate import bind_predicate
    from lake_core.expression.leaf import LeafBinder
    from lake_core.expression.name import Names
    from lake_core.expression.sql import parse_sql

    tree = parse_sql(text)
    names = Names(text, schema, relations=False, exact=True)
    binder = Binder(text, names, None)
    leaves = LeafBinder(text, names, binder)
    predicates = []
    for node in tree.flatten() if isinstance(tree, exp.And) else [tree]:
        try:
            predicates.append(bind_predicate(node, leaves, binder))
        except (InvalidExpression, RecursionError):
            continue
    return predicates
