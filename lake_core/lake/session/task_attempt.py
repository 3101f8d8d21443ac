"""Attempts at the tasks of a shared session: which earlier ones an attempt replaces, and which it must not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.lake.errors import StaleAttempt

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from lake_core.lake.refs.session_record import Batch


@dataclass(frozen=True, slots=True)
class TaskAttempt:
    """An attempt at a task, as its caller names it."""

    task: str | None = None
    """The task. Without one, what is written is never replaced."""
    number: int = 0
    """The number of the attempt. A higher one replaces a lower one."""
    token: str = ""
    """What tells two attempts of the same number apart. The one that joins last replaces the other."""
    part: str = ""
    """The part of the attempt. Each part is written once, and all parts of the last attempt count."""

    @classmethod
    def of_batch(cls, batch: Batch) -> TaskAttempt:
        """Return the attempt that flushed a batch."""
        return cls(batch.task, batch.attempt, batch.token, batch.part)


@dataclass(frozen=True, slots=True)
class Standing:
    """How an attempt stands to what is in the session."""

    replaced: Sequence[Batch]
    """The batches of its task that it replaces."""
    is_complete: bool
    """Whether the same part of the same attempt is there already, so that it adds nothing."""


def standing(attempt: TaskAttempt, others: Sequence[Batch], joined_after: Collection[str]) -> Standing:
    """Return how an attempt stands to the batches of other writers of its task.

    Args:
        attempt: The attempt.
        others: These batches, in the order of their flushes.
        joined_after: The tokens of attempts of the same number that began after this one.

    Raises:
        StaleAttempt: A later attempt is there.
    """
    if attempt.task is None:
        return Standing((), is_complete=False)
    newest = max((batch.attempt for batch in others), default=-1)
    if newest > attempt.number:
        raise StaleAttempt(
            f"the session already has attempt {newest} of {attempt.task!r}, which is newer than this attempt, "
            f"{attempt.number}"
        )
    if any(batch.attempt == attempt.number and batch.token in joined_after for batch in others):
        raise StaleAttempt(
            f"attempt {attempt.number} of {attempt.task!r} was begun again, by another process with another token: let "
            "that process go on"
        )
    same = [batch for batch in others if (batch.attempt, batch.token) == (attempt.number, attempt.token)]
    part = [batch for batch in same if batch.part == attempt.part]
    if any(batch.is_last for batch in part):
        return Standing((), is_complete=True)
    other_parts = {batch.id for batch in same} - {batch.id for batch in part}
    return Standing([batch for batch in others if batch.id not in other_parts], is_complete=False)
