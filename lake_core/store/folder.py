"""A folder of another store as a store."""

from __future__ import annotations

from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from lake_core.errors import StoreError
from lake_core.store.key import check_key
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


@contextmanager
def renamed(before: str, after: str) -> Iterator[None]:
    """Replace the key in errors by the caller's key, where the store behind uses another prefix."""
    try:
        yield
    except StoreError as error:
        if error.key is not None and error.key.startswith(before):
            error.key = after + error.key[len(before) :]
        raise


class FolderStore(ObjectStore):
    """The objects of `inner` under `folder`, by their keys within it.

    Conditions, atomicity and times are those of `inner`.

    Error messages name the keys of `inner`, to show where an object is.
    """

    def __init__(self, inner: ObjectStore, folder: str) -> None:
        self._inner = inner
        self._prefix = f"{check_key(folder)}/"

    @property
    def inner(self) -> ObjectStore:
        """Return the store that holds the folder."""
        return self._inner

    def url(self, key: str = "") -> str:
        """Return the URL of the object in the store that holds the folder."""
        return self._inner.url(f"{self._prefix}{key}".rstrip("/"))

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options of the store that holds the folder."""
        return self._inner.storage_options

    def local_path(self, key: str) -> str | None:
        """Return the path of the object's file, if the store that holds the folder has one."""
        return self._inner.local_path(self._prefix + key)

    def sweep(self, before: float) -> int:
        """Delete nothing: the store that holds the folder sweeps for all."""
        return 0  # the temporary files of `inner` are not separated by folders

    def _named(self, meta: ObjectMeta) -> ObjectMeta:
        return meta.with_key(meta.key[len(self._prefix) :])

    def _own(self, data: ObjectBytes) -> ObjectBytes:
        data.meta = self._named(data.meta)
        return data

    def _failures(self) -> AbstractContextManager[None]:
        return renamed(self._prefix, "")

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        with self._failures():
            return self._own(self._inner.get(self._prefix + key, start, end))

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        with self._failures():
            return [
                self._own(data)
                for data in self._inner.get_many([(self._prefix + key, start, end) for key, start, end in requests])
            ]

    def gather(self, *calls: Callable[[], Any]) -> tuple[Any, ...]:
        """Call functions concurrently if the store that holds the folder gains from it."""
        return self._inner.gather(*calls)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        with self._failures():
            return self._named(
                self._inner.put(self._prefix + key, data, if_absent=if_absent, if_match=if_match, unique=unique)
            )

    def _head(self, key: str) -> ObjectMeta:
        with self._failures():
            return self._named(self._inner.head(self._prefix + key))

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        after = self._prefix + start_after if start_after else ""
        with self._failures():
            for meta in self._inner.list(self._prefix + prefix, after):
                yield self._named(meta)

    def _list_folders(self, prefix: str) -> list[str]:
        with self._failures():
            return self._inner.list_folders(self._prefix + prefix)

    def _delete(self, keys: Sequence[str]) -> None:
        with self._failures():
            self._inner.delete([self._prefix + key for key in keys])

    def __repr__(self) -> str:
        return f"FolderStore({self._inner!r}, {self._prefix[:-1]!r})"
