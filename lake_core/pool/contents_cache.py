"""A cache of the contents of a pool as of commits, from which those of later commits are computed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.pool.commit_store import CommitStore
    from lake_core.pool.data_object import DataObject
    from lake_core.pool.marker import Markers

_CACHED: Final = 64


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a branch as of a commit.

    Attributes:
        objects: The data objects by their ids.
        markers: The markers by application id.
    """

    objects: Mapping[str, DataObject]
    markers: Markers


class ContentsCache:
    """The contents as of the commits that were read last. They stay valid, as commits never change."""

    def __init__(self) -> None:
        self._contents: OrderedDict[tuple[str, str], Contents] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, commits: CommitStore, tip: str) -> Contents:
        """Return the contents of a pool as of a commit. Raises DamagedLake."""

        def known(id: str) -> Mapping[str, DataObject] | None:
            contents = self._get(commits.folder, id)
            return None if contents is None else contents.objects

        contents = self._get(commits.folder, tip)
        if contents is None:
            contents = Contents(commits.objects(tip, known), commits.markers(tip))
            with self._lock:
                self._contents[commits.folder, tip] = contents
                while len(self._contents) > _CACHED:
                    self._contents.popitem(last=False)
        return contents

    def _get(self, pool: str, id: str) -> Contents | None:
        with self._lock:
            if (pool, id) in self._contents:
                self._contents.move_to_end((pool, id))
            return self._contents.get((pool, id))
