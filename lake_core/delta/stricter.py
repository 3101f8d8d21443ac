"""Whether the rows that were written under one definition of a table fit another one.

A change of the definition that is undone may leave rows behind that others wrote under it: values that the earlier type
cannot hold, nulls, rows that break a constraint. Statistics prove that files hold no nulls, or nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.delta.column_mapping import ID, MAX_ID, PHYSICAL_NAME
from lake_core.delta.features import CONSTRAINT_PREFIX
from lake_core.delta.row_rules import GENERATION_EXPRESSION, INVARIANTS
from lake_core.delta.schema import PrimitiveType, StructType, arrow_type
from lake_core.delta.schema_evolution import is_wider
from lake_core.delta.skipping import skip
from lake_core.delta.text_length import TYPE_STRING
from lake_core.expression.tree import Column, IsNull, Not

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from lake_core.delta.action import Metadata
    from lake_core.delta.schema import DataType, StructField
    from lake_core.expression.tree import Predicate

_RULES = (INVARIANTS, GENERATION_EXPRESSION, TYPE_STRING)


@dataclass(frozen=True, slots=True)
class _Stricter:
    """A part of a definition that rows of another one may break."""

    words: str
    broken_by: Predicate | None = None
    """Which rows break it, over the other definition; None where statistics cannot tell."""


def stricter_part(before: Metadata, after: Metadata, added: pa.Table) -> str | None:
    """Return what rows that were added under one definition may break in another one, in words; None if they fit.

    Rows do not fit a definition from before one of their columns was added. One from after it was dropped they do.

    Args:
        before: The definition that the rows were written under.
        after: The other one.
        added: The file actions of the rows.
    """
    for part in _parts(before, after):
        if part.broken_by is None or skip(added, part.broken_by, before).any():
            return part.words
    return None


def _parts(before: Metadata, after: Metadata) -> Iterator[_Stricter]:
    for name, rule in after.configuration.items():
        if name.startswith(CONSTRAINT_PREFIX) and before.configuration.get(name) != rule:
            yield _Stricter(f"the constraint {name.removeprefix(CONSTRAINT_PREFIX)!r}")
    yield from _of_struct(before.schema, after.schema, (), int(after.configuration.get(MAX_ID, "0")))


def _of_struct(before: StructType, after: StructType, path: tuple[str, ...], highest_id: int) -> Iterator[_Stricter]:
    old = {_key(child): child for child in before.fields}
    for child in after.fields:
        yield from _of_field(old.pop(_key(child), None), child, path, highest_id)
    for child in old.values():
        if child.metadata.get(ID, highest_id + 1) > highest_id:
            name = ".".join((*path, child.name))
            yield _Stricter(f"a table without column {name!r}", Not(_is_null(child, path)))


def _of_field(old: StructField | None, new: StructField, path: tuple[str, ...], highest_id: int) -> Iterator[_Stricter]:
    name = ".".join((*path, new.name))
    rules = {} if old is None else old.metadata
    if any(key in new.metadata and new.metadata[key] != rules.get(key) for key in _RULES):
        yield _Stricter(f"the rule of column {name!r}")
    if not new.nullable and (old is None or old.nullable):
        yield _Stricter(f"NOT NULL of column {name!r}", None if old is None else _is_null(old, path))
    if old is None or old.type == new.type:
        return
    if isinstance(old.type, StructType) and isinstance(new.type, StructType):
        yield from _of_struct(old.type, new.type, (*path, old.name), highest_id)
    elif not _is_wider(old.type, new.type):
        yield _Stricter(f"the type of column {name!r}")


def _is_wider(old: DataType, new: DataType) -> bool:
    return isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType) and is_wider(old, new)


def _is_null(child: StructField, path: tuple[str, ...]) -> IsNull:
    return IsNull(Column((*path, child.name), arrow_type(child.type)))


def _key(child: StructField) -> str:
    return str(child.metadata.get(PHYSICAL_NAME, child.name)).lower()
