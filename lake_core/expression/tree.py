"""Expressions: small immutable trees over typed columns and literals, like those of Spark's analyzer.

The tree contains implicit casts, so evaluation needs no type rules. A predicate is an expression of type boolean, with
SQL's three-valued logic. Only some predicates can skip files or be pushed down to an engine: see `is_leaf`.
"""

from __future__ import annotations

import math
import typing
from dataclasses import dataclass, replace
from typing import TypeAlias

import pyarrow as pa

from lake_core.arrow_scalar import scalar

if typing.TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Operator: TypeAlias = typing.Literal["=", "!=", "<", "<=", ">", ">=", "<=>"]

NEGATED: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
FLIPPED: dict[Operator, Operator] = {"=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=", "<=>": "<=>"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column by its names from the top level down, spelled as in the schema, with its Arrow type."""

    path: tuple[str, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant, as an Arrow scalar, which may be null."""

    value: pa.Scalar

    @property
    def type(self) -> pa.DataType:
        """Return the Arrow type of the value."""
        return self.value.type


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a function or operator of the allow-list. The arguments have the types that it takes."""

    function: str
    arguments: tuple[Expression, ...]
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Cast:
    """A cast by the rules of Spark's ANSI mode, under which an invalid value fails."""

    operand: Expression
    type: pa.DataType
    null_if_invalid: bool = False
    """TRY_CAST: a value that is invalid for the type becomes null."""


@dataclass(frozen=True, slots=True)
class Case:
    """The value of the first branch whose condition is true. A branch is evaluated for the rows that reach it."""

    branches: tuple[tuple[Expression, Expression], ...]
    otherwise: Expression
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Coalesce:
    """The first value that is not null. An operand is evaluated for the rows that reach it."""

    operands: tuple[Expression, ...]
    type: pa.DataType


class _Boolean:
    __slots__ = ()

    @property
    def type(self) -> pa.DataType:
        return pa.bool_()


@dataclass(frozen=True, slots=True)
class Comparison(_Boolean):
    """left <operator> right, both of one type.

    Two columns of one family may differ in width. A floating column may be compared with a double.
    """

    operator: Operator
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class In(_Boolean):
    """operand IN (values). The values are not null and have the operand's type, or are doubles if that is floating."""

    operand: Expression
    values: tuple[pa.Scalar, ...]


@dataclass(frozen=True, slots=True)
class Like(_Boolean):
    r"""operand LIKE pattern, with `%`, `_` and the escape character `\`. It is null if the pattern is None."""

    operand: Expression
    pattern: str | None


@dataclass(frozen=True, slots=True)
class IsNull(_Boolean):
    """operand IS NULL, which itself is never null."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Not(_Boolean):
    """NOT operand, null where the operand is."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class And(_Boolean):
    """An operand is evaluated for the rows that the operands before it do not make false."""

    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Or(_Boolean):
    """An operand is evaluated for the rows that the operands before it do not make true."""

    operands: tuple[Expression, ...]


Expression: TypeAlias = (
    Column | Literal | Call | Cast | Case | Coalesce | Comparison | In | Like | IsNull | Not | And | Or
)

Predicate: TypeAlias = Expression
"""An expression of type boolean."""

# Not `pa.scalar`: its first call imports pandas where that is installed.
TRUE, FALSE, NULL = (
    Literal(value) for value in pa.Array.from_buffers(pa.bool_(), 3, [pa.py_buffer(b"\x03"), pa.py_buffer(b"\x01")])
)


def operands(expression: Expression) -> Iterator[Expression]:
    """Yield the expressions directly below one."""
    match expression:
        case Call(arguments=children) | Coalesce(operands=children) | And(operands=children) | Or(operands=children):
            yield from children
        case Cast(operand=child) | In(operand=child) | Like(operand=child) | IsNull(operand=child) | Not(operand=child):
            yield child
        case Comparison(left=left, right=right):
            yield left
            yield right
        case Case(branches=branches, otherwise=otherwise):
            for condition, value in branches:
                yield condition
                yield value
            yield otherwise


def columns(expression: Expression) -> Iterator[Column]:
    """Yield every column that the expression names, repeats included."""
    if isinstance(expression, Column):
        yield expression
    for child in operands(expression):
        yield from columns(child)


def with_columns(expression: Expression, change: Callable[[Column], Column]) -> Expression:
    """Return the expression with each of its columns replaced by what `change` returns for it."""

    def changed(child: Expression) -> Expression:
        match child:
            case Column():
                return change(child)
            case Literal():
                return child
            case Call() as call:
                return replace(call, arguments=tuple(map(changed, call.arguments)))
            case Coalesce() | And() | Or() as many:
                return replace(many, operands=tuple(map(changed, many.operands)))
            case Comparison() as test:
                return replace(test, left=changed(test.left), right=changed(test.right))
            case Case() as case:
                branches = tuple((changed(condition), changed(value)) for condition, value in case.branches)
                return replace(case, branches=branches, otherwise=changed(case.otherwise))
            case _:
                return replace(child, operand=changed(child.operand))

    return changed(expression)


def negated(predicate: Predicate) -> Predicate:
    """Return NOT predicate, with the negation pushed down to the leaves. It is null where the predicate is null."""
    match predicate:
        case Not(operand=operand):
            return operand
        case And(operands=children):
            return Or(tuple(negated(child) for child in children))
        case Or(operands=children):
            return And(tuple(negated(child) for child in children))
        case Comparison(operator=operator, left=left, right=right) if operator != "<=>":
            return Comparison(NEGATED[operator], left, right)
        case Literal(value=value):
            return Literal(scalar(not value.as_py())) if value.is_valid else predicate
        case _:
            return Not(predicate)


def always(column: Column) -> Predicate:
    """Return a predicate that is true where the column has a value, and null elsewhere."""
    return Or((Not(IsNull(column)), NULL))


def never(column: Column) -> Predicate:
    """Return a predicate that is false where the column has a value, and null elsewhere."""
    return And((IsNull(column), NULL))


def is_leaf(predicate: Predicate) -> bool:
    """Return whether a predicate is a leaf, which statistics and other engines can evaluate.

    Leaves are TRUE, FALSE, NULL, and tests of one column. The tests are a comparison with a literal or another column,
    IN, LIKE and IS NULL. Their literals are not null, NaN, infinite or -0.0: engines differ on those.
    """
    match predicate:
        case Comparison(left=Column(), right=Literal(value=value)):
            return _is_ordinary(value)
        case In(operand=Column(type=kind), values=values):
            return not pa.types.is_floating(kind) or all(map(_is_ordinary, values))
        case Like(operand=Column(), pattern=pattern):
            return pattern is not None
        case Comparison(left=Column(), right=Column()) | IsNull(operand=Column()):
            return True
        case Literal(value=value):
            return bool(pa.types.is_boolean(value.type))
        case _:
            return False


def is_pushable(predicate: Predicate) -> bool:
    """Return whether a predicate consists of leaves.

    Another engine can filter by such a predicate. Any other predicate is evaluated row by row.
    """
    match predicate:
        case Not(operand=operand):
            return is_pushable(operand)
        case And(operands=children) | Or(operands=children):
            return all(map(is_pushable, children))
        case _:
            return is_leaf(predicate)


def _is_ordinary(value: pa.Scalar) -> bool:
    if not value.is_valid:
        return False
    if not pa.types.is_floating(value.type):
        return True
    number = value.as_py()
    return math.isfinite(number) and (number != 0 or math.copysign(1, number) > 0)
