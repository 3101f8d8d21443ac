"""Where an attempt writes, and how that becomes visible.

Three kinds, one interface: plain Delta tables (each write is visible at once), a private session of a lake (visible together when the
workspace is finished), and a part of a run's shared session (staged then, visible when the run publishes).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from lake_core.delta import DeltaTable
from lake_core.lake.errors import SessionClosed, SessionNotFound
from lake_core.lake.refs.session_record import FAILED
from lake_core.store import ObjectStore, open_store
from lake_orch.errors import InvalidDefinition
from lake_orch.tags import PUBLISHED, STAGED

if TYPE_CHECKING:
    from lake_core.lake import Lake
    from lake_core.lake.publish.published import Published
    from lake_core.lake.session.private_session import Session
    from lake_core.lake.session.session_writer import SessionWriter
    from lake_orch.sessions.attempt import Attempt


@dataclass(frozen=True, slots=True)
class Receipt:
    """What became of what was written."""

    state: str = PUBLISHED
    """`published` or `staged`."""
    branch: str | None = None
    commit: str | None = None
    session: str | None = None
    epoch: int | None = None
    versions: Mapping[str, int] = field(default_factory=dict)
    """The final version of each table by path; empty for what is staged, and without a lake."""
    skipped: bool = False
    """Whether an earlier attempt had published all this already."""


class Workspace(ABC):
    """Tables and files as an attempt sees and writes them. Leaving its `with` block finishes it, or discards it on an error."""

    receipt: Receipt | None = None
    """Once it is finished."""
    is_staged = False
    """Whether what is written here becomes visible only when the run publishes."""

    def __init__(self, app_id: str) -> None:
        self.app_id = app_id
        """The appId that marks what is written here."""

    @abstractmethod
    def find_table(self, path: str) -> DeltaTable | None:
        """The table at a path, as it stands here."""

    @abstractmethod
    def create_table(
        self, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> DeltaTable:
        """A new table; one that somebody else has just created is opened. Raises what `DeltaTable.create` raises."""

    @abstractmethod
    def after(self, path: str) -> DeltaTable:
        """The table as it stands once the workspace is finished."""

    @property
    @abstractmethod
    def store(self) -> ObjectStore:
        """Everything, by key below the lake's root."""

    @abstractmethod
    def url(self, path: str) -> str:
        """Where a table or file lies in place."""

    def flush(self) -> None:
        """Let what was written so far count, where a step's writes count one by one."""
        return

    @abstractmethod
    def finish(self) -> Receipt:
        """Let all that was written count. Raises Conflict."""

    def discard(self) -> None:
        """Leave nothing behind, as far as that can be."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.receipt = self.finish()
        else:
            self.discard()


class PlainWorkspace(Workspace):
    """A folder that is no lake: every write to a table is a commit of its own."""

    def __init__(self, root: str, storage_options: Mapping[str, Any] | None, app_id: str) -> None:
        super().__init__(app_id)
        self._root, self._options = root.rstrip("/"), storage_options

    def find_table(self, path: str) -> DeltaTable | None:
        url = self.url(path)
        return DeltaTable.open(url, storage_options=self._options) if DeltaTable.exists(url, storage_options=self._options) else None

    def create_table(
        self, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> DeltaTable:
        return DeltaTable.create(
            self.url(path),
            schema,
            partition_by=tuple(partition_by),
            properties=properties,
            storage_options=self._options,
            exist_ok=True,
        )

    def after(self, path: str) -> DeltaTable:
        return DeltaTable.open(self.url(path), storage_options=self._options)

    @property
    def store(self) -> ObjectStore:
        return open_store(self._root, storage_options=self._options)

    def url(self, path: str) -> str:
        return f"{self._root}/{path}"

    def finish(self) -> Receipt:
        return Receipt()


class _LakeWorkspace(Workspace):
    """What both kinds of sessions have in common."""

    def __init__(self, lake: Lake, session: Session | SessionWriter, root: str, app_id: str) -> None:
        super().__init__(app_id)
        self._lake, self._session, self._root = lake, session, root.rstrip("/")

    def find_table(self, path: str) -> DeltaTable | None:
        found = self._session.datasets().get(path)
        if found is None:
            return None
        if found.format != "delta":
            raise InvalidDefinition(f"the dataset at {path!r} is of format {found.format}, not a Delta table: use another path")
        table: DeltaTable = self._session.delta(path)
        return table

    def create_table(
        self, path: str, schema: pa.Schema, *, partition_by: Sequence[str] = (), properties: Mapping[str, str] | None = None
    ) -> DeltaTable:
        table: DeltaTable = self._session.create_delta(path, schema, partition_by=tuple(partition_by), properties=properties, exist_ok=True)
        return table

    @property
    def store(self) -> ObjectStore:
        return self._session

    def url(self, path: str) -> str:
        return f"{self._root}/{path}"


class PrivateWorkspace(_LakeWorkspace):
    """A session of its own on a branch, published when the workspace is finished: once, by the attempt's identity."""

    def __init__(self, lake: Lake, branch: str, root: str, attempt: Attempt) -> None:
        self._branch, attempt = branch, attempt.resolved()
        session = lake.session(branch, message=attempt.message, metadata=attempt.commit_metadata, id=attempt.session_id)
        super().__init__(lake, session, root, attempt.app_id)
        self._private: Session = session
        self._earlier = published_earlier(lake, branch, attempt.session_id, attempt.since())
        self._is_retry = attempt.number > 0 or attempt.lineage != attempt.run.run_id

    def finish(self) -> Receipt:
        if self._earlier is not None:
            self._private.abandon()
            return Receipt(PUBLISHED, self._branch, self._earlier, self._private.id, None, {}, True)
        done: Published = self._private.publish()
        if self._is_retry:
            self._forget_failed()
        return Receipt(PUBLISHED, self._branch, done.commit, done.session, None, dict(done.versions))

    def _forget_failed(self) -> None:
        """An earlier try that contradicted what others published is kept as a failed session of the same id: it is made up for now."""
        with suppress(SessionNotFound, SessionClosed):
            if self._lake.session_record(self._private.id).state == FAILED:
                self._lake.abandon(self._private.id)

    def after(self, path: str) -> DeltaTable:
        ref = self.receipt.commit if self.receipt and self.receipt.commit else self._branch
        table: DeltaTable = self._lake.delta(path, ref=ref)
        return table

    def discard(self) -> None:
        self._private.abandon()


class StagedWorkspace(_LakeWorkspace):
    """A part of the session that a whole run writes into. A later attempt replaces what an earlier one brought into it."""

    is_staged = True

    def __init__(self, lake: Lake, id: str, epoch: int, root: str, attempt: Attempt) -> None:
        record = lake.session_record(id)
        attempt = attempt.within(record.lineage)
        part = lake.join(id, epoch=epoch, task=attempt.app_id, attempt=attempt.rank(epoch))
        super().__init__(lake, part, root, attempt.app_id)
        self._part: SessionWriter = part
        self._branch, self._epoch, self._id = record.branch, epoch, id

    def flush(self) -> None:
        self._part.flush()
        self.receipt = Receipt(STAGED, self._branch, None, self._id, self._epoch)

    def finish(self) -> Receipt:
        with self._part:
            pass  # leaving it flushes it for the last time
        return Receipt(STAGED, self._branch, None, self._id, self._epoch)

    def after(self, path: str) -> DeltaTable:
        table: DeltaTable = self._lake.delta(path, ref=self._id)
        return table


def published_earlier(lake: Lake, branch: str, session: str, since: datetime | None) -> str | None:
    """The commit that a private session of this id became on a branch, if one was published since."""
    commits = lake.log(branch, first_parent=True, since=since, limit=None if since else 1000)
    return next((commit.id for commit in commits if commit.metadata.get("session") == session), None)
