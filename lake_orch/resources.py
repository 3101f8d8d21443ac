"""The lake's root with its credentials, as a Dagster resource."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from dagster import ConfigurableResource, DagsterInstance, DagsterRun, InitResourceContext
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from lake_core.dataset import dataset_format, stored_format
from lake_core.delta.errors import TableNotFound
from lake_core.errors import InvalidUrl, LakeError
from lake_core.lake import Lake
from lake_core.lake.errors import DatasetNotFound, RefNotFound
from lake_core.lake.session.read_record import ReadRecord
from lake_core.lake.session.shared_session import SharedSession
from lake_core.lake.state.state_store import StateStore
from lake_core.store import ObjectStore, open_store
from lake_core.workspace import Assignment, CallNumbers, Workspace, open_workspace
from lake_orch._dagster import StepExecutionContext
from lake_orch.dagster.runs.attempt import Attempt, RunOfStep, StepContext, current_step, partition_keys
from lake_orch.dagster.runs.gathering import BACKFILL_TAG, gathering_branch
from lake_orch.dagster.runs.reading import pinned, reads_of, recorder
from lake_orch.dagster.runs.run_session import (
    Gate,
    PublishScope,
    RunSession,
    from_tags,
    gate_of,
    inherited_session,
    is_in_lake,
    open_run_session,
    publisher_of_parent,
    scope_of,
)
from lake_orch.dagster.runs.upstream import RunPlace, check_dependency_published
from lake_orch.dagster.spark_resource import SparkResource
from lake_orch.dagster.step.own_table import own_path, own_table
from lake_orch.dagster.step.type_handlers import handlers_of_step
from lake_orch.environment import from_environment
from lake_orch.errors import NotALake, OtherLake
from lake_orch.location import checked_path
from lake_orch.tags import BACKFILLS_TAG, BRANCH_TAG, PUBLISHER_TAG, ROOT_TAG

if TYPE_CHECKING:
    from lake_core.delta import DeltaTable
    from lake_core.icechunk import Repository
    from lake_core.pool import Pool
    from lake_orch.dagster.step.session import StepSession
    from lake_orch.dagster.step.table_handle import LakeTable

__all__ = ["LakeResource", "SparkResource", "StepContext"]


class LakeResource(ConfigurableResource):  # type: ignore[type-arg]
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

    # Otherwise errors would show storage_options.
    model_config = ConfigDict(hide_input_in_errors=True)

    root: str = Field(description="URL or local path of the lake's root folder.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        description="fsspec's options for the root. Give secrets as EnvVar: Dagster shows other values in its UI.",
        repr=False,
    )
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

    _lake: Lake | None = PrivateAttr(default=None)
    _is_lake: bool | None = PrivateAttr(default=None)
    # By run id. A process keeps its epoch: it never takes that of a worker that replaced it.
    _run_sessions: dict[str, RunSession] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _check_root(self) -> "LakeResource":
        # The root is visible in Dagster's UI, tags of runs, and metadata.
        if "@" in self.root and urlsplit(self.root).password is not None:
            raise ValueError(
                "the lake's root holds a password, and the UI shows the root: "
                "give secrets as storage_options, by EnvVar"
            )
        return self

    @model_validator(mode="after")
    def _check_gate(self) -> "LakeResource":
        if self.scope == "asset" and "gate" in self.model_fields_set and self.gate == "error":
            raise ValueError(
                "gate='error' holds back a whole run: under scope 'asset' an asset "
                "is published when its own step succeeds, and only blocking checks of that step can gate it. "
                "Use scope='run', or lake_job(gate='error')"
            )
        return self

    # The root

    def url(self, path: str) -> str:
        """Return the URL of a path below the root."""
        return f"{self.root.rstrip('/')}/{checked_path(path)}"

    def options(self) -> dict[str, Any]:
        """Return `storage_options` with the values of its environment variables, at any depth.

        Raises:
            InvalidDefinition: A variable is not set. Set it where the run's processes start.
        """
        return dict(from_environment(self.storage_options))

    def is_lake(self) -> bool:
        """Return whether a lake exists at the root, and not only a folder of plain tables. The result is cached."""
        if self._is_lake is None:
            self._is_lake = Lake.exists(self.root, storage_options=self.options())
        return self._is_lake

    def open(self) -> Lake:
        """Open the lake.

        Raises:
            NotALake: The root is a folder of plain tables. `lake init` makes it a lake.
        """
        if self._lake is None:
            if not self.is_lake():
                raise NotALake(
                    f"{self.root} is not a lake, and this operation needs one: make it one with `lake init {self.root}`"
                )
            self._lake = Lake.open(self.root, storage_options=self.options())
        return self._lake

    @property
    def keep_failed(self) -> timedelta:
        """Return `keep_failed_for` as a timedelta."""
        return timedelta(hours=self.keep_failed_for)

    # The settings of a run

    def branch_of(self, tags: Mapping[str, str], instance: DagsterInstance) -> str:
        """Return the branch of a run with these tags. Create it if `branch_from` or `backfills` demand that.

        Raises:
            RefNotFound: The lake has no branch from which to create it.
            NotALake: The root is a folder of plain tables, and a branch is to be created. `lake init` makes it a lake.
        """
        branch = tags.get(BRANCH_TAG, self.branch)
        if self.branch_from is not None and branch != self.branch_from:
            self._make_branch(branch, self.branch_from)
        if tags.get(BACKFILLS_TAG, self.backfills) == "gather" and BACKFILL_TAG in tags and BRANCH_TAG not in tags:
            backfill = gathering_branch(instance, tags)
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
            if is_in_lake(stored, session, self.open() if self.is_lake() else None, self.root):
                return session
            return None
        if self._scope(instance, run) == "asset" and not self._continues_failed_run(instance, run):
            return None
        branch, publisher, gate = (
            self.branch_of(run.tags, instance),
            publisher_of_parent(instance, run),
            self.gate_of(run.tags),
        )
        return open_run_session(
            instance, run, self.open(), branch=branch, root=self.root, publisher=publisher, gate=gate
        )

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

    def _scope(self, instance: DagsterInstance, run: DagsterRun) -> PublishScope:
        return scope_of((instance.get_run_by_id(run.run_id) or run).tags, self.scope)

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
            return attempt.assigned_to_session(self.root, self.open().get_session(session.id).record, session.epoch)
        self._check_written_beside(attempt.instance, attempt.run)
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
        step = attempt.step
        record = None if step is None or not self.is_lake() else self._reads_of(step)
        reads = record if isinstance(record, ReadRecord) else None
        return open_workspace(self.assignment(attempt), self.options(), self.open, reads=reads)

    def reads(self, step: StepExecutionContext) -> Mapping[str, Sequence[str]]:
        """Return what a step that publishes by itself has read so far in a serializable lake, by commit."""
        record = self._reads_of(step) if self.is_lake() else None
        reads = record.by_commit() if isinstance(record, ReadRecord) else {}
        return {commit: sorted(keys) for commit, keys in reads.items()}

    def read(
        self,
        path: str,
        format: str,
        run: RunOfStep | None,
        *,
        ref: str | None = None,
        step: StepExecutionContext | None = None,
        **options: Any,
    ) -> Any:
        """Open a dataset as a run reads it: at the commit that the run is based on, with the run's own writes.

        In a serializable lake, what the step reads of the run's branch must not change until it is published.

        Args:
            path: The path of the dataset, relative to the root.
            format: Its format, such as `delta`.
            run: The run, or None to read the branch of this resource.
            ref: A branch, tag or commit to read instead.
            step: The step that reads. In the code of a step it is not needed.
            options: Options of the format's own `open`.

        Returns:
            The format's handle, such as a `DeltaTable`.

        Raises:
            DatasetNotFound: Nothing is there, or a dataset of another format.
            NotALake: A ref is named, and the root is a folder of plain datasets.
        """
        state = self._state(path, run, ref, step)
        if state is not None:
            if path not in state.datasets():
                raise DatasetNotFound(
                    f"there is nothing at {path!r} in {state.name}: materialize it first, or publish the run that did"
                )
            return state.open(path, format, **options)
        known, folder = dataset_format(format), open_store(self.url(path), storage_options=self.options() or None)
        found = (
            known.find(folder, clock=None)
            if not options
            else known.open(folder, clock=None, **options)
            if known.exists(folder)
            else None
        )
        if found is None:
            raise DatasetNotFound(f"there is no {format} dataset at {self.url(path)}: materialize it first")
        return found

    def format_at(self, path: str, run: RunOfStep | None, *, ref: str | None = None) -> str | None:
        """Return the format of the dataset at a path as a run sees it, or None if nothing is there."""
        state = self._state(None, run, ref, None)
        if state is not None:
            record = state.datasets().get(path)
            return None if record is None else record.format
        with suppress(InvalidUrl):  # a file is there
            return stored_format(open_store(self.url(path), storage_options=self.options() or None))
        return None

    def read_table(
        self,
        path: str,
        run: RunOfStep | None,
        *,
        ref: str | None = None,
        step: StepExecutionContext | None = None,
        **options: Any,
    ) -> "DeltaTable":
        """Open a table as `read` does. `options` are those of `DeltaTable.open`.

        Raises:
            TableNotFound: No table is there. Materialize it first, or publish the run that did.
            NotALake: A ref is named, and the root is a folder of plain tables.
        """
        try:
            table: DeltaTable = self.read(path, "delta", run, ref=ref, step=step, **options)
        except DatasetNotFound as error:
            raise TableNotFound(str(error)) from None
        return table

    def read_repository(
        self, path: str, run: RunOfStep | None, *, ref: str | None = None, step: StepExecutionContext | None = None
    ) -> "Repository":
        """Open an Icechunk repository as `read` does. All of it counts as read.

        Raises:
            RepositoryNotFound: No repository is there. Materialize it first, or publish the run that did.
            NotALake: A ref is named, and the root is a folder of plain datasets.
        """
        from lake_core.icechunk.errors import RepositoryNotFound  # needs the extra `arrays`

        try:
            repository: Repository = self.read(path, "icechunk", run, ref=ref, step=step)
        except DatasetNotFound as error:
            raise RepositoryNotFound(str(error)) from None
        repository.assets.store.note_scan()
        return repository

    def read_pool(
        self, path: str, run: RunOfStep | None, *, ref: str | None = None, step: StepExecutionContext | None = None
    ) -> "Pool":
        """Open a pool as `read` does.

        Raises:
            NoSuchPool: No pool is there. Materialize it first, or publish the run that did.
            NotALake: A ref is named, and the root is a folder of plain datasets.
        """
        from lake_core.pool.errors import NoSuchPool

        try:
            pool: Pool = self.read(path, "pool", run, ref=ref, step=step)
        except DatasetNotFound as error:
            raise NoSuchPool(str(error)) from None
        return pool

    def is_staged(self, path: str, instance: DagsterInstance, run: DagsterRun) -> bool:
        """Return whether a run has staged changes of a table in its session. Their version is provisional."""
        session = self.run_session(instance, run) if self.is_lake() else None
        return (
            session is not None
            and next(self.open().diff(f"{session.id}~1", session.id, prefix=f"{path}/"), None) is not None
        )

    def read_files(
        self, run: RunOfStep | None, *, ref: str | None = None, step: StepExecutionContext | None = None
    ) -> ObjectStore:
        """Open the lake's files as a run reads them.

        `ref` and `step` are as in `read_table`.

        Raises:
            RefNotFound: The lake has no such ref.
            NotALake: A ref is named, and the root is a folder of plain datasets.
        """
        state = self._state(None, run, ref, step)
        return open_store(self.root, storage_options=self.options() or None) if state is None else state

    def _state(
        self, path: str | None, run: RunOfStep | None, ref: str | None, step: StepExecutionContext | None
    ) -> StateStore | None:
        """Return the state of the lake from which a run reads a dataset, or the state of a ref.

        A dataset that it lacks counts as read. Return None for a folder of plain tables. Raises NotALake for a ref of
        such a folder.
        """
        if not self.is_lake():
            if ref is not None:
                raise NotALake(f"{self.root} is not a lake, and only a lake has the ref {ref!r}")
            return None
        named = self.branch if ref is None and run is None else ref
        if step is None and (step := current_step()) is not None and ref is None and path is not None:
            place = self.place_of(step.instance, step.dagster_run)
            if warning := check_dependency_published(step, self.open(), path, place):
                step.log.warning(warning)
        record = None if step is None else self._reads_of(step)
        on_read = None
        if step is not None and record is not None:
            on_read = recorder(record, named, self.branch_of(step.dagster_run.tags, step.instance))
        if named is None and run is not None:
            named = self._pinned(path, *run)
        state = self.open().at(named or self.branch, on_read=on_read)
        if path is not None and path not in state.datasets():
            state.tree.note_read(f"{path}/*")
        return state

    def _reads_of(self, step: StepExecutionContext) -> ReadRecord | SharedSession | None:
        return reads_of(step, self.open(), lambda: self.run_session(step.instance, step.dagster_run))

    def find_table(self, path: str, *, ref: str | None = None) -> "DeltaTable | None":
        """Open the table at a path on the branch, or at another ref. Return None if it does not exist."""
        try:
            return self.read_table(path, None, ref=ref)
        except (TableNotFound, RefNotFound):
            return None

    def _pinned(self, path: str | None, instance: DagsterInstance, run: DagsterRun) -> str:
        session = self.run_session(instance, run)
        if session is not None:
            return session.id
        return pinned(self.open(), self.branch_of(run.tags, instance), path, instance, run)

    # Writes in the code of a step

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
        store = open_store(self.url(path), storage_options=self.options() or None)
        handle_key = (store.url(), context.retry_number)
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

    # Runs under other executors

    def teardown_after_execution(self, context: InitResourceContext) -> None:
        """Publish the session of a run without another publisher, if all of its steps have succeeded."""
        run, instance = context.run, context.instance
        if run is None or instance is None:
            return
        stored = instance.get_run_by_id(run.run_id)
        session = None if stored is None else from_tags(stored)
        if stored is None or session is None or stored.tags.get(PUBLISHER_TAG) != "teardown":
            return
        if not is_in_lake(stored, session, self.open() if self.is_lake() else None, self.root):
            return

        from lake_orch.dagster.runs.publishing import publish_session
        from lake_orch.dagster.runs.steps import StepStates

        if StepStates(instance, session.id).unfinished():
            return
        try:
            published = publish_session(
                instance, self.open(), session, gate=self.gate_of(stored.tags), keep_failed_for=self.keep_failed
            )
        except LakeError as error:
            if context.log:
                context.log.error(f"session {session.id} of this run is not published: {error}")
            raise
        if context.log:
            context.log.info(f"session {session.id} of this run is published as commit {published.commit[:12]}")


# A step may open one table through several resources on the same root. If each resource counted its batches from one,
# the second write would count as a retry of the first. So the handles are kept for each step.
_handles: "WeakKeyDictionary[object, dict[tuple[str, int], LakeTable]]" = WeakKeyDictionary()
_sessions: WeakKeyDictionary[object, CallNumbers] = WeakKeyDictionary()


def has_written(step: object) -> bool:
    """Return whether the code of a step has opened a table or a session of the lake for writing."""
    return step in _handles or step in _sessions
