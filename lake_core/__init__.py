"""Open lake formats over any object store: the store, the formats, and lakes over many datasets.

Start at `lake_core.Lake` for datasets that are published together, at `lake_core.delta.DeltaTable` for one table, at
`lake_core.store.open_store` for bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.version import __version__

if TYPE_CHECKING:
    from lake_core.lake import Lake as Lake

__all__ = ["Lake", "__version__"]


def __getattr__(name: str) -> Any:
    # Importing the package itself costs nothing.
    if name == "Lake":
        from lake_core.lake import Lake

        return Lake
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
