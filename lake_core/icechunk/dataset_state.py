"""One state of a repository that is a dataset of a lake, of either version, and the objects that a new state takes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake_core.errors import NotFound
from lake_core.icechunk import ops_log
from lake_core.icechunk.asset_manager import AssetManager
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.config_file import CONFIG_KEY, decode_config, decode_config_v2, encode_config, encode_config_v2
from lake_core.icechunk.errors import DamagedObject
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.layout_v1 import LayoutV1
from lake_core.icechunk.layout_v2 import LayoutV2, listed_snapshot
from lake_core.icechunk.layouts import layout_of
from lake_core.icechunk.refs import MAIN, RefKind, encode_ref, ref_key
from lake_core.icechunk.repo_info import REPO_KEY, HistoryEntry, ListedSnapshot, RepoInfo
from lake_core.icechunk.repo_info_file import encode_repo_info
from lake_core.icechunk.snapshot import microseconds
from lake_core.icechunk.update import ConfigChanged, NewCommit, UpdateType
from lake_core.icechunk.upgrade import upgraded_state

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime

    from lake_core.icechunk.snapshot import Snapshot
    from lake_core.icechunk.snapshot_reader import SnapshotSource
    from lake_core.store import ObjectStore

MAIN_KEY = ref_key(RefKind.BRANCH, MAIN)
"""The key of the branch main in version 1."""


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a repository is besides its history, as values that can be compared."""

    config: RepositoryConfig
    metadata: Mapping[str, Any] = field(default_factory=dict)
    flags: tuple[frozenset[int], frozenset[int]] = (frozenset(), frozenset())
    status: tuple[str, str | None] = ("online", None)


@dataclass(frozen=True, slots=True)
class DatasetState:
    """The branch main and the settings of a repository in one state of the lake."""

    store: ObjectStore
    snapshot: Snapshot
    config: bytes | None
    """`config.yaml` of version 1."""
    info: RepoInfo | None
    """The state of version 2."""

    def settings(self) -> Settings:
        """Return the settings."""
        if self.info is None:
            return Settings(self.repository_config())
        status = self.info.status
        return Settings(
            self.repository_config(),
            dict(self.info.metadata),
            (frozenset(self.info.enabled_flags or ()), frozenset(self.info.disabled_flags or ())),
            (status.availability.name, status.limited_availability_reason),
        )

    def repository_config(self) -> RepositoryConfig:
        """Return the configuration."""
        if self.info is not None:
            config = self.info.config
            return RepositoryConfig() if config is None else decode_config_v2(config, REPO_KEY)
        return RepositoryConfig() if self.config is None else decode_config(self.config)


class _StatesLayout(LayoutV2):
    """The histories of several states at once, of which one at least is of version 2. New files follow version 2."""

    def __init__(self, store: ObjectStore, infos: Sequence[RepoInfo]) -> None:
        super().__init__(store, compression_level=DEFAULT_COMPRESSION_LEVEL)
        self._listed: dict[bytes, ListedSnapshot] = {}
        for info in infos:
            self._listed = {**info.snapshots, **self._listed}

    def ancestry(self, assets: SnapshotSource, snapshot_id: bytes) -> Iterator[HistoryEntry]:
        """Yield a history. A snapshot that no state lists is of version 1, and names its parent itself."""
        current: bytes | None = snapshot_id
        walked: set[bytes] = set()
        while current is not None:
            if current in walked:
                raise DamagedObject(REPO_KEY, f"the snapshot {encode_id(current)} is its own ancestor")
            walked.add(current)
            entry: HistoryEntry = self._listed.get(current) or assets.read_snapshot(current)
            yield entry
            current = entry.parent_id

    def reachable(self, assets: SnapshotSource, tips: Sequence[bytes], read_ahead: int) -> Iterator[Snapshot]:
        """Yield the snapshots of several histories."""
        ids: set[bytes] = set()
        for tip in tips:
            for entry in self.ancestry(assets, tip):
                if entry.snapshot_id in ids:
                    break
                ids.add(entry.snapshot_id)
                yield replace(assets.read_snapshot(entry.snapshot_id), parent_id=entry.parent_id)


def states_assets(objects: ObjectStore, *states: ObjectStore | None) -> AssetManager:
    """Return the files of a repository, with the histories that all of some states of it know.

    `objects`: the store that has the snapshots, manifests and chunks of these states.
    """
    infos = [info for state in states if state is not None and (info := _info(state)) is not None]
    return AssetManager(objects, layout=_StatesLayout(objects, infos) if infos else LayoutV1(objects))


def _info(store: ObjectStore) -> RepoInfo | None:
    layout = layout_of(store)
    return layout.info() if layout.spec_version > 1 else None


def read_state(assets: AssetManager, store: ObjectStore) -> DatasetState:
    """Return a state. Raises DamagedObject, RefNotFound."""
    layout = layout_of(store)
    if layout.spec_version > 1:
        info = layout.info()
        return DatasetState(store, assets.snapshot(info.branches[MAIN]), None, info)
    snapshot = assets.snapshot(layout.lookup(RefKind.BRANCH, MAIN).snapshot_id)
    try:
        return DatasetState(store, snapshot, bytes(store.get(CONFIG_KEY)), None)
    except NotFound:
        return DatasetState(store, snapshot, None, None)


def new_pointers(
    assets: AssetManager, head: DatasetState | None, settings: DatasetState, snapshot: Snapshot, now: datetime
) -> dict[str, bytes]:
    """Return the objects, by key, of a state in which main has another snapshot.

    Args:
        assets: The files of the repository.
        head: The state before it; None for a repository that is created.
        settings: The state that has its settings.
        snapshot: The newest snapshot, whose parent is the head's.
        now: The time of the update.
    """
    if assets.layout.spec_version == 1:
        before = None if head is None else head.config
        config = (
            encode_config(RepositoryConfig()) if settings.config is None and before is not None else settings.config
        )
        main = {MAIN_KEY: encode_ref(snapshot.snapshot_id)}
        return main if config is None or config == before else {**main, CONFIG_KEY: config}
    time = microseconds(now)
    info = _base_info(assets, head or settings, time)
    if head is None:
        root = assets.snapshot(INITIAL_SNAPSHOT)
        listed = {INITIAL_SNAPSHOT: listed_snapshot(root, None)}
        info = replace(
            info, branches={}, tags={}, deleted_tags=frozenset(), snapshots=listed, updates=info.updates[-1:]
        )
        info = replace(info, before_updates=None)
    parent = info.branches.get(MAIN, INITIAL_SNAPSHOT)
    if snapshot.snapshot_id != parent:
        info = info.with_snapshot(listed_snapshot(snapshot, parent))
    kind: UpdateType = NewCommit(MAIN, encode_id(snapshot.snapshot_id))
    changed = replace(_with_settings(info, settings), branches={**info.branches, MAIN: snapshot.snapshot_id})
    if head is not None and snapshot.snapshot_id == parent:
        kind = ConfigChanged()
    # The lake keeps earlier states, so the log needs no backups, and is never cut.
    log = ops_log.extended(info, kind, time, None, len(info.updates) + 1)
    return {REPO_KEY: encode_repo_info(replace(changed, updates=log.updates), assets.compression_level)}


def _base_info(assets: AssetManager, state: DatasetState, now: int) -> RepoInfo:
    return upgraded_state(assets, state.store, now) if state.info is None else state.info


def _with_settings(info: RepoInfo, state: DatasetState) -> RepoInfo:
    if state.info is None:
        return replace(info, config=None if state.config is None else encode_config_v2(state.repository_config()))
    return replace(
        info,
        config=state.info.config,
        metadata=state.info.metadata,
        status=state.info.status,
        enabled_flags=state.info.enabled_flags,
        disabled_flags=state.info.disabled_flags,
    )
