"""Finds out which version of the specification a repository follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.clock import AwareClock, system_clock
from lake_core.icechunk.errors import MissingObject, RefNotFound, RepositoryNotFound, UnsupportedSpecVersion
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL
from lake_core.icechunk.folders import SNAPSHOTS
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.layout_v1 import LayoutV1
from lake_core.icechunk.layout_v2 import LayoutV2
from lake_core.icechunk.refs import MAIN, RefKind, ref_key
from lake_core.icechunk.repo_info import REPO_KEY

if TYPE_CHECKING:
    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.repository_layout import RepositoryLayout
    from lake_core.store import ObjectStore


def layout_of(
    store: ObjectStore, *, compression_level: int = DEFAULT_COMPRESSION_LEVEL, clock: AwareClock = system_clock
) -> RepositoryLayout:
    """Return the layout of a repository: that of version 2 where there is an object `repo`, else that of version 1."""
    if store.exists(REPO_KEY):
        return LayoutV2(store, compression_level=compression_level, clock=clock)
    return LayoutV1(store)


def spec_version_at(store: ObjectStore) -> int | None:
    """Return the version that a repository follows, or None if there is none."""
    if store.exists(REPO_KEY):
        return 2
    if store.exists(ref_key(RefKind.BRANCH, MAIN)):
        return 1
    return 2 if store.exists(REPO_KEY) else None  # it may have been upgraded between the two looks


def checked_config(store: ObjectStore) -> tuple[RepositoryConfig | None, str | None]:
    """Check that a repository has its branch main, and return its configuration, if it has one, and its tag.

    Raises RepositoryNotFound, or DamagedObject if the branch or the configuration cannot be read.
    """
    layout = layout_of(store)
    if layout.spec_version == 1:
        try:
            _check(layout)
            return layout.read_config()
        except UnsupportedSpecVersion:
            layout = layout_of(store)  # it was upgraded in the meantime
    # One object has both in version 2, and is not read without the branch.
    return layout.read_config()


def _check(layout: RepositoryLayout) -> None:
    """Check that a repository of version 1 has its branch main.

    Raises RepositoryNotFound, or MissingObject if only the branch is missing.
    """
    store = layout.store
    if _has_branch(layout):
        return
    # If there is only the first snapshot, the repository is being created, or its creation was interrupted.
    first = SNAPSHOTS + encode_id(INITIAL_SNAPSHOT)
    later = any(meta.key != first for meta in store.list(SNAPSHOTS))
    # Checked again: another process may have created the repository and committed since.
    if later and not _has_branch(layout):
        raise MissingObject(ref_key(RefKind.BRANCH, MAIN), "there are snapshots, but no branch main")
    if not later:
        raise RepositoryNotFound(
            f"there is no Icechunk repository at {store.url()}: create one (Repository.create), or check the location"
        )


def _has_branch(layout: RepositoryLayout) -> bool:
    try:
        layout.lookup(RefKind.BRANCH, MAIN)
    except RefNotFound:
        return False
    return True
