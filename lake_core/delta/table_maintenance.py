"""`MaintainedTable`: what keeps a table small and fast, and changes none of its rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from lake_core.clock import now_ms
from lake_core.delta.table_commit import CommittingTable
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    from lake_core.delta.operation import Operation
    from lake_core.delta.operations.vacuum import Orphans, VacuumResult
    from lake_core.delta.parquet_options import WriterProperties
    from lake_core.delta.result import OperationResult
    from lake_core.delta.snapshot import Snapshot
    from lake_core.txn import Txn


class MaintainedTable(CommittingTable):
    """A table whose files and log can be rewritten and cleaned."""

    def optimize(
        self,
        where: str | None = None,
        *,
        target_size: int | None = None,
        zorder_by: Sequence[str] = (),
        purge: bool = False,
        full: bool = False,
        writer_properties: WriterProperties | None = None,
        txn: Txn | None = None,
    ) -> OperationResult:
        """Combine small files, or with `zorder_by` sort rows so that filters on these columns skip files.

        A clustered table is sorted by its own columns: the files that are new, with `full` all files. With `purge`,
        only files with deleted rows are written anew, without these rows. Files get up to `target_size` bytes, by
        default `delta.targetFileSize`, else 128 MiB. `where` selects partitions. No row changes, so other writers can
        commit meanwhile.

        Raises:
            InvalidPredicate: `where` is not about partition columns alone.
            InvalidExpression: The SQL does not parse, names an unknown column, or uses what is not supported.
            SchemaMismatch: `zorder_by` names columns that the table cannot be sorted by, or the table is clustered by
                its own; or `full` is true, and the table is not clustered.
            InvalidProperty: `target_size` is not a number of bytes, or the table's own property is not a size.
            ConcurrentModification: Another writer rewrote a file meanwhile. Refresh the table, and run it again.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
            CommitTimeout: Other writers committed first until the deadline. Run it again.
            CommitOutcomeUnknown: The store stopped answering during the commit. Repeat it with the same `txn`.
        """
        from lake_core.delta.operations.optimize import optimize

        def plan(snapshot: Snapshot, now: int) -> Operation | None:
            return optimize(
                snapshot,
                now,
                where=where,
                target_size=target_size,
                zorder_by=zorder_by,
                purge=purge,
                full=full,
                parquet=None if writer_properties is None else writer_properties.options(self.properties),
            )

        return self.operate(plan, txn)

    def vacuum(
        self,
        retention: dt.timedelta | str | None = None,
        *,
        mode: Literal["full", "lite"] = "full",
        orphans: Orphans = "own",
        dry_run: bool = False,
        allow_unsafe: bool = False,
        run: Runner = run_here,
    ) -> VacuumResult:
        """Delete data files that were removed from the table, or never committed, longer ago than `retention`.

        The retention is a timedelta or an interval such as '14 days'. The default is the table's own.

        `full` lists the table's folder; `lite` reads only the log, so it finds no orphans. An orphan, a file that no
        commit in the log names, is deleted only if its name has the form that this writer uses. `orphans="delta"` also
        deletes those named as other Delta writers do; Spark names files the same way when it writes them without Delta,
        so use it only if no such files are put into the table's folder. The result's `unknown` lists the orphans that
        stay. `dry_run` deletes nothing. The handle moves to the latest version. `run` calls the functions that list and
        delete.

        Raises:
            UnsafeRetention: The retention is shorter than the table's own, so readers and writers could lose files.
                Raise it, or pass `allow_unsafe`.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
            ValueError: `mode`, `orphans` or `retention` is not valid.
        """
        from lake_core.delta.operations.vacuum import vacuum

        self.refresh()
        self._check_writable()
        now = now_ms(self._clock)
        return vacuum(
            self._snapshot,
            now,
            retention=retention,
            mode=mode,
            orphans=orphans,
            dry_run=dry_run,
            allow_unsafe=allow_unsafe,
            run=run,
        )

    def checkpoint(self, *, run: Runner | None = None, part_rows: int | None = None) -> None:
        """Write a checkpoint of this version, and point `_last_checkpoint` to it unless it points to a later one.

        With `run`, which calls tasks, a table with more than `part_rows` (500,000) files and tombstones gets a
        checkpoint of several parts, one written by each task. The log is then not cleaned.

        Raises:
            CheckpointRace: Another process writes the same parts. The table is as it was.
            UnsupportedWriterFeature: The table needs a feature that this writer does not support, or belongs to a lake
                and was opened outside of a session.
        """
        from lake_core.delta.checkpoint_writer import write_checkpoint

        self._check_writable()
        now, target = now_ms(self._clock), self.store.derived_root
        if run is not None:
            from lake_core.delta.checkpoint_parts import PART_ROWS, write_checkpoint_parts

            write_checkpoint_parts(
                self._snapshot, now, run, part_rows=PART_ROWS if part_rows is None else part_rows, target=target
            )
            return
        write_checkpoint(self._snapshot, now, target)
        self.clean_log()

    def compact_log(self) -> str | None:
        """Write a log compaction file of the commits since the last checkpoint, and return its key.

        Readers read it instead of these commits. Returns None if there is nothing to compact. In a lake nothing is
        compacted, because its history needs each commit.
        """
        from lake_core.delta.compaction_writer import write_compaction

        self._check_writable()
        return None if self.store.versioned else write_compaction(self._snapshot)

    def clean_log(self) -> list[str]:
        """Delete log files that no version within `delta.logRetentionDuration` (30 days) needs, and return their keys.

        Checkpoints do this too. In a lake nothing is deleted, because the lake's history needs the log files.
        """
        from lake_core.delta.log_cleanup import clean_log

        self._check_writable()
        if self.store.versioned:
            return []
        return clean_log(self._snapshot, now_ms(self._clock))
