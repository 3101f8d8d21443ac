"""The shared store, as one simulated process reaches it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.store import ObjectBytes, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.store.object_store import Bytes
    from lake_core.testing.simulation.process import Process


class SimulatedStore(ObjectStore):
    """An object store that passes its process's gate before each operation."""

    def __init__(self, inner: ObjectStore, process: Process) -> None:
        self._inner = inner
        self._process = process

    def url(self, key: str = "") -> str:
        """Return a URL that no other process or world has."""
        # The library caches some state by URL. Processes and worlds must not share it, so their URLs differ.
        # The scheme is that of a store without a cache on disk, which histories would share.
        return f"memory://{self._process.host}/{key}".rstrip("/")

    @property
    def storage_options(self) -> dict[str, object]:
        """Return no options, because no other process can open the URLs."""
        return {}

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self._process.operate(f"get {key}", lambda: self._inner.get(key, start, end), mutates=False)

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        return [self._get(*request) for request in requests]

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        condition = " if absent" if if_absent else " if matching" if if_match is not None else ""
        copy = bytes(data)

        def put() -> ObjectMeta:
            return self._inner.put(key, copy, if_absent=if_absent, if_match=if_match, unique=unique)

        return self._process.operate(f"put {key}{condition}", put, mutates=True)

    def _head(self, key: str) -> ObjectMeta:
        return self._process.operate(f"head {key}", lambda: self._inner.head(key), mutates=False)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        # This is one operation. A real listing is a request for each page, and simulated stores have few objects.
        return iter(
            self._process.operate(f"list {prefix}", lambda: list(self._inner.list(prefix, start_after)), mutates=False)
        )

    def _list_folders(self, prefix: str) -> list[str]:
        return self._process.operate(f"list folders {prefix}", lambda: self._inner.list_folders(prefix), mutates=False)

    def _delete(self, keys: Sequence[str]) -> None:
        self._process.operate(f"delete {' '.join(keys)}", lambda: self._inner.delete(keys), mutates=True)

    def __repr__(self) -> str:
        return f"SimulatedStore({self.url()!r})"
