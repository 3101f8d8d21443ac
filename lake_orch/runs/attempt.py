"""One attempt at one output of one step: the identity by which its effect is there exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from dagster import (
    AssetExecutionContext,
    DagsterInstance,
    DagsterInvariantViolationError,
    DagsterRun,
    InputContext,
    OpExecutionContext,
    OutputContext,
)

from lake_core.lake.refs.session_record import SessionRecord
from lake_core.workspace import Assignment
from lake_orch.runs.lineage import step_lineage
from lake_orch.runs.marker import app_id
from lake_orch.tags import OUTPUT, RUN, STEP

StepContext: TypeAlias = AssetExecutionContext | OpExecutionContext
RunOfStep: TypeAlias = tuple[DagsterInstance, DagsterRun]

_MOST_ATTEMPTS = 1_000_000
"""Of one step in one epoch of a session."""

_CLOCKS_APART = timedelta(hours=1)
"""How far the clocks of the machines that a run visits may be apart."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What is attempted, and the how-manieth try at it this is."""

    instance: DagsterInstance
    run: DagsterRun
    step_key: str
    output: str = ""
    """Empty for what a step writes by itself."""
    mapping_key: str | None = None
    partition_keys: Sequence[str] = ()
    number: int = 0
    """How often the step was tried before in this run."""
    lineage: str | None = None
    """The session's, in a run with one session; otherwise the run's, or that of the run which it continues."""

    @classmethod
    def of_output(cls, context: OutputContext, partition_keys: Sequence[str]) -> Attempt:
        """Return the attempt that an IO manager is asked to store."""
        step = context.step_context
        return cls(
            step.instance,
            step.dagster_run,
            context.step_key,
            context.name,
            context.mapping_key,
            partition_keys,
            step.previous_attempt_count,
        )

    @classmethod
    def of_step(cls, context: StepContext, partition_keys: Sequence[str], output: str = "") -> Attempt:
        """Return the attempt that a step's own code is part of."""
        step = context.get_step_execution_context()
        return cls(context.instance, context.run, step.step.key, output, None, partition_keys, context.retry_number)

    @property
    def app_id(self) -> str:
        """What all attempts at this output have in common, and nothing else has: the appId of its transaction marker."""
        return app_id(self._lineage, self.step_key, self.output, mapping_key=self.mapping_key, partition_keys=self.partition_keys)

    @property
    def session_id(self) -> str:
        """The id of the private session in which any attempt at this output publishes."""
        return f"o-{hashlib.sha256(self.app_id.encode()).hexdigest()[:40]}"

    @property
    def _lineage(self) -> str:
        return self.lineage or step_lineage(self.instance, self.run, self.step_key)

    def within(self, lineage: str) -> Attempt:
        """Return the same attempt, of a run that writes into one session."""
        return replace(self, lineage=lineage)

    def resolved(self) -> Attempt:
        """Return the same attempt, with the lineage looked up once and for all."""
        return replace(self, lineage=self._lineage)

    def rank(self, epoch: int) -> int:
        """Order the attempts at an output within a session: later epochs, then later tries, come later."""
        return epoch * _MOST_ATTEMPTS + self.number

    @property
    def commit_metadata(self) -> dict[str, str]:
        """What a commit says of where it comes from."""
        return {RUN: self.run.run_id, STEP: self.step_key, OUTPUT: self.output}

    @property
    def message(self) -> str:
        """The message of the commit that it becomes."""
        return " ".join(part for part in (self.run.job_name, self.step_key, ", ".join(self.partition_keys[:3])) if part)[:200]

    def assigned_to_folder(self, root: str) -> Assignment:
        """Return its assignment in a folder of plain tables."""
        return Assignment(root, self.app_id)

    def assigned_to_session(self, root: str, record: SessionRecord, epoch: int) -> Assignment:
        """Return its assignment in the session of its run, which the run opened or resumed at this epoch."""
        attempt = self.within(record.lineage)
        return Assignment(root, attempt.app_id, record.branch, record.id, epoch, attempt.rank(epoch))

    def assigned_to_branch(self, root: str, branch: str) -> Assignment:
        """Return its assignment to publish to a branch by itself."""
        attempt = self.resolved()
        return Assignment(
            root,
            attempt.app_id,
            branch,
            attempt=attempt.number,
            private_session=attempt.session_id,
            since=attempt.since(),
            is_retry=attempt.number > 0 or attempt.lineage != attempt.run.run_id,
            message=attempt.message,
            metadata=attempt.commit_metadata,
        )

    def since(self) -> datetime | None:
        """Return a time before which no attempt at this output was made. None if Dagster does not know."""
        record = self.instance.get_run_record_by_id(self._lineage)
        return None if record is None else _aware(record.create_timestamp) - _CLOCKS_APART


def run_of(context: InputContext) -> RunOfStep | None:
    """Return the run that asks for an input; None where a value is loaded outside of any."""
    try:
        step = context.step_context
    except DagsterInvariantViolationError:
        return None
    return step.instance, step.dagster_run


def _aware(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
