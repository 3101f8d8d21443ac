"""The tasks of a shared session: which of them have ended, and how their writes are taken out again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lake_core.lake.errors import SessionClosed, UnfinishedTasks
from lake_core.lake.publish.branch_update import MOST_TRIES
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.lake.session.batch_change import change_batches
from lake_core.lake.session.generations import DISCARDING, marks
from lake_core.lake.session.session_state import check_epoch, closed, expire_if_due
from lake_core.lake.session.taken_out import without_batches
from lake_core.readable import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from lake_core.lake.publish.published import Published
    from lake_core.lake.refs.session_record import Batch
    from lake_core.lake.repository import Repository


def unfinished_parts(batches: Iterable[Batch]) -> set[tuple[str, str]]:
    """Return the tasks and parts whose last batch is not among some batches: the attempt at them did not end."""
    has_ended: dict[tuple[str, str], bool] = {}
    for batch in batches:
        if batch.task is not None:
            part = batch.task, batch.part
            has_ended[part] = batch.is_last or has_ended.get(part, False)
    return {part for part, ended in has_ended.items() if not ended}


@dataclass(frozen=True, slots=True)
class Ended:
    """The tasks of a session that ended well, as its publisher knows them."""

    tasks: frozenset[str]
    without_end: bool = False
    """Whether these have ended even if their last batches do not say so."""

    def check(self, session: str, batches: Sequence[Batch]) -> None:
        """Check that all batches of a session are of these tasks. Raises UnfinishedTasks."""
        others = sorted({batch.task for batch in batches if batch.task is not None} - self.tasks)
        unfinished = [] if self.without_end else sorted({task for task, _ in unfinished_parts(batches)} & self.tasks)
        problems = [
            f"{listed(names)} {what}"
            for names, what in ((unfinished, "did not end"), (others, "wrote, but are not to be published"))
            if names
        ]
        if problems:
            raise UnfinishedTasks(
                f"session {session!r} is not published, because {' and '.join(problems)}: run them again, discard "
                "them, or publish with others='leave out'",
                unfinished=unfinished,
                others=others,
            )


def publish_tasks(
    repository: Repository, session: str, epoch: int | None, publish: Callable[[], Published], *, leaves_out: bool
) -> Published:
    """Publish a session, and first discard what is not to be published, if that is wanted.

    Raises UnfinishedTasks, and what `publish` and `discard` raise.
    """
    for _ in range(MOST_TRIES):
        try:
            return publish()
        except UnfinishedTasks as error:
            if not leaves_out:
                raise
            discard(repository, session, epoch, partial(_is_of, tasks={*error.unfinished, *error.others}))
    raise _busy(session)


def _is_of(batch: Batch, tasks: Collection[str]) -> bool:
    return batch.task in tasks


def discard(
    repository: Repository,
    session: str,
    epoch: int | None,
    is_taken: Callable[[Batch], bool],
    *,
    remember: bool = False,
) -> Sequence[str]:
    """Take batches out of a session, and return the tasks that had any. `taken_out` lists those to remember.

    Raises Conflict, SessionClosed, StaleEpoch.
    """
    for _ in range(MOST_TRIES):
        refs = repository.refs()
        record = expire_if_due(repository, refs.session(session))
        if record.state not in (OPEN, FAILED):
            raise closed(record)
        check_epoch(record, epoch)
        batches = [batch for batch in refs.batches(record) if is_taken(batch)]
        if not batches:
            return []
        tree = without_batches(repository, record, batches, repository.pending_deletions(refs))
        changing = [batch for batch in batches if batch.before != batch.after]
        added = marks(DISCARDING, tree, tree, changing) if remember else []
        if change_batches(repository, refs, record, replace(record, tree=tree), removed=batches, added=added):
            return sorted({batch.task for batch in batches if batch.task is not None})
    raise _busy(session)


def _busy(session: str) -> SessionClosed:
    return SessionClosed(f"too many processes write to session {session!r} at once: try again", state=OPEN)
