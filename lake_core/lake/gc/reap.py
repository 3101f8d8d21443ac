"""Sessions, collections and fences that are over leave the refs journal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lake_core.journal import Action, Append, Delete, State, Update
from lake_core.lake.gc.candidates import MIN_AGE
from lake_core.lake.refs.fence import outdated_fences
from lake_core.lake.refs.pending_deletions import PREFIX
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.refs.session_record import BATCHES, EXPIRED, FAILED, OPEN
from lake_core.lake.refs.values import instant_of
from lake_core.lake.session.generations import REPLACEABLE, is_replaceable

if TYPE_CHECKING:
    from lake_core.lake.repository import Repository

_MOST_BATCHES = 10_000
"""The most batches of ended sessions that one collection removes."""


def reap(repository: Repository) -> None:
    """Mark sessions past their time as expired.

    Ended sessions and collections are removed from the journal once no open session can be older than them. A session
    that another generation may follow is known as long as its commit. A fence has a time of its own.
    """

    def plan(state: State) -> Append[list[str]]:
        refs, now = RefsState(state), repository.clock()
        actions: list[Action] = list(outdated_fences(refs, now))
        for record in refs.sessions():
            if record.state in (OPEN, FAILED):
                if now >= record.expires:
                    actions.append(Update(record.key, replace(record, state=EXPIRED).to_json()))
            elif record.is_published or now - record.opened > REPLACEABLE:
                if is_replaceable(refs, record, now):
                    continue
                batches = refs.state.under(f"{BATCHES}{record.id}/")
                gone = batches[: max(0, _MOST_BATCHES - len(actions))]
                actions += [Delete(key) for key in gone]
                is_known = record.renews and record.commit is not None and refs.has_commit(record.commit)
                if now - record.opened > REPLACEABLE and len(gone) == len(batches) and not is_known:
                    actions.append(Delete(record.key))
        lists: list[str] = []
        for id, value in refs.under(PREFIX).items():
            if "done" in value and now - instant_of(f"{PREFIX}{id}", value, "done") > MIN_AGE:
                actions.append(Delete(f"{PREFIX}{id}"))
                lists.append(value["list"])
        return Append(actions, lists)

    ended = repository.journal.append(plan)
    repository.root.delete(ended)
