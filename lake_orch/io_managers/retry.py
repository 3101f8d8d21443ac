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
    """Write an output in a workspace, and repeat the write if it conflicts with a publish of another run.

    Return the result and the workspace.

    Args:
        context: The output.
        lake: The lake.
        keys: The partitions of the output.
        write: Writes to a workspace, and returns the result.
        subject: The name of the output in the log.
        tries: The most attempts.
        pauses: The pauses between attempts. The default is to try again at once.

    Raises:
        Conflict: The last attempt conflicts, or the output is staged in a session that is published later.
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
                f"{subject} conflicts with changes that another run has published: it is written again on top of them"
            )
            if pauses is not None:
                pauses.wait(number)
    raise AssertionError("the loop ends by a return or an error")
