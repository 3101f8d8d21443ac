"""Retries of the write of an output after conflicts with other runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from dagster import OutputContext

from lake_core.backoff import Backoff
from lake_core.lake.errors import Conflict
from lake_core.workspace import Workspace
from lake_orch.resources import LakeResource
from lake_orch.runs.attempt import Attempt
from lake_orch.runs.gate import check_step_gate

T = TypeVar("T")


def write_with_retries(
    context: OutputContext,
    lake: LakeResource,
    keys: Sequence[str],
    write: Callable[[Workspace], T],
    subject: str,
    *,
    tries: int,
    pauses: Backoff | None = None,
) -> tuple[T, Workspace]:
    """Write an output in a workspace, and again if it conflicts with what another run published.

    Return the result and the workspace.

    Args:
        context: The output.
        lake: The lake.
        keys: The partitions of the output.
        write: Writes to a workspace, and returns the result.
        subject: What the log calls the output.
        tries: The most tries.
        pauses: The pauses between tries; None to try again at once.

    Raises:
        Conflict: The last try conflicts, or the output is staged in a session that is published later.
    """
    attempt = Attempt.of_output(context, keys)
    for number in range(1, tries + 1):
        workspace = lake.workspace(replace(attempt, number=attempt.number + number - 1))
        try:
            with workspace:
                if not workspace.is_staged:
                    check_step_gate(context)
                result = write(workspace)
            return result, workspace
        except Conflict:
            # In a session with many writers, only a retried step replaces earlier writes.
            if workspace.is_staged or number == tries:
                raise
            context.log.info(
                f"{subject} conflicts with what another run has published since: it is written again on top of that"
            )
            if pauses is not None:
                pauses.wait(number)
    raise AssertionError("the loop ends by a return or an error")
