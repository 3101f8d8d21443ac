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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lake_core.delta import DeltaTable, OperationResult
from lake_core.delta.errors import TableNotFound
from lake_core.errors import LakeError
from lake_core.lake import Lake
from lake_core.store import ObjectStore, open_store

if TYPE_CHECKING:
    from dagster_pipes import PipesContext

    from lake_core.lake.session.private_session import Session
    from lake_core.lake.session.session_writer import SessionWriter

__all__ = ["ExternalWorkspace", "NotHandedOver", "open_workspace"]

EXTRAS = "lake"
"""Under which name Dagster's side hands over what is to be known."""
STORAGE_OPTIONS = "LAKE_PIPES_STORAGE_OPTIONS"
"""The environment variable with the lake's storage options, as JSON: secrets stand in no argument and in no file."""


class NotHandedOver(LakeError):
    """This process was not started by a client of `lake_orch.pipes`."""


class ExternalWorkspace:
    """Tables and files as this attempt of a step sees and writes them. They count together when the `with` block ends, exactly once.

    In a run with one session they are staged in that; otherwise they are published. In a folder of plain tables, which has no sessions,
    `append` and `overwrite` count one by one, each exactly once by its marker.
    """

    def __init__(
        self, told: Mapping[str, Any], options: Mapping[str, Any] | None, session: Session | SessionWriter | None, *, done: bool
    ) -> None:
        self._told, self._options, self._session = told, options, session
        self.done = done
        """Whether an earlier attempt has published all this: what is written now is left out."""
        self._batches: dict[str, int] = {}
        self._results: dict[str, list[OperationResult]] = {}
        self._receipt: dict[str, Any] = {}

    @property
    def root(self) -> str:
        """The lake's root."""
        return str(self._told["root"])

    @property
    def session(self) -> str | None:
        """The session that the whole run writes into; None where this process publishes by itself."""
        found = self._told["session"]
        return None if found is None else str(found)

    @property
    def files(self) -> ObjectStore:
        """Everything by key below the root: `files.put("reports/today.json", data)`."""
        return open_store(self.root, storage_options=self._options) if self._session is None else self._session

    def find_delta(self, path: str) -> DeltaTable | None:
        """The table at a path, as it stands here; None where there is none."""
        if self._session is None:
            url = f"{self.root}/{path}"
            known = DeltaTable.exists(url, storage_options=self._options)
            return DeltaTable.open(url, storage_options=self._options) if known else None
        found: DeltaTable | None = self._session.delta(path) if path in self._session.datasets() else None
        return found

    def delta(self, path: str) -> DeltaTable:
        """A table with all that Delta tables can: merge, delete, update. Raises TableNotFound."""
        found = self.find_delta(path)
        if found is None:
            raise TableNotFound(f"no table at {path!r}: create it with create_delta, or write to it with append")
        return found

    def create_delta(self, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = (), **options: Any) -> DeltaTable:
        """Create a table, or open the one that is there."""
        if self._session is None:
            url = f"{self.root}/{path}"
            return DeltaTable.create(url, schema, partition_by=tuple(partition_by), exist_ok=True, storage_options=self._options, **options)
        made: DeltaTable = self._session.create_delta(path, schema, partition_by=tuple(partition_by), exist_ok=True, **options)
        return made

    def append(self, path: str, rows: pa.Table | pa.RecordBatchReader, *, partition_by: Sequence[str] = ()) -> OperationResult:
        """Add rows to a table, which is created if absent. The n-th write to a table is the same in every attempt."""
        return self._write(path, rows, partition_by, lambda table, txn: table.append(rows, txn=txn))

    def overwrite(
        self, path: str, rows: pa.Table | pa.RecordBatchReader, *, where: str | None = None, partition_by: Sequence[str] = ()
    ) -> OperationResult:
        """Replace a table's rows, or those that `where` (Spark SQL) selects; it is created if absent."""
        return self._write(path, rows, partition_by, lambda table, txn: table.overwrite(rows, where=where, txn=txn))

    def metadata(self) -> dict[str, Any]:
        """What to report of a materialization: what became of it, and what was written."""
        told = {**self._receipt, "lake/rows_written": sum(one.rows or 0 for found in self._results.values() for one in found)}
        if len(self._results) == 1:
            told["lake/path"] = next(iter(self._results))
        skipped = [one.skipped for found in self._results.values() for one in found]
        return {**told, "lake/skipped": True} if self.done or (bool(skipped) and all(skipped)) else told

    def _write(self, path: str, rows: pa.Table | pa.RecordBatchReader, partition_by: Sequence[str], write: Any) -> OperationResult:
        table = self.find_delta(path) or self.create_delta(path, rows.schema, partition_by=partition_by)
        number = self._batches[path] = self._batches.get(path, 0) + 1
        result: OperationResult = write(table, (self._told["output"], number))
        self._results.setdefault(path, []).append(result)
        return result


@contextmanager
def open_workspace(pipes: PipesContext | None = None, *, storage_options: Mapping[str, Any] | None = None) -> Iterator[ExternalWorkspace]:
    """Where this process writes, by what Dagster's side has handed over.

    Args:
        pipes: the context of `open_dagster_pipes`; by default the one that is open.
        storage_options: what opens the lake's root; by default what was handed over in the environment.

    A process may open several, one after the other; like the writes in them, each counts exactly once, by its number.

    Raises NotHandedOver, and where a later attempt or run has taken over what joining and leaving a session raise: StaleEpoch,
    StaleAttempt, SessionClosed.
    """
    with _numbered(_handed_over(pipes)) as told, _workspace(told, _options() if storage_options is None else storage_options) as work:
        yield work


@contextmanager
def _workspace(told: Mapping[str, Any], options: Mapping[str, Any]) -> Iterator[ExternalWorkspace]:
    if told["branch"] is None:
        work = ExternalWorkspace(told, options or None, None, done=False)
        yield work
        work._receipt = {"lake/state": "published"}
        return
    lake = Lake.open(told["root"], storage_options=options)
    if told["session"] is not None:
        part = lake.join(told["session"], epoch=told["epoch"], task=told["output"], attempt=told["attempt"])
        with part:
            work = ExternalWorkspace(told, options, part, done=False)
            yield work
        work._receipt = {
            "lake/branch": told["branch"],
            "lake/session": told["session"],
            "lake/visible": f"once session {told['session']} is published: an observation of this asset then names the commit",
        }
        return
    earlier = _published_earlier(lake, told)
    session = lake.session(told["branch"], id=told["private_session"], message=told["message"], metadata=told["metadata"])
    work = ExternalWorkspace(told, options, session, done=earlier is not None)
    try:
        yield work
        commit = session.publish().commit if earlier is None else earlier
    except BaseException:
        session.abandon()
        raise
    work._receipt = {"lake/state": "published", "lake/branch": told["branch"], "lake/commit": commit, "lake/session": session.id}


def _handed_over(pipes: PipesContext | None) -> Mapping[str, Any]:
    if pipes is None:
        from dagster_pipes import PipesContext

        pipes = PipesContext.get()
    # Without Dagster's side the context is a mock, to let scripts be tried by hand.
    extras = pipes.extras
    told = extras.get(EXTRAS) if isinstance(extras, Mapping) else None
    if not isinstance(told, Mapping):
        raise NotHandedOver("no session was handed over to this process: start it by LakePipesSubprocessClient or LakeSparkSubmitClient")
    return told


_opened: dict[str, set[int]] = {}


@contextmanager
def _numbered(told: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What was handed over, for the n-th workspace that this process opens: each is an output of its own, the same in every attempt."""
    numbers = _opened.setdefault(told["output"], set())
    number = next(number for number in count(1) if number not in numbers)
    numbers.add(number)
    try:
        # The first goes by the names that were handed over.
        suffix = f"-{number}" if number > 1 else ""
        yield {**told, "output": told["output"] + suffix, "private_session": told["private_session"] + suffix}
    except BaseException:
        numbers.discard(number)  # who tries again by itself makes the same one again
        raise


def _options() -> dict[str, Any]:
    found = os.environ.get(STORAGE_OPTIONS)
    return {} if found is None else dict(json.loads(found))


def _published_earlier(lake: Lake, told: Mapping[str, Any]) -> str | None:
    """The commit of an earlier attempt at the same output."""
    since = None if told["since"] is None else datetime.fromisoformat(told["since"])
    commits = lake.log(told["branch"], first_parent=True, since=since, limit=None if since else 1000)
    return next((commit.id for commit in commits if commit.metadata.get("session") == told["private_session"]), None)
