"""Expressions and predicates: small immutable trees over typed columns and literals, as Spark's analyser would leave them.

Implicit casts stand in the tree, so that evaluation knows no type rules. Predicates have SQL's three-valued logic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOfThese
from typing import TypeAlias

import pyarrow as pa

Operator: TypeAlias = OneOfThese["=", "!=", "<", "<=", ">", ">=", "<=>"]

NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED: dict[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its names from the top level down, spelled as in the schema, with its Arrow type."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Comparison:
    """column <operator> literal, the literal in the column's type, or for floating columns a finite double that is not -0.0."""

    operator: Operator
    column: Column
    value: pa.Scalar


@dataclass(frozen=True, slots=True)
class ColumnComparison:
    """column <operator> column."""

    operator: Operator
    left: Column
    right: Column


@dataclass(frozen=True, slots=True)
class In:
    """column IN (literals), none of them null, in types as in a comparison."""

    column: Column
    values: tuple[pa.Scalar, ...]


@dataclass(frozen=True, slots=True)
class Like:
    """column LIKE pattern, with `%`, `_` and the escape character `\\`."""

    column: Column
    pattern: str


@dataclass(frozen=True, slots=True)
class IsNull:
    column: Column


@dataclass(frozen=True, slots=True)
class Constant:
    """TRUE, FALSE or NULL."""

    value: bool | None


@dataclass(frozen=True, slots=True)
class Condition:
    """Any other boolean: an expression, which is evaluated row by row and tells nothing of files."""

    expression: Expression


@dataclass(frozen=True, slots=True)
class Not:
    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    operands: tuple[Predicate, ...]


Predicate: TypeAlias = Comparison | ColumnComparison | In | Like | IsNull | Constant | Condition | Not | And | Or


def negated(predicate: Predicate) -> Predicate:
    """NOT predicate with the negation pushed down to the leaves; equal to it also where the answer is null."""
    match predicate:
        case Not(operand=operand):
            return operand
        case And(operands=operands):
            return Or(tuple(negated(child) for child in operands))
        case Or(operands=operands):
            return And(tuple(negated(child) for child in operands))
        case Comparison(operator=operator, column=column, value=value) if operator != "<=>":
            return Comparison(NEGATED[operator], column, value)
        case ColumnComparison(operator=operator, left=left, right=right) if operator != "<=>":
            return ColumnComparison(NEGATED[operator], left, right)
        case Constant(value=value):
            return Constant(None if value is None else not value)
        case _:
            return Not(predicate)


def always(column: Column) -> Predicate:
    """True where the column has a value, else null: a comparison that every value passes."""
    return Or((Not(IsNull(column)), Constant(None)))


def never(column: Column) -> Predicate:
    """False where the column has a value, else null: a comparison that no value passes."""
    return And((IsNull(column), Constant(None)))


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
