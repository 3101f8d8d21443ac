"""One attempt at one output of one step, with the identity that makes its effect happen exactly once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
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
from lake_orch._dagster import StepExecutionContext
from lake_orch.dagster.runs.lineage import CLOCKS_APART, step_lineage, time_made
from lake_orch.dagster.runs.marker import app_id
from lake_orch.dagster.runs.title import named_job
from lake_orch.tags import OUTPUT, RUN, STEP

StepContext: TypeAlias = AssetExecutionContext | OpExecutionContext
RunOfStep: TypeAlias = tuple[DagsterInstance, DagsterRun]

_MOST_ATTEMPTS = 1_000_000
"""The most attempts at one step in one epoch of a session."""


def rank_of(attempt: int) -> tuple[int, int]:
    """Return the epoch and the try of an attempt in a session, from its rank."""
    return divmod(attempt, _MOST_ATTEMPTS)


@dataclass(frozen=True, slots=True)
class Attempt:
    """An output of a step, and the number of the try at it."""

    instance: DagsterInstance
    run: DagsterRun
    step_key: str
    output: str = ""
    """Empty for writes in a step's own code."""
    mapping_key: str | None = None
    partition_keys: Sequence[str] = ()
    number: int = 0
    """The number of earlier tries of the step in this run."""
    lineage: str | None = None
    """The lineage of the run's session. If there is none, that of the run, or of the run that it continues."""
    step: StepExecutionContext | None = field(default=None, compare=False, repr=False)
    """The execution of the step, which may have read what the output depends on."""

    @classmethod
    def of_output(cls, context: OutputContext, partition_keys: Sequence[str]) -> Attempt:
        """Return the attempt for an output of an IO manager."""
        step = context.step_context
        return cls(
            step.instance,
            step.dagster_run,
            context.step_key,
            context.name,
            context.mapping_key,
            partition_keys,
            step.previous_attempt_count,
            step=step_of(context),
        )

    @classmethod
    def of_step(cls, context: StepContext, partition_keys: Sequence[str], output: str = "") -> Attempt:
        """Return the attempt for the writes in a step's own code."""
        step = context.get_step_execution_context()
        return cls(
            context.instance,
            context.run,
            step.step.key,
            output,
            None,
            partition_keys,
            context.retry_number,
            step=step,
        )

    @property
    def app_id(self) -> str:
        """Return the application id of the transaction identifier. Only attempts at this output have it."""
        return app_id(
            self._lineage, self.step_key, self.output, mapping_key=self.mapping_key, partition_keys=self.partition_keys
        )

    @property
    def session_id(self) -> str:
        """Return the id of the private session in which all attempts at this output publish."""
        return f"o-{hashlib.sha256(self.app_id.encode()).hexdigest()[:40]}"

    @property
    def _lineage(self) -> str:
        return self.lineage or step_lineage(self.instance, self.run, self.step_key)

    def within(self, lineage: str) -> Attempt:
        """Return the same attempt in a run that writes into one session."""
        return replace(self, lineage=lineage)

    def resolved(self) -> Attempt:
        """Return the same attempt with its lineage resolved."""
        return replace(self, lineage=self._lineage)

    def rank(self, epoch: int) -> int:
        """Return the rank of the attempt at an output in a session. It rises with the epoch, then with the try."""
        return epoch * _MOST_ATTEMPTS + self.number

    @property
    def commit_metadata(self) -> dict[str, str]:
        """Return the commit metadata that names the source of the commit."""
        return {RUN: self.run.run_id, STEP: self.step_key, OUTPUT: self.output}

    @property
    def message(self) -> str:
        """Return the message of the commit."""
        return " ".join(
            part for part in (named_job(self.run), self.step_key, ", ".join(self.partition_keys[:3])) if part
        )[:200]

    def assigned_to_folder(self, root: str) -> Assignment:
        """Return its assignment in a folder of plain tables."""
        return Assignment(root, self.app_id)

    def assigned_to_session(self, root: str, record: SessionRecord, epoch: int) -> Assignment:
        """Return its assignment in the session of its run, at the epoch at which the run opened or resumed it."""
        attempt = self.within(record.lineage)
        return Assignment(root, attempt.app_id, record.branch, record.id, epoch, attempt.rank(epoch))

    def assigned_to_branch(self, root: str, branch: str) -> Assignment:
        """Return its assignment to publish on its own to a branch."""
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
            owner=attempt.run.run_id,
        )

    def since(self) -> datetime | None:
        """Return a time before the first attempt at this output, or None if Dagster has no record."""
        record = self.instance.get_run_record_by_id(self._lineage)
        return None if record is None else time_made(record) - CLOCKS_APART


def run_of(context: InputContext) -> RunOfStep | None:
    """Return the run that loads an input, or None outside a run."""
    try:
        step = context.step_context
    except DagsterInvariantViolationError:
        return None
    return step.instance, step.dagster_run


def step_of(context: InputContext | OutputContext) -> StepExecutionContext | None:
    """Return the step that loads an input or has an output, or None outside a run."""
    try:
        step = context.step_context
    except DagsterInvariantViolationError:
        return None
    return step if isinstance(step, StepExecutionContext) else None


def current_step() -> StepExecutionContext | None:
    """Return the step whose code is running in this thread, or None."""
    try:
        return OpExecutionContext.get().get_step_execution_context()
    except DagsterInvariantViolationError:
        return None


def partition_keys(context: StepContext) -> Sequence[str]:
    """Return the partitions of a step. Empty if it is not partitioned."""
    if context.has_partition_key or context.has_partition_key_range:
        return [str(key) for key in context.partition_keys]
    return ()
