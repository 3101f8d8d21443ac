"""Maintenance of a lake: checkout, garbage collection, verification, export, and adoption of other writers' commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake_core import runtime
from lake_core.journal import Journal
from lake_core.lake.gc.collect import Collection, collect
from lake_core.lake.gc.verify import Problem, verify
from lake_core.lake.lake_format import upgrade_format
from lake_core.lake.lakefs.export import export
from lake_core.lake.lakefs.mirror import Mirrored, mirror
from lake_core.lake.publish.adopt import adopt
from lake_core.lake.publish.checkout import Checkout, check_out_branch
from lake_core.lake.refs.commit_archive import COMMIT_ARCHIVE
from lake_core.lake.repository import REFS
from lake_core.lake.session.private_session import Session, SessionOptions
from lake_core.lake.session.release import release
from lake_core.lake.settings import LakeSettings
from lake_core.store import ObjectStore, store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from os import PathLike

    from lake_core.graveler.export import Exported
    from lake_core.lake.publish.published import Published
    from lake_core.lake.repository import Repository


@dataclass(frozen=True, slots=True)
class LakeMaintenance:
    """The maintenance of a lake. Any process may run it at any time, concurrently with publishing."""

    _repository: Repository

    def checkout(self, *, progress: Callable[[int, int], None] | None = None) -> Checkout:
        """Put main's datasets in place where a failed publisher did not. Idempotent. Raises Diverged."""
        return check_out_branch(self._repository, progress)

    def checkpoint(self, dataset: str) -> None:
        """Write what is derived of a dataset of main (a Delta table's checkpoint) in place, due or not.

        Raises DatasetNotFound.
        """
        repository = self._repository
        branch = repository.format.branch
        refs = repository.refs()
        view = repository.commit_state(refs.commit(refs.branch(branch)), branch).dataset(dataset)
        view.format.write_derived(view, view.place, repository.clock(), due=True)

    def gc(
        self,
        *,
        dry_run: bool = False,
        history: timedelta | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Collection:
        """Delete what no branch, tag, session or commit of the last `history` reaches.

        `history` is 30 days, or as the settings say. After an interruption the next call continues. Objects younger
        than eight days are kept. `dry_run` deletes nothing.

        Raises CollectionRefused if a live dataset cannot be read.
        """
        history = LakeSettings(self._repository).history if history is None else history
        return collect(self._repository, history, dry_run=dry_run, progress=progress)

    def verify(
        self, *, hashes: bool = True, full: bool = False, progress: Callable[[str, int], None] | None = None
    ) -> list[Problem]:
        """List what is wrong with the lake.

        Objects that live states reach may be missing, or hold other bytes than their names say; main may not be in
        place. All objects are looked for. Content is read once: what an earlier call has read, and nobody has put again
        since, is not read again, so bytes that decayed in the store since then are not noticed.

        Args:
            hashes: Whether to read content, instead of only looking whether it is there.
            full: Whether to read all content, also what was read before.
            progress: Called with a phase and a count; at the end with `not read again` and a number of objects.
        """
        history = LakeSettings(self._repository).history
        return list(verify(self._repository, history, hashes=hashes, full=full, progress=progress))

    def adopt(self, dataset: str) -> Published:
        """Bring what another client committed to a dataset, past the lake, into main.

        Raises NothingToApply, DatasetNotFound, Conflict.
        """
        return adopt(self._repository, dataset)

    def release(self, dataset: str) -> Published:
        """Remove a dataset from the lake, and leave it in place for other clients to write. Raises DatasetNotFound."""
        repository = self._repository
        isolation = LakeSettings(repository).isolation
        options = SessionOptions(
            f"s-{runtime.uuid4().hex}", repository.format.branch, f"Release {dataset}", None, isolation
        )
        return release(repository, Session(repository, options), dataset)

    def upgrade(self) -> int:
        """Raise the lake to the format version of this package, and return that version. Idempotent.

        Earlier releases refuse the lake from then on: upgrade them first. Handles that are open go on working, and
        archive old commits only after they are opened again.
        """
        repository = self._repository
        format = upgrade_format(repository.root)
        Journal(repository.root, REFS, clock=repository.clock, archive=COMMIT_ARCHIVE).write_snapshot()
        return format.version

    def export(
        self,
        target: str | PathLike[str] | ObjectStore,
        *,
        history: bool = True,
        rename: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Exported:
        """Export branches and tags, with their data files, as a lakeFS repository in an empty folder or bucket.

        The export has the dumps that `lakectl refs-restore` loads. Repeated, it writes what is new.

        Args:
            target: Its location: the storage namespace of the repository.
            history: Whether to export all commits, or only those that a branch or tag names and their merge bases.
            rename: Names in lakeFS, by the names of branches and tags in the lake, for those that lakeFS refuses.
            storage_options: What opens the target, as fsspec takes it.
            progress: Called with a phase and a count.

        Raises InvalidRef for names that lakeFS refuses, before anything is written; FolderInUse for a lake, and for a
        folder that holds more than an earlier export of this one.
        """
        store = store_at(target, storage_options)
        return export(self._repository, store, history=history, rename=rename, progress=progress)

    def mirror(
        self,
        target: str | PathLike[str] | ObjectStore,
        onto: str,
        *,
        rename: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Mirrored:
        """Bring what is new onto a lakeFS server, into a repository that an export of this lake was restored into.

        Repeated, it goes on. The server's branches must not be written otherwise. Credentials are those of `lakectl`:
        LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY in the environment.

        Args:
            target: The repository's storage namespace, with the export.
            onto: The repository: `https://host/repositories/NAME`.
            rename: As for `export`.
            storage_options: What opens the target, as fsspec takes it.
            progress: Called with a phase and a count.

        Raises ServerDiverged for a branch that was written otherwise, before anything on the server changes;
        ServerRefused, ServerUnavailable, InvalidUrl; and as `export`.
        """
        from lake_core.lake.lakefs.server import LakeFSRepository  # no other process needs http

        server = LakeFSRepository.from_url(onto)
        store = store_at(target, storage_options)
        return mirror(self._repository, store, server, rename=rename, progress=progress)
