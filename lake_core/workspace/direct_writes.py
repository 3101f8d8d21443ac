"""A folder of plain tables, which has no sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.delta import DeltaTable
from lake_core.store import ObjectStore, open_store
from lake_core.workspace.workspace import Receipt, Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lake_core.icechunk import Repository
    from lake_core.pool import Pool


class DirectWrites(Workspace):
    """Writes to a folder that is not a lake: each write to a table is its own commit, visible at once."""

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None, task_id: str) -> None:
        super().__init__(root, task_id)
        self._options = storage_options or None

    def find_table(self, path: str) -> DeltaTable | None:
        """Return the table in the folder, at its latest version."""
        url = self.url(path)
        return (
            DeltaTable.open(url, storage_options=self._options)
            if DeltaTable.exists(url, storage_options=self._options)
            else None
        )

    def create_table(
        self, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = (), **options: Any
    ) -> DeltaTable:
        """Create the table in its folder, where others see it at once; open it if it exists."""
        by = tuple(partition_by)
        return DeltaTable.create(
            self.url(path), schema, partition_by=by, storage_options=self._options, exist_ok=True, **options
        )

    def after(self, path: str) -> DeltaTable:
        """Open the table at its latest version: nothing is held back here."""
        return DeltaTable.open(self.url(path), storage_options=self._options)

    def find_repository(self, path: str) -> Repository | None:
        """Return the repository in the folder."""
        repository = _repositories()
        url = self.url(path)
        return (
            repository.open(url, storage_options=self._options)
            if repository.exists(url, storage_options=self._options)
            else None
        )

    def create_repository(self, path: str) -> Repository:
        """Create the repository in its folder, where others see it at once; open it if it exists."""
        return _repositories().create(self.url(path), storage_options=self._options, exist_ok=True)

    def repository_after(self, path: str) -> Repository:
        """Open the repository: nothing is held back here."""
        return _repositories().open(self.url(path), storage_options=self._options)

    def find_pool(self, path: str) -> Pool | None:
        """Return the pool in the folder."""
        from lake_core.pool.folder import find_pool

        return find_pool(self.url(path), storage_options=self._options)

    def create_pool(self, path: str, **options: Any) -> Pool:
        """Create the pool in its folder, where others see it at once; open it if it exists."""
        from lake_core.pool.folder import create_pool

        return create_pool(self.url(path), storage_options=self._options, **options)

    def pool_after(self, path: str) -> Pool:
        """Open the pool: nothing is held back here."""
        from lake_core.pool.folder import open_pool

        return open_pool(self.url(path), storage_options=self._options)

    @property
    def store(self) -> ObjectStore:
        """The objects in the folder, read and written without a lake."""
        return open_store(self._root, storage_options=self._options)

    def finish(self) -> Receipt:
        """Return an empty receipt: each write took effect by itself."""
        return Receipt()


def _repositories() -> type[Repository]:
    from lake_core.icechunk import Repository  # needs the extra `arrays`

    return Repository
