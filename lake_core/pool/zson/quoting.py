"""Names and strings in ZSON: when names need quotes, and what is escaped between them."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_TO_ESCAPE: Final = re.compile(r'[\x00-\x1f"\\]')


def quoted_string(text: str) -> str:
    """Return a string between quotes."""
    return f'"{_TO_ESCAPE.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def is_name_character(character: str) -> bool:
    """Return whether a name without quotes may begin with a character."""
    return character.isalpha() or character in "_$"


def is_type_character(character: str) -> bool:
    """Return whether the name of a type may hold a character without quotes."""
    return is_name_character(character) or character in "0123456789."


def quoted_name(name: str) -> str:
    """Return the name of a field or a symbol, between quotes where it needs them."""
    if name and is_name_character(name[0]) and all(is_name_character(each) or each in "0123456789" for each in name):
        return name
    return quoted_string(name)


def quoted_type_name(name: str) -> str:
    """Return the name of a type, between quotes where it needs them."""
    if name and name[0] not in "0123456789" and all(map(is_type_character, name)):
        return name
    return quoted_string(name)
