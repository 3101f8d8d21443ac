"""`CommittingTable`: a handle on a table that commits operations, and moves to the version of each."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from lake_core import runtime
from lake_core.clock import Clock, now_ms
from lake_core.delta.checksum_writer import write_checksum
from lake_core.delta.conflict import Reads
from lake_core.delta.errors import InvalidTransaction
from lake_core.delta.features import check_writable
from lake_core.delta.operation import Operation
from lake_core.delta.properties import checkpoint_interval
from lake_core.delta.result import OperationResult, recorded_operation
from lake_core.delta.set_transaction import recorded_version, set_transaction
from lake_core.delta.table_view import TableView
from lake_core.delta.transaction import Committed, commit
from lake_core.txn import Txn, check_txn

if TYPE_CHECKING:
    from collections.abc import Callable

    from lake_core.delta.snapshot import Snapshot
    from lake_core.delta.version_checksum import VersionChecksum

_LOG = logging.getLogger(__name__)


class CommittingTable(TableView):
    """A table at one snapshot, with what all operations on it share."""

    _on_commit: Callable[[Snapshot], object] | None = None
    _checksum: VersionChecksum | None = None

    @classmethod
    def at(
        cls, snapshot: Snapshot, clock: Clock | None = None, on_commit: Callable[[Snapshot], object] | None = None
    ) -> Self:
        """Return a handle on a snapshot that is loaded already.

        `on_commit` is called with each snapshot that a commit through the handle leads to.
        """
        table = super().at(snapshot, clock)
        table._on_commit = on_commit
        return table

    def __getstate__(self) -> dict[str, Any]:
        # What is called on a commit belongs to the process.
        return self.__dict__ | {"_on_commit": None}

    def recorded(self, txn: Txn | None) -> OperationResult | None:
        """Return the result of an earlier attempt with this `txn`, or None if the latest version has none.

        Raises:
            InvalidTransaction: `txn` is not a pair of an application id and a version.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
        """
        check_txn(txn, InvalidTransaction)
        self._check_writable()
        if txn is None:
            return None
        latest = self._snapshot.refreshed()
        recorded = recorded_version(latest, txn[0], now_ms(self._clock))
        if recorded is None or recorded < txn[1]:
            return None
        self._snapshot = latest
        return recorded_operation(self.store, self.version, set_transaction(txn, None))

    def _check_writable(self) -> None:
        check_writable(self._snapshot.protocol, self._snapshot.metadata, self.store)

    def commit(self, operation: Operation, txn: Txn | None) -> OperationResult:
        """Commit a write that `plan_append` or `plan_overwrite` planned on this snapshot."""
        return self._committed(operation, txn)

    def operate(self, plan: Callable[[Snapshot, int], Operation | None], txn: Txn | None) -> OperationResult:
        """Plan an operation on this snapshot (`plan` takes it and the time, in milliseconds), and commit it.

        If the table has this `txn` already, nothing is committed. If there is nothing to do but to record the `txn`,
        the commit has only the txn action.
        """
        earlier = self.recorded(txn)
        if earlier is not None:
            return earlier
        start = runtime.monotonic()
        operation = plan(self._snapshot, now_ms(self._clock))
        if operation is None:
            if txn is None:
                return OperationResult(self.version)
            # To find that there is nothing to do, the plan has read the whole table.
            operation = Operation("SET TRANSACTION", {}, self._snapshot, reads=Reads.WHOLE_TABLE)
        metrics = {**operation.metrics, "executionTimeMs": int((runtime.monotonic() - start) * 1000)}
        return self._committed(replace(operation, metrics=metrics), txn)

    def _committed(self, operation: Operation, txn: Txn | None) -> OperationResult:
        """Commit an operation and return its result, or that of another attempt with the same `txn` that was faster."""
        committed = self._commit(operation, txn)
        if committed.already_recorded and txn is not None:
            return recorded_operation(self.store, self.version, set_transaction(txn, None))
        return OperationResult(committed.version, False, operation.metrics)

    def _commit(self, operation: Operation, txn: Txn | None) -> Committed:
        now = now_ms(self._clock)
        if operation.protocol is not None:
            check_writable(operation.protocol, operation.metadata or self.metadata, self.store)
        committed = commit(replace(operation, transaction=None if txn is None else set_transaction(txn, now)), now)
        self._snapshot = committed.snapshot
        if self._on_commit is not None:
            self._on_commit(committed.snapshot)
        if not committed.already_recorded:
            self.follow_up(committed, adds_are_new=operation.restored is None or operation.data_change)
        return committed

    def follow_up(self, committed: Committed, *, adds_are_new: bool) -> None:
        """Write the files that are derived from a commit: its checksum, and the checkpoint that may be due."""
        if self.store.versioned:
            return  # the lake writes derived files once main has the version
        # The commit is valid whatever happens here. An error now would make the caller repeat the write, while a
        # checkpoint that is missing only costs readers time.
        try:
            interval = checkpoint_interval(self.metadata.configuration)
            is_due = committed.version > 0 and committed.version % interval == 0
            self._checksum = write_checksum(committed.snapshot, self._checksum, adds_are_new=adds_are_new, count=is_due)
            if is_due:
                from lake_core.delta.checkpoint_writer import write_checkpoint
                from lake_core.delta.log_cleanup import clean_log

                files = write_checkpoint(committed.snapshot, now_ms(self._clock))
                self._snapshot = committed.snapshot.on_checkpoint(files)
                clean_log(self._snapshot, now_ms(self._clock))
        except Exception:
            what = "its checksum, its checkpoint, or the clean-up of its log failed"
            _LOG.warning(
                "version %d of %s is committed, but %s", committed.version, self.store.url(), what, exc_info=True
            )
