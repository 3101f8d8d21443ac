"""Scalar expressions: small immutable trees with the type of every node, as Spark's analyser would leave them.

Implicit casts stand in the tree, so that evaluation knows no type rules.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOfThese
from typing import TypeAlias

import pyarrow as pa

from lake_core.expression.predicate import (
    And,
    Column,
    ColumnComparison,
    Comparison,
    Condition,
    Constant,
    In,
    IsNull,
    Like,
    Not,
    Or,
    Predicate,
)


@dataclass(frozen=True, slots=True)
class Literal:
    value: pa.Scalar

    @property
    def type(self) -> pa.DataType:
        return self.value.type


@dataclass(frozen=True, slots=True)
class Call:
    """A function or operator of the allow-list, by its name there; arguments have the types that it takes."""

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Cast:
    operand: Expression
    type: pa.DataType
    null_if_invalid: bool = False
    """TRY_CAST: what is no value of the type becomes null."""


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true; a branch is evaluated for the rows that reach it."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first value that is not null; an operand is evaluated for the rows that reach it."""

    operands: tuple[Expression, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Junction:
    """AND or OR of booleans; an operand is evaluated for the rows that the operands before it do not decide."""

    operator: OneOfThese["and", "or"]
    operands: tuple[Expression, ...]

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class OneOf:
    """operand IN (literals), none of them null, all of the operand's type."""

    operand: Expression
    values: tuple[pa.Scalar, ...]

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()


Expression: TypeAlias = Column | Literal | Call | Cast | Case | Coalesce | Junction | OneOf


def operands(expression: Expression) -> Iterator[Expression]:
    """The expressions directly below one."""
    match expression:
        case Call(arguments=children) | Coalesce(operands=children) | Junction(operands=children):
            yield from children
        case Cast(operand=child) | OneOf(operand=child):
            yield child
        case Case(branches=branches, otherwise=otherwise):
            for condition, value in branches:
                yield condition
                yield value
            yield otherwise


def expression_columns(expression: Expression) -> Iterator[Column]:
    """Every column that the expression names, repeats included."""
    if isinstance(expression, Column):
        yield expression
    for child in operands(expression):
        yield from expression_columns(child)


def columns(named: Predicate | Expression) -> Iterator[Column]:
    """Every column that a predicate or an expression names, repeats included."""
    match named:
        case Comparison(column=column) | In(column=column) | Like(column=column) | IsNull(column=column):
            yield column
        case ColumnComparison(left=left, right=right):
            yield left
            yield right
        case Not(operand=operand):
            yield from columns(operand)
        case And(operands=children) | Or(operands=children):
            for child in children:
                yield from columns(child)
        case Condition(expression=expression):
            yield from expression_columns(expression)
        case Constant():
            pass
        case _:
            yield from expression_columns(named)
