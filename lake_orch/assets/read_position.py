"""The position up to which an asset has read a dataset, recorded in the commit of the rows that it made of it.

Each read is a small file of the lake, `.reads/<asset>/<path>/<number>.json`. The one with the highest number tells
where the next read starts. The files are published, held back, reverted and merged like any others, so that the
position is always that of the rows: a branch has its own, a run that is not published has read nothing, and two
branches that have both read conflict.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote

from lake_orch.errors import AlreadyRead

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

_READS = ".reads"


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """A read of what was added to a dataset after one of its states, up to another."""

    since: str | None
    """None means from the beginning."""
    until: str
    task: str
    """The task that writes what it makes of the read. All attempts at it read the same."""


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads of a dataset by an asset, as a store has them."""

    reader: str
    """The key of the asset."""
    path: str

    def newest(self, store: ObjectStore) -> ReadPosition | None:
        """Return the last read, or None if nothing was read yet."""
        return self._numbered(store)[1]

    def next(self, store: ObjectStore, task: str, latest: str) -> ReadPosition:
        """Return what a task is to read: what is new up to the latest state, or what an attempt at it has read."""
        newest = self.newest(store)
        if newest is not None and newest.task == task:
            return newest
        return ReadPosition(None if newest is None else newest.until, latest, task)

    def add(self, store: ObjectStore, position: ReadPosition) -> None:
        """Record a read beside the rows that were made of it.

        Raises:
            AlreadyRead: The asset has read something else since, in another run.
        """
        number, newest = self._numbered(store)
        if newest == position:
            return
        if (None if newest is None else newest.until) != position.since:
            raise AlreadyRead(
                f"{self.reader} has read what is new in {self.path} since {position.since or 'the beginning'}, and so "
                "has another run, which was published first. Nothing was written: materialize it in a new run, which "
                "reads what is left"
            )
        store.put(f"{self._prefix}{number + 1:010}.json", json.dumps(asdict(position)).encode())

    def _numbered(self, store: ObjectStore) -> tuple[int, ReadPosition | None]:
        """Return the number of the last read, from 1, and the read; 0 and None if nothing was read yet."""
        keys = [meta.key for meta in store.list(self._prefix)]
        if not keys:
            return 0, None
        number = int(keys[-1].removeprefix(self._prefix).removesuffix(".json"))
        return number, ReadPosition(**json.loads(bytes(store.get(keys[-1]))))

    @property
    def _prefix(self) -> str:
        return f"{_READS}/{quote(self.reader, safe='')}/{self.path}/"
