"""Assignments of an UPDATE or a MERGE clause: columns, or fields inside them, are set to the value of an expression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import SchemaMismatch
from lake_core.delta.identity import identity_columns
from lake_core.delta.schema import is_zoneless, resolve, zoneless
from lake_core.expression import (
    EvaluationFailed,
    Expression,
    check_assignable,
    evaluate,
    fields_by_name,
    parse_expression,
    store_assign,
)

if TYPE_CHECKING:
    from lake_core.delta.action import Metadata


@dataclass(frozen=True, slots=True)
class Assignment:
    """target = expression. Picklable."""

    target: tuple[str, ...]
    """The names from the top level down, as in the table."""
    expression: Expression
    fill: bool = False
    """Whether structs may lack fields, which are null."""
    exact: bool = False
    """Whether a value that its new type would change is an error; else it is cut or rounded, as Spark does."""

    def stored(self, value: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
        """Return the values of the expression as the target has them. Raises EvaluationFailed."""
        try:
            return store_assign(value, kind, fill=self.fill, exact=self.exact)
        except EvaluationFailed as error:
            raise EvaluationFailed(f"column {'.'.join(self.target)!r}: {error}") from None


def check_not_identity(assignments: Sequence[Assignment], metadata: Metadata) -> None:
    """Raise SchemaMismatch for an assignment to a column whose numbers the table gives to new rows."""
    names = {column.name for column in identity_columns(metadata)}
    for assignment in assignments:
        if assignment.target[0] in names:
            raise SchemaMismatch(
                f"column {assignment.target[0]!r} is an identity column, whose numbers do not change: leave it out"
            )


def parse_assignments(
    changes: Mapping[str, str],
    table: pa.Schema,
    scope: pa.Schema,
    now: int,
    *,
    relations: bool = False,
    fill: bool = False,
) -> tuple[Assignment, ...]:
    """Parse `{"column": "sql"}`. `scope`: the columns that the expressions may name. `now`: milliseconds.

    With `fill`, structs may lack fields.

    Raises SchemaMismatch for an unknown or doubled target, InvalidExpression for SQL that does not fit it.
    """
    if not isinstance(changes, Mapping) or not changes:
        raise SchemaMismatch(
            "assignments must be a mapping from columns to SQL with at least one entry, such as {'price': 'price * 2'}"
        )
    assignments: list[Assignment] = []
    assigned: set[tuple[str, ...]] = set()
    above: set[tuple[str, ...]] = set()
    for name, text in changes.items():
        target, kind = resolve(name, table)
        prefixes = {target[:length] for length in range(1, len(target) + 1)}
        if target in above or prefixes & assigned:
            raise SchemaMismatch(f"column {'.'.join(target)!r} is assigned twice")
        assigned.add(target)
        above |= prefixes
        expression = parse_expression(text, scope, relations=relations, now=now)
        check_assigned(expression.type, kind, ".".join(target), fill=fill)
        assignments.append(Assignment(target, expression, fill))
    return tuple(assignments)


def check_assigned(source: pa.DataType, target: pa.DataType, name: str, *, fill: bool = False) -> None:
    """Raise InvalidExpression unless values of `source` can be assigned to the column `name` by Spark's rules.

    Raises UnsupportedType for timestamps without a zone if the column has one, because Spark would assume the session's
    zone.
    """
    check_assignable(source, target, name, fill=fill)
    if pa.types.is_struct(source):
        for number, child in zip(fields_by_name(source, target), target, strict=True):
            if number is not None:
                check_assigned(source.field(number).type, child.type, name, fill=fill)
    elif pa.types.is_nested(source):
        for index in range(source.num_fields):
            check_assigned(source.field(index).type, target.field(index).type, name, fill=fill)
    elif is_zoneless(source) and pa.types.is_timestamp(target) and not is_zoneless(target):
        raise zoneless(name)


def assign(rows: pa.Table, assignments: Sequence[Assignment], scope: pa.Table | None = None) -> pa.Table:
    """Return rows with the assigned columns replaced.

    Expressions see `scope`, row by row (the rows themselves by default).

    Raises EvaluationFailed.
    """
    values = [evaluate(assignment.expression, rows if scope is None else scope) for assignment in assignments]
    columns = dict(zip(rows.column_names, rows.columns, strict=True))
    for assignment, value in zip(assignments, values, strict=True):
        name = assignment.target[0]
        columns[name] = _assigned(columns[name], columns[name].type, assignment.target[1:], value, assignment)
    return pa.Table.from_arrays(list(columns.values()), schema=rows.schema)


def _assigned(
    column: pa.ChunkedArray, kind: pa.DataType, path: Sequence[str], value: pa.ChunkedArray, by: Assignment
) -> pa.ChunkedArray:
    if not path:
        return by.stored(value, kind)
    # Assigning a field of a null struct makes it a struct whose other fields are null.
    fields = []
    for index, child in enumerate(kind):
        current = pc.struct_field(column, [index])
        current = current if isinstance(current, pa.ChunkedArray) else pa.chunked_array([current])
        fields.append(_assigned(current, child.type, path[1:], value, by) if child.name == path[0] else current)
    arrays = [field.combine_chunks() for field in fields]
    return pa.chunked_array([pa.StructArray.from_arrays(arrays, fields=list(kind))], kind)
