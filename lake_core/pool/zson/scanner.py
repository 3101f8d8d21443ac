"""Reads the smallest parts of a ZSON text: names, strings and primitive values."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NoReturn

from lake_core.pool import types
from lake_core.pool.errors import InvalidValue, InvalidZson
from lake_core.pool.zson.primitive_text import parse_primitive
from lake_core.pool.zson.quoting import is_name_character, is_type_character
from lake_core.pool.zson.syntax import Primitive

if TYPE_CHECKING:
    from lake_core.pool.types import PrimitiveType

_SPACE: Final = re.compile(r"(?:\s|//[^\n\v\f\r\x85\u2028\u2029]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"((?:[^"\\\n]|\\.)*)"', re.DOTALL)
_ESCAPE: Final = re.compile(
    r"\\(?:u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", re.DOTALL
)
_ESCAPED: Final = {'"': '"', "\\": "\\", "/": "/", "'": "'", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_BACKTICKS: Final = re.compile(r"(=>\s*)?`([^`]*)`")
_INDENTATION: Final = re.compile(r"\n\s*")
_PRIMITIVES: Final = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"true|false|null|NaN|nan|[-+][Ii]nf",
        r"[-+0-9Ee./]+",
        r"0x[0-9A-Fa-f]*",
        r"[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,}(?:[.0-9]+)?(?:/[0-9]+)?",
        r"(?:[-.0-9]+(?:ns|us|ms|s|m|h|d|w|y))+",
        r"[-.:T0-9]+(?:Z|[-+]\d\d:\d\d)",
    )
)
"""The patterns of primitive values. The longest match is tried first."""
_BY_TEXT: Final = (
    types.INT64,
    types.UINT64,
    types.FLOAT64,
    types.TIME,
    types.DURATION,
    types.NET,
    types.IP,
    types.BYTES,
)
"""The types that an undecorated text is tried as, in this order."""


class Scanner:
    """A text, and the current position in it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def fail(self, why: str) -> NoReturn:
        """Raise InvalidZson at the current position."""
        raise InvalidZson(why, self.at)

    def skip_space(self) -> None:
        """Skip white space and comments."""
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def at_end(self) -> bool:
        """Return whether nothing but white space and comments is left."""
        self.skip_space()
        return self.at >= len(self.text)

    def match(self, token: str) -> bool:
        """Skip a token and the white space before it, and return whether it was there."""
        self.skip_space()
        if self.text.startswith(token, self.at):
            self.at += len(token)
            return True
        return False

    def expect(self, token: str, what: str) -> None:
        """Skip a token that must be there. Raises InvalidZson."""
        if not self.match(token):
            self.fail(f"{token!r} is missing {what}")

    def peek(self) -> str:
        """Return the next character after white space; an empty text at the end."""
        self.skip_space()
        return self.text[self.at : self.at + 1]

    def name(self) -> str | None:
        """Read the name of a field or symbol, with or without quotes, if one is there."""
        if self.peek() == '"':
            return self.string()
        return self.identifier()

    def identifier(self) -> str | None:
        """Read a name without quotes, if one is there."""
        self.skip_space()
        end = self.at
        while end < len(self.text) and (
            is_name_character(self.text[end]) or (end > self.at and self.text[end] in "0123456789")
        ):
            end += 1
        name, self.at = self.text[self.at : end], end
        return name or None

    def type_name(self) -> str | None:
        """Read the name of a type, with or without quotes, if one is there."""
        if self.peek() == '"':
            return self.string()
        end = self.at
        while end < len(self.text) and is_type_character(self.text[end]):
            end += 1
        name, self.at = self.text[self.at : end], end
        return name or None

    def string(self) -> str:
        """Read a string between quotes. Raises InvalidZson."""
        match = _STRING.match(self.text, self.at)
        if not match:
            self.fail("a string does not end on its line")
        raw = match.group(1)
        text = _ESCAPE.sub(self._unescape, raw) if "\\" in raw else raw
        self.at = match.end()
        return text

    def _unescape(self, match: re.Match[str]) -> str:
        high, low, code, character = match.groups()
        if high:
            return chr(0x10000 + ((int(high, 16) & 0x3FF) << 10 | int(low, 16) & 0x3FF))
        if code:
            if 0xD800 <= int(code, 16) < 0xE000:
                self.fail(f"a string contains half of a surrogate pair: \\u{code}")
            return chr(int(code, 16))
        if character not in _ESCAPED:
            self.fail(f"a string contains the unknown escape \\{character}")
        return _ESCAPED[character]

    def primitive(self) -> Primitive | None:
        """Read a primitive value, if one is there."""
        if self.peek() == '"':
            return Primitive(types.STRING, self.string())
        if match := _BACKTICKS.match(self.text, self.at):
            self.at = match.end()
            text = match.group(2)
            return Primitive(types.STRING, text if match.group(1) else _INDENTATION.sub("\n", text).removeprefix("\n"))
        matches = (pattern.match(self.text, self.at) for pattern in _PRIMITIVES)
        for length in sorted({match.end() - self.at for match in matches if match}, reverse=True):
            text = self.text[self.at : self.at + length]
            type = _type_of(text)
            if type is not None:
                self.at += length
                return Primitive(type, text)
        return None


def _type_of(text: str) -> PrimitiveType | None:
    """Return the type of an undecorated text, or None if it is not a primitive value."""
    if text in ("true", "false"):
        return types.BOOL
    if text == "null":
        return types.NULL
    for type in _BY_TEXT:
        try:
            parse_primitive(type, text)
        except InvalidValue:
            continue
        return type
    return None
