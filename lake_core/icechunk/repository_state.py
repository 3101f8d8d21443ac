"""What only repositories of version 2 have: metadata, a status, feature flags, and a log of operations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lake_core.icechunk import ops_log
from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.commit import check_json_metadata
from lake_core.icechunk.feature_flags import FeatureFlag, feature_flags, flag_number, with_flag
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.refs import RefKind
from lake_core.icechunk.snapshot import Snapshot, SnapshotInfo
from lake_core.icechunk.update import FeatureFlagChanged, MetadataChanged, RepoStatusChanged, Update, update_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lake_core.clock import AwareClock
    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.repo_info import HistoryEntry, RepoInfo
    from lake_core.icechunk.repo_status import RepoStatus
    from lake_core.store import ObjectStore


class RepositoryState:
    """The methods of a repository for its metadata, status, feature flags and operations log.

    All of them raise UnsupportedSpecVersion for a repository of version 1.
    """

    _store: ObjectStore
    _assets: AssetManager
    _clock: AwareClock

    # Metadata

    def get_metadata(self) -> dict[str, Any]:
        """Return the metadata of the repository."""
        return dict(self._assets.layout.info().metadata)

    @property
    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the repository."""
        return self.get_metadata()

    def set_metadata(self, metadata: Mapping[str, Any]) -> None:
        """Replace the metadata of the repository. `metadata`: values that JSON can hold.

        Raises RepositoryReadOnly.
        """
        check_json_metadata(metadata)
        self._assets.layout.update(lambda info: (replace(info, metadata=dict(metadata)), MetadataChanged()))

    def update_metadata(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        """Set some values of the metadata of the repository, and return all of them. Raises RepositoryReadOnly."""
        check_json_metadata(metadata)
        after = self._assets.layout.update(
            lambda info: (replace(info, metadata={**info.metadata, **metadata}), MetadataChanged())
        )
        assert after is not None
        return dict(after.metadata)

    # Status

    def get_status(self) -> RepoStatus:
        """Return whether the repository can be written."""
        return self._assets.layout.info().status

    @property
    def status(self) -> RepoStatus:
        """Return whether the repository can be written."""
        return self.get_status()

    def set_status(self, status: RepoStatus) -> None:
        """Set whether the repository can be written. This works at any status."""
        dated = status if status.set_at is not None else replace(status, set_at=self._clock())
        self._assets.layout.update(
            lambda info: (replace(info, status=dated), RepoStatusChanged(dated)), when_read_only=True
        )

    # Feature flags

    def feature_flags(self) -> list[FeatureFlag]:
        """Return the feature flags."""
        return feature_flags(self._assets.layout.info())

    def enabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the feature flags that are on."""
        return [flag for flag in self.feature_flags() if flag.enabled]

    def disabled_feature_flags(self) -> list[FeatureFlag]:
        """Return the feature flags that are off."""
        return [flag for flag in self.feature_flags() if not flag.enabled]

    def set_feature_flag(self, name: str, setting: bool | None) -> None:
        """Turn a feature on or off, or, with None, give it its default again.

        Raises UnknownFeatureFlag, RepositoryReadOnly.
        """
        number = flag_number(name)
        self._assets.layout.update(lambda info: (with_flag(info, number, setting), FeatureFlagChanged(number, setting)))

    # Operations

    def ops_log(self) -> Iterator[Update]:
        """Yield what was done to the repository, newest first.

        Backups that were trimmed are not named. The log is that of the moment of the call.
        """
        return self._ops_log(self._assets.layout.info())

    def _ops_log(self, info: RepoInfo) -> Iterator[Update]:
        backups: set[str | None] | None = None
        for number, update in enumerate(ops_log.recorded_updates(info, self._store.data_root)):
            if number == len(info.updates):
                listed = self._store.data_root.list(ops_log.OVERWRITTEN)
                backups = {meta.key.removeprefix(ops_log.OVERWRITTEN) for meta in listed}
            yield update_of(update, update.backup if backups is None or update.backup in backups else None)

    def _writable_tip(self, branch: str) -> bytes:
        """Return the tip of a branch. Raises RefNotFound, RepositoryReadOnly."""
        layout = self._assets.layout
        layout.check_writable()
        return layout.lookup(RefKind.BRANCH, branch).snapshot_id

    get_metadata_async = asynchronous(get_metadata)
    set_metadata_async = asynchronous(set_metadata)
    update_metadata_async = asynchronous(update_metadata)
    get_status_async = asynchronous(get_status)
    set_status_async = asynchronous(set_status)
    feature_flags_async = asynchronous(feature_flags)
    enabled_feature_flags_async = asynchronous(enabled_feature_flags)
    disabled_feature_flags_async = asynchronous(disabled_feature_flags)
    set_feature_flag_async = asynchronous(set_feature_flag)


def snapshot_info(entry: HistoryEntry) -> SnapshotInfo:
    """Return the entry of a snapshot in the history."""
    return SnapshotInfo(
        id=encode_id(entry.snapshot_id),
        parent_id=None if entry.parent_id is None else encode_id(entry.parent_id),
        written_at=entry.written_at,
        message=entry.message,
        metadata=dict(entry.metadata),
        manifests=list(entry.manifest_files.values()) if isinstance(entry, Snapshot) else None,
    )
