"""The lake's root with its credentials, as a Dagster resource."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, WeakSet

from dagster import DagsterInstance, DagsterRun

from lake_core.workspace import Assignment, CallNumbers, Workspace, open_workspace
from lake_orch.dagster.resource.reading import ReadableLake
from lake_orch.dagster.runs.attempt import Attempt, StepContext, partition_keys
from lake_orch.dagster.runs.run_session import from_tags
from lake_orch.dagster.runs.single_publishes import warning_of_repeats
from lake_orch.dagster.spark_resource import SparkResource
from lake_orch.dagster.step.own_table import own_path, own_table
from lake_orch.dagster.step.type_handlers import handlers_of_step
from lake_orch.errors import NotALake, OtherLake
from lake_orch.location import checked_path
from lake_orch.tags import ROOT_TAG

if TYPE_CHECKING:
    from lake_orch.dagster.step.session import StepSession
    from lake_orch.dagster.step.table_handle import LakeTable

__all__ = ["LakeResource", "SparkResource", "StepContext"]


class LakeResource(ReadableLake):
    """The root of a lake, a local folder or a bucket, and the options that open it.

    The root may also be a folder of plain Delta tables.

    Example:
        .. code-block:: python

            lake = LakeResource(
                root="s3://bucket/lake",
                storage_options={"key": dg.EnvVar("S3_KEY"), "secret": dg.EnvVar("S3_SECRET")},
            )

            @dg.asset
            def events(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
                table = lake.table(context)
                for page in pages():                 # each page exactly once, also if the step is retried
                    table.append(page)
                return dg.MaterializeResult(metadata=table.metadata())

            @dg.asset
            def totals(context: dg.AssetExecutionContext, lake: LakeResource) -> None:
                with lake.session(context) as session:      # both tables at once, or neither
                    session.table("tables/totals").overwrite(...)
                    session.table("tables/outliers").append(...)
    """

    def assignment(self, attempt: Attempt) -> Assignment:
        """Return the assignment of an attempt: its target, and the identity of its writer.

        Raises:
            NotALake: The run names a branch, and the root is a folder of plain tables.
            RefNotFound: The lake has no branch from which to create that of the run.
            SessionNotFound: The record of the run's session is gone. Start a new run.
            OtherLake: The run is a session of another lake. Use a job for each lake, or give this one `scope="asset"`.
        """
        session = self.run_session(attempt.instance, attempt.run)
        if session is not None:
            shared = self.open().get_session(session.id, epoch=session.epoch)
            if attempt.number or session.epoch > 1:
                from lake_orch.dagster.runs.steps import discard_earlier_tries  # here, as few steps are tried again

                discard_earlier_tries(shared, attempt)
            return attempt.assigned_to_session(self.root, shared.record, session.epoch)
        self._check_written_beside(attempt.instance, attempt.run)
        self._begin(attempt)
        branch = self.branch_of(attempt.run.tags, attempt.instance)
        if self.is_lake():
            return attempt.assigned_to_branch(self.root, branch)
        if branch != "main":
            raise NotALake(
                f"{self.root} is not a lake, and only a lake has a branch {branch!r}: "
                f"make it one with `lake init {self.root}`"
            )
        return attempt.assigned_to_folder(self.root)

    def workspace(self, attempt: Attempt) -> Workspace:
        """Open the workspace for an attempt at an output.

        A workspace also raises what `assignment` raises.

        Raises:
            SessionClosed: The run's session has ended.
            StaleEpoch: Another run has resumed the session. Let that one go on.
            StaleAttempt: A later attempt at the output is in the session already.
        """
        reads = None if attempt.step is None else self._read_record(attempt.step)
        return open_workspace(self.assignment(attempt), self.options(), self.open, reads=reads)

    def _begin(self, attempt: Attempt) -> None:
        """Begin to write without a session. Log it, once, if the step repeats what a failed run has published."""
        repeated = self.begin_writes(attempt.instance, attempt.run)
        step, own = attempt.step, [each for each in repeated if each.step_key == attempt.step_key]
        if own and step is not None and step not in _steps_that_repeat:
            _steps_that_repeat.add(step)
            step.log.warning(warning_of_repeats(own))

    def _check_written_beside(self, instance: DagsterInstance, run: DagsterRun) -> None:
        """Check that assets are published by themselves beside a session of another lake. Raises OtherLake."""
        stored = instance.get_run_by_id(run.run_id) or run
        if self.scope == "run" and self.is_lake() and from_tags(stored) is not None:
            raise OtherLake(
                f"run {run.run_id} is one session of the lake {stored.tags.get(ROOT_TAG)}, and a step writes into the "
                f"lake {self.root}, whose scope is 'run' too: a run has one session, in one lake. Run the assets of "
                "each lake in a job of their own, or give this lake scope='asset': then each of its assets is "
                "published when its step succeeds"
            )

    def table(self, context: StepContext, path: str | None = None, *, partition_by: Sequence[str] = ()) -> "LakeTable":
        """Return a handle for the step's code to write and read a table, batch by batch.

        Args:
            context: The step's context.
            path: The path relative to the root. The default is the path of the asset's table.
            partition_by: The partition columns, used when the table is created.

        All calls in an attempt return the same handle, through any resource, so the numbers of batches continue.

        Raises:
            InvalidDefinition: The path is outside of the root, or it is missing and the step does not have exactly one
                asset.
        """
        from lake_orch.dagster.step.table_handle import LakeTable  # here, as code locations write nothing

        declared = own_table(context) if path is None else None
        path = own_path(context) if path is None else checked_path(path)
        step = context.get_step_execution_context()
        handles = _handles.setdefault(step, {})
        handle_key = (self._store_of(path).url(), context.retry_number)
        if handle_key not in handles:
            keys = partition_keys(context)
            attempt = Attempt.of_step(context, keys)
            open_workspace_of_batch, app_id = self._batches(attempt, path)
            handles[handle_key] = LakeTable(
                open_workspace_of_batch,
                lambda: self.read_table(path, None, ref=self._latest(attempt), step=step),
                path,
                self.url(path),
                app_id,
                context.log,
                handlers=handlers_of_step(context),
                partition_by=tuple(partition_by),
                one_partition=len(keys) == 1,
                owner=None if declared is None else declared[0],
                ownership="keep" if declared is None else declared[1],
                ui_url=self.ui_url,
            )
        return handles[handle_key]

    def session(self, context: StepContext) -> "AbstractContextManager[StepSession]":
        """Open a session for several tables and files of one step, which are published together and exactly once.

        They are published when the `with` block ends. In a run with one session they are staged in it.

        Raises:
            NotALake: The root is a folder of plain tables. `lake init` makes it a lake.
        """
        self.open()
        step = context.get_step_execution_context()
        numbers = _sessions.setdefault(step, CallNumbers())
        number = numbers.take()
        keys = partition_keys(context)
        attempt = Attempt.of_step(context, keys, f"session {number}")
        return self._step_session(attempt, context, numbers, number)

    @contextmanager
    def _step_session(
        self, attempt: Attempt, context: StepContext, numbers: CallNumbers, number: int
    ) -> "Iterator[StepSession]":
        from lake_orch.dagster.step.session import StepSession  # here, as code locations write nothing

        try:
            workspace = self.workspace(attempt)
            session = StepSession(
                workspace,
                workspace.task_id,
                context.log,
                handlers=handlers_of_step(context),
                one_partition=len(attempt.partition_keys) == 1,
                ui_url=self.ui_url,
            )
            with workspace:
                yield session
        except BaseException:
            # If the code of a step opens the session again after an error, it must get the same number, because a retry
            # of the step uses this number, too.
            numbers.give_back(number)
            raise

    def _app_id(self, attempt: Attempt) -> str:
        session = self.run_session(attempt.instance, attempt.run)
        return (
            attempt if session is None else attempt.within(self.open().get_session(session.id).record.lineage)
        ).app_id

    def _latest(self, attempt: Attempt) -> str | None:
        """Return the ref at which a step sees its own writes."""
        session = self.run_session(attempt.instance, attempt.run)
        return session.id if session else self.branch_of(attempt.run.tags, attempt.instance) if self.is_lake() else None

    def _batches(self, attempt: Attempt, path: str) -> tuple[Callable[[int], AbstractContextManager[Workspace]], str]:
        """Return a function that opens the workspace of a batch by its number, and the batches' application id."""
        app_id = self._app_id(attempt)
        if self.run_session(attempt.instance, attempt.run) is None:
            return lambda batch: self.workspace(replace(attempt, output=f"{path}#{batch}")), app_id
        # The path alone is not enough. An output of the step may have the same name, and then each write would count as
        # a retry of the other.
        staged = self.workspace(replace(attempt, output=f"table {path}"))

        @contextmanager
        def batch(_: int) -> Iterator[Workspace]:
            yield staged
            staged.flush()

        # This replaces the batches of an earlier attempt, even if this attempt writes none.
        staged.flush()
        return batch, app_id


# A step may open one table through several resources on the same root. If each resource counted its batches from one,
# the second write would count as a retry of the first. So the handles are kept for each step.
_handles: "WeakKeyDictionary[object, dict[tuple[str, int], LakeTable]]" = WeakKeyDictionary()
_sessions: WeakKeyDictionary[object, CallNumbers] = WeakKeyDictionary()
_steps_that_repeat: WeakSet[object] = WeakSet()
"""The steps that have logged what they repeat."""


def has_written(step: object) -> bool:
    """Return whether the code of a step has opened a table or a session of the lake for writing."""
    return step in _handles or step in _sessions
