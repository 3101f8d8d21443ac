"""A store whose new objects stay in memory, to look at what an operation would do."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound
from lake_core.store.memory import MemoryStore
from lake_core.store.read_only import ReadOnlyStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore


class ScratchStore(ReadOnlyStore):
    """The objects of `inner`, and new ones that are put here: these are gone with this store.

    Objects of `inner` cannot be replaced or deleted: each attempt raises AccessDenied.
    """

    def __init__(self, inner: ObjectStore) -> None:
        super().__init__(inner)
        self._new = MemoryStore()

    def local_path(self, key: str) -> str | None:
        """Return the path of the object's file, if the store has one."""
        return None if self._new.exists(key) else self._inner.local_path(key)

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        try:
            return self._new.get(key, start, end)
        except NotFound:
            return self._inner.get(key, start, end)

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        if not any(self._new.exists(key) for key, _, _ in requests):
            return self._inner.get_many(requests)
        return [self._get(*request) for request in requests]

    def _head(self, key: str) -> ObjectMeta:
        try:
            return self._new.head(key)
        except NotFound:
            return self._inner.head(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        sides = (store.list(prefix, start_after) for store in (self._new, self._inner))
        return heapq.merge(*sides, key=lambda meta: meta.key.encode())

    def _list_folders(self, prefix: str) -> list[str]:
        names = {name for store in (self._new, self._inner) for name in store.list_folders(prefix)}
        return sorted(names, key=str.encode)

    def _put(  # type: ignore[override]
        self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool
    ) -> ObjectMeta:
        if self._inner.exists(key):
            if if_absent:
                raise AlreadyExists(f"there is already an object at {key!r}", key=key)
            super()._put(key, data, if_absent, if_match, unique)
        return self._new.put(key, data, if_absent=if_absent, if_match=if_match, unique=unique)

    def __repr__(self) -> str:
        return f"ScratchStore({self._inner!r})"
