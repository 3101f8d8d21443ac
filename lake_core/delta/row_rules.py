"""The rules for a table's rows besides their types: generated columns, defaults, CHECK constraints, column invariants.

Protocol sections: Generated Columns, Default Columns, CHECK Constraints, Column Invariants. The expressions are SQL in
the table's metadata. They are parsed to a fixed set of operations. A table whose rules cannot be evaluated is not
written, but for defaults that no row needs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.arrow_scalar import FALSE_VALUE, scalar
from lake_core.delta.errors import ConstraintViolation, MalformedMetadata, SchemaMismatch, UnsupportedExpression
from lake_core.delta.features import CONSTRAINT_PREFIX, DEFAULTS, supported_features
from lake_core.delta.schema import StructField, StructType, walk
from lake_core.delta.statistics import check_indexed
from lake_core.delta.text_length import Lengths, text_lengths, with_lengths
from lake_core.errors import LakeError
from lake_core.expression import (
    Expression,
    InvalidExpression,
    Predicate,
    check_assignable,
    columns,
    evaluate,
    parse_expression,
    parse_predicate,
    store_assign,
)
from lake_core.readable import shown_values

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake_core.delta.action import Metadata, Protocol

INVARIANTS = "delta.invariants"
DEFAULT = "CURRENT_DEFAULT"
GENERATION_EXPRESSION = "delta.generationExpression"
_QUOTED = re.compile(r"'(?:[^'\\]|'')*'")
"""A text without escapes but doubled quotes."""
CHANGE_COLUMNS = frozenset({"_change_type", "_commit_version", "_commit_timestamp"})
"""The columns that the change data feed adds to a table's columns."""


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that must be true for every row; null is not true."""

    what: str
    """The name in errors, such as `CHECK constraint 'positive'`."""
    text: str
    predicate: Predicate

    def violations(self, rows: pa.Table) -> pa.Table:
        """Return the rows that break the constraint."""
        return rows.filter(pc.invert(pc.fill_null(evaluate(self.predicate, rows), FALSE_VALUE)))


@dataclass(frozen=True, slots=True)
class Generated:
    """A column whose value follows from the others."""

    column: str
    text: str
    expression: Expression
    in_log: bool = False
    """Whether the column partitions the table. Then the log stores '' as null."""


@dataclass(frozen=True, slots=True)
class Default:
    """The value of a column for rows that lack the column."""

    column: str
    expression: Expression | None = None
    """None if it cannot be evaluated. Then the column cannot be left out."""
    problem: str = ""
    """Why it cannot be evaluated."""

    def values(self, rows: pa.Table) -> pa.ChunkedArray:
        """Return the default for each row. Raises UnsupportedExpression."""
        if self.expression is None:
            raise UnsupportedExpression(
                f"the rows lack column {self.column!r}, and its default cannot be evaluated: {self.problem}. Give them "
                "the column, or write them with another Delta client"
            )
        return store_assign(evaluate(self.expression, rows), rows.schema.field(self.column).type)


@dataclass(frozen=True, slots=True)
class RowRules:
    """A table's rules, parsed. Picklable: Spark's executors apply them as well."""

    checks: tuple[Check, ...] = ()
    generated: tuple[Generated, ...] = ()
    defaults: tuple[Default, ...] = ()
    lengths: Mapping[str, Lengths] = field(default_factory=dict)
    """The lengths of the texts of columns, by the columns' names."""

    @property
    def computed(self) -> frozenset[str]:
        """Return the columns whose values follow from the others."""
        return frozenset(rule.column for rule in self.generated)

    @property
    def optional(self) -> frozenset[str]:
        """Return the columns that writers may leave out even if they are NOT NULL."""
        return self.computed | {rule.column for rule in self.defaults}

    def complete(self, rows: pa.Table, supplied: Iterable[str]) -> pa.Table:
        """Return rows in the table's schema, with the defaults and generated columns that are not among `supplied`.

        Texts are trimmed and padded to the lengths of their columns. Raises ConstraintViolation for one that is too
        long; UnsupportedExpression for a default that cannot be evaluated.
        """
        folded = {name.lower() for name in supplied}
        for default in self.defaults:
            if default.column.lower() not in folded:
                index = rows.schema.get_field_index(default.column)
                rows = rows.set_column(index, rows.schema.field(index), default.values(rows))
        for name in self.lengths:
            index = rows.schema.get_field_index(name)
            rows = rows.set_column(index, rows.schema.field(index), self._fitted(name, rows.column(index)))
        for rule in self.generated:
            if rule.column.lower() not in folded:
                index = rows.schema.get_field_index(rule.column)
                child = rows.schema.field(index)
                value = store_assign(evaluate(rule.expression, rows), child.type)
                rows = rows.set_column(index, child, self._fitted(rule.column, value))
        return rows

    def _fitted(self, column: str, values: pa.ChunkedArray) -> pa.ChunkedArray:
        lengths = self.lengths.get(column)
        return values if lengths is None else with_lengths(values, lengths, column)

    def check(self, rows: pa.Table, supplied: Iterable[str]) -> None:
        """Raise ConstraintViolation naming the first rule that rows in the table's schema break, and one such row.

        Only generated columns that are among `supplied` are checked.
        """
        folded = {name.lower() for name in supplied}
        for rule in self.generated:
            if rule.column.lower() not in folded:
                continue
            values = rows[rule.column]
            expected = self._fitted(rule.column, store_assign(evaluate(rule.expression, rows), values.type))
            if rule.in_log and pa.types.is_string(values.type):
                expected = pc.if_else(pc.equal(expected, ""), scalar(None, values.type), expected)
            same = pc.or_kleene(
                pc.fill_null(_equal(values, expected), FALSE_VALUE), pc.and_(pc.is_null(values), pc.is_null(expected))
            )
            _refuse(
                rows.filter(pc.invert(same)),
                rows,
                f"the generated column {rule.column!r}",
                f"{rule.column} <=> ({rule.text})",
            )
        for check in self.checks:
            _refuse(check.violations(rows), rows, check.what, check.text)


def row_rules(metadata: Metadata, protocol: Protocol) -> RowRules:
    """Return the rules that a table's protocol enables. Raises UnsupportedExpression, MalformedMetadata."""
    features = supported_features(protocol)
    rules = _all_rules(metadata, *(name in features for name in ("invariants", "checkConstraints", "generatedColumns")))
    return replace(rules, defaults=_defaults(metadata)) if DEFAULTS in features else rules


def check_rules(metadata: Metadata) -> None:
    """Raise what writing rows would raise: UnsupportedExpression, MalformedMetadata, InvalidProperty.

    Raises SchemaMismatch for a column with a name that the change data feed needs.
    """
    _all_rules(metadata)
    if metadata.configuration.get("delta.enableChangeDataFeed", "false").lower() == "true":
        taken = [name for name in metadata.schema.names if name.lower() in CHANGE_COLUMNS]
        if taken:
            raise SchemaMismatch(
                f"column {taken[0]!r} has a name that the change data feed needs: rename it, or leave the feed disabled"
            )
    check_indexed(metadata.arrow_schema, metadata.configuration)


def rule_columns(metadata: Metadata) -> list[tuple[str, set[tuple[str, ...]]]]:
    """Return the columns that each of the table's rules names, including the generated columns themselves."""
    rules = _all_rules(metadata)
    checked = [(check.what, {column.path for column in columns(check.predicate)}) for check in rules.checks]
    return checked + [
        (
            f"the generated column {rule.column!r}",
            {column.path for column in columns(rule.expression)} | {(rule.column,)},
        )
        for rule in rules.generated
    ]


def constraint(name: str, text: str, schema: pa.Schema) -> Check:
    """Parse a CHECK constraint. Raises InvalidExpression."""
    return Check(f"CHECK constraint {name!r}", text, parse_predicate(text, schema))


def constraints(metadata: Metadata) -> dict[str, str]:
    """Return the CHECK constraints in the table's properties, by name."""
    return {
        key.removeprefix(CONSTRAINT_PREFIX): text
        for key, text in metadata.configuration.items()
        if key.startswith(CONSTRAINT_PREFIX)
    }


def _all_rules(metadata: Metadata, invariants: bool = True, checks: bool = True, generated: bool = True) -> RowRules:
    schema = metadata.arrow_schema
    row_checks: list[Check] = []
    try:
        if invariants:
            for child in walk(metadata.schema):
                if INVARIANTS in child.metadata:
                    text = _invariant(child.name, child.metadata[INVARIANTS])
                    row_checks.append(
                        Check(f"the invariant of column {child.name!r}", text, parse_predicate(text, schema))
                    )
        if checks:
            row_checks += [constraint(name, text, schema) for name, text in constraints(metadata).items()]
        generated_fields = _generated_columns(metadata.schema) if generated else []
        computed = [_generated(child.name, child.metadata[GENERATION_EXPRESSION], schema) for child in generated_fields]
    except InvalidExpression as error:
        raise UnsupportedExpression(
            f"a rule in the table's metadata cannot be evaluated, so no rows can be checked: {error}. Write "
            "the table with another Delta client, or drop the rule"
        ) from None
    return RowRules(
        tuple(row_checks),
        tuple(replace(rule, in_log=rule.column in metadata.partition_columns) for rule in computed),
        lengths=text_lengths(metadata.schema),
    )


def _defaults(metadata: Metadata) -> tuple[Default, ...]:
    schema = metadata.arrow_schema
    return tuple(
        _default(child.name, str(child.metadata[DEFAULT]), schema.field(child.name).type)
        for child in metadata.schema.fields
        if DEFAULT in child.metadata
    )


def _default(column: str, text: str, kind: pa.DataType) -> Default:
    """Parse a default, which names no columns."""
    if _QUOTED.fullmatch(text):
        # Rules mean what each version of Spark takes them for. A default is for writers, so it means what Spark 4 does.
        text = "'" + text[1:-1].replace("''", "\\'") + "'"
    try:
        expression = parse_expression(text, pa.schema([]))
        check_assignable(expression.type, kind, column)
    except LakeError as error:
        return Default(column, problem=str(error))
    return Default(column, expression)


def _generated_columns(schema: StructType) -> list[StructField]:
    return [child for child in schema.fields if GENERATION_EXPRESSION in child.metadata]


def _generated(column: str, text: object, schema: pa.Schema) -> Generated:
    if not isinstance(text, str):
        raise MalformedMetadata(f"the generation expression of column {column!r} is {str(text)[:80]!r}, not SQL text")
    expression = parse_expression(text, schema)
    check_assignable(expression.type, schema.field(column).type, column)
    return Generated(column, text, expression)


def _invariant(column: str, body: object) -> str:
    try:
        text = json.loads(body)["expression"]["expression"] if isinstance(body, str) else None
    except (ValueError, TypeError, KeyError):
        text = None
    if not isinstance(text, str):
        raise MalformedMetadata(f"the invariant of column {column!r} is {str(body)[:80]!r}, not an expression in JSON")
    return text


def _equal(left: pa.ChunkedArray, right: pa.ChunkedArray) -> pa.ChunkedArray:
    equal = pc.equal(left, right)
    return pc.or_(equal, pc.and_(pc.is_nan(left), pc.is_nan(right))) if pa.types.is_floating(left.type) else equal


def _refuse(broken: pa.Table, rows: pa.Table, what: str, text: str) -> None:
    if broken.num_rows:
        first = broken.slice(0, 1).select(range(min(broken.num_columns, 8)))
        values = [shown_values(column)[0] for column in first.columns]
        example = ", ".join(f"{name}={value!r}" for name, value in zip(first.column_names, values, strict=True))
        raise ConstraintViolation(
            f"{broken.num_rows} of {rows.num_rows} rows violate {what}, {text}; the first is {example[:300]}"
        )
