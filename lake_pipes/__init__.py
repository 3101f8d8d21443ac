"""What a process that Dagster started by Pipes needs to write into the lake: `lake_core` and `dagster-pipes`, and no Dagster.

`lake_orch.pipes` starts such processes and tells them which session, epoch and attempt they write as.

    from dagster_pipes import open_dagster_pipes
    from lake_pipes import open_workspace

    with open_dagster_pipes() as pipes:
        with open_workspace(pipes) as work:
            work.append("tables/orders", rows)
            work.delta("tables/totals").merge(changes, "t.id = s.id").when_matched_update("*").execute()
        pipes.report_asset_materialization(metadata=work.metadata())
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.errors import TableNotFound
from lake_core.errors import LakeError
from lake_core.lake import Lake
from lake_core.store import ObjectStore
from lake_core.txn import Txn
from lake_core.workspace import Assignment, CallNumbers, Workspace
from lake_core.workspace import open_workspace as workspace_of
from lake_pipes.metadata import PATH, ROWS_WRITTEN, SKIPPED, receipt_metadata

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

__all__ = ["ExternalWriter", "NotHandedOver", "open_workspace"]

EXTRAS = "lake"
"""Under which name Dagster's side hands over what is to be known."""
STORAGE_OPTIONS = "LAKE_PIPES_STORAGE_OPTIONS"
"""The environment variable with the lake's storage options, as JSON: secrets stand in no argument and in no file."""


class NotHandedOver(LakeError):
    """This process was not started by a client of `lake_orch.pipes`."""


class ExternalWriter:
    """Tables and files as this attempt of a step sees and writes them. They count together when the `with` block ends, exactly once.

    In a run with one session they are staged in that; otherwise they are published. In a folder of plain tables, which has no sessions,
    `append` and `overwrite` count one by one, each exactly once by its marker.
    """

    def __init__(self, workspace: Workspace, assignment: Assignment) -> None:
        self._workspace, self._assignment = workspace, assignment
        self._batches: dict[str, int] = {}
        self._results: dict[str, list[OperationResult]] = {}

    @property
    def root(self) -> str:
        """The lake's root."""
        return self._assignment.root

    @property
    def session(self) -> str | None:
        """The session that the whole run writes into; None where this process publishes by itself."""
        return self._assignment.session

    @property
    def done(self) -> bool:
        """Whether an earlier attempt has published all this: what is written now is left out."""
        return self._workspace.is_repeated

    @property
    def files(self) -> ObjectStore:
        """Everything by key below the root: `files.put("reports/today.json", data)`."""
        return self._workspace.store

    def find_delta(self, path: str) -> DeltaTable | None:
        """Return the table at a path, as it is here; None where there is none."""
        return self._workspace.find_table(path)

    def delta(self, path: str) -> DeltaTable:
        """Return a table with all that Delta tables can: merge, delete, update. Raises TableNotFound."""
        table = self.find_delta(path)
        if table is None:
            raise TableNotFound(f"no table at {path!r}: create it with create_delta, or write to it with append")
        return table

    def create_delta(self, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = (), **options: Any) -> DeltaTable:
        """Create a table, or open the one that is there."""
        return self._workspace.create_table(path, schema, partition_by=partition_by, **options)

    def append(self, path: str, rows: pa.Table | pa.RecordBatchReader, *, partition_by: Sequence[str] = ()) -> OperationResult:
        """Add rows to a table, which is created if absent. The n-th write to a table is the same in every attempt."""
        return self._write(path, rows, partition_by, lambda table, txn: table.append(rows, txn=txn))

    def overwrite(
        self, path: str, rows: pa.Table | pa.RecordBatchReader, *, where: str | None = None, partition_by: Sequence[str] = ()
    ) -> OperationResult:
        """Replace a table's rows, or those that `where` (Spark SQL) selects; it is created if absent."""
        return self._write(path, rows, partition_by, lambda table, txn: table.overwrite(rows, where=where, txn=txn))

    def metadata(self) -> dict[str, Any]:
        """Return what to report of a materialization: what became of it, and what was written."""
        results = [result for of_table in self._results.values() for result in of_table]
        receipt = self._workspace.receipt
        metadata: dict[str, Any] = {} if receipt is None else receipt_metadata(receipt)
        metadata[ROWS_WRITTEN] = sum(result.rows or 0 for result in results)
        if len(self._results) == 1:
            metadata[PATH] = next(iter(self._results))
        if self.done or (results and all(result.skipped for result in results)):
            metadata[SKIPPED] = True
        return metadata

    def _write(
        self,
        path: str,
        rows: pa.Table | pa.RecordBatchReader,
        partition_by: Sequence[str],
        write: Callable[[DeltaTable, Txn], OperationResult],
    ) -> OperationResult:
        table = self.find_delta(path) or self.create_delta(path, rows.schema, partition_by=partition_by)
        number = self._batches[path] = self._batches.get(path, 0) + 1
        result = write(table, (self._workspace.task_id, number))
        self._results.setdefault(path, []).append(result)
        return result


@contextmanager
def open_workspace(pipes: PipesContext | None = None, *, storage_options: Mapping[str, Any] | None = None) -> Iterator[ExternalWriter]:
    """Open the workspace in which this process writes, by what Dagster's side has handed over.

    Args:
        pipes: the context of `open_dagster_pipes`; by default the one that is open.
        storage_options: what opens the lake's root; by default what was handed over in the environment.

    A process may open several, one after the other; like the writes in them, each counts exactly once, by its number.

    Raises NotHandedOver, and where a later attempt or run has taken over what joining and leaving a session raise: StaleEpoch,
    StaleAttempt, SessionClosed.
    """
    options = _options() if storage_options is None else storage_options
    with _numbered(_handed_over(pipes)) as assignment:
        workspace = workspace_of(assignment, options, lambda: Lake.open(assignment.root, storage_options=options))
        with workspace:
            yield ExternalWriter(workspace, assignment)


def _handed_over(pipes: PipesContext | None) -> Assignment:
    if pipes is None:
        from dagster_pipes import PipesContext

        pipes = PipesContext.get()
    # Without Dagster's side the context is a mock, to let scripts be tried by hand.
    extras = pipes.extras
    values = extras.get(EXTRAS) if isinstance(extras, Mapping) else None
    if not isinstance(values, Mapping):
        raise NotHandedOver("no session was handed over to this process: start it by LakePipesSubprocessClient or LakeSparkSubmitClient")
    return Assignment.from_json(values)


_opened: dict[str, CallNumbers] = {}


@contextmanager
def _numbered(assignment: Assignment) -> Iterator[Assignment]:
    """Assign a number to each workspace that this process opens: each is an output of its own, the same in every attempt."""
    numbers = _opened.setdefault(assignment.task_id, CallNumbers())
    number = numbers.take()
    try:
        yield assignment.numbered(number)
    except BaseException:
        numbers.give_back(number)
        raise


def _options() -> dict[str, Any]:
    text = os.environ.get(STORAGE_OPTIONS)
    return {} if text is None else dict(json.loads(text))
