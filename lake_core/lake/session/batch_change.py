"""The change of a session's batches in the refs journal, which flushes, discards and replacements share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.journal import Action, Add, Append, Delete, State, Update
from lake_core.lake.refs.pending_deletions import collections
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.refs.session_record import batch_key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.lake.refs.session_record import Batch, SessionRecord
    from lake_core.lake.repository import Repository


def change_batches(
    repository: Repository,
    refs: RefsState,
    record: SessionRecord,
    newer: SessionRecord,
    *,
    removed: Sequence[Batch] = (),
    added: Sequence[Batch] = (),
) -> bool:
    """Record a session with other batches, and return whether that was done.

    It is not if the session has changed, or a collection has begun, since its new tree was made.

    Args:
        repository: The lake.
        refs: The refs by which the tree was made.
        record: The record of the session in these refs.
        newer: Its new record, but for the batches.
        removed: The batches that are taken out.
        added: The new batches.
    """
    has_batch_keys = repository.format.has_batch_keys
    kept = [batch for batch in record.batches if batch not in removed]
    newer = replace(newer, batches=kept if has_batch_keys else [*kept, *added])

    def plan(state: State) -> Append[bool]:
        newest = RefsState(state)
        if newest.session(record.id) != record or collections(newest) != collections(refs):
            return Append((), False)
        keys = (batch_key(record.id, batch) for batch in removed)
        actions: list[Action] = [Update(record.key, newer.to_json()), *(Delete(key) for key in keys if key in state)]
        if has_batch_keys:
            actions += [Add(batch_key(record.id, batch), batch.to_json()) for batch in added]
        return Append(actions, True)

    return repository.journal.append(plan)
