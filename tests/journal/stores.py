"""A store whose answers a test writes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from lake_core.store import ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.object_store import Bytes

Do: TypeAlias = Callable[[], ObjectMeta]


class ScriptedStore(ObjectStore):
    """Does what `inner` does, but for what a test puts into its attributes. Records what was asked for."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.asked: list[str] = []
        self.on_put: Callable[[str, Do], ObjectMeta] = lambda key, do: do()
        """Called instead of each put, with a function that does it."""
        self.on_get: Callable[[str], object] = lambda key: None
        """Called before each get."""
        self.on_delete: Callable[[Sequence[str]], object] = lambda keys: None
        """Called before each delete."""

    def url(self, key: str = "") -> str:
        return self.inner.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        return self.inner.storage_options

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        self.asked.append(f"get {key}")
        self.on_get(key)
        return self.inner.get(key, start, end)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        self.asked.append(f"put {key}")
        return self.on_put(
            key, lambda: self.inner.put(key, data, if_absent=if_absent, if_match=if_match, unique=unique)
        )

    def _head(self, key: str) -> ObjectMeta:
        self.asked.append(f"head {key}")
        return self.inner.head(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        self.asked.append(f"list {prefix}")
        return self.inner.list(prefix, start_after)

    def _list_folders(self, prefix: str) -> list[str]:
        return self.inner.list_folders(prefix)

    def _delete(self, keys: Sequence[str]) -> None:
        self.asked.append(f"delete {' '.join(keys)}")
        self.on_delete(keys)
        self.inner.delete(keys)
