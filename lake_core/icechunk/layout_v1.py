"""The mutable objects of version 1: `refs/` and `config.yaml`. Snapshots name their parents."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed, StoreUnavailable
from lake_core.icechunk.config_file import CONFIG_KEY, decode_config, encode_config
from lake_core.icechunk.errors import (
    ConfigConflict,
    DamagedObject,
    RefAlreadyExists,
    RefNotFound,
    UnsupportedSpecVersion,
)
from lake_core.icechunk.folders import SNAPSHOTS
from lake_core.icechunk.identifier import encode_id
from lake_core.icechunk.refs import (
    MAIN,
    Ref,
    RefKind,
    check_new_name,
    decode_ref,
    encode_ref,
    no_main_deletion,
    no_ref,
    ref_key,
    tombstone_key,
)
from lake_core.icechunk.repo_info import REPO_KEY
from lake_core.icechunk.repository_layout import RepositoryLayout
from lake_core.icechunk.snapshot_reader import reachable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from lake_core.icechunk.config import RepositoryConfig
    from lake_core.icechunk.snapshot import Snapshot
    from lake_core.icechunk.snapshot_reader import SnapshotSource
    from lake_core.store import ObjectStore


_REF = re.compile(r"refs/(branch|tag)\.([^/]+)/ref\.json(\.deleted)?")


class LayoutV1(RepositoryLayout):
    """The branches, tags, history and configuration of a repository of version 1."""

    spec_version = 1

    def __init__(self, store: ObjectStore, *, is_upgraded: bool = False) -> None:
        """Return the layout of a repository.

        Args:
            store: The store of the repository.
            is_upgraded: Whether to read what an upgrade to version 2 has left. Else that is an error.
        """
        super().__init__(store)
        self._is_upgraded = is_upgraded

    def list_names(self, kind: RefKind) -> set[str]:
        """Return the names of all branches or tags. Objects that are not refs are left out."""
        names: set[str] = set()
        deleted: set[str] = set()
        for meta in self.store.list(f"refs/{kind.value}."):
            match = _REF.fullmatch(meta.key)
            if match is not None:
                (deleted if match.group(3) else names).add(match.group(2))
        return names - deleted

    def list_refs(self) -> list[Ref]:
        """Return all tags and branches. A ref that was deleted in the meantime is left out."""
        tips = []
        for kind in (RefKind.TAG, RefKind.BRANCH):
            for name in sorted(self.list_names(kind)):
                try:
                    tips.append(self.lookup(kind, name))
                except RefNotFound:
                    continue
        return tips

    def lookup(self, kind: RefKind, name: str) -> Ref:
        """Return a branch or tag."""
        if not isinstance(name, str) or not name or "/" in name:
            raise no_ref(kind, name)
        key = ref_key(kind, name)
        try:
            data = self.store.get(key)
        except NotFound:
            self._check_not_upgraded()
            raise no_ref(kind, name) from None
        if kind is RefKind.TAG and self.store.exists(tombstone_key(name)):
            raise RefNotFound(f"the tag {name!r} was deleted: call list_tags() for the existing tags")
        return Ref(kind, name, decode_ref(data, key), data.etag)

    def create_ref(self, kind: RefKind, name: str, snapshot_id: bytes) -> None:
        """Create a branch or tag."""
        check_new_name(kind, name)
        if kind is RefKind.TAG and self.store.exists(tombstone_key(name)):
            raise RefAlreadyExists(
                f"a tag {name!r} was deleted, and the names of tags cannot be used again: choose another name"
            )
        try:
            self.store.put(ref_key(kind, name), encode_ref(snapshot_id), if_absent=True)
        except AlreadyExists:
            raise RefAlreadyExists(f"the repository already has a {kind.value} {name!r}: choose another name") from None
        self._check_not_upgraded()

    def _check_not_upgraded(self) -> None:
        """Raise UnsupportedSpecVersion if `refs/` and `config.yaml` are neither written nor read any longer.

        Called after refs were written: an upgrade makes `repo` first, and reads them once more afterwards.
        """
        if not self._is_upgraded and self.store.exists(REPO_KEY):
            raise UnsupportedSpecVersion(
                "the repository was upgraded to version 2 of the Icechunk specification meanwhile: open it again, and "
                "repeat what it does not show"
            )

    def move_branch(self, branch: Ref, snapshot_id: bytes) -> bool:
        """Move a branch to another snapshot by compare-and-swap.

        If the outcome of the put is unknown, the branch is read: only this call names `snapshot_id`, unless a branch is
        reset to it.
        """
        # Looked for after the branch was read: an upgrade makes `repo` first, and then replaces each branch.
        if self.store.exists(REPO_KEY):
            return False
        try:
            self.store.put(ref_key(branch.kind, branch.name), encode_ref(snapshot_id), if_match=branch.etag)
        except (PreconditionFailed, StoreUnavailable, NotFound) as error:
            try:
                now = self.lookup(branch.kind, branch.name)
            except RefNotFound:
                return False
            if now.snapshot_id == snapshot_id:
                return True
            if isinstance(error, StoreUnavailable) and now.etag == branch.etag:
                raise
            return False
        return True

    def delete_branch(self, name: str) -> None:
        """Delete a branch."""
        if name == MAIN:
            raise no_main_deletion()
        self._check_exists(RefKind.BRANCH, name)
        self.store.delete([ref_key(RefKind.BRANCH, name)])
        self._check_not_upgraded()

    def delete_tag(self, name: str) -> None:
        """Delete a tag by an empty object beside it, so that its name is never used again."""
        self._check_exists(RefKind.TAG, name)
        try:
            self.store.put(tombstone_key(name), b"", if_absent=True)
        except AlreadyExists:
            raise RefNotFound(f"the tag {name!r} was already deleted") from None
        self._check_not_upgraded()

    def _check_exists(self, kind: RefKind, name: str) -> None:
        """Raise RefNotFound unless a ref of the name exists, damaged or not."""
        try:
            self.lookup(kind, name)
        except DamagedObject:
            return

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
            self._check_not_upgraded()
            return None, None
        return decode_config(data), data.etag

    def save_config(self, config: RepositoryConfig, etag: str | None) -> str:
        """Write `config.yaml`."""
        self._check_not_upgraded()
        data = encode_config(config)
        try:
            return self.store.put(CONFIG_KEY, data, if_absent=etag is None, if_match=etag).etag
        except (AlreadyExists, PreconditionFailed):
            raise ConfigConflict(
                "another process saved the configuration since it was read: "
                "open the repository again, and repeat the change"
            ) from None
