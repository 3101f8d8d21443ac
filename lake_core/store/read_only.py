"""A store that is only read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from lake_core.errors import AccessDenied
from lake_core.store.object_store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta


class ReadOnlyStore(ObjectStore):
    """The objects of `inner`, which cannot be put or deleted: each attempt raises AccessDenied."""

    def __init__(self, inner: ObjectStore) -> None:
        self._inner = inner

    def url(self, key: str = "") -> str:
        """Return the URL of the object."""
        return self._inner.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options of the store."""
        return self._inner.storage_options

    def local_path(self, key: str) -> str | None:
        """Return the path of the object's file, if the store has one."""
        return self._inner.local_path(key)

    def sweep(self, before: float) -> int:
        """Delete nothing."""
        return 0

    def gather(self, *calls: Callable[[], Any]) -> tuple[Any, ...]:
        """Call functions concurrently if the store gains from it."""
        return self._inner.gather(*calls)

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        return self._inner.get(key, start, end)

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        return self._inner.get_many(requests)

    def _head(self, key: str) -> ObjectMeta:
        return self._inner.head(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        return self._inner.list(prefix, start_after)

    def _list_folders(self, prefix: str) -> list[str]:
        return self._inner.list_folders(prefix)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> NoReturn:
        raise AccessDenied(f"{key} cannot be written: {self.url()} is opened to be read only", key=key)

    def _delete(self, keys: Sequence[str]) -> NoReturn:
        raise AccessDenied(f"nothing can be deleted: {self.url()} is opened to be read only")

    def __repr__(self) -> str:
        return f"ReadOnlyStore({self._inner!r})"
