"""Types of columns as the texts of a catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lake_core.catalog.errors import UnsupportedColumn
from lake_core.delta.schema import ArrayType, MapType, PrimitiveType, StructType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake_core.delta.schema import DataType

_DECIMAL: Final = re.compile(r"decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)", re.ASCII)


@dataclass(frozen=True, slots=True)
class TypeTexts:
    """How a catalog writes types."""

    engine: str
    """Its name in errors."""
    words: Mapping[str, str]
    """The primitive types that it knows, by Delta's names, but for decimals."""
    field_name: Callable[[str, str], str]
    """Returns the name of a field of a struct as it is written. Takes the column, for the error, and the name."""

    def text(self, kind: DataType, column: str) -> str:
        """Return the text of a type. Raises UnsupportedColumn, which names the column."""
        match kind:
            case PrimitiveType(name=name) if name in self.words:
                return self.words[name]
            case PrimitiveType(name=name) if digits := decimal_digits(kind):
                return f"decimal({digits[0]},{digits[1]})"
            case PrimitiveType(name=name):
                raise UnsupportedColumn(
                    f"the column {column!r} has the type {name!r}, which {self.engine} has no form for"
                )
            case ArrayType(element=element):
                return f"array<{self.text(element, column)}>"
            case MapType(key=key, value=value):
                return f"map<{self.text(key, column)},{self.text(value, column)}>"
            case StructType(fields=fields):
                names = [self.field_name(column, each.name) for each in fields]
                texts = (f"{name}:{self.text(each.type, column)}" for name, each in zip(names, fields, strict=True))
                return f"struct<{','.join(texts)}>"


def decimal_digits(kind: DataType) -> tuple[int, int] | None:
    """Return the precision and scale of a decimal; None for another type."""
    match = _DECIMAL.fullmatch(kind.name) if isinstance(kind, PrimitiveType) else None
    return None if match is None else (int(match[1]), int(match[2]))
