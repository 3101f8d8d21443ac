"""A state that accepts writes. Plain files are stored by content, other keys by the dataset that they belong to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.errors import InvalidKey
from lake_core.lake.errors import DatasetExists
from lake_core.lake.state.content import new_item
from lake_core.lake.state.dataset_record import dataset_above
from lake_core.lake.state.state_store import StateStore
from lake_core.store.folder import renamed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.lake.state.changes import Changes
    from lake_core.store import ObjectMeta
    from lake_core.store.object_store import Bytes


class WritableState(StateStore):
    """A state with changes on top. Reads see these changes."""

    def __init__(self, changes: Changes) -> None:
        super().__init__(changes)
        self._changes = changes

    @property
    def changes(self) -> Changes:
        """Return the changes on top of the tree, with the keys that were read."""
        return self._changes

    @property
    def base(self) -> StateStore:
        """Return the commit that the session is based on."""
        return StateStore(self._changes.base)

    @property
    def state(self) -> str:
        """Return `open`, or else `published`, `failed`, `abandoned`, `expired` or `closed`: no writes are accepted."""
        return self._changes.status

    @property
    def reads(self) -> Sequence[str]:
        """Return what was read, if the isolation requires that: keys, and prefixes ending in "*"."""
        return self._changes.reads

    def check_free(self, path: str, format: str) -> None:
        """Check that a dataset of a format can be created at a path. Raises DatasetExists, InvalidKey."""
        datasets = self.datasets()
        above = dataset_above(f"{path}/x", datasets) or dataset_above(path, datasets)
        below = next((other for other in datasets if other.startswith(f"{path}/")), None)
        if above is not None or below is not None:
            raise DatasetExists(
                f"{path!r} is inside or around the dataset {above.path if above is not None else below!r}, and "
                "datasets cannot be nested: choose another path"
            )
        around = dataset_above(path, self.base.datasets())
        if around is not None:
            raise DatasetExists(
                f"{path!r} is inside the dataset {around.path!r}, which stays until this session is published: publish "
                "that it is dropped first, or choose another path"
            )
        folded = path.casefold()
        similar = next((other for other in datasets if other != path and other.casefold() == folded), None)
        if similar is not None:
            raise DatasetExists(
                f"{path!r} differs from the dataset {similar!r} only in the case of letters, and some file systems "
                "keep both in one folder: choose another path"
            )
        dropped = self.registered().get(path) or self.base.registered().get(path)
        if dropped is not None and dropped.format != format:
            raise DatasetExists(
                f"a dataset of the format {dropped.format!r} was dropped at {path!r}, where readers of its log still "
                f"follow it, so none of another format can be created there: choose another path"
            )
        plain = next((meta.key for meta in self.plain(f"{path}/")), None if self.view.get(path) is None else path)
        if plain is not None:
            raise DatasetExists(
                f"{path!r} holds plain files, such as {plain!r}: choose another path, or delete them first"
            )
        if not path or path.split("/")[0].startswith(("_lake", ".")):
            raise InvalidKey(f"{path!r} is not a valid path of a dataset", key=path)

    def check_outside_dropped(self, key: str) -> None:
        """Check that a plain file is not put into the folder of a dropped dataset. Raises InvalidKey.

        The folder keeps the dataset's log, and no state shows plain files there.
        """
        dropped = dataset_above(key, self.registered()) or dataset_above(key, self.base.registered())
        if dropped is not None:
            raise InvalidKey(
                f"{key!r} is in the folder of the dataset {dropped.path!r}, which was dropped and keeps its log there: "
                "write the file elsewhere, or create the dataset again",
                key=key,
            )

    def drop(self, path: str) -> None:
        """Drop a dataset. Its history stays, and older commits still have it. Raises DatasetNotFound."""
        self._changes.check_open()
        record = self.dataset(path).record
        with self._changes.lock:
            self._changes.clear(f"{record.path}/")
            self._changes.unregister(record)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        changes = self._changes
        changes.check_open()
        owner = self._owner(key)
        if owner is not None:
            view, inner = owner
            with renamed("", key[: -len(inner)]):
                meta = view.put(inner, data, if_absent=if_absent, if_match=if_match, unique=unique)
            return meta.with_key(key)
        if key in self.datasets():
            raise InvalidKey(f"{key!r} is a dataset, not a file", key=key)
        self.check_outside_dropped(key)
        changes.check_conditions(key, if_absent, if_match)
        # The bytes are stored at once, so that a session's memory does not grow with what it writes.
        item = self.content.store(new_item(data, self.clock()))
        with changes.lock:
            changes.check_conditions(key, if_absent, if_match)
            changes.set(key, item)
        return item.meta(key)

    def _delete(self, keys: Sequence[str]) -> None:
        changes = self._changes
        changes.check_open()
        plain: list[str] = []
        for key in keys:
            owner = self._owner(key)
            if owner is None:
                plain.append(key)
            else:
                view, inner = owner
                with renamed("", key[: -len(inner)]):
                    view.delete([inner])
        with changes.lock:
            for key in plain:
                if self.view.get(key) is not None:
                    changes.set(key, None)
