"""Sessions of a lake in which one attempt writes: one of its own, or its share of one that many write into."""

from __future__ import annotations

from abc import abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lake_core.lake.errors import DatasetExists, SessionClosed, SessionNotFound
from lake_core.lake.refs.session_record import FAILED
from lake_core.workspace.workspace import PUBLISHED, STAGED, Receipt, Workspace

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from lake_core.lake import Lake
    from lake_core.lake.session.private_session import Session
    from lake_core.lake.session.read_record import ReadRecord
    from lake_core.lake.session.session_writer import SessionWriter
    from lake_core.store import ObjectStore

_COMMITS = 1000
"""How far back an earlier attempt is searched where nothing tells when the first one was made."""


class _SessionWrites(Workspace):
    """The base class of writes to both kinds of sessions."""

    def __init__(self, lake: Lake, session: Session | SessionWriter, root: str, task_id: str) -> None:
        super().__init__(root, task_id)
        self._lake, self._session = lake, session

    def find(self, path: str, format: str) -> Any | None:
        record = self._session.datasets().get(path)
        if record is None:
            return None
        if record.format != format:
            raise DatasetExists(
                f"the dataset at {path!r} has the format {record.format}, not {format}: use another path"
            )
        return self._session.open(path, format)

    def create(self, path: str, format: str, *args: Any, **options: Any) -> Any:
        return self._session.create(path, format, *args, exist_ok=True, **options)

    def after(self, path: str, format: str) -> Any:
        return self._lake.at(self._ref_after()).open(path, format)

    @abstractmethod
    def _ref_after(self) -> str:
        """Return the ref of the state after the workspace is finished."""

    @property
    def store(self) -> ObjectStore:
        return self._session


class PublishedWrites(_SessionWrites):
    """Writes to a branch, published together when the workspace is finished: once, by the attempt's identity."""

    def __init__(
        self,
        lake: Lake,
        branch: str,
        root: str,
        task_id: str,
        *,
        session_id: str,
        since: datetime | None = None,
        is_retry: bool = False,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        reads: ReadRecord | None = None,
        owner: str = "",
    ) -> None:
        session = lake.session(branch, message=message, metadata=metadata or {}, id=session_id, owner=owner)
        super().__init__(lake, session, root, task_id)
        self._branch, self._is_retry, self._reads = branch, is_retry, reads
        self._private: Session = session
        self._earlier = _commit_of_session(lake, branch, session_id, since)
        self.is_repeated = self._earlier is not None
        self._relied_on: dict[str, frozenset[str]] = {}
        self._rely_on_reads()  # if they have changed already, writing would be in vain

    def finish(self) -> Receipt:
        """Publish the private session on the branch; skip what an earlier attempt has published.

        In a serializable lake, what the attempt has read before counts as read in the session.
        """
        if self._earlier is not None:
            self._private.abandon()
            return Receipt(PUBLISHED, self._branch, self._earlier, self._private.id, None, {}, True)
        self._rely_on_reads()
        published = self._private.publish()
        if self._reads is not None and self._relied_on and self._is_own(published.commit):
            # The next session of the attempt must not take the changes of this one for those of others.
            self._reads.move(self._relied_on, published.commit)
        if self._is_retry:
            self._forget_failed()
        return Receipt(PUBLISHED, self._branch, published.commit, published.session, None, dict(published.versions))

    def _rely_on_reads(self) -> None:
        """Make the session rely on what the attempt has read so far. Raises Conflict if that has changed already."""
        if self._reads is None or self.is_repeated:
            return
        for commit, reads in self._reads.by_commit().items():
            new = reads - self._relied_on.get(commit, frozenset())
            if new:
                self._private.rely_on(commit, *new)
            self._relied_on[commit] = reads

    def _is_own(self, commit: str) -> bool:
        """Return whether a commit is that of the private session, which found no head that has its changes already."""
        return self._lake.log(commit, limit=1)[0].metadata.get("session") == self._private.id

    def _forget_failed(self) -> None:
        """Abandon what an earlier try left; one that contradicted what others published stays as a failed session."""
        with suppress(SessionNotFound, SessionClosed):
            failed = self._lake.get_session(self._private.id)
            if failed.record.state == FAILED:
                failed.abandon()

    def _ref_after(self) -> str:
        return self.receipt.commit if self.receipt and self.receipt.commit else self._branch

    def discard(self) -> None:
        """Abandon the private session."""
        self._private.abandon()


class StagedWrites(_SessionWrites):
    """Writes into a shared session, published with it.

    A later attempt replaces what an earlier one brought into the session.
    """

    is_staged = True

    def __init__(self, lake: Lake, writer: SessionWriter, branch: str, root: str, task_id: str) -> None:
        super().__init__(lake, writer, root, task_id)
        self.writer: SessionWriter = writer
        """The writer of the shared session."""
        self.is_repeated = writer.is_complete
        self._staged = Receipt(STAGED, branch, None, writer.session, writer.epoch, skipped=self.is_repeated)

    def flush(self) -> None:
        """Bring what was written so far into the shared session, as a batch."""
        self.writer.flush()
        self.receipt = self._staged

    def finish(self) -> Receipt:
        """Bring the last batch into the shared session, as the one that completes the attempt."""
        with self.writer:
            pass  # leaving it flushes it for the last time
        return self._staged

    def _ref_after(self) -> str:
        return self.writer.session


def _commit_of_session(lake: Lake, branch: str, session_id: str, since: datetime | None) -> str | None:
    """Find the commit that a private session of this id became on a branch, if one was published since."""
    commits = lake.log(branch, first_parent=True, since=since, limit=None if since else _COMMITS)
    return next((commit.id for commit in commits if commit.metadata.get("session") == session_id), None)
