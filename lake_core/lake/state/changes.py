"""The changes of a session, which datasets and plain files write to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from lake_core.errors import AlreadyExists, PreconditionFailed
from lake_core.lake.errors import SessionClosed
from lake_core.lake.state.state_tree import StateTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from datetime import datetime

    from lake_core.clock import AwareClock
    from lake_core.dataset import BufferT, WriteBuffer
    from lake_core.graveler import Record
    from lake_core.lake.state.content import Item
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.view import View
    from lake_core.store import ObjectStore


UNSETTLED: Final = "unsettled"
"""The status after a publish of unknown outcome. It can only be repeated."""


class Changes(StateTree):
    """A tree with changes on top of it that are not published yet. Safe to use from many threads."""

    def __init__(
        self,
        root: ObjectStore,
        view: View,
        clock: AwareClock,
        *,
        name: str,
        base: StateTree,
        records_reads: bool = False,
    ) -> None:
        super().__init__(root, view, clock, name=name, content=base.content)
        self.base = base
        """The commit that the changes are based on."""
        self.status = "open"
        """`open` while changes are accepted; then the reason why they are not."""
        self.ended_retention: dict[str, datetime] = {}
        """The datasets whose retention ends, by path, with the time before which states end."""
        self._buffers: dict[str, WriteBuffer] = {}
        self._behind: set[str] = set()
        """The datasets whose buffers are still to be refreshed."""
        self._records_reads = records_reads
        self._reads: set[str] = set()

    @property
    def reads(self) -> Sequence[str]:
        """Return what was read, if the isolation requires that: keys, and prefixes ending in "*"."""
        with self.lock:
            return sorted(self._reads)

    def note_read(self, what: str) -> None:
        """Record that a key, or a prefix that ends in `*`, was read, if the session is serializable."""
        if self._records_reads:
            with self.lock:
                self._reads.add(what)

    def check_open(self) -> None:
        """Raise SessionClosed if no more changes are accepted."""
        if self.status == UNSETTLED:
            raise SessionClosed(
                f"{self.name} may have been published, as the publish did not end: publish it again, and write in "
                "another session",
                state=self.status,
            )
        if self.status != "open":
            raise SessionClosed(f"{self.name} is {self.status}: open another session", state=self.status)

    def check_conditions(self, key: str, if_absent: bool, if_match: str | None) -> None:
        """Raise AlreadyExists or PreconditionFailed if the conditions of a put do not hold."""
        if not if_absent and if_match is None:
            return
        old = self.view.get(key)
        if if_absent and old is not None:
            raise AlreadyExists(f"there is already an object at {key!r} in {self.name}", key=key)
        if if_match is not None and (old is None or old.entry.etag != if_match):
            raise PreconditionFailed(f"the object at {key!r} in {self.name} is not the one to replace", key=key)

    def set(self, key: str, item: Item | None) -> None:
        """Change a key; None deletes."""
        self.view.overlay.set(key, item)

    def clear(self, prefix: str) -> None:
        """Delete all keys of the tree that begin with a prefix."""
        with self.lock:
            for key, _ in list(self.view.list(prefix)):
                self.set(key, None)

    def register(self, record: DatasetRecord) -> None:
        """Register a folder as a dataset from now on."""
        self.set(record.key, record.item(self.clock()))
        self._registered = None

    def unregister(self, record: DatasetRecord) -> None:
        """Unregister a dataset's folder."""
        self._buffers.pop(record.path, None)
        self.set(record.key, None)
        self._registered = None

    def buffer(self, path: str, create: Callable[[], BufferT]) -> BufferT:
        """Return the buffer of a dataset, which is created once."""
        with self.lock:
            if path not in self._buffers:
                self._buffers[path] = create()
            self._refresh(path)
            return cast("BufferT", self._buffers[path])

    def has_buffer(self, path: str, buffer: WriteBuffer) -> bool:
        """Return whether a buffer is that of a dataset, and refresh it if that is still to be done."""
        with self.lock:
            if self._buffers.get(path) is not buffer:
                return False
            self._refresh(path)
            return True

    def _refresh(self, path: str) -> None:
        if path in self._behind:
            self._buffers[path].refresh()
            self._behind.discard(path)

    def flush_buffers(self) -> None:
        """Flush the buffers of all datasets."""
        with self.lock:
            for buffer in list(self._buffers.values()):
                buffer.flush()

    def build(self, changes: Iterator[tuple[bytes, Record | None]]) -> None:
        """Write many changes, sorted by key, to the tree instead of memory."""
        with self.lock:
            self.view = replace(self.view, tree=self.view.graveler.build(self.view.tree, changes).tree)

    def show(self, view: View) -> None:
        """Replace the view."""
        with self.lock:
            self.view = view
            self._registered = None
            self._behind.update(self._buffers)
            for path in list(self._buffers):
                if path in self.datasets():
                    self._refresh(path)
                else:
                    del self._buffers[path]
                    self._behind.discard(path)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"{self.name} exists only in the process that writes it, and cannot be pickled: open a shared "
            "session with Lake.open_session, pass on its id and epoch, and call `lake.get_session(id, "
            "epoch=epoch).join()` in the other process"
        )
