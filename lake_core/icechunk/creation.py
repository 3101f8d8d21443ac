"""The objects of a new repository."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.config_file import CONFIG_KEY, encode_config, encode_config_v2
from lake_core.icechunk.errors import RefAlreadyExists, RepositoryAlreadyExists, UnsupportedSpecVersion
from lake_core.icechunk.file_header import HEADER_LENGTH, SPEC_VERSIONS, spec_version_of
from lake_core.icechunk.folders import SNAPSHOTS, TRANSACTIONS
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.layout_v1 import LayoutV1
from lake_core.icechunk.layouts import spec_version_at
from lake_core.icechunk.refs import MAIN, RefKind
from lake_core.icechunk.repo_info import REPO_KEY, ListedSnapshot, RepoInfo
from lake_core.icechunk.repo_info_file import encode_repo_info
from lake_core.icechunk.repo_status import RepoStatus
from lake_core.icechunk.snapshot import Snapshot, initial_snapshot, timestamp
from lake_core.icechunk.snapshot_file import encode_snapshot
from lake_core.icechunk.transaction_log import TransactionLog, encode_transaction_log
from lake_core.icechunk.update import RecordedUpdate, RepoInitialized

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

_SNAPSHOT_KEY = SNAPSHOTS + encode_id(INITIAL_SNAPSHOT)
_LOG_KEY = TRANSACTIONS + encode_id(INITIAL_SNAPSHOT)


def exists_to_open(store: ObjectStore, *, exist_ok: bool) -> bool:
    """Return whether there is a repository already.

    Raises RepositoryAlreadyExists if there is one and it may not be there, or if there are other objects. What an
    interrupted creation left does not matter, because it has no branch.
    """
    leftovers = {_SNAPSHOT_KEY, _LOG_KEY, CONFIG_KEY}
    obstacle = None
    if spec_version_at(store) is None:
        obstacle = next((meta.key for meta in store.list() if meta.key not in leftovers), None)
    # Checked after the listing: the listed objects may be of a repository that another process has just created.
    if spec_version_at(store) is not None:
        if exist_ok:
            return True
        raise RepositoryAlreadyExists(
            f"a repository exists at {store.url()}: open it (Repository.open), or create it with exist_ok=True"
        )
    if obstacle is not None:
        raise RepositoryAlreadyExists(
            f"{store.url()} holds other objects, such as {obstacle!r}: create the repository in an empty folder"
        )
    return False


def create_objects(
    store: ObjectStore, config: RepositoryConfig, spec_version: int, now: int, *, exist_ok: bool
) -> str | None:
    """Write the objects of a new repository. Return the tag of its configuration, None for the default one.

    Args:
        store: An empty folder, or one with what an interrupted creation left.
        config: The configuration.
        spec_version: The version of the specification to follow.
        now: Microseconds since the epoch.
        exist_ok: Whether another process may create it at the same time.

    Raises:
        UnsupportedSpecVersion: There is no such version.
        RepositoryAlreadyExists: Another process has created it.
    """
    if spec_version not in SPEC_VERSIONS:
        raise UnsupportedSpecVersion(f"a repository follows version 1 or 2 of the specification, not {spec_version!r}")
    level = config.compression_level
    snapshot = initial_snapshot(now, spec_version)
    try:
        if spec_version == 1:
            _put_first(store, _SNAPSHOT_KEY, encode_snapshot(snapshot, level))
            etag = None
            if config != RepositoryConfig():
                etag = store.put(CONFIG_KEY, encode_config(config)).etag
            LayoutV1(store).create_ref(RefKind.BRANCH, MAIN, INITIAL_SNAPSHOT)
            return etag
        data = None if config == RepositoryConfig() else encode_config_v2(config)
        _put_first(store, _SNAPSHOT_KEY, encode_snapshot(snapshot, level, spec_version))
        _put_first(store, _LOG_KEY, encode_transaction_log(TransactionLog(), INITIAL_SNAPSHOT, level, spec_version))
        store.put(REPO_KEY, encode_repo_info(_first_state(snapshot, data), level), if_absent=True)
    except (RefAlreadyExists, AlreadyExists):
        if not exist_ok:
            raise RepositoryAlreadyExists(
                f"a repository was created at {store.url()} at the same time: open it (Repository.open)"
            ) from None
        return None
    return None if data is None else data.hex()


def _first_state(snapshot: Snapshot, config: bytes | None) -> RepoInfo:
    listed = ListedSnapshot(INITIAL_SNAPSHOT, None, snapshot.flushed_at, snapshot.message, snapshot.metadata)
    return RepoInfo(
        branches={MAIN: INITIAL_SNAPSHOT},
        tags={},
        deleted_tags=frozenset(),
        snapshots={INITIAL_SNAPSHOT: listed},
        status=RepoStatus(set_at=timestamp(snapshot.flushed_at)),
        updates=[RecordedUpdate(RepoInitialized(), snapshot.flushed_at)],
        config=config,
    )


def _put_first(store: ObjectStore, key: str, data: bytes) -> None:
    """Write an object that only an interrupted creation can have left, perhaps of another version."""
    try:
        store.put(key, data, if_absent=True)
    except AlreadyExists:
        existing = store.get(key)
        if len(existing) >= HEADER_LENGTH and spec_version_of(existing) == spec_version_of(data):
            return
        if not store.versioned:
            store.put(key, data)
        elif spec_version_of(data) == 1:
            # Other states of the lake share the object. Version 2 reads what version 1 has written.
            raise UnsupportedSpecVersion(
                f"the folder {store.url()} has held a repository of version 2: create it with spec_version=2"
            ) from None
