"""A query over tables of the lake: which tables and parameters its text names, and the text with other names in their place."""

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
    """One place where a query names a table."""

    name: str
    """As it stands there, parts joined by dots, without quotes."""
    start: int
    end: int
    """The part of the text, to the last character."""
    alias: str
    """What columns call it. Empty where the text gives one, or can take none."""


@dataclass(frozen=True, slots=True)
class Query:
    """A query that was parsed: one SELECT."""

    text: str
    mentions: Sequence[TableMention]
    parameters: frozenset[str]
    """Which of `PARAMETERS` it uses."""

    @property
    def tables(self) -> list[str]:
        """The names of its tables, each once, in the order of the text."""
        return list(dict.fromkeys(mention.name for mention in sorted(self.mentions, key=lambda one: one.start)))

    def naming(self, names: Mapping[str, str]) -> str:
        """The text with each table under the name that it has for an engine; columns go by what they were called before."""
        text = self.text
        for mention in sorted(self.mentions, key=lambda one: one.start, reverse=True):
            alias = f" AS {_quoted(mention.alias, text[mention.start : mention.end + 1])}" if mention.alias else ""
            text = f"{text[: mention.start]}{names[mention.name]}{alias}{text[mention.end + 1 :]}"
        return text


def parse_query(text: str, engine: Engine, what: str) -> Query:
    """Parse a query in an engine's SQL. Raises InvalidDefinition for what is no single SELECT, and for tables that are none of the lake."""
    try:
        statements = [statement for statement in sqlglot.parse(text, read=engine) if statement is not None]
    except (ParseError, TokenError) as error:
        raise InvalidDefinition(f"the SQL of {what} cannot be read: {error}") from None
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        raise InvalidDefinition(f"the SQL of {what} is not one SELECT: the rows that it selects become the table")
    query = statements[0]
    used = frozenset(found.name for found in query.find_all(exp.Placeholder))
    unknown = sorted(used - set(PARAMETERS))
    if unknown:
        raise InvalidDefinition(f"the SQL of {what} has the parameter {unknown[0]!r}: there are {', '.join(PARAMETERS)}")
    return Query(text, list(_mentions(query, what)), used)


def _mentions(query: exp.Expr, what: str) -> Iterator[TableMention]:
    seen = set()
    for scope in traverse_scope(query):
        for source in scope.sources.values():
            if not isinstance(source, exp.Table) or id(source) in seen:
                continue
            seen.add(id(source))
            parts = source.parts
            if not all(isinstance(part, exp.Identifier) and "start" in part.meta for part in parts):
                raise InvalidDefinition(f"the SQL of {what} reads {source.sql()[:100]}: it can read only tables of the lake")
            free = not source.alias and not source.args.get("sample")
            name = ".".join(part.name for part in parts)
            yield TableMention(name, parts[0].meta["start"], parts[-1].meta["end"], parts[-1].name if free else "")


def _quoted(name: str, mention: str) -> str:
    """An alias, in the quotes that the text has."""
    quote = mention[-1]
    return f"{quote}{name}{quote}" if quote in '`"' else name
