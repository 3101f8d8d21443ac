"""The branch, the gate and the session of the runs that use a lake."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

from dagster import (
    DagsterExecutionInterruptedError,
    DagsterInstance,
    DagsterRun,
    InitResourceContext,
)
from pydantic import Field, PrivateAttr, model_validator

from lake_orch.dagster.resource.root import LakeRoot
from lake_orch.dagster.runs.gathering import BACKFILL_TAG, gathering_branch
from lake_orch.dagster.runs.plan import plan_of
from lake_orch.dagster.runs.run_session import (
    Gate,
    RunSession,
    check_repeats,
    fence_ended_runs,
    from_tags,
    gate_of,
    inherited_session,
    is_in_lake,
    is_published,
    open_run_session,
    publisher_of_parent,
    scope_of,
)
from lake_orch.dagster.runs.single_publishes import UnseenPublish, mark_as_publishing
from lake_orch.dagster.runs.upstream import RunPlace
from lake_orch.errors import InvalidDefinition
from lake_orch.tags import BACKFILLS_TAG, BRANCH_TAG, GATE_TAG, PUBLISHER_TAG, SCOPE_TAG


class LakeOfRuns(LakeRoot):
    """A lake with the settings of the runs that use it."""

    branch: str = Field(
        default="main",
        description="The branch that runs read and publish to; a run's tag lake/branch overrides it. Needs a lake.",
    )
    branch_from: str | None = Field(
        default=None, description="The branch to create a missing branch from, for branch deployments."
    )
    scope: Literal["asset", "run"] = Field(
        default="asset",
        description="What is published together without a lake executor: "
        "each asset when its step succeeds, or the whole run.",
    )
    gate: Literal["blocking", "error", "none"] = Field(
        default="blocking",
        description="Under scope 'run': which checks that fail with severity ERROR prevent publishing a run. "
        "Blocking checks always do; `error` adds all other checks. A run's tag lake/gate overrides it.",
    )
    keep_failed_for: float = Field(
        default=24.0,
        gt=0,
        le=168,
        description="Hours for which the session of a failed run can be read, resumed and recovered.",
    )

    backfills: Literal["publish", "gather"] = Field(
        default="publish",
        description="Whether each run of a backfill publishes by itself, or all runs publish to a branch "
        "that lake_backfill_sensor merges once. A backfill's tag lake/backfills overrides it.",
    )

    # By run id. A process keeps its epoch: it never takes that of a worker that replaced it.
    _run_sessions: dict[str, RunSession] = PrivateAttr(default_factory=dict)
    _begun_runs: dict[str, list[UnseenPublish]] = PrivateAttr(default_factory=dict)
    """What `begin_writes` has returned for runs without a session."""

    @model_validator(mode="after")
    def _check_gate(self) -> "LakeOfRuns":
        if self.scope == "asset" and "gate" in self.model_fields_set and self.gate == "error":
            raise ValueError(
                "gate='error' holds back a whole run: under scope 'asset' an asset "
                "is published when its own step succeeds, and only blocking checks of that step can gate it. "
                "Use scope='run', or lake_job(gate='error')"
            )
        return self

    @property
    def keep_failed(self) -> timedelta:
        """Return `keep_failed_for` as a timedelta."""
        return timedelta(hours=self.keep_failed_for)

    def branch_of(self, tags: Mapping[str, str], instance: DagsterInstance) -> str:
        """Return the branch of a run with these tags. Create it if `branch_from` or `backfills` demand that.

        Raises:
            RefNotFound: The lake has no branch from which to create it.
            NotALake: The root is a folder of plain tables, and a branch is to be created. `lake init` makes it a lake.
            InvalidDefinition: The tag `lake/backfills` has another value.
        """
        branch = tags.get(BRANCH_TAG, self.branch)
        if self.branch_from is not None and branch != self.branch_from:
            self._make_branch(branch, self.branch_from)
        backfills = tags.get(BACKFILLS_TAG, self.backfills)
        if backfills not in ("gather", "publish"):
            raise InvalidDefinition(f"tag {BACKFILLS_TAG} is {backfills!r}: use 'gather' or 'publish'")
        if backfills == "gather" and BACKFILL_TAG in tags and BRANCH_TAG not in tags:
            backfill = gathering_branch(instance, tags, branch)
            self._make_branch(backfill, branch)
            return backfill
        return branch

    def _make_branch(self, name: str, at: str) -> None:
        lake = self.open()
        if name not in lake.list_branches():
            lake.create_branch(name, at=at, exist_ok=True)

    def gate_of(self, tags: Mapping[str, str]) -> Gate:
        """Return the gate of a run with these tags.

        Raises:
            InvalidDefinition: The tag does not name a gate.
        """
        return gate_of(tags, self.gate)

    def run_session(self, instance: DagsterInstance, run: DagsterRun) -> RunSession | None:
        """Return the session of this lake that a run writes into, or None if each asset is published on its own.

        A run without the lake's executor opens the session here. Tearing down the run's resources publishes it.
        """
        session = self._run_sessions.get(run.run_id) or self._open_run_session(instance, run)
        if session is not None:
            self._run_sessions[run.run_id] = session
        return session

    def _open_run_session(self, instance: DagsterInstance, run: DagsterRun) -> RunSession | None:
        stored = instance.get_run_by_id(run.run_id) or run
        if (session := from_tags(stored)) is not None:
            return session if self._is_own(stored, session) else None
        if scope_of(stored.tags, self.scope) == "asset" and not self._continues_failed_run(instance, run):
            if gate_of(stored.tags, "blocking") == "error" and _makes_assets(instance, run):
                raise InvalidDefinition(
                    f"tag {GATE_TAG} is 'error', which holds back a whole run, but this one publishes each asset by "
                    f"itself: set the tag {SCOPE_TAG} to 'run', or leave it out"
                )
            return None
        branch, publisher = self.branch_of(run.tags, instance), publisher_of_parent(instance, run)
        gate = self.gate_of(run.tags)
        return open_run_session(
            instance, run, self.open(), branch=branch, root=self.root, publisher=publisher, gate=gate
        )

    def begin_writes(self, instance: DagsterInstance, run: DagsterRun) -> list[UnseenPublish]:
        """Begin to write in a run without a session, which keeps failed runs from publishing later.

        Return what failed runs have published in steps that had not succeeded, and that this run does again.

        Raises:
            SessionClosed: It repeats what a failed run has published unseen.
            StaleEpoch: Dagster has the run itself as failed or canceled.
        """
        if not self.is_lake():
            return []
        if run.run_id not in self._begun_runs:
            lake, branch, repeated = self.open(), self.branch_of(run.tags, instance), []
            mark_as_publishing(instance, run, lake)
            fence_ended_runs(instance, lake, branch)
            if run.parent_run_id is not None:
                repeated = check_repeats(instance, run, lake, self.root, branch, in_session=False)
            self._begun_runs[run.run_id] = repeated
        return self._begun_runs[run.run_id]

    def place_of(self, instance: DagsterInstance, run: DagsterRun) -> RunPlace:
        """Return the branch that a run publishes to, and its session if it has one."""
        session = self.run_session(instance, run)
        if session is None:
            return RunPlace(self.branch_of(run.tags, instance))
        return RunPlace(self.open().get_session(session.id).branch, session.id)

    def _continues_failed_run(self, instance: DagsterInstance, run: DagsterRun) -> bool:
        """Return whether a run without a session of its own continues the session of a failed run.

        A re-executed job of ops leaves out the op that opened it.
        """
        return (
            run.parent_run_id is not None
            and self.is_lake()
            and inherited_session(instance, run, self.open(), self.root) is not None
        )

    def has_published(self, run: DagsterRun) -> bool:
        """Return whether what a run wrote is published. Without a session, each step publishes by itself."""
        return is_published(self.open() if self.is_lake() else None, run)

    def _is_own(self, run: DagsterRun, session: RunSession) -> bool:
        return is_in_lake(run, session, self.open() if self.is_lake() else None, self.root)

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        """Publish the session of a run without another publisher, if all of its steps have succeeded.

        Raises:
            DagsterExecutionInterruptedError: It cannot be published, or the run was ended from outside. It fails the
                run.
        """
        run, instance = context.run, context.instance
        if run is None or instance is None:
            return
        stored = instance.get_run_by_id(run.run_id)
        session = None if stored is None else from_tags(stored)
        if stored is None or session is None or stored.tags.get(PUBLISHER_TAG) != "teardown":
            return
        if not self._is_own(stored, session) or self.has_published(stored):
            return

        from lake_orch.dagster.runs.publishing import check_still_runs, publish_session
        from lake_orch.dagster.runs.steps import StepStates

        if StepStates(instance, session.id).unfinished():
            return
        try:
            check_still_runs(instance, run.run_id)
            published = publish_session(
                instance, self.open(), session, gate=self.gate_of(stored.tags), keep_failed_for=self.keep_failed
            )
        except (Exception, DagsterExecutionInterruptedError) as error:
            message = f"session {session.id} of this run is not published: {error}"
            if context.log:
                context.log.error(message)
            # Dagster only logs other errors of a teardown, and marks the run as successful.
            raise DagsterExecutionInterruptedError(message) from error
        if context.log:
            context.log.info(f"session {session.id} of this run is published as commit {published.commit[:12]}")


def _makes_assets(instance: DagsterInstance, run: DagsterRun) -> bool:
    """Return whether a run makes assets. The ops of other runs may open a session, which has a gate, themselves."""
    plan = plan_of(instance, run)
    outputs = (output for step in plan.steps for output in step.outputs) if plan else ()
    return any(output.properties is not None and output.properties.is_asset for output in outputs)
