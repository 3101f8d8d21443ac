"""Parses Spark SQL text to the parser's tree. The size is limited, and functions keep the names that were written."""

from __future__ import annotations

from typing import Any, ClassVar

import sqlglot
from sqlglot import TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, SqlglotError

from lake_core.expression.errors import InvalidExpression, short

MAX_TEXT = 1 << 20
_MAX_TERMS = 100_000
_MAX_DEPTH = 100
_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_PREFIXES = frozenset({TokenType.NOT, TokenType.DASH, TokenType.PLUS, TokenType.TILDE})
_SEPARATORS = frozenset({TokenType.COMMA, TokenType.AND, TokenType.OR})
_ARITHMETIC = frozenset(
    {
        getattr(TokenType, name)
        for name in ("PLUS", "DASH", "STAR", "SLASH", "MOD", "DIV", "DPIPE", "PIPE", "AMP", "CARET")
    }
)
_MAX_CHAIN = 1000
"""The most operators in a row.

Each operator is a level of the tree. Without this limit, the parser would spend seconds on a tree that is too deep.
"""
_SIZED_TEXT = frozenset({"char", "character", "varchar", "nchar", "nvarchar"})


class _NamedFunctions(Spark):
    """Spark's grammar without knowledge of functions.

    With that knowledge, the parser rewrites the name and the arguments of a call. Here, each call stays as written.
    """

    class Parser(Spark.Parser):  # type: ignore[misc, valid-type]
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Spark.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "TRY_CAST")
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {"CASE": Spark.Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}


def parse_sql(text: object) -> exp.Expr:
    """Parse one expression to a tree.

    Raises InvalidExpression for text that does not parse, and for text that is too long or too deep.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidExpression("an expression is Spark SQL text, such as \"month = DATE '2024-01-01'\"")
    if len(text) > MAX_TEXT:
        raise InvalidExpression(f"an expression of {len(text)} characters is too long (at most {MAX_TEXT})")
    try:
        _check_tokens(text)
        return _with_signs(sqlglot.parse_one(text, dialect=_NamedFunctions), text)
    except SqlglotError as error:
        raise InvalidExpression(f"{short(text)} does not parse as Spark SQL: {_reason(error)}") from None
    except (ValueError, ArithmeticError):
        # The parser computes with the digits of a literal such as 1e99BD.
        raise InvalidExpression(f"{short(text)} contains a number that is out of range") from None
    except RecursionError:
        raise too_deep(text) from None


def _reason(error: SqlglotError) -> str:
    """Return what is wrong, and where. The parser's own text about a missing operand names its classes."""
    if not isinstance(error, ParseError) or not error.errors:
        return str(error).splitlines()[0]
    first = error.errors[0]
    description = "an operand is missing" if "<class" in first["description"] else first["description"]
    return f"{description} at {first['highlight']!r}, line {first['line']}, column {first['col']}"


def _check_tokens(text: str) -> None:
    """Refuse text that is too deep or too long for the parser or an engine, or that the tree cannot represent."""
    depth = run = terms = chain = 0
    before, end = "", -2
    for token in sqlglot.tokenize(text, dialect="spark"):
        kind = token.token_type
        terms += kind in _SEPARATORS
        chain = 0 if kind in _SEPARATORS else chain + (kind in _ARITHMETIC)
        depth += (kind in _OPENING) - (kind in _CLOSING)
        run = run + 1 if kind in _PREFIXES else 0
        if depth + run > _MAX_DEPTH:
            raise InvalidExpression(f"{short(text)} is nested too deeply (at most {_MAX_DEPTH} levels)")
        if chain > _MAX_CHAIN:
            raise too_deep(text)
        if terms >= _MAX_TERMS:
            raise InvalidExpression(
                f"{short(text)} has too many terms (at most {_MAX_TERMS} comparisons and list items)"
            )
        if kind == TokenType.HEX_STRING and text[token.start] == "0":
            raise InvalidExpression(
                f"{short(text)}: {text[token.start : token.end + 1]} is not a literal; write binary values as X'…'"
            )
        if kind == TokenType.L_PAREN and before in _SIZED_TEXT:
            raise InvalidExpression(f"{short(text)}: {before}(…) is not supported; cast to STRING and use substring")
        if kind == TokenType.STRING and token.start == end + 1 and text[end] == text[token.start]:
            raise InvalidExpression(
                f"{short(text)}: the meaning of a doubled quote depends on the version of Spark; write \\' instead"
            )
        before, end = token.text.lower(), token.end


def suffixed_numbers(text: str) -> int:
    """Count the numbers with a suffix, such as `7L`. In the tree, each of them is a cast."""
    tokens = sqlglot.tokenize(text, dialect="spark")
    return sum(token.token_type == TokenType.DCOLON and text[token.start : token.start + 2] != "::" for token in tokens)


def _with_signs(tree: exp.Expr, text: str) -> exp.Expr:
    """Return a tree in which the minus before a number with a suffix belongs to the number.

    Otherwise `-128Y` would negate a number that its type cannot hold.
    """
    if not suffixed_numbers(text):
        return tree
    for negation in [*tree.find_all(exp.Neg)]:
        cast = negation.this
        if not isinstance(cast, exp.Cast) or cast.args.get("safe"):
            continue
        if isinstance(cast.this, exp.Literal) and cast.to.this in exp.DataType.INTEGER_TYPES:
            cast.set("this", exp.Literal(this=f"-{cast.this.this}", is_string=False))
            negation.replace(cast)
            tree = cast if negation is tree else tree
    return tree


def too_deep(text: str) -> InvalidExpression:
    """Return the error for an expression with too many levels."""
    return InvalidExpression(f"{short(text)} is nested too deeply; use IN (…) instead of long chains of OR")


def short_sql(node: exp.Expr) -> str:
    """Write a node as SQL for an error message, cut to 80 characters."""
    return node.sql(dialect="spark")[:80]


def is_column(node: exp.Expr) -> bool:
    """Return whether a node is the name of a column, or of a field inside one, at any depth."""
    return isinstance(node, exp.Column) or (
        isinstance(node, exp.Dot) and all(isinstance(part, exp.Identifier) for part in node.parts)
    )


def parts_of(node: exp.Expr) -> list[str]:
    """Return the parts of a name, outermost first."""
    return [part.name for part in node.parts]  # type: ignore[attr-defined]
