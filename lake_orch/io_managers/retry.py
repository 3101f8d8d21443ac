"""Retries of the write of an output after conflicts with other runs.

If each asset is published on its own, the write of one output is all that a conflict refuses. The value is still there,
so it can be written again, on top of what the other run has published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from dagster import OutputContext

from lake_core.backoff import Backoff
from lake_core.delta.errors import ConcurrentModification
from lake_core.lake.errors import Conflict, SessionClosed, SessionNotFound
from lake_core.workspace import Workspace
from lake_orch.assets.asset_format import ReadOnce
from lake_orch.dagster.runs.attempt import Attempt
from lake_orch.dagster.runs.gate import check_step_gate
from lake_orch.io_managers.unrecorded_reads import record_reads
from lake_orch.resources import LakeResource

T = TypeVar("T")

_STALE = (
    "Nothing was published. The step has read what another run has changed since: re-execute it in a new run, which "
    "reads what the branch has now. A retry within this run would read the same again"
)
_READ_ONCE = (
    "Nothing was published. The output is a stream, which can be read only once, so it was not written again: retry "
    "the step, such as by a retry policy, or return the rows in memory"
)


def write_with_retries(
    context: OutputContext,
    lake: LakeResource,
    keys: Sequence[str],
    write: Callable[[Workspace], T],
    subject: str,
    *,
    tries: int,
    pauses: Backoff,
) -> tuple[T, Workspace]:
    """Write an output in a workspace, and repeat the write if it conflicts with a write of another run.

    All attempts have the same transaction identifiers. Return the result and the workspace.

    Args:
        context: The output.
        lake: The lake.
        keys: The partitions of the output.
        write: Writes to a workspace, and returns the result. It raises ReadOnce if it cannot write the value again.
        subject: The name of the output in the log.
        tries: The most attempts.
        pauses: The pauses between attempts.

    Raises:
        Conflict: The last attempt conflicts, or what the step has read has changed, or the value was read once, or the
            output is staged in a session that is published later.
        ConcurrentModification: The same, for a table outside of a lake.
        AlreadyRead: What the step has read as new, another run has read as well.
    """
    attempt = Attempt.of_output(context, keys)
    conflict: Conflict | ConcurrentModification | None = None
    for number in range(1, tries + 1):
        try:
            workspace = lake.workspace(replace(attempt, number=attempt.number + number - 1))
        except Conflict as error:
            raise (error.replace(remedy=_STALE) if error.is_stale else error) from error.__cause__
        try:
            with workspace:
                if not workspace.is_staged:
                    check_step_gate(context)
                result = write(workspace)
                record_reads(context.step_context, lake.root, workspace)
            return result, workspace
        except ReadOnce:
            if isinstance(conflict, Conflict):
                raise conflict.replace(remedy=_READ_ONCE) from conflict.__cause__
            assert conflict is not None, "the first attempt reads the value"
            raise conflict from None
        except (Conflict, ConcurrentModification) as error:
            # In a session with many writers, only a retried step replaces earlier writes.
            if workspace.is_staged or number == tries:
                raise
            # If the step's inputs have changed, the next workspace will not open.
            conflict = error
            context.log.info(
                f"{subject} conflicts with changes that another run has published: it is written again on top of them"
            )
            pauses.wait(number)
        except Exception:
            _forget(lake, conflict)  # an attempt has failed for another reason, such as rows that are there now
            raise
    raise AssertionError("the loop ends by a return or an error")


def _forget(lake: LakeResource, conflict: Conflict | ConcurrentModification | None) -> None:
    """Abandon the failed session that was kept of an attempt which was made again."""
    if isinstance(conflict, Conflict) and conflict.session is not None:
        with suppress(SessionNotFound, SessionClosed):
            lake.open().get_session(conflict.session).abandon()
