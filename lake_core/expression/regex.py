r"""Regular expressions of RLIKE: Java's, translated to RE2's where both find the same. Others are refused by name.

Supported are characters, escapes of punctuation, `.`, `\d \D \w \W \s \S \t \n \r \f`, sets with ranges, groups,
alternatives, `^`, `$` at the end, the quantifiers `* + ? {n} {n,} {n,m}`, and `(?i)` at the start. RE2 takes time in
proportion to the text, whatever the pattern.
"""

from __future__ import annotations

import string
from dataclasses import dataclass
from typing import NoReturn

from lake_core.expression.errors import InvalidExpression

_SETS = {
    "d": "0-9",
    "w": "A-Za-z0-9_",
    "s": r" \t\n\x0B\f\r",
}
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_TERMINATORS = r"\n\r\x{85}\x{2028}\x{2029}"
_END = rf"(?:\r\n|[{_TERMINATORS}])?\z"
"""Java's `$` is before a line's terminator at the end, too."""
_END_AFTER_CRLF = r"(?:\r\n)?\z"
"""The same for texts that end with both characters, between which `$` is not."""
_MOST_REPEATS = 1000


@dataclass(frozen=True, slots=True)
class Regex:
    """A pattern for RE2."""

    pattern: str
    pattern_after_crlf: str
    r"""The pattern for texts that end with `\r\n`."""


def translate(pattern: str) -> Regex:
    """Translate a pattern of Java. Raises InvalidExpression for one that RE2 may understand otherwise."""
    return Regex(_Translation(pattern, _END).run(), _Translation(pattern, _END_AFTER_CRLF).run())


class _Translation:
    def __init__(self, pattern: str, end: str) -> None:
        self._ignores_case = pattern.startswith("(?i)")
        self._pattern, self._end = pattern, end
        self._position = 4 if self._ignores_case else 0
        self._ends = 0
        """The number of `$` so far."""

    def run(self) -> str:
        translated = self._alternatives()
        if self._position < len(self._pattern):
            self._refuse("a ')' without its '('")
        return translated

    def _alternatives(self) -> str:
        parts = [self._sequence()]
        while self._peek() == "|":
            self._position += 1
            parts.append(self._sequence())
        return "|".join(parts)

    def _sequence(self) -> str:
        items: list[str] = []
        ends = self._ends
        while (letter := self._peek()) not in ("", "|", ")"):
            if self._ends > ends:
                self._refuse("'$' before the end")
            if letter in "^$":
                self._position += 1
                self._ends += letter == "$"
                items.append(r"\A" if letter == "^" else self._end)
                repeats = self._quantifier()
            else:
                items.append(self._item())
                repeats = self._quantifier()
                items.append(repeats)
            if repeats and (letter == "^" or self._ends > ends):
                self._refuse("a repeated '^' or '$'")
        return "".join(items)

    def _item(self) -> str:
        letter = self._next()
        match letter:
            case "(":
                if self._peek() == "?":
                    self._position += 1
                    if self._next() != ":":
                        self._refuse("a group that begins with '(?'")
                inner = self._alternatives()
                if self._next() != ")":
                    self._refuse("a '(' without its ')'")
                return f"(?:{inner})"
            case "[":
                return self._set()
            case ".":
                return f"[^{_TERMINATORS}]"
            case "\\":
                escaped = self._next()
                if escaped.lower() in _SETS and escaped:
                    return f"[{'^' if escaped.isupper() else ''}{_SETS[escaped.lower()]}]"
                return self._character(self._escaped(escaped))
            case "*" | "+" | "?" | "{":
                self._refuse(f"'{letter}' that repeats nothing")
        return self._character(letter)

    def _quantifier(self) -> str:
        letter = self._peek()
        if letter not in ("*", "+", "?", "{") or not letter:
            return ""
        self._position += 1
        quantifier = letter if letter != "{" else self._repeats()
        if self._peek() == "?":  # it finds the same, but shorter
            self._position += 1
        if self._peek() in ("*", "+", "?", "{") and self._peek():
            self._refuse("two quantifiers in a row")
        return quantifier

    def _repeats(self) -> str:
        end = self._pattern.find("}", self._position)
        least, comma, most = self._pattern[self._position : max(end, self._position)].partition(",")
        if end < 0 or not _is_count(least) or not (most == "" or _is_count(most)):
            self._refuse("a '{' that is no quantifier")
        if max(int(least), int(most or 0)) > _MOST_REPEATS or (most and int(most) < int(least)):
            self._refuse(f"a quantifier of more than {_MOST_REPEATS} repeats, or of fewer than none")
        self._position = end + 1
        return f"{{{int(least)}{comma}{int(most) if most else ''}}}"

    def _set(self) -> str:
        is_negated = self._peek() == "^"
        self._position += is_negated
        ranges: list[str] = []
        while (letter := self._next()) != "]" or not ranges:
            if letter == "" or letter in "[]" or (letter == "&" and self._peek() == "&"):
                self._refuse("a set within a set, or a set without its ']'")
            if letter == "\\":
                escaped = self._next()
                if escaped and escaped in _SETS:
                    ranges.append(_SETS[escaped])
                    if self._peek() == "-" and self._pattern[self._position + 1 : self._position + 2] != "]":
                        self._refuse("a range that begins with a set")
                    continue
                letter = self._escaped(escaped)
            last = letter
            if self._peek() == "-" and self._pattern[self._position + 1 : self._position + 2] not in ("]", ""):
                self._position += 1
                last = self._next()
                if last == "\\":
                    last = self._escaped(self._next())
                elif last in "[&":
                    self._refuse("a range that ends with a set")
                if last < letter:
                    self._refuse(f"the range {letter}-{last}")
            ranges.append(self._range(letter, last))
        return f"[{'^' if is_negated else ''}{''.join(ranges)}]"

    def _range(self, first: str, last: str) -> str:
        ranges = [(first, last)]
        if self._ignores_case:  # only of ASCII, unlike in RE2
            for letters, change in ((string.ascii_lowercase, str.upper), (string.ascii_uppercase, str.lower)):
                low, high = max(first, letters[0]), min(last, letters[-1])
                if low <= high:
                    ranges.append((change(low), change(high)))
        return "".join(_code(low) if low == high else f"{_code(low)}-{_code(high)}" for low, high in ranges)

    def _character(self, letter: str) -> str:
        if self._ignores_case and letter in string.ascii_letters:
            return f"[{letter.lower()}{letter.upper()}]"
        return _code(letter)

    def _escaped(self, letter: str) -> str:
        if letter in _CONTROLS and letter:
            return _CONTROLS[letter]
        if letter and letter in string.punctuation:
            return letter
        self._refuse(f"'\\{letter}'")

    def _peek(self) -> str:
        return self._pattern[self._position : self._position + 1]

    def _next(self) -> str:
        letter = self._peek()
        self._position += len(letter)
        return letter

    def _refuse(self, what: str) -> NoReturn:
        raise InvalidExpression(f"the regular expression {self._pattern[:80]!r} has {what}, which is not supported")


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _code(letter: str) -> str:
    """Return a character for RE2 that has no other meaning."""
    return letter if letter.isascii() and letter.isalnum() else f"\\x{{{ord(letter):x}}}"
