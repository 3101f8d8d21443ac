"""CHAR(n) and VARCHAR(n), which are strings in the protocol: Spark keeps their lengths in a column's field metadata.

Rows are written as Spark writes them. A longer text loses blanks at its end, or is refused. CHAR is padded with blanks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from lake_core.delta.errors import ConstraintViolation, MalformedMetadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.delta.schema import StructType

TYPE_STRING = "__CHAR_VARCHAR_TYPE_STRING"
"""The key of the field metadata of a column, which holds its type in SQL, with those of its parts."""

_NAME = re.compile(r"`((?:[^`]|``)*)`:|([^:]*):")
_TEXT = re.compile(r"(char|character|varchar)\(\s*([0-9]{1,9})\s*\)", re.IGNORECASE)
_OTHER = re.compile(r"[a-z][a-z0-9_ ]*(?:\([0-9, ]+\))?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class TextLength:
    """CHAR(n), which is padded, or VARCHAR(n)."""

    length: int
    is_padded: bool

    def __str__(self) -> str:
        return f"{'char' if self.is_padded else 'varchar'}({self.length})"


@dataclass(frozen=True, slots=True)
class FieldLengths:
    """The lengths of texts inside a struct, by the names of its fields in lower case."""

    fields: Mapping[str, Lengths]


@dataclass(frozen=True, slots=True)
class ItemLengths:
    """The lengths of texts inside a list, or inside the keys and the values of a map."""

    items: tuple[Lengths | None, ...]


Lengths: TypeAlias = TextLength | FieldLengths | ItemLengths


def text_lengths(schema: StructType) -> dict[str, Lengths]:
    """Return the lengths of the columns that have some. Raises MalformedMetadata."""
    found = {}
    for child in schema.fields:
        text = child.metadata.get(TYPE_STRING)
        if text is None:
            continue
        parser = _Parser(text if isinstance(text, str) else "", child.name)
        lengths = parser.run()
        if lengths is not None:
            found[child.name] = lengths
    return found


class _Parser:
    def __init__(self, text: str, column: str) -> None:
        self._text, self._column, self._position = text, column, 0

    def run(self) -> Lengths | None:
        lengths = self._type()
        if self._position < len(self._text):
            raise self._malformed()
        return lengths

    def _type(self) -> Lengths | None:
        for name, count in (("array<", 1), ("map<", 2)):
            if self._takes(name):
                items = []
                for number in range(count):
                    if number and not self._takes(","):
                        raise self._malformed()
                    items.append(self._type())
                if not self._takes(">"):
                    raise self._malformed()
                return ItemLengths(tuple(items)) if any(item is not None for item in items) else None
        if self._takes("struct<"):
            return self._struct()
        if match := _TEXT.match(self._text, self._position):
            self._position = match.end()
            return TextLength(int(match[2]), match[1].lower() != "varchar")
        if match := _OTHER.match(self._text, self._position):
            self._position = match.end()
            return None
        raise self._malformed()

    def _struct(self) -> Lengths | None:
        fields: dict[str, Lengths] = {}
        while not self._takes(">"):
            self._takes(",")
            match = _NAME.match(self._text, self._position)
            if match is None:
                raise self._malformed()
            self._position = match.end()
            lengths = self._type()
            if lengths is not None:
                fields[(match[2] if match[1] is None else match[1].replace("``", "`")).lower()] = lengths
        return FieldLengths(fields) if fields else None

    def _takes(self, text: str) -> bool:
        if self._text[self._position : self._position + len(text)].lower() != text:
            return False
        self._position += len(text)
        return True

    def _malformed(self) -> MalformedMetadata:
        return MalformedMetadata(
            f"the field metadata {TYPE_STRING} of column {self._column!r} is {self._text[:80]!r}, not a type in SQL"
        )


def with_lengths(column: pa.ChunkedArray, lengths: Lengths, path: str) -> pa.ChunkedArray:
    """Return the values as they are stored in a column of these lengths. `path` names it in errors.

    Raises ConstraintViolation for a text that is too long.
    """
    return pa.chunked_array([_fitted(chunk, lengths, path) for chunk in column.chunks], column.type)


def _fitted(array: pa.Array, lengths: Lengths | None, path: str) -> pa.Array:
    kind, types = array.type, pa.types
    if isinstance(lengths, TextLength) and types.is_string(kind):
        return _fitted_text(array, lengths, path)
    if isinstance(lengths, FieldLengths) and types.is_struct(kind):
        children = [
            _fitted(pc.struct_field(array, [index]), lengths.fields.get(child.name.lower()), f"{path}.{child.name}")
            for index, child in enumerate(kind)
        ]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if isinstance(lengths, ItemLengths) and types.is_list(kind) and len(lengths.items) == 1:
        values = _fitted(array.flatten(), lengths.items[0], f"{path}.element")
        return pa.ListArray.from_arrays(_offsets(array), values, type=kind, mask=array.is_null())
    if isinstance(lengths, ItemLengths) and types.is_map(kind) and len(lengths.items) == 2:
        # A map has the same layout as a list of its entries.
        lists = array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field])))
        keys, items = lists.flatten().flatten()
        keys = _fitted(keys, lengths.items[0], f"{path}.key")
        items = _fitted(items, lengths.items[1], f"{path}.value")
        return pa.MapArray.from_arrays(_offsets(lists), keys, items, kind, mask=array.is_null())
    # The column has changed since, or no text in it has a length.
    return array


def _offsets(lists: pa.ListArray) -> pa.Array:
    """Return where each list begins in the values of all that are not null, and where the last one ends."""
    sizes = pc.fill_null(pc.list_value_length(lists), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(sizes).cast(pa.int32())])


def _fitted_text(texts: pa.Array, length: TextLength, path: str) -> pa.Array:
    is_long = pc.greater(pc.utf8_length(texts), length.length)
    if pc.any(is_long).as_py():
        long = texts.filter(is_long)
        refused = long.filter(pc.greater(pc.utf8_length(pc.utf8_rtrim(long, " ")), length.length))
        if len(refused):
            first = refused[0].as_py()
            raise ConstraintViolation(
                f"column {path!r} is {length}, but {len(refused)} of its values are longer, such as {first[:80]!r} "
                f"with {len(first)} characters: shorten them"
            )
        texts = pc.if_else(is_long, pc.utf8_slice_codeunits(texts, 0, length.length), texts)
    return pc.utf8_rpad(texts, length.length, " ") if length.is_padded else texts
