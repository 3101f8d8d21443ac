"""Maintenance of a lake: checkout, garbage collection, verification, export, and adoption of other writers' commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake_core import runtime
from lake_core.journal import Journal
from lake_core.lake.errors import DatasetNotFound, NothingToApply
from lake_core.lake.gc.collect import Collection, collect
from lake_core.lake.gc.verify import verify
from lake_core.lake.lake_format import upgrade_format
from lake_core.lake.lakefs.export import export
from lake_core.lake.lakefs.mirror import Mirrored, mirror
from lake_core.lake.publish.adoption import Adoption
from lake_core.lake.publish.checkout import Checkout, check_out_branch
from lake_core.lake.publish.commit_to_branch import commit_to_branch
from lake_core.lake.refs.commit_archive import COMMIT_ARCHIVE
from lake_core.lake.refs.revision import resolve_commit
from lake_core.lake.repository import REFS
from lake_core.lake.session.private_session import Session, SessionOptions
from lake_core.lake.session.release import release
from lake_core.lake.settings import LakeSettings
from lake_core.runner import Runner, run_here, run_in_turn
from lake_core.store import ObjectStore, store_at

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import timedelta
    from os import PathLike

    from lake_core.graveler.export import Exported
    from lake_core.lake.gc.problem import Problem
    from lake_core.lake.publish.published import Published
    from lake_core.lake.repository import Repository


@dataclass(frozen=True, slots=True)
class LakeMaintenance:
    """The maintenance of a lake. Any process may run it at any time, concurrently with publishing."""

    _repository: Repository

    def checkout(self, *, progress: Callable[[int, int], None] | None = None) -> Checkout:
        """Write main's logs to the folders of its datasets, if a publisher failed before it did. Raises Diverged."""
        return check_out_branch(self._repository, progress)

    def checkpoint(self, dataset: str, ref: str | None = None) -> None:
        """Write the derived files of a dataset, such as the checkpoint of a Delta table, now.

        `ref` names a branch or commit, main by default. If its version of the dataset is checked out, the files are
        written to the dataset's folder. Otherwise only readers of the lake use them.

        Raises DatasetNotFound, RefNotFound.
        """
        repository = self._repository
        branch = repository.format.branch
        refs = repository.refs()
        commit = resolve_commit(refs, repository.journal, ref or branch)
        view = repository.commit_state(commit, ref or branch).dataset(dataset)
        derived_root = view.derived_root if view.format.derived_prefix else view.checkout_store
        view.format.write_derived(view, derived_root, repository.clock(), due=True)

    def gc(
        self,
        *,
        dry_run: bool = False,
        history: timedelta | None = None,
        progress: Callable[[str, int], None] | None = None,
        run: Runner = run_in_turn,
    ) -> Collection:
        """Delete all objects that no branch, tag, session or commit of the last `history` refers to.

        The default of `history` is the retention in the settings, 30 days unless it was changed. Objects younger than
        eight days are kept. After an interruption, the next call continues. `dry_run` deletes nothing.
        Without write access, it measures the age of objects by this machine's clock instead of the store's.
        `run` calls the tasks that compare old states, and that delete. By default they run in this process.

        Raises CollectionRefused if a live dataset cannot be read.
        """
        history = LakeSettings(self._repository).history if history is None else history
        return collect(self._repository, history, dry_run=dry_run, progress=progress, run=run)

    def verify(
        self,
        *,
        hashes: bool = True,
        full: bool = False,
        progress: Callable[[str, int], None] | None = None,
        run: Runner | None = None,
    ) -> list[Problem]:
        """List the problems of the lake.

        Problems are objects that are missing, that have another size than the lake or a dataset's log records, or
        whose bytes do not match the hash in their name, and logs of main that are not checked out, or damaged in their
        folder. Every object that a live state refers to is looked up. Content is read and hashed once: an object that
        an earlier call read is not read again unless it was written since. So bytes that decay in the store after that
        are found only with `full`, which also decodes the files of datasets.

        Args:
            hashes: Whether to read content, instead of only checking that it exists in its size.
            full: Whether to read all content: what was read before, and the files of datasets.
            progress: Called with a phase and a count; at the end with `not read again` and a number of objects.
            run: Calls the tasks that compare old states, and that read content. By default they run in this process.
        """
        history = LakeSettings(self._repository).history
        return list(verify(self._repository, history, hashes=hashes, full=full, progress=progress, run=run))

    def adopt(self, dataset: str) -> Published:
        """Add the commits that another client made in a dataset's folder, past the lake, to main.

        Raises NothingToApply, DatasetNotFound, Conflict.
        """
        repository, path = self._repository, dataset.strip("/")
        branch = repository.format.branch
        refs = repository.refs()
        head = refs.branch(branch)
        if path not in repository.commit_state(refs.commit(head), branch).registered():
            raise DatasetNotFound(f"there is no dataset at {path!r} in {branch}: import it with `lake import {path}`")
        published = commit_to_branch(repository, Adoption(repository, path))
        if published.commit == head:
            raise NothingToApply(f"the checked-out log of {path!r} equals that of {branch}: there is nothing to adopt")
        return published

    def release(self, dataset: str) -> Published:
        """Remove a dataset from the lake, but keep its files, so that other clients can write it.

        Raises DatasetNotFound.
        """
        repository = self._repository
        isolation = LakeSettings(repository).isolation
        options = SessionOptions(
            f"s-{runtime.uuid4().hex}", repository.format.branch, f"Release {dataset}", None, isolation
        )
        return release(repository, Session(repository, options), dataset)

    def upgrade(self) -> int:
        """Upgrade the lake to the format version of this package, and return this version.

        Earlier releases of the package then refuse the lake, so upgrade them first. Open handles continue to work, but
        archive old commits only after the lake is opened again. A repeated call changes nothing.
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
        run: Runner = run_here,
    ) -> Exported:
        """Export branches and tags, with their data files, as a lakeFS repository in an empty folder or bucket.

        The export has the dumps that `lakectl refs-restore` loads. A repeated export writes only what is new.

        Args:
            target: Its location: the storage namespace of the repository.
            history: Whether to export all commits, or only those that a branch or tag names and their merge bases.
            rename: Names in lakeFS, by the names of branches and tags in the lake, for those that lakeFS refuses.
            storage_options: The options of fsspec that open the target.
            progress: Called with a phase and a count.
            run: Calls the tasks that copy objects. By default they run in this process.

        Raises InvalidRef for names that lakeFS refuses, before anything is written; FolderInUse if the folder is a lake
        or holds anything but an earlier export of this lake.
        """
        store = store_at(target, storage_options)
        return export(self._repository, store, history=history, rename=rename, progress=progress, run=run)

    def mirror(
        self,
        target: str | PathLike[str] | ObjectStore,
        onto: str,
        *,
        rename: Mapping[str, str] | None = None,
        storage_options: Mapping[str, Any] | None = None,
        progress: Callable[[str, int], None] | None = None,
    ) -> Mirrored:
        """Copy new commits, branches and tags to a repository of a lakeFS server that was restored from an export.

        Each call continues where the last one ended. Nothing else may write the branches on the server. The credentials
        are those of `lakectl`, in the environment variables LAKECTL_CREDENTIALS_ACCESS_KEY_ID and
        LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY.

        Args:
            target: The repository's storage namespace, with the export.
            onto: The repository: `https://host/repositories/NAME`.
            rename: As for `export`.
            storage_options: The options of fsspec that open the target.
            progress: Called with a phase and a count.

        Raises ServerDiverged if something else wrote a branch on the server, before anything there changes;
        ServerRefused, ServerUnavailable, InvalidUrl; and what `export` raises.
        """
        from lake_core.lake.lakefs.server import LakeFSRepository  # only this method needs http

        server = LakeFSRepository.from_url(onto)
        store = store_at(target, storage_options)
        return mirror(self._repository, store, server, rename=rename, progress=progress)
