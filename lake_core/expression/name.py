"""Resolves names to columns, in a table or in several relations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from lake_core.expression.errors import InvalidExpression, short
from lake_core.expression.tree import Column

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Names:
    """The columns of a schema. With `relations`, the columns are the fields of its structs.

    Names ignore case, unless `exact`. A column of exactly that name comes before others.
    """

    def __init__(self, text: str, schema: pa.Schema, *, relations: bool, exact: bool = False) -> None:
        self._text, self._schema, self._relations, self._exact = text, schema, relations, exact

    def column(self, names: Sequence[str]) -> Column:
        """Find a column by its names. Raises InvalidExpression if there is none, or more than one."""
        fields = list(self._schema)
        if not self._relations:
            return self._descend(fields, names, ())
        relation = _field(fields, names[0])
        if relation is not None and len(names) > 1:
            return self._descend(list(relation.type), names[1:], (relation.name,))
        owners = [owner for owner in fields if _field(list(owner.type), names[0]) is not None]
        if len(owners) > 1:
            offered = " or ".join(f"{owner.name}.{names[0]}" for owner in owners)
            raise InvalidExpression(f"{short(self._text)}: {'.'.join(names)!r} is ambiguous; write {offered}")
        if not owners:
            raise self._unknown(names, [f"{owner.name}.{child.name}" for owner in fields for child in owner.type])
        return self._descend(list(owners[0].type), names, (owners[0].name,))

    def knows(self, name: str) -> bool:
        """Return whether a column has this name, in any relation."""
        scopes = [list(owner.type) for owner in self._schema] if self._relations else [list(self._schema)]
        return any(_field(fields, name) is not None for fields in scopes)

    def _descend(self, fields: Sequence[pa.Field], names: Sequence[str], above: tuple[str, ...]) -> Column:
        path = list(above)
        kind = pa.struct(fields)
        for name in names:
            if not pa.types.is_struct(kind):
                raise InvalidExpression(f"{short(self._text)}: {'.'.join(path)} is {kind}, which does not have fields")
            matched = _field(list(kind), name)
            if matched is None or (self._exact and matched.name != name):
                raise self._unknown(names, [child.name for child in fields])
            path.append(matched.name)
            kind = matched.type
        return Column(tuple(path), kind)

    def _unknown(self, names: Sequence[str], columns: Sequence[str]) -> InvalidExpression:
        return unknown_column(self._text, names, columns)


class KnownNames(Names):
    """Columns by their names as they are written."""

    def __init__(self, text: str, columns: Mapping[tuple[str, ...], Column]) -> None:
        schema = pa.schema([(column.path[0], column.type) for column in dict.fromkeys(columns.values())])
        super().__init__(text, schema, relations=False)
        self._columns = columns

    def column(self, names: Sequence[str]) -> Column:
        """Return a column by its names. Raises InvalidExpression if there is none."""
        column = self._columns.get(tuple(names))
        if column is None:
            raise self._unknown(names, self._schema.names)
        return column

    def knows(self, name: str) -> bool:
        """Return whether a column has this name."""
        return (name,) in self._columns


def _field(fields: Sequence[pa.Field], name: str) -> pa.Field | None:
    exact = next((child for child in fields if child.name == name), None)
    return exact or next((child for child in fields if child.name.lower() == name.lower()), None)


def unknown_column(text: str, names: Sequence[str], columns: Sequence[str]) -> InvalidExpression:
    """Return the error for a name that no column has."""
    return InvalidExpression(
        f"{short(text)}: there is no column {'.'.join(names)!r}; the columns are {', '.join(columns[:20])}"
    )
