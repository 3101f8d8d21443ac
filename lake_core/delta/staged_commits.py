"""Reading catalog-managed tables: the commits that a catalog has ratified, and that are not published in the log yet.

Such a commit is a file of `_delta_log/_staged_commits/`, which others there may never become. Only the catalog knows
which are commits, and which version is the latest. Protocol section: Catalog-managed tables.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from lake_core.delta.errors import CorruptCommit, UnsupportedWriterFeature
from lake_core.delta.features import CATALOG_MANAGED
from lake_core.delta.log_segment import LOG_FOLDER, commit_key
from lake_core.store.object_store import Bytes, ObjectBytes, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

STAGED_FOLDER: Final = f"{LOG_FOLDER}/_staged_commits"
_STAGED = re.compile(r"([0-9]{20})\.[0-9a-fA-F-]{36}\.json")


class StagedCommits(ObjectStore):
    """The store of a table whose log goes on in staged commits. It is only read.

    Args:
        inner: The store at the table's root.
        names: The files of the ratified commits, by their names in `_staged_commits` or their locations.

    Raises:
        CorruptCommit: A name is not that of a staged commit, or two are of one version.
    """

    def __init__(self, inner: ObjectStore, names: Sequence[str]) -> None:
        self._inner = inner
        self._staged: dict[str, str] = {}
        for name in names:
            match = _STAGED.fullmatch(name.rpartition("/")[2])
            key = "" if match is None else commit_key(int(match[1]))
            if match is None or key in self._staged:
                raise CorruptCommit(
                    f"{name!r} is not the name of a staged commit, such as {21:020d}.<uuid>.json, or a second one of "
                    "its version: pass the commits that the catalog lists"
                )
            self._staged[key] = f"{STAGED_FOLDER}/{match[0]}"

    def url(self, key: str = "") -> str:
        """Return the URL of the object."""
        return self._inner.url(self._staged.get(key, key))

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options of the table's store."""
        return self._inner.storage_options

    @property
    def data_root(self) -> ObjectStore:
        """Return the store of the data files."""
        return self._inner.data_root

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        data = self._inner.get(self._staged.get(key, key), start, end)
        data.meta = data.meta.with_key(key)
        return data

    def _head(self, key: str) -> ObjectMeta:
        return self._inner.head(self._staged.get(key, key)).with_key(key)

    def _list(self, prefix: str, start_after: str) -> Iterator[ObjectMeta]:
        staged = sorted(key for key in self._staged if key.startswith(prefix) and key > start_after)
        for meta in self._inner.list(prefix, start_after):
            while staged and staged[0] < meta.key:
                yield self._head(staged.pop(0))
            if staged and staged[0] == meta.key:
                staged.pop(0)  # it was published since the catalog was asked
            yield meta
        for key in staged:
            yield self._head(key)

    def _list_folders(self, prefix: str) -> list[str]:
        return self._inner.list_folders(prefix)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        raise _only_read()

    def _delete(self, keys: Sequence[str]) -> None:
        raise _only_read()


def _only_read() -> UnsupportedWriterFeature:
    return UnsupportedWriterFeature(
        "the table is managed by a catalog, through which its commits go: write it with a client of that catalog",
        feature=CATALOG_MANAGED,
    )
