"""Chosen objects of several stores under keys of their own, for other processes to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from lake_core.errors import AccessDenied
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Selection(ObjectStore):
    """Objects of other stores. Reads only, and lists nothing. Picklable if the stores are."""

    def __init__(self, objects: Mapping[str, tuple[ObjectStore, str]], others: ObjectStore) -> None:
        """Take the store and the key there of each object, by its key here. `others` has all other objects."""
        self._objects = dict(objects)
        self._others = others

    def url(self, key: str = "") -> str:
        """Return the URL of an object, or that of the store with the other objects."""
        store, inner = self._location(key) if key else (self._others, key)
        return store.url(inner)

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options of the store with the other objects."""
        return self._others.storage_options

    def _location(self, key: str) -> tuple[ObjectStore, str]:
        return self._objects.get(key, (self._others, key))

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        store, inner = self._location(key)
        data = store.get(inner, start, end)
        return ObjectBytes(data, data.meta.with_key(key))

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        groups: dict[int, tuple[ObjectStore, list[tuple[int, tuple[str, int | None, int | None]]]]] = {}
        for number, (key, start, end) in enumerate(requests):
            store, inner = self._location(key)
            groups.setdefault(id(store), (store, []))[1].append((number, (inner, start, end)))
        bodies: dict[int, ObjectBytes] = {}
        for store, group in groups.values():
            for (number, _), data in zip(group, store.get_many([each for _, each in group]), strict=True):
                bodies[number] = ObjectBytes(data, data.meta.with_key(requests[number][0]))
        return [bodies[number] for number in range(len(requests))]

    def _head(self, key: str) -> ObjectMeta:
        store, inner = self._location(key)
        return store.head(inner).with_key(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        self._refuse(prefix)

    def _list_folders(self, prefix: str) -> list[str]:
        self._refuse(prefix)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        self._refuse(key)

    def _delete(self, keys: Sequence[str]) -> None:
        self._refuse(next(iter(keys), ""))

    def _refuse(self, key: str) -> NoReturn:
        raise AccessDenied(f"{key!r} is among objects that are only to be read by their keys", key=key)
