"""Whether the rows that were written under one definition of a table fit another one.

A change of the definition that is undone may leave rows behind that others wrote under it: values that the earlier type
cannot hold, nulls, rows that break a constraint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.delta.column_mapping import ID, MAX_ID, PHYSICAL_NAME
from lake_core.delta.features import CONSTRAINT_PREFIX
from lake_core.delta.row_rules import GENERATION_EXPRESSION, INVARIANTS
from lake_core.delta.schema import PrimitiveType, StructType
from lake_core.delta.schema_evolution import is_wider
from lake_core.delta.text_length import TYPE_STRING

if TYPE_CHECKING:
    from lake_core.delta.action import Metadata
    from lake_core.delta.schema import DataType, StructField

_RULES = (INVARIANTS, GENERATION_EXPRESSION, TYPE_STRING)


def stricter_part(before: Metadata, after: Metadata) -> str | None:
    """Return what rows of one definition may break in another one, in words; None if they fit.

    Rows do not fit a definition from before one of their columns was added. One from after it was dropped they do.
    """
    for name, rule in after.configuration.items():
        if name.startswith(CONSTRAINT_PREFIX) and before.configuration.get(name) != rule:
            return f"the constraint {name.removeprefix(CONSTRAINT_PREFIX)!r}"
    return _of_struct(before.schema, after.schema, "", int(after.configuration.get(MAX_ID, "0")))


def _of_struct(before: StructType, after: StructType, path: str, highest_id: int) -> str | None:
    old = {_key(child): child for child in before.fields}
    for child in after.fields:
        found = _of_field(old.pop(_key(child), None), child, path, highest_id)
        if found is not None:
            return found
    unknown = (child for child in old.values() if child.metadata.get(ID, highest_id + 1) > highest_id)
    lacking = next(unknown, None)
    return None if lacking is None else f"a table without column {path + lacking.name!r}"


def _of_field(old: StructField | None, new: StructField, path: str, highest_id: int) -> str | None:
    rules = {} if old is None else old.metadata
    if any(key in new.metadata and new.metadata[key] != rules.get(key) for key in _RULES):
        return f"the rule of column {path + new.name!r}"
    if not new.nullable and (old is None or old.nullable):
        return f"NOT NULL of column {path + new.name!r}"
    return None if old is None else _of_type(old.type, new.type, path + new.name, highest_id)


def _of_type(old: DataType, new: DataType, path: str, highest_id: int) -> str | None:
    if old == new:
        return None
    if isinstance(old, StructType) and isinstance(new, StructType):
        return _of_struct(old, new, f"{path}.", highest_id)
    if isinstance(old, PrimitiveType) and isinstance(new, PrimitiveType) and is_wider(old, new):
        return None
    return f"the type of column {path!r}"


def _key(child: StructField) -> str:
    return str(child.metadata.get(PHYSICAL_NAME, child.name)).lower()
