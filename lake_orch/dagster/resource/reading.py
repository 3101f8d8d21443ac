"""Reads of a lake: what a run, a step or a branch sees of it."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dagster import DagsterInstance, DagsterRun

from lake_core.dataset import dataset_format, stored_format
from lake_core.delta.errors import TableNotFound
from lake_core.errors import InvalidUrl, LakeError
from lake_core.lake.errors import DatasetNotFound, RefNotFound
from lake_core.lake.session.read_record import ReadRecord
from lake_core.lake.session.shared_session import SharedSession
from lake_core.lake.state.state_store import StateStore
from lake_core.store import ObjectStore, open_store
from lake_orch._dagster import StepExecutionContext
from lake_orch.dagster.resource.runs import LakeOfRuns
from lake_orch.dagster.runs.attempt import RunOfStep, current_step
from lake_orch.dagster.runs.reading import pinned, reads_of, recorder
from lake_orch.dagster.runs.upstream import check_dependency_published
from lake_orch.errors import NotALake

if TYPE_CHECKING:
    from lake_core.delta import DeltaTable
    from lake_core.icechunk import Repository
    from lake_core.pool import Pool


class ReadableLake(LakeOfRuns):
    """A lake that runs read."""

    def reads(self, step: StepExecutionContext) -> Mapping[str, Sequence[str]]:
        """Return what a step that publishes by itself has read so far in a serializable lake, by commit."""
        record = self._read_record(step)
        return {} if record is None else {commit: sorted(keys) for commit, keys in record.by_commit().items()}

    def _read_record(self, step: StepExecutionContext) -> ReadRecord | None:
        record = self._reads_of(step) if self.is_lake() else None
        return record if isinstance(record, ReadRecord) else None

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
        dataset = dataset_format(format).find(self._store_of(path), clock=None, **options)
        if dataset is None:
            raise DatasetNotFound(f"there is no {format} dataset at {self.url(path)}: materialize it first")
        return dataset

    def format_at(self, path: str, run: RunOfStep | None, *, ref: str | None = None) -> str | None:
        """Return the format of the dataset at a path as a run sees it, or None if nothing is there."""
        state = self._state(None, run, ref, None)
        if state is not None:
            record = state.datasets().get(path)
            return None if record is None else record.format
        with suppress(InvalidUrl):  # a file is there
            return stored_format(self._store_of(path))
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
        table: DeltaTable = self._read_as(TableNotFound, path, "delta", run, ref=ref, step=step, **options)
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

        repository: Repository = self._read_as(RepositoryNotFound, path, "icechunk", run, ref=ref, step=step)
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

        pool: Pool = self._read_as(NoSuchPool, path, "pool", run, ref=ref, step=step)
        return pool

    def _read_as(self, absent: type[LakeError], path: str, format: str, run: RunOfStep | None, **options: Any) -> Any:
        try:
            return self.read(path, format, run, **options)
        except DatasetNotFound as error:
            raise absent(str(error)) from None

    def is_staged(self, path: str, instance: DagsterInstance, run: DagsterRun) -> bool:
        """Return whether a run has staged changes of a table in its session. Their version is provisional."""
        session = self.run_session(instance, run) if self.is_lake() else None
        return (
            session is not None
            and next(self.open().diff(f"{session.id}~1", session.id, prefix=f"{path}/"), None) is not None
        )

    def read_files(
        self,
        run: RunOfStep | None,
        *,
        beside: str | None = None,
        ref: str | None = None,
        step: StepExecutionContext | None = None,
    ) -> ObjectStore:
        """Open the lake's files as a run reads them, or as they are where it reads the dataset at the path `beside`.

        `ref` and `step` are as in `read_table`.

        Raises:
            RefNotFound: The lake has no such ref.
            NotALake: A ref is named, and the root is a folder of plain datasets.
        """
        state = self._state(beside, run, ref, step)
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
