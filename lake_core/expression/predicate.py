"""The predicates themselves: small immutable trees over typed columns and literals, with SQL's three-valued logic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    from lake_core.expression.expression import Expression

Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "<=>"]

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
