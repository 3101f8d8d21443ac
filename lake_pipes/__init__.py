"""Writes to the lake from a process that Dagster started by Pipes.

It needs `lake_core` and `dagster-pipes`, but not Dagster.

`lake_orch.pipes` starts such processes, and passes them the session, epoch and attempt of their writes.

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
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lake_core.delta.errors import TableNotFound
from lake_core.errors import LakeError
from lake_core.lake import Lake
from lake_core.lake.session.read_record import ReadRecord
from lake_core.workspace import Assignment, CallNumbers, Workspace
from lake_core.workspace import open_workspace as workspace_of
from lake_pipes.metadata import PATH, ROWS_WRITTEN, SKIPPED, receipt_metadata
from lake_pipes.pages import is_ui_url, page_addresses

if TYPE_CHECKING:
    import pyarrow as pa
    from dagster_pipes import PipesContext

    from lake_core.delta import DeltaTable, OperationResult
    from lake_core.store import ObjectStore
    from lake_core.txn import Txn

__all__ = ["ExternalWriter", "NotHandedOver", "open_workspace"]

_LOG = logging.getLogger(__name__)

EXTRAS = "lake"
"""The name of the Pipes extra in which Dagster's side passes the assignment."""
UI_URL = "lake_ui_url"
"""The name of the Pipes extra with the address at which `lake ui` serves the lake, if it is known."""
ASSIGNMENT = "LAKE_PIPES_ASSIGNMENT"
"""The environment variable in which an orchestrator other than Dagster passes the assignment, as JSON."""
STORAGE_OPTIONS = "LAKE_PIPES_STORAGE_OPTIONS"
"""The environment variable with the lake's storage options, as JSON. Secrets must not be in arguments or files."""


class NotHandedOver(LakeError):
    """No session was handed over to this process, or what was handed over is damaged."""


class ExternalWriter:
    """The tables and files that one attempt of a step reads and writes.

    Writes take effect together, exactly once, after the `with` block.

    In a run with one session they are staged in it; otherwise they are published. In a folder of plain tables, which
    has no sessions, each `append` and `overwrite` takes effect by itself, exactly once by its transaction identifier.
    """

    def __init__(self, workspace: Workspace, assignment: Assignment, ui_url: str | None = None) -> None:
        self._workspace, self._assignment, self._ui_url = workspace, assignment, ui_url
        self._batches: dict[str, int] = {}
        self._results: dict[str, list[OperationResult]] = {}

    @property
    def root(self) -> str:
        """Return the lake's root."""
        return self._assignment.root

    @property
    def session(self) -> str | None:
        """Return the session of the whole run, or None if this process publishes by itself."""
        return self._assignment.session

    @property
    def is_already_published(self) -> bool:
        """Return whether an earlier attempt has published these writes. Writes then have no effect."""
        return self._workspace.is_repeated

    @property
    def files(self) -> ObjectStore:
        """Return the objects below the root by key: `files.put("reports/today.json", data)`."""
        return self._workspace.store

    def find_delta(self, path: str) -> DeltaTable | None:
        """Return the table at a path with the writes of this attempt, or None."""
        table: DeltaTable | None = self._workspace.find(path, "delta")
        return table

    def delta(self, path: str) -> DeltaTable:
        """Return a table with all operations of Delta tables: merge, delete, update. Raises TableNotFound."""
        table = self.find_delta(path)
        if table is None:
            raise TableNotFound(f"no table at {path!r}: create it with create_delta, or write to it with append")
        return table

    def create_delta(
        self, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = (), **options: Any
    ) -> DeltaTable:
        """Create a table, or open the existing one."""
        table: DeltaTable = self._workspace.create(path, "delta", schema, partition_by=tuple(partition_by), **options)
        return table

    def append(
        self, path: str, rows: pa.Table | pa.RecordBatchReader, *, partition_by: Sequence[str] = ()
    ) -> OperationResult:
        """Add rows to a table, which is created if absent. The n-th write to a table is the same in every attempt."""
        return self._write(path, rows, partition_by, lambda table, txn: table.append(rows, txn=txn))

    def overwrite(
        self,
        path: str,
        rows: pa.Table | pa.RecordBatchReader,
        *,
        where: str | None = None,
        partition_by: Sequence[str] = (),
    ) -> OperationResult:
        """Replace a table's rows, or those that `where` (Spark SQL) selects; it is created if absent."""
        return self._write(path, rows, partition_by, lambda table, txn: table.overwrite(rows, where=where, txn=txn))

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of a materialization: the state of the writes, the number of rows, and links to pages."""
        results = [result for of_table in self._results.values() for result in of_table]
        receipt = self._workspace.receipt
        metadata: dict[str, Any] = {} if receipt is None else receipt_metadata(receipt)
        metadata[ROWS_WRITTEN] = sum(result.rows or 0 for result in results)
        if len(self._results) == 1:
            metadata[PATH] = next(iter(self._results))
        if self.is_already_published or (results and all(result.skipped for result in results)):
            metadata[SKIPPED] = True
        pages = page_addresses(self._ui_url, metadata)
        return metadata | {name: {"raw_value": address, "type": "url"} for name, address in pages.items()}

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
def open_workspace(
    pipes: PipesContext | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> Iterator[ExternalWriter]:
    """Open the workspace in which this process writes, from the assignment that Dagster's side passed.

    Args:
        pipes: the context of `open_dagster_pipes`; by default the one that is open.
        storage_options: the storage options of the lake's root; by default those in the environment.

    A process may open several, one after the other. Each takes effect exactly once, by its number, as do the writes in
    it. So what was handed over is for one program: a second one that is started with it is taken for the first,
    started again, and writes nothing. The log warns of that.

    Raises NotHandedOver, and if a later attempt or run has taken over, the errors of joining and leaving a session:
    StaleEpoch, StaleAttempt, SessionClosed.
    """
    options = _options() if storage_options is None else storage_options
    step, ui_url = _handed_over(pipes)
    reads = _reads.setdefault(step.task_id, ReadRecord(step.reads))
    with _numbered(step) as assignment:
        workspace = workspace_of(
            assignment, options, lambda: Lake.open(assignment.root, storage_options=options), reads=reads
        )
        if workspace.is_repeated:
            _LOG.warning(
                "all that %s was to write is there already, so nothing is written: if this is another program than "
                "the one that wrote it, hand over to it by a task of its own",
                assignment.task_id,
            )
        with workspace:
            yield ExternalWriter(workspace, assignment, ui_url)


def _handed_over(pipes: PipesContext | None) -> tuple[Assignment, str | None]:
    """Return the assignment, and where `lake ui` serves the lake."""
    if pipes is None and ASSIGNMENT in os.environ:
        try:
            return Assignment.from_json(json.loads(os.environ[ASSIGNMENT])), None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise NotHandedOver(
                f"the variable {ASSIGNMENT} holds no session: set it to what the task that starts this process hands "
                "over, unchanged"
            ) from None
    if pipes is None:
        from dagster_pipes import PipesContext

        pipes = PipesContext.get() if PipesContext.is_initialized() else None
    # Without Dagster the context is a mock, so that scripts can be run by hand.
    extras = {} if pipes is None or not isinstance(pipes.extras, Mapping) else pipes.extras
    values = extras.get(EXTRAS)
    if not isinstance(values, Mapping):
        raise NotHandedOver(
            "no session was handed over to this process: start it by LakePipesSubprocessClient or "
            f"LakeSparkSubmitClient, within open_dagster_pipes(), or set {ASSIGNMENT} as docs/airflow.md says"
        )
    ui_url = extras.get(UI_URL)
    return Assignment.from_json(values), ui_url if is_ui_url(ui_url) else None


_opened: dict[str, CallNumbers] = {}
_reads: dict[str, ReadRecord] = {}
"""What was read for each task before it was handed over."""


@contextmanager
def _numbered(assignment: Assignment) -> Iterator[Assignment]:
    """Assign a number to each workspace that this process opens: each is its own task, the same in every attempt."""
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
