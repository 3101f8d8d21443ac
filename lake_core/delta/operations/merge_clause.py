"""The parsed clauses of a MERGE: what becomes of matched and unmatched rows, and in which order clauses apply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal as LiteralType
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake_core.arrow_scalar import scalar
from lake_core.delta.errors import InvalidMerge, SchemaMismatch
from lake_core.delta.numpy_arrays import integers
from lake_core.delta.operations.assignment import Assignment, check_assigned, parse_assignments
from lake_core.expression import (
    And,
    Call,
    Case,
    Column,
    Expression,
    IsNull,
    Literal,
    Predicate,
    evaluate,
    parse_predicate,
)

Kind: TypeAlias = LiteralType["update", "delete", "insert"]
Values: TypeAlias = "Mapping[str, str] | LiteralType['*']"
"""SQL text by column, or `*` for all columns from those of the same names in the source."""


@dataclass(frozen=True, slots=True)
class ClauseText:
    """A clause as the caller gave it."""

    kind: Kind
    values: Values | None
    condition: str | None


@dataclass(frozen=True, slots=True)
class Clause:
    """A clause over relations: rows as struct columns named by their aliases."""

    kind: Kind
    condition: Predicate | None
    assignments: tuple[Assignment, ...] = ()


@dataclass(frozen=True, slots=True)
class Clauses:
    """All clauses of a merge. Of each tuple the first clause whose condition is true applies to a row."""

    matched: tuple[Clause, ...] = ()
    not_matched: tuple[Clause, ...] = ()
    not_matched_by_source: tuple[Clause, ...] = ()

    @property
    def deletes_whatever_matches(self) -> bool:
        """Return whether several source rows may match one target row, since each would do the same."""
        return len(self.matched) == 1 and self.matched[0].kind == "delete" and self.matched[0].condition is None


def parse_clause(
    text: ClauseText,
    table: pa.Schema,
    scope: pa.Schema,
    aliases: tuple[str, str],
    generated: frozenset[str],
    now: int,
    *,
    evolve: bool = False,
) -> Clause:
    """Parse a clause.

    `scope`: the relations that it may name. `aliases`: of the table and the source, for `*`; `generated`: the columns
    that need no value; `now`: milliseconds. With `evolve`, the source may lack columns, and structs fields.

    Raises InvalidMerge, SchemaMismatch, InvalidExpression.
    """
    condition = None if text.condition is None else parse_predicate(text.condition, scope, relations=True, now=now)
    if text.kind == "delete":
        return Clause("delete", condition)
    if text.values == "*":
        if aliases[1] not in scope.names:
            raise InvalidMerge(
                'a clause for rows that the source lacks cannot use "*": name the columns and their values'
            )
        return Clause(text.kind, condition, _all_columns(table, scope, aliases, generated, evolve))
    if not isinstance(text.values, Mapping):
        raise SchemaMismatch(
            f'the values of a clause must be "*" or a mapping from columns to SQL, not {text.values!r}'
        )
    assignments = parse_assignments(text.values, table, scope, now, relations=True, fill=evolve)
    if text.kind == "insert" and any(len(assignment.target) > 1 for assignment in assignments):
        raise InvalidMerge(
            "a merge can only insert whole columns: name the column, and build its struct with named_struct(…)"
        )
    return Clause(text.kind, condition, assignments)


def with_plain_targets(text: ClauseText, alias: str, table: pa.Schema) -> ClauseText:
    """Replace `alias.column` by `column` in a clause, unless the table has a column of the alias's name."""
    prefix = f"{alias}.".lower()
    if not isinstance(text.values, Mapping) or alias.lower() in (name.lower() for name in table.names):
        return text
    plain = {
        name[len(prefix) :] if str(name).lower().startswith(prefix) else name: sql for name, sql in text.values.items()
    }
    if len(plain) < len(text.values):
        raise SchemaMismatch(f"a column is assigned twice: {', '.join(text.values)}")
    return replace(text, values=plain)


def _all_columns(
    table: pa.Schema, scope: pa.Schema, aliases: tuple[str, str], generated: frozenset[str], evolve: bool
) -> tuple[Assignment, ...]:
    """Return the assignments of `*`. Rows are taken as they are, so a value that would be cut or rounded is an error.

    With `evolve`, a column that the source lacks is not assigned, and a field that one of its structs lacks keeps its
    value in an update. It is null in an insert, and in structs in lists and maps, as for delta-spark.
    """
    given = {child.name.lower(): child for child in scope.field(aliases[1]).type}
    kept = {child.name: child for child in scope.field(aliases[0]).type} if aliases[0] in scope.names else {}
    missing = [name for name in table.names if name.lower() not in given and name not in generated]
    if missing and not evolve:
        raise InvalidMerge(
            f'the source has no column {missing[0]!r}, which "*" needs: list the columns one by one, add this one to '
            "the source, or let the merge evolve the schema: then it keeps its value, and is null in new rows"
        )
    assignments = []
    for child in table:
        source_field = given.get(child.name.lower())
        if source_field is None:
            continue
        check_assigned(source_field.type, child.type, child.name, fill=evolve)
        value = Column((aliases[1], source_field.name), source_field.type)
        before = kept.get(child.name) if evolve else None
        whole = value if before is None else _overlaid(value, Column((aliases[0], before.name), before.type))
        assignments.append(Assignment((child.name,), whole, evolve, exact=True))
    return tuple(assignments)


def _overlaid(given: Column, kept: Column) -> Expression:
    """Return a column of the source, with the fields that its structs lack from a column of the target.

    A struct that is null in the source has these fields all the same, unless the target's is null too. This is as
    delta-spark has it.
    """
    if not (pa.types.is_struct(given.type) and pa.types.is_struct(kept.type)):
        return given
    others = {child.name.lower(): child for child in kept.type}
    values: dict[str, Expression] = {}
    for child in given.type:
        value = Column((*given.path, child.name), child.type)
        other = others.pop(child.name.lower(), None)
        values[child.name] = value if other is None else _overlaid(value, Column((*kept.path, other.name), other.type))
    if not others and all(isinstance(value, Column) for value in values.values()):
        return given
    values |= {child.name: Column((*kept.path, child.name), child.type) for child in others.values()}
    kind = pa.struct([(name, value.type) for name, value in values.items()])
    null = Literal(scalar(None, kind))
    return Case(((And((IsNull(given), IsNull(kept))), null),), Call("struct", tuple(values.values()), kind), kind)


def check_clauses(
    matched: Sequence[ClauseText], not_matched: Sequence[ClauseText], by_source: Sequence[ClauseText]
) -> None:
    """Raise InvalidMerge if there is no clause, or if one can never be reached."""
    if not (matched or not_matched or by_source):
        raise InvalidMerge("a merge needs at least one clause: when_matched_update, when_not_matched_insert, …")
    for texts in (matched, not_matched, by_source):
        if any(text.condition is None for text in texts[:-1]):
            raise InvalidMerge(
                "only the last clause of a kind may have no condition: the clauses after it would never apply"
            )


def first_true(clauses: Sequence[Clause], scope: pa.Table) -> npt.NDArray[np.int64]:
    """Return for each row the number of the first clause with a true condition, -1 for none."""
    chosen = np.full(scope.num_rows, -1, dtype=np.int64)
    for number, clause in enumerate(clauses):
        open_ = np.flatnonzero(chosen < 0)
        if not len(open_):
            break
        if clause.condition is None:
            chosen[open_] = number
            continue
        rows = scope if len(open_) == scope.num_rows else scope.take(integers(open_))
        hits = np.asarray(evaluate(clause.condition, rows).fill_null(False))
        chosen[open_[hits]] = number
    return chosen


def relation(rows: pa.Table) -> pa.ChunkedArray:
    """Return rows as one column of structs, the form in which expressions over relations see them."""
    return rows.to_struct_array() if rows.num_rows else pa.chunked_array([], pa.struct(list(rows.schema)))
