"""A session takes out what tasks have published with an earlier one, so that they write it anew."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.errors import LakeError
from lake_core.lake.errors import BatchesGone, Conflict, SessionClosed
from lake_core.lake.publish.branch_update import MOST_TRIES
from lake_core.lake.publish.difference import changes_between, dataset_of
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.refs.history import log
from lake_core.lake.refs.reached import CommitLinks, has_reached
from lake_core.lake.refs.session_record import OPEN
from lake_core.lake.session.batch_change import change_batches
from lake_core.lake.session.generations import batches_of, is_in_force, marks, replacing_writer
from lake_core.lake.session.session_state import open_record
from lake_core.lake.session.taken_out import take_out

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lake_core.lake.refs.pending_deletions import PendingDeletions
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.refs.session_record import Batch, SessionRecord
    from lake_core.lake.repository import Repository


def replace_published(
    repository: Repository,
    session: str,
    epoch: int | None,
    commit: str,
    tasks: Collection[str],
    may_stay: Collection[str],
    stayed: set[str],
) -> Sequence[str]:
    """Take what tasks published with a commit out of a session. See `SharedSession.replace_published`."""
    for _ in range(MOST_TRIES):
        refs = repository.refs()
        record = open_record(repository, refs, session, epoch)
        batches = _batches(refs, commit)
        if not has_reached(CommitLinks(refs), record.base, commit):
            raise Conflict(
                f"commit {commit[:12]} is not in the past of session {session!r}, which began before it",
                commit=record.base,
                remedy="Open a new session, and replace what the commit published there",
            )
        if not is_in_force(refs, record.base, commit):
            return []
        there = {batch.writer for batch in refs.batches(record)}
        taken = [
            batch for batch in batches if batch.task in tasks and replacing_writer(commit, batch.task) not in there
        ]
        if not taken:
            return []
        left: set[str] = set()
        tree = _without(repository, refs, record, commit, taken, repository.pending_deletions(refs), may_stay, left)
        marked = marks(replacing_writer(commit, ""), record.tree, tree, taken)
        if change_batches(repository, refs, record, replace(record, tree=tree), added=marked):
            stayed |= left
            return sorted({str(batch.task) for batch in taken})
    raise SessionClosed(f"too many processes write to session {session!r} at once: try again", state=OPEN)


def _batches(refs: RefsState, commit: str) -> Sequence[Batch]:
    """Return the batches of the session that a commit is. Raises BatchesGone."""
    id = refs.commit(commit).metadata.get("session", "")
    if f"session/{id}" not in refs.state:
        raise BatchesGone(
            f"commit {commit[:12]} is not of a session that the lake still knows: start a new run, which adds to it"
        )
    return batches_of(refs, refs.session(id))


def _without(
    repository: Repository,
    refs: RefsState,
    record: SessionRecord,
    commit: str,
    batches: Sequence[Batch],
    pending: PendingDeletions,
    may_stay: Collection[str],
    stayed: set[str],
) -> str:
    """Write the tree of a session without published batches, and without later compactions that are in their way."""
    tree = record.tree
    for batch in reversed(batches):
        trees = batch.before, batch.after
        became = _became(repository, refs, batch, commit)
        try:
            tree = take_out(repository, record, trees, tree, pending, became=became)
        except Conflict as conflict:
            tree = _without_compactions(repository, refs, record, commit, set(conflict.datasets), tree, pending)
            try:
                tree = take_out(repository, record, trees, tree, pending, became=became)
            except Conflict as error:
                if batch.task in may_stay:
                    rewritten = set(error.kinds)
                    stayed |= rewritten
                    tree = take_out(repository, record, trees, tree, pending, without=rewritten, became=became)
                    continue
                raise error.replace(
                    summary=f"what {batch.task!r} published with commit {commit[:12]} is to be replaced, but others "
                    f"build on it: {error.summary}",
                    remedy="Run them again as well, or start a new run, which adds to what is published",
                ) from None
    return tree


def _became(repository: Repository, refs: RefsState, batch: Batch, commit: str) -> Mapping[str, str]:
    """Return the ids that datasets of a batch got with its publish, because others had created them as well."""
    staged = repository.state(batch.after, "the batch").datasets()
    published = repository.commit_state(refs.commit(commit)).datasets()
    return {record.id: published[path].id for path, record in staged.items() if path in published}


def _without_compactions(
    repository: Repository,
    refs: RefsState,
    record: SessionRecord,
    since: str,
    paths: Collection[str],
    tree: str,
    pending: PendingDeletions,
) -> str:
    """Write a tree of a session without the compactions of some datasets that were published since a commit."""
    for later in log(refs, refs.commit(record.base), first_parent=True):
        if later.id == since:
            break
        before, after = repository.commit_state(refs.first_parent(later)), repository.commit_state(later)
        touched = changed_datasets(later).keys()
        compacted = {
            path
            for path in touched & set(paths)
            if (old := before.datasets().get(path)) and (new := after.datasets().get(path))
            if (view := after.folder_of(new)).format.rearranges(before.folder_of(old), view)
        }
        if compacted:
            registered = {**before.registered(), **after.registered()}
            changed = (key for key, _ in changes_between(before, after))
            others = {dataset_of(key, registered) or key for key in changed} - compacted
            trees = before.view.tree, after.view.tree
            try:
                tree = take_out(repository, record, trees, tree, pending, without=others)
            except LakeError:
                break  # others were made on top of it, or the files that it replaced are gone
    return tree
