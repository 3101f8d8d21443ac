"""Objects in the memory of this process: for tests and for private sessions."""

from __future__ import annotations

import os
import threading
import uuid
import weakref
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, InvalidUrl, NotFound, PreconditionFailed
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_PAGE = 1000


@dataclass(slots=True, weakref_slot=True)
class _Space:
    """The objects that all stores of one name share. Keys are whole paths below the name, kept sorted."""

    name: str
    lock: threading.Lock = field(default_factory=threading.Lock)
    objects: dict[str, ObjectBytes] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    puts: int = 0


# Named roots live as long as the process, as those of fsspec's memory file system; private ones as long as a store uses
# them.
_NAMED: dict[str, _Space] = {}
_PRIVATE: weakref.WeakValueDictionary[str, _Space] = weakref.WeakValueDictionary()


def _now() -> datetime:
    return datetime.now(UTC)


class MemoryStore(ObjectStore):
    """An object store in memory.

    Without a name, fresh and private. With one, every store of that name in this process holds the same objects;
    `a/b` is what `a` holds below `b/`. The bytes can't be reached by other means than this class, nor from other
    processes: a store unpickles in the process that pickled it, and nowhere else. `clock` gives `last_modified`.
    """

    def __init__(self, name: str | None = None, *, clock: Callable[[], datetime] = _now) -> None:
        if name is None:
            space = _Space(f"private-{uuid.uuid4().hex}")
            _PRIVATE[space.name] = space
            prefix = ""
        else:
            first, _, inner = name.strip("/").partition("/")
            if not first:
                raise InvalidUrl("the URL of a memory store must be memory://name")
            space = _NAMED.setdefault(first, _Space(first))
            prefix = f"{inner}/" if inner else ""
        self._space = space
        self._prefix = prefix
        self._clock = clock

    def url(self, key: str = "") -> str:
        """Return a `memory://` URL, which only a MemoryStore of this process can open."""
        return f"memory://{self._space.name}/{self._prefix}{key}".rstrip("/")

    @property
    def storage_options(self) -> dict[str, object]:
        """Return no options, because a URL names the store completely."""
        return {}

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        data = self._find(key)
        meta = self._meta(key, data)
        return ObjectBytes(memoryview(data)[start:end], meta)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        space, path = self._space, self._prefix + key
        copy = bytes(data)
        with space.lock:
            old = space.objects.get(path)
            if if_absent and old is not None:
                raise AlreadyExists(f"there is already an object at {key!r}", key=key)
            if if_match is not None and (old is None or old.etag != if_match):
                raise PreconditionFailed(f"the object at {key!r} is not the one to replace: {_state(old)}", key=key)
            space.puts += 1
            new = ObjectBytes(copy, ObjectMeta(path, len(copy), str(space.puts), self._clock()))
            if old is None:
                insort(space.keys, path)
            space.objects[path] = new
        return self._meta(key, new)

    def _head(self, key: str) -> ObjectMeta:
        return self._meta(key, self._find(key))

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        space, whole, last = self._space, self._prefix + prefix, self._prefix + start_after
        while True:
            # One page at a time: a long listing neither holds the lock nor copies everything.
            with space.lock:
                begin = max(bisect_left(space.keys, whole), bisect_right(space.keys, last))
                page = [space.objects[path] for path in space.keys[begin : begin + _PAGE]]
            for stored in page:
                if not stored.key.startswith(whole):
                    return
                yield self._meta(stored.key[len(self._prefix) :], stored)
            if len(page) < _PAGE:
                return
            last = page[-1].key

    def _list_folders(self, prefix: str) -> list[str]:
        whole = self._prefix + prefix
        folders: list[str] = []
        with self._space.lock:
            keys = self._space.keys
            at = bisect_left(keys, whole)
            while at < len(keys) and keys[at].startswith(whole):
                name, slash, _ = keys[at][len(whole) :].partition("/")
                if slash:
                    folders.append(name)
                    # "0" is the character after "/": the first key behind the folder.
                    at = bisect_left(keys, f"{whole}{name}0", at)
                else:
                    at += 1
        return folders

    def _delete(self, keys: Sequence[str]) -> None:
        space = self._space
        with space.lock:
            for key in keys:
                path = self._prefix + key
                if space.objects.pop(path, None) is not None:
                    del space.keys[bisect_left(space.keys, path)]

    def _find(self, key: str) -> ObjectBytes:
        with self._space.lock:
            stored = self._space.objects.get(self._prefix + key)
        if stored is None:
            raise NotFound(f"there is no object at {key!r}", key=key)
        return stored

    def _meta(self, key: str, stored: ObjectBytes) -> ObjectMeta:
        meta = stored.meta
        return meta if meta.key == key else meta.with_key(key)

    def __reduce__(self) -> tuple[object, ...]:
        return _same_process, (os.getpid(), self._space.name, self._prefix, self._clock)

    def __repr__(self) -> str:
        return f"MemoryStore({self.url()!r})"


def _state(old: ObjectBytes | None) -> str:
    return "there is no object" if old is None else f"its etag is {old.etag}"


def _same_process(pid: int, name: str, prefix: str, clock: Callable[[], datetime]) -> MemoryStore:
    space = _NAMED.get(name) or _PRIVATE.get(name)
    if pid != os.getpid() or space is None:
        raise InvalidUrl(
            f"the memory store {name!r} exists in another process only: "
            "use a local or S3 store to share data between processes"
        )
    store = MemoryStore.__new__(MemoryStore)
    store._space, store._prefix, store._clock = space, prefix, clock
    return store
