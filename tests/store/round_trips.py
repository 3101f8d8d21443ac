"""A store that counts round trips: requests that wait for one another. Those that are made side by side count once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lake_core.store import ObjectBytes, ObjectMeta, ObjectStore
from lake_core.store.object_store import Bytes


class RoundTripStore(ObjectStore):
    """Does what `inner` does, and counts."""

    def __init__(self, inner: ObjectStore) -> None:
        self.inner = inner
        self.count = 0
        """Round trips so far."""
        self.requests: list[str] = []

    def url(self, key: str = "") -> str:
        return self.inner.url(key)

    @property
    def storage_options(self) -> dict[str, object]:
        return self.inner.storage_options

    def gather(self, *calls: Callable[[], Any]) -> tuple[Any, ...]:
        begin = longest = self.count
        results = []
        for call in calls:
            self.count = begin
            results.append(call())
            longest = max(longest, self.count)
        self.count = longest
        return tuple(results)

    def measure(self, work: Callable[[], object]) -> int:
        """Return the round trips of a piece of work."""
        begin = self.count
        self.requests.clear()
        work()
        return self.count - begin

    def _request(self, request: str) -> None:
        self.count += 1
        self.requests.append(request)

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        self._request(f"get {key}")
        return self.inner.get(key, start, end)

    def _get_many(self, requests: Sequence[tuple[str, int | None, int | None]]) -> list[ObjectBytes]:
        if requests:
            self._request(f"get {' '.join(key for key, _, _ in requests)}")
        return self.inner.get_many(requests)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        self._request(f"put {key}")
        return self.inner.put(key, data, if_absent=if_absent, if_match=if_match, unique=unique)

    def _head(self, key: str) -> ObjectMeta:
        self._request(f"head {key}")
        return self.inner.head(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        self._request(f"list {prefix}")
        return self.inner.list(prefix, start_after)

    def _list_folders(self, prefix: str) -> list[str]:
        self._request(f"list folders {prefix}")
        return self.inner.list_folders(prefix)

    def _delete(self, keys: Sequence[str]) -> None:
        self._request(f"delete {' '.join(keys)}")
        self.inner.delete(keys)
