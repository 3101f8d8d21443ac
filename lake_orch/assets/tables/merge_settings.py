"""The settings of mode `merge` in an asset's metadata."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from lake_core.expression import quote_identifier
from lake_orch.errors import InvalidDefinition

if TYPE_CHECKING:
    from lake_core.delta.operations.merge import Merge

Values: TypeAlias = "Mapping[str, str] | Literal['*']"

TARGET, SOURCE = "t", "s"
"""The names of the table and of the new rows in expressions."""

_CLAUSES = (
    "when_matched_update",
    "when_matched_delete",
    "when_not_matched_insert",
    "when_not_matched_by_source_update",
    "when_not_matched_by_source_delete",
)
_SHAPE = (
    "give keys=['id'] or on='t.id = s.id', and clauses: when_matched_update and when_not_matched_insert ('*', {column: "
    "sql} or {'set': …, 'condition': sql}), when_matched_delete and when_not_matched_by_source_delete (True or sql), "
    "when_not_matched_by_source_update"
)


@dataclass(frozen=True, slots=True)
class MergeClause:
    """One clause: the rows that it applies to, their new values, and a further condition."""

    name: str
    values: Values | None = None
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class MergeSettings:
    """A merge without its rows."""

    on: str
    clauses: tuple[MergeClause, ...]
    keys: tuple[str, ...] = ()
    """The columns by which rows match, if the merge is by keys."""
    is_upsert: bool = False
    """True if the merge has only keys. Then the keys of new rows must be unique."""

    @classmethod
    def parse(cls, value: object, subject: str) -> MergeSettings:
        """Read metadata `lake/merge`: `["id"]`, or a mapping with `keys` or `on`, and clauses.

        Without clauses, rows that match are updated and others are inserted. Clauses with a condition go before others
        of their kind. Raises InvalidDefinition.
        """
        if isinstance(value, str) or (isinstance(value, Sequence) and all(isinstance(key, str) for key in value)):
            value = {"keys": value}
        if not isinstance(value, Mapping):
            raise InvalidDefinition(f"{subject} is {value!r}: {_SHAPE}")
        unknown = next((name for name in value if name not in ("keys", "on", *_CLAUSES)), None)
        if unknown is not None:
            raise InvalidDefinition(f"{subject} has {unknown!r}: {_SHAPE}")
        if ("keys" in value) == ("on" in value):
            raise InvalidDefinition(
                f"{subject} has {'both keys and' if 'on' in value else 'neither keys nor'} on: {_SHAPE}"
            )
        keys = _keys(value["keys"], subject) if "keys" in value else ()
        equal = [f"{TARGET}.{quote_identifier(key)} = {SOURCE}.{quote_identifier(key)}" for key in keys]
        on = " AND ".join(equal) or _sql(value["on"], subject)
        clauses = [clause for name in value if name in _CLAUSES for clause in _clauses(name, value[name], subject)]
        is_upsert = bool(keys) and not clauses
        if not clauses:
            clauses = [MergeClause("when_matched_update", "*"), MergeClause("when_not_matched_insert", "*")]
        return cls(on, tuple(sorted(clauses, key=lambda clause: clause.condition is None)), keys, is_upsert)

    def within(self, columns: Sequence[str], target: str) -> MergeSettings:
        """Return the merge, restricted to the rows of the table for which `target` (SQL on the table's alias) is true.

        `columns` are the columns that define the slice. A clause must set them to the values of the source, whose rows
        are checked. Raises InvalidDefinition for a clause that does not.
        """
        for clause in self.clauses:
            _check_stays(clause, columns)
        by_source = [
            replace(clause, condition=target if clause.condition is None else f"({clause.condition}) AND ({target})")
            if "by_source" in clause.name
            else clause
            for clause in self.clauses
        ]
        return replace(self, on=f"({self.on}) AND ({target})", clauses=tuple(by_source))

    def inserts(self) -> Values:
        """Return the values of inserted rows: SQL by column, or `*` for all columns.

        Columns that only updates set are included. The result is empty if no clause inserts.
        """
        inserts = [clause.values for clause in self.clauses if clause.name == "when_not_matched_insert"]
        if "*" in inserts:
            return "*"
        updates = [clause.values for clause in self.clauses if clause.name.endswith("_update")] if inserts else []
        columns: dict[str, str] = {}
        for values in (*inserts, *updates):
            for name, sql in values.items() if isinstance(values, Mapping) else ():
                columns.setdefault(name[len(TARGET) + 1 :] if name.lower().startswith(f"{TARGET}.") else name, sql)
        return columns

    def describe(self, merge: Merge) -> Merge:
        """Add these clauses to a merge, and return it."""
        for clause in self.clauses:
            add = getattr(merge, clause.name)
            merge = add(clause.condition) if clause.values is None else add(clause.values, clause.condition)
        return merge.with_unique_keys(self.keys) if self.is_upsert else merge


def _keys(value: object, subject: str) -> tuple[str, ...]:
    keys = [value] if isinstance(value, str) else value
    if (
        not isinstance(keys, Sequence)
        or not keys
        or not all(isinstance(key, str) and key for key in keys)
        or len(set(keys)) < len(keys)
    ):
        raise InvalidDefinition(f"keys of {subject} are {value!r}: give the names of the columns by which rows match")
    return tuple(keys)


def _clauses(name: str, value: object, subject: str) -> list[MergeClause]:
    if isinstance(value, list | tuple):
        return [clause for item in value for clause in _clauses(name, item, subject)]
    if name.endswith("_delete"):
        if value is False:
            return []
        condition = value.get("condition") if isinstance(value, Mapping) else None if value is True else value
        return [MergeClause(name, None, None if condition is None else _sql(condition, subject))]
    if value == "*" and "by_source" not in name:
        return [MergeClause(name, "*")]
    if not isinstance(value, Mapping) or not value:
        raise InvalidDefinition(f"{name} of {subject} is {value!r}: {_SHAPE}")
    if "set" in value and set(value) <= {"set", "condition"}:
        (clause,) = _clauses(name, value["set"], subject)
        condition = value.get("condition")
        return [replace(clause, condition=None if condition is None else _sql(condition, subject))]
    return [MergeClause(name, {_sql(column, subject): _sql(sql, subject) for column, sql in value.items()})]


def _check_stays(clause: MergeClause, columns: Sequence[str]) -> None:
    if clause.values is None or clause.values == "*":
        return
    assigned = {_plain(name, TARGET): _plain(sql, SOURCE) for name, sql in clause.values.items()}
    for column in columns:
        expression = assigned.get(column.lower())
        if expression == column.lower() or (expression is None and clause.name != "when_not_matched_insert"):
            continue
        raise InvalidDefinition(
            f"{clause.name} {'sets' if expression is not None else 'leaves out'} the column {column!r}, which the "
            f"partitions stand for: a row could leave the run's partitions. Give it as {{{column!r}: 's.{column}'}}"
        )


def _plain(name: str, alias: str) -> str:
    return name.replace("`", "").lower().removeprefix(f"{alias}.")


def _sql(value: object, subject: str) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidDefinition(f"{subject} has {value!r} where it needs SQL text")
    return value
