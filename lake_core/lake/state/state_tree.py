"""The parts of a state of the lake: a tree, the changes on top of it, and their objects."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from lake_core.errors import NotFound
from lake_core.lake.errors import ReadOnly
from lake_core.lake.state.content import ContentStore, as_object
from lake_core.lake.state.view import View, read_datasets

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.clock import AwareClock
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.store import ObjectBytes, ObjectMeta, ObjectStore


class StateTree:
    """The objects of a state by their keys in the lake. Reads only; `Changes` writes."""

    def __init__(
        self,
        root: ObjectStore,
        view: View,
        clock: AwareClock,
        *,
        name: str,
        content: ContentStore | None = None,
        on_read: Callable[[str], None] | None = None,
    ) -> None:
        self.root = root
        """The root of the lake."""
        self.view = view
        self.clock = clock
        self.name = name
        """The name of the state: a ref, a commit, a session."""
        self.content = content or ContentStore(root)
        self.lock = threading.RLock()
        self._on_read = on_read
        self._registered: dict[str, DatasetRecord] | None = None
        self._datasets: tuple[dict[str, DatasetRecord], dict[str, DatasetRecord]] | None = None
        """The registered datasets, and those of them that were not dropped."""

    def registered(self) -> dict[str, DatasetRecord]:
        """List all datasets that were created in the history of this state, also dropped ones, by path."""
        with self.lock:
            if self._registered is None:
                self._registered = read_datasets(self.view)
            return self._registered

    def datasets(self) -> dict[str, DatasetRecord]:
        """List the datasets of this state, by path."""
        with self.lock:
            registered = self.registered()
            if self._datasets is None or self._datasets[0] is not registered:
                self._datasets = registered, {path: record for path, record in registered.items() if not record.dropped}
            return self._datasets[1]

    def get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        """Read objects of the tree. Raises NotFound, ContentMissing."""
        items = []
        for (key, _, _), item in zip(requests, self.view.get_many([key for key, _, _ in requests]), strict=True):
            if item is None:
                raise NotFound(f"there is no object at {key!r} in {self.name}", key=key)
            items.append(item)
        bodies = self.content.get_many(
            [(item, start, end) for item, (_, start, end) in zip(items, requests, strict=True)]
        )
        return [as_object(data, item, key) for data, item, (key, _, _) in zip(bodies, items, requests, strict=True)]

    def head(self, key: str) -> ObjectMeta:
        """Return the metadata of an object of the tree. Raises NotFound."""
        item = self.view.get(key)
        if item is None:
            raise NotFound(f"there is no object at {key!r} in {self.name}", key=key)
        return item.meta(key)

    def note_read(self, what: str) -> None:
        """Record that a key, or a prefix that ends in `*`, was read, if anybody wants to know."""
        if self._on_read is not None:
            self._on_read(what)

    def refusal(self, key: str) -> ReadOnly:
        """Return the error for a write at a key."""
        return ReadOnly(
            f"{self.name} is read-only: write {key!r} in a session, `with lake.session(branch) as s: s.put(…)`"
        )

    def __getstate__(self) -> dict[str, Any]:
        if self.view.overlay:
            raise TypeError(f"{self.name} has changes that exist only in this process, so it cannot be pickled")
        return self.__dict__ | {
            "view": (self.view.graveler, self.view.tree),
            "lock": None,
            "_registered": None,
            "_datasets": None,
            "_on_read": None,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, view=View(*state["view"]), lock=threading.RLock())
