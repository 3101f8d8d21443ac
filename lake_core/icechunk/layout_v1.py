"""The mutable objects of version 1: `refs/` and `config.yaml`. Snapshots name their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed
from lake_core.icechunk import refs
from lake_core.icechunk.config_file import CONFIG_KEY, decode_config, encode_config
from lake_core.icechunk.errors import ConfigConflict, UnsupportedSpecVersion
from lake_core.icechunk.folders import SNAPSHOTS
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.repo_info import REPO_KEY
from lake_core.icechunk.repository_layout import RepositoryLayout
from lake_core.icechunk.snapshot_reader import reachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.refs import Ref, RefKind
    from lake_core.icechunk.snapshot import Snapshot
    from lake_core.icechunk.snapshot_reader import SnapshotSource


class LayoutV1(RepositoryLayout):
    """The branches, tags, history and configuration of a repository of version 1."""

    spec_version = 1

    def list_names(self, kind: RefKind) -> set[str]:
        """Return the names of all branches or tags."""
        return refs.list_names(self.store, kind)

    def list_refs(self) -> list[Ref]:
        """Return all tags and branches."""
        return refs.list_refs(self.store)

    def lookup(self, kind: RefKind, name: str) -> Ref:
        """Return a branch or tag."""
        return refs.lookup(self.store, kind, name)

    def create_ref(self, kind: RefKind, name: str, snapshot_id: bytes) -> None:
        """Create a branch or tag."""
        refs.create(self.store, kind, name, snapshot_id)

    def move_branch(self, branch: Ref, snapshot_id: bytes) -> bool:
        """Move a branch to another snapshot."""
        # Looked for after the branch was read: an upgrade makes `repo` first, and then replaces each branch.
        return not self.store.exists(REPO_KEY) and refs.move_branch(self.store, branch, snapshot_id)

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""
        refs.delete_branch(self.store, name)

    def delete_tag(self, name: str) -> None:
        """Delete a tag."""
        refs.delete_tag(self.store, name)

    def has_snapshot(self, snapshot_id: bytes) -> bool:
        """Return whether the snapshot's object exists."""
        return self.store.exists(SNAPSHOTS + encode_id(snapshot_id))

    def publish(self, branch: Ref, snapshot: Snapshot, *, amends: bool = False, rearranges: bool = False) -> bool:
        """Move a branch to a new snapshot."""
        if amends or rearranges:
            self.info()
        return self.move_branch(branch, snapshot.snapshot_id)

    def publish_detached(self, snapshot: Snapshot) -> None:
        """Do nothing, as the snapshot's object is all there is of it."""

    def ancestry(self, assets: SnapshotSource, snapshot_id: bytes) -> Iterator[Snapshot]:
        """Yield the snapshots of a history."""
        return reachable(assets, [snapshot_id])

    def reachable(self, assets: SnapshotSource, tips: Sequence[bytes], read_ahead: int) -> Iterator[Snapshot]:
        """Yield the snapshots of several histories."""
        return reachable(assets, tips, read_ahead=read_ahead)

    def read_config(self) -> tuple[RepositoryConfig | None, str | None]:
        """Return the configuration in `config.yaml`, and its tag."""
        try:
            data = self.store.get(CONFIG_KEY)
        except NotFound:
            return None, None
        return decode_config(data), data.etag

    def save_config(self, config: RepositoryConfig, etag: str | None) -> str:
        """Write `config.yaml`."""
        if self.store.exists(REPO_KEY):
            raise UnsupportedSpecVersion(
                "the repository was upgraded to version 2 of the Icechunk specification: open it again"
            )
        data = encode_config(config)
        try:
            return self.store.put(CONFIG_KEY, data, if_absent=etag is None, if_match=etag).etag
        except (AlreadyExists, PreconditionFailed):
            raise ConfigConflict(
                "another process saved the configuration since it was read: "
                "open the repository again, and repeat the change"
            ) from None
