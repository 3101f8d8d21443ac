"""Checks of whether a folder has a repository of version 1 of the specification."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.errors import NotFound
from lake_core.icechunk import refs
from lake_core.icechunk.asset_manager import SNAPSHOTS
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.config_file import CONFIG_KEY, decode_config
from lake_core.icechunk.errors import MissingObject, RefNotFound, RepositoryNotFound, UnsupportedSpecVersion
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.refs import MAIN, RefKind

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

SPEC_V2_KEY = "repo"


def incompatibility(store: ObjectStore) -> str | None:
    """Say that a repository follows version 2 of the specification, if it does."""
    if not store.exists(SPEC_V2_KEY):
        return None
    version = "version 2 of the Icechunk specification, not 1"
    return f"the repository at {store.url()} follows {version}: open it with icechunk 2"


def check_spec_version(store: ObjectStore) -> None:
    """Raise UnsupportedSpecVersion where the repository follows version 2 of the specification."""
    reason = incompatibility(store)
    if reason is not None:
        raise UnsupportedSpecVersion(reason)


def read_config(store: ObjectStore) -> tuple[RepositoryConfig, str | None]:
    """Read the configuration and its tag; the default and None where there is none. Raises InvalidConfig."""
    try:
        data = store.get(CONFIG_KEY)
    except NotFound:
        return RepositoryConfig(), None
    return decode_config(data), data.etag


def check_branch(store: ObjectStore) -> None:
    """Check that a repository has its branch main.

    Raises RepositoryNotFound, or MissingObject if only the branch is missing.
    """
    if _has_branch(store):
        return
    # If there is only the first snapshot, the repository is being created, or its creation was interrupted.
    first = SNAPSHOTS + encode_id(INITIAL_SNAPSHOT)
    later = any(meta.key != first for meta in store.list(SNAPSHOTS))
    # Checked again: another process may have created the repository and committed since.
    if later and not _has_branch(store):
        raise MissingObject(refs.ref_key(RefKind.BRANCH, MAIN), "there are snapshots, but no branch main")
    if not later:
        raise RepositoryNotFound(
            f"there is no Icechunk repository at {store.url()}: create one (Repository.create), or check the location"
        )


def _has_branch(store: ObjectStore) -> bool:
    try:
        refs.lookup(store, RefKind.BRANCH, MAIN)
    except RefNotFound:
        return False
    return True
