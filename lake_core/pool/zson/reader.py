"""Reads values and types from ZSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.errors import InvalidType, InvalidValue, InvalidZson
from lake_core.pool.zson.analyzer import Analyzer
from lake_core.pool.zson.parser import Parser
from lake_core.pool.zson.syntax import Names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.pool.types import Type
    from lake_core.pool.value import Value


def parse_values(text: str) -> Iterator[Value]:
    """Yield the values of a text. A type that one of them names is known to those after it. Raises InvalidZson."""
    parser, analyzer = Parser(text), Analyzer()
    while (value := _next_value(parser, analyzer)) is not None:
        yield value


def _next_value(parser: Parser, analyzer: Analyzer) -> Value | None:
    try:
        syntax = parser.next_value()
        return None if syntax is None else analyzer.analyze(syntax)
    except InvalidZson:
        raise
    except (InvalidType, InvalidValue) as error:
        raise InvalidZson(str(error), parser.offset) from None
    except RecursionError:
        raise InvalidZson("values and decorators are nested too deeply", parser.offset) from None


def parse_value(text: str) -> Value:
    """Return the one value of a text. Raises InvalidZson."""
    values = list(parse_values(text))
    if len(values) != 1:
        raise InvalidZson(f"the text contains {len(values)} values instead of one", 0)
    return values[0]


def parse_type(text: str) -> Type:
    """Return the type that a text describes. Raises InvalidZson."""
    parser = Parser(text)
    try:
        return parser.next_type()(Names())
    except InvalidZson:
        raise
    except InvalidType as error:
        raise InvalidZson(str(error), parser.offset) from None
