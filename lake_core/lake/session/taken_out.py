"""The state of a shared session without some of its batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.errors import Conflict
from lake_core.lake.publish.apply import apply
from lake_core.lake.publish.tree_update import check_references, write_tree

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from lake_core.lake.refs.pending_deletions import PendingDeletions
    from lake_core.lake.refs.session_record import Batch, SessionRecord
    from lake_core.lake.repository import Repository


def without_batches(
    repository: Repository, record: SessionRecord, batches: Sequence[Batch], pending: PendingDeletions
) -> str:
    """Write the tree of a session without the changes of some of its batches, which are in the order of their flushes.

    What others wrote on top of them stays. So does a dataset that one of them created and others wrote to.

    Raises Conflict if others rewrote or removed what is to be taken out.
    """
    tree = record.tree
    for batch in reversed(batches):
        try:
            tree = take_out(repository, record, (batch.before, batch.after), tree, pending)
        except Conflict as error:
            written = f"what attempt {batch.attempt} of {batch.task!r} wrote"
            raise error.replace(
                summary=f"{written} is to be taken out, but other tasks build on it: {error.summary}",
                remedy="Discard those tasks as well, session.discard([…]), and run them again",
            ) from None
    return tree


def take_out(
    repository: Repository,
    record: SessionRecord,
    trees: tuple[str, str],
    tree: str,
    pending: PendingDeletions,
    without: Collection[str] = (),
    became: Mapping[str, str] | None = None,
) -> str:
    """Write a tree of a session without the difference of two trees, before and after.

    `without` are datasets and plain files that stay as they are, and `became` is that of `apply`. Raises Conflict,
    Collected.
    """
    before, after = trees
    if before == after:
        return tree
    name = f"session {record.id}"
    began = repository.refs(refresh=False).commit(record.base)
    update = apply(
        repository.state(after, name),
        repository.state(before, name),
        repository.state(tree, name),
        now=repository.clock(),
        session=record.id,
        commit=record.base,
        in_session=True,
        undoes_since=repository.commit_state(began, f"the base of {name}"),
        without=without,
        became=became,
    )
    check_references(update.references, pending)
    return write_tree(repository, update.onto, update.items, pending)
