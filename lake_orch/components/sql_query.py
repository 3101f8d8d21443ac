"""Parses queries over tables of the lake: finds their tables and parameters, and replaces the names of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.optimizer.scope import traverse_scope

from lake_orch.errors import InvalidDefinition

Engine: TypeAlias = Literal["spark", "duckdb"]

PARAMETERS = ("partition_key", "partition_start", "partition_end")


@dataclass(frozen=True, slots=True)
class TableMention:
    """One mention of a table in a query."""

    name: str
    """The name in the query, parts joined by dots, without quotes."""
    start: int
    end: int
    """The position of the last character in the text."""
    alias: str
    """The quoted alias that columns refer to. Empty if the query has an alias here, or allows none."""


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: one SELECT."""

    text: str
    mentions: Sequence[TableMention]
    parameters: frozenset[str]
    """Those of `PARAMETERS` that the query uses."""

    @property
    def tables(self) -> list[str]:
        """Return the names of its tables, each once, in the order of the text."""
        return list(dict.fromkeys(mention.name for mention in sorted(self.mentions, key=lambda mention: mention.start)))

    def naming(self, names: Mapping[str, str]) -> str:
        """Return the text with the tables renamed for an engine. Columns still refer to the original names."""
        text = self.text
        for mention in sorted(self.mentions, key=lambda item: item.start, reverse=True):
            alias = f" AS {mention.alias}" if mention.alias else ""
            text = f"{text[: mention.start]}{names[mention.name]}{alias}{text[mention.end + 1 :]}"
        return text


def parse_query(text: str, engine: Engine, subject: str) -> Query:
    """Parse a query in an engine's SQL. Raises InvalidDefinition unless it is one SELECT over tables of the lake."""
    try:
        statements = [statement for statement in sqlglot.parse(text, read=engine) if statement is not None]
    except (ParseError, TokenError) as error:
        raise InvalidDefinition(f"the SQL of {subject} cannot be read: {error}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise InvalidDefinition(f"the SQL of {subject} is not one SELECT: the rows that it selects become the table")
    query = statements[0]
    used = frozenset(placeholder.name for placeholder in query.find_all(exp.Placeholder))
    unknown = sorted(used - set(PARAMETERS))
    if unknown:
        raise InvalidDefinition(
            f"the SQL of {subject} has the parameter {unknown[0]!r}: the parameters are {', '.join(PARAMETERS)}"
        )
    return Query(text, list(_mentions(query, text, subject)), used)


def _mentions(query: exp.Expr, text: str, subject: str) -> Iterator[TableMention]:
    visited = set()
    for scope in traverse_scope(query):
        for table in scope.tables:
            if id(table) in visited:
                continue
            visited.add(id(table))
            if not table.db and table.name.lower() in {name.lower() for name in scope.cte_sources}:
                # The query itself defines this table in its WITH clause.
                continue
            yield _mention(table, text, subject)
    missed = next((table for table in query.find_all(exp.Table) if id(table) not in visited), None)
    if missed is not None:
        raise InvalidDefinition(
            f"the SQL of {subject} names {missed.sql()[:100]} where it cannot be resolved: move it to a WITH clause"
        )


def _mention(table: exp.Table, text: str, subject: str) -> TableMention:
    parts = table.parts
    if not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
        raise InvalidDefinition(f"the SQL of {subject} reads {table.sql()[:100]}: it can read only tables of the lake")
    if table.args.get("version") or table.args.get("when"):
        raise InvalidDefinition(f"the SQL of {subject} reads {table.sql()[:100]}: give the version to its input")
    last = parts[-1].meta
    takes_alias = not table.alias and not table.args.get("sample")
    alias = text[last["start"] : last["end"] + 1] if takes_alias else ""
    return TableMention(".".join(part.name for part in parts), parts[0].meta["start"], last["end"], alias)
