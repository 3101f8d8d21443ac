"""Predicates over rows whose columns have several types, such as the records of a pool.

Such a predicate is bound once for each combination of types. A comparison of types that cannot be compared is null
there, as is a condition that is not a boolean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from lake_core.expression.bind import CLOCK_WORDS, OPERATORS, Binder
from lake_core.expression.bind_predicate import bind_predicate
from lake_core.expression.coercion import spark_name
from lake_core.expression.errors import InvalidExpression
from lake_core.expression.functions import ALIASES, FUNCTIONS, compare
from lake_core.expression.junction import any_of
from lake_core.expression.leaf import LeafBinder
from lake_core.expression.name import KnownNames
from lake_core.expression.sql import is_column, parse_sql, parts_of, too_deep
from lake_core.expression.tree import NULL, And, Cast, Column, Expression, Literal, Not, Operator, Predicate, operands

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

_TESTS = (*OPERATORS, exp.NullSafeNEQ, exp.Is, exp.In, exp.Between, exp.Like, exp.RegexpLike, exp.Escape)
"""Nodes that are null where their operands do not fit together."""


@dataclass(frozen=True, slots=True)
class BoundPredicate:
    """A predicate over columns of certain types.

    Attributes:
        predicate: The predicate.
        columns: The columns, by their names as they are written.
        mismatches: The parts that are null because their types do not fit, and why they do not, by their ids.
    """

    predicate: Predicate
    columns: Mapping[tuple[str, ...], Column]
    mismatches: Mapping[int, tuple[exp.Expr, InvalidExpression]]


class MixedPredicate:
    """A predicate in Spark SQL over columns that have several types.

    The text is parsed once. Raises InvalidExpression for a text that does not parse.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree = parse_sql(text)

    @property
    def names(self) -> list[tuple[str, ...]]:
        """Return the names of the columns, as they are written, each once."""
        return list(dict.fromkeys(_names(self._tree)))

    def bind(self, columns: Mapping[tuple[str, ...], Column]) -> BoundPredicate:
        """Bind the predicate to columns, by their names as they are written. A column without values has type null.

        Texts are not implicitly converted to other types, except literals: one record would fail where another is
        compared.

        Raises:
            InvalidExpression: It is nested too deeply.
        """
        names = KnownNames(self.text, columns)
        binder = _MixedBinder(self.text, names)
        try:
            predicate = bind_predicate(self._tree, LeafBinder(self.text, names, binder), binder)
            return BoundPredicate(predicate, columns, binder.mismatches)
        except RecursionError:
            raise too_deep(self.text) from None


def refusal(predicates: Iterable[BoundPredicate]) -> InvalidExpression | None:
    """Return what is wrong with a predicate, given its bindings to all types that its columns have together.

    A part of it is wrong if its types fit in none of the bindings. A binding without one of the part's columns says
    nothing about it.
    """
    bound = list(predicates)
    first = {id: mismatch for each in reversed(bound) for id, mismatch in each.mismatches.items()}
    for id, (node, error) in first.items():
        names = list(_names(node))
        if not any(
            id not in each.mismatches
            and not any(name in each.columns and pa.types.is_null(each.columns[name].type) for name in names)
            for each in bound
        ):
            return error
    return None


def is_clock(names: Sequence[str]) -> bool:
    """Return whether a name means the current time if no column has it."""
    return len(names) == 1 and names[0].lower() in CLOCK_WORDS


def _names(tree: exp.Expr) -> Iterator[tuple[str, ...]]:
    for node in tree.walk(prune=is_column):
        if is_column(node):
            yield tuple(parts_of(node))


class _MixedBinder(Binder):
    """A binder that goes on after an error: the test or condition that is wrong becomes null."""

    def __init__(self, text: str, names: KnownNames) -> None:
        super().__init__(text, names, None)
        self.mismatches: dict[int, tuple[exp.Expr, InvalidExpression]] = {}
        self._explicit: list[Expression] = []

    def explain_mismatch(self, node: exp.Expr, error: InvalidExpression) -> None:
        if id(node) in self.mismatches:
            self.mismatches[id(node)] = node, error

    def condition(self, node: exp.Expr) -> Expression:
        try:
            return super().condition(node)
        except InvalidExpression as error:
            return self._mismatch(node, error)

    def bind(self, node: exp.Expr) -> Expression:
        try:
            return self._checked(super().bind(node))
        except InvalidExpression as error:
            if isinstance(node, exp.Between) and (ends := self._ends(node)) is not None:
                return ends
            if isinstance(node, _TESTS):
                return self._mismatch(node, error)
            if isinstance(node, exp.Anonymous) and self._is_null(node):
                return Literal(pa.nulls(1)[0])
            raise

    def _checked(self, expression: Expression) -> Expression:
        """Return the expression. Raises InvalidExpression if it has an implicit cast of a text."""
        match expression:
            case Cast(operand=operand, type=kind) if pa.types.is_string(operand.type) and not any(
                expression is each for each in self._explicit
            ):
                raise InvalidExpression(f"a text is not compared as {spark_name(kind)}; cast it")
        for operand in operands(expression):
            self._checked(operand)
        return expression

    def _mismatch(self, node: exp.Expr, error: InvalidExpression) -> Expression:
        self.mismatches[id(node)] = node, error
        return NULL

    def _in(self, operand: Expression, items: Sequence[Expression]) -> Expression:
        try:
            return self._checked(super()._in(operand, items))
        except InvalidExpression:
            tests = [self._compared("=", operand, item) for item in items]
            if all(test is NULL for test in tests):
                raise
            return any_of(tests)

    def _ends(self, node: exp.Between) -> Expression | None:
        """Bind a BETWEEN as two comparisons. Return None if neither of them fits."""
        try:
            operand, low, high = (self.bind(each) for each in (node.this, node.args["low"], node.args["high"]))
        except InvalidExpression:
            return None
        tests = self._compared(">=", operand, low), self._compared("<=", operand, high)
        if all(test is NULL for test in tests):
            return None
        return Not(And(tests)) if node.args.get("negate") else And(tests)

    def _is_null(self, node: exp.Anonymous) -> bool:
        """Return whether a call is one of a known function that does not take a null without a type."""
        name = str(node.this).lower()
        return ALIASES.get(name, name) in FUNCTIONS and any(
            pa.types.is_null(self.bind(argument).type) for argument in node.expressions
        )

    def _to(self, inner: exp.Expr, target: exp.DataType, null_if_invalid: bool) -> Expression:
        cast = super()._to(inner, target, null_if_invalid)
        self._explicit.append(cast)
        return cast

    def _compared(self, operator: Operator, left: Expression, right: Expression) -> Expression:
        """Compare two expressions. Return NULL if their types do not fit together."""
        try:
            return self._checked(compare(operator, left, right))
        except InvalidExpression:
            return NULL
