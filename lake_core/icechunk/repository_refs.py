"""Branches and tags of a repository. Specification section: References."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lake_core.icechunk.apply_difference import new_objects
from lake_core.icechunk.asynchronous import asynchronous
from lake_core.icechunk.difference import difference
from lake_core.icechunk.errors import ConflictError, InvalidIdentifier, SnapshotNotFound
from lake_core.icechunk.folders import MANIFESTS
from lake_core.icechunk.identifier import decode_id, encode_id
from lake_core.icechunk.refs import RefKind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.store import ObjectStore


class RepositoryRefs:
    """The methods of a repository for its branches and tags."""

    _store: ObjectStore
    _assets: AssetManager

    def list_branches(self) -> set[str]:
        """Return the names of all branches."""
        return self._assets.layout.list_names(RefKind.BRANCH)

    def list_tags(self) -> set[str]:
        """Return the names of all tags."""
        return self._assets.layout.list_names(RefKind.TAG)

    def lookup_branch(self, branch: str) -> str:
        """Return the id of the snapshot at the tip of a branch. Raises RefNotFound."""
        return encode_id(self._assets.layout.lookup(RefKind.BRANCH, branch).snapshot_id)

    def lookup_tag(self, tag: str) -> str:
        """Return the id of the snapshot that a tag names. Raises RefNotFound."""
        return encode_id(self._assets.layout.lookup(RefKind.TAG, tag).snapshot_id)

    def create_branch(self, branch: str, snapshot_id: str) -> None:
        """Create a branch at a snapshot. Raises RefAlreadyExists, InvalidRefName, SnapshotNotFound."""
        self._assets.layout.create_ref(RefKind.BRANCH, branch, self._existing(snapshot_id))

    def create_tag(self, tag: str, snapshot_id: str) -> None:
        """Create a tag at a snapshot. Raises RefAlreadyExists, InvalidRefName, SnapshotNotFound."""
        self._assets.layout.create_ref(RefKind.TAG, tag, self._existing(snapshot_id))

    def reset_branch(self, branch: str, snapshot_id: str, *, from_snapshot_id: str | None = None) -> None:
        """Move a branch to any snapshot. Commits that only it reached become garbage.

        Args:
            branch: The branch.
            snapshot_id: The snapshot.
            from_snapshot_id: The tip that the branch must have now; any by default.

        Raises:
            RefNotFound, SnapshotNotFound: There is no such branch or snapshot. Or the repository is in a lake, which
                has collected chunks of the snapshot.
            ConflictError: The branch has another tip, or was moved at the same time.
        """
        target = self._existing(snapshot_id)
        tip = self._assets.layout.lookup(RefKind.BRANCH, branch)
        expected = tip.snapshot_id if from_snapshot_id is None else decode_id(from_snapshot_id)
        if self._store.versioned:
            self._check_whole(tip.snapshot_id, target)
        if tip.snapshot_id != expected or not self._assets.layout.move_branch(tip, target):
            actual = self.lookup_branch(branch)
            is_back = actual == encode_id(expected)
            where = "was moved away and back, or upgraded with the repository," if is_back else f"is at {actual}, not"
            raise ConflictError(
                f"the branch {branch} {where} at {encode_id(expected)}: check what was committed, and repeat the "
                "operation",
                expected_parent=encode_id(expected),
                actual_parent=actual,
            )

    def delete_branch(self, branch: str) -> None:
        """Delete a branch. Raises RefNotFound; InvalidRefName for main."""
        self._assets.layout.delete_branch(branch)

    def delete_tag(self, tag: str) -> None:
        """Delete a tag. Its name is never used again. Raises RefNotFound."""
        self._assets.layout.delete_tag(tag)

    def _check_whole(self, tip: bytes, target: bytes) -> None:
        """Raise SnapshotNotFound if the lake has collected what a snapshot needs, and the tip does not."""
        before, after = self._assets.snapshot(tip), self._assets.snapshot(target)
        manifests = after.manifest_files.keys() - before.manifest_files.keys()
        self._check_present(target, [MANIFESTS + encode_id(manifest) for manifest in manifests])
        self._check_present(target, list(new_objects(difference(self._assets, before, after), before, after)))

    def _check_present(self, snapshot: bytes, keys: Sequence[str]) -> None:
        exist = self._store.gather(*(partial(self._store.exists, key) for key in keys))
        missing = [key for key, exists in zip(keys, exist, strict=True) if not exists]
        if missing:
            raise SnapshotNotFound(
                f"snapshot {encode_id(snapshot)} cannot be restored: {len(missing)} of its objects were collected, "
                f"such as {missing[0]}. Restore a newer snapshot, or write the data again"
            )

    def _existing(self, snapshot_id: str) -> bytes:
        """Return the id of a snapshot that exists. Raises SnapshotNotFound."""
        try:
            identifier = decode_id(snapshot_id)
        except InvalidIdentifier as error:
            raise SnapshotNotFound(str(error)) from None
        if not self._assets.layout.has_snapshot(identifier):
            raise SnapshotNotFound(
                f"the repository has no snapshot {snapshot_id}: call ancestry() for the snapshots of a branch"
            )
        return identifier

    list_branches_async = asynchronous(list_branches)
    list_tags_async = asynchronous(list_tags)
    lookup_branch_async = asynchronous(lookup_branch)
    lookup_tag_async = asynchronous(lookup_tag)
    create_branch_async = asynchronous(create_branch)
    create_tag_async = asynchronous(create_tag)
    reset_branch_async = asynchronous(reset_branch)
    delete_branch_async = asynchronous(delete_branch)
    delete_tag_async = asynchronous(delete_tag)
