"""The keys of a column's metadata that name the Zed type of its values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

TYPE_KEY: Final = b"zed.type"
"""Under this key, the metadata of a field and of a schema keep the Zed type as text."""
DELTA_KEY: Final = b"SPARK::metadata::json"
"""Under this key, the metadata of a field keeps a JSON object, in which a Delta table stores the Zed type."""


def may_name_type(field: pa.Field) -> bool:
    """Return whether the metadata of a column may name a Zed type."""
    metadata = field.metadata or {}
    return TYPE_KEY in metadata or DELTA_KEY in metadata
