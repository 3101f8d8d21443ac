"""Binds a parsed predicate: to leaves that can skip files where possible, else to an expression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from lake_core.expression.errors import InvalidExpression
from lake_core.expression.junction import all_of, any_of
from lake_core.expression.leaf import LeafBinder, NoLeaf
from lake_core.expression.tree import Predicate, negated

if TYPE_CHECKING:
    from lake_core.expression.bind import Binder


def bind_predicate(node: exp.Expr, leaves: LeafBinder, expressions: Binder) -> Predicate:
    """Bind a node of the parser to a predicate, of leaves where possible. Raises InvalidExpression, RecursionError."""
    match node:
        case exp.Paren(this=inner):
            return bind_predicate(inner, leaves, expressions)
        case exp.And():
            return all_of([bind_predicate(part, leaves, expressions) for part in node.flatten()])
        case exp.Or():
            return any_of([bind_predicate(part, leaves, expressions) for part in node.flatten()])
        case exp.Not(this=inner):
            return negated(bind_predicate(inner, leaves, expressions))
    try:
        return leaves.bind(node)
    except InvalidExpression as error:
        try:
            condition = expressions.condition(node)
        except InvalidExpression as other:
            raise (other if isinstance(error, NoLeaf) else error) from None
        if not isinstance(error, NoLeaf):
            expressions.explain_mismatch(node, error)
        return condition
