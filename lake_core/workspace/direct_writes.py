"""A folder of plain datasets, which has no sessions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.dataset import dataset_format, stored_format
from lake_core.lake.errors import DatasetExists, DatasetNotFound
from lake_core.store import ObjectStore, open_store
from lake_core.workspace.workspace import Receipt, Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping


class DirectWrites(Workspace):
    """Writes to a folder that is not a lake: each write to a dataset is its own commit, visible at once."""

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None, task_id: str) -> None:
        super().__init__(root, task_id)
        self._options = storage_options or None

    def find(self, path: str, format: str) -> Any | None:
        """Return the dataset in the folder, at its latest version."""
        return dataset_format(format).find(self._folder(path), clock=None)

    def create(self, path: str, format: str, *args: Any, **options: Any) -> Any:
        """Create the dataset in its folder, where others see it at once; open it if it exists."""
        folder, wanted = self._folder(path), dataset_format(format)
        # Most new datasets are in new folders, for which the other formats need not be imported.
        is_new = next(iter(folder.list()), None) is None
        if not is_new and not wanted.exists(folder):
            other = stored_format(folder)
            if other not in (None, format):  # others may have created the wanted one in the meantime
                raise DatasetExists(f"{self.url(path)} holds a dataset of the format {other}: use another path")
        return wanted.create(folder, *args, clock=None, exist_ok=True, **options)

    def after(self, path: str, format: str) -> Any:
        """Open the dataset at its latest version: nothing is held back here."""
        dataset = self.find(path, format)
        if dataset is None:
            raise DatasetNotFound(f"there is no {format} dataset at {self.url(path)}")
        return dataset

    @property
    def store(self) -> ObjectStore:
        """Return the objects in the folder, read and written without a lake."""
        return open_store(self._root, storage_options=self._options)

    def _folder(self, path: str) -> ObjectStore:
        return open_store(self.url(path), storage_options=self._options)

    def finish(self) -> Receipt:
        """Return an empty receipt: each write took effect by itself."""
        return Receipt()
