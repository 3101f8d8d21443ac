"""The write of what a task returned, by the lane that all orchestrators share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any
from warnings import catch_warnings, simplefilter

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import get_current_context

from lake_orch.airflow.arguments import reference
from lake_orch.airflow.dataset import DataInterval, LakeDataset
from lake_orch.airflow.events import add_event, changes_of_commit, published_commit
from lake_orch.airflow.lineage import note_written
from lake_orch.airflow.links import set_links
from lake_orch.airflow.task_run import TaskRun
from lake_orch.assets.asset_format import (
    AssetFormat,
    AssetOutput,
    AssetWrite,
    Written,
    asset_format,
    asset_format_class,
)
from lake_orch.assets.owner import Owner
from lake_orch.assets.partitions import Dimension, Partitions, TimeWindow
from lake_orch.definition_metadata import REPLACE_WHERE
from lake_orch.errors import InvalidDefinition
from lake_pipes.metadata import ROWS_WRITTEN

if TYPE_CHECKING:
    from lake_core.workspace.session_writes import StagedWrites

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LakeWrite:
    """The write of one value that a task returns."""

    dataset: LakeDataset
    run: TaskRun
    workspace: StagedWrites
    format: AssetFormat
    output: AssetOutput

    @classmethod
    def begin(
        cls,
        dataset: LakeDataset,
        slice: str | DataInterval | None,
        mode: str | None,
        keys: Sequence[str] | None,
    ) -> LakeWrite:
        """Begin to write into a dataset. Its settings are checked first.

        Raises:
            InvalidDefinition: The settings contradict one another, the format has no such setting, or the run has
                published the dataset under the name of what its DAG has no longer.
        """
        run = TaskRun.writing_to(dataset.path, dataset.connection, dataset.branch)
        format = asset_format(dataset.format, {})
        output = _output(dataset, run, slice, mode, keys, get_current_context())
        format.check(output)
        replaces = _replaces(output)
        if not replaces:
            run.check_former(dataset.path)
        return cls(dataset, run, run.begin(replaces=replaces), format, output)

    def run_with(self, function: Callable[[], Any]) -> dict[str, Any] | None:
        """Call a function, write what it returns, and return a reference to it. None stands for nothing to write."""
        try:
            write = self._write(function)
        except AirflowSkipException:
            self._publish_nothing()
            raise
        if write is None:
            self._publish_nothing()
            return None
        published = None if self.run.own is None else self.run.publish_own()
        written = write()
        for warning in written.warnings:
            _log.warning("%s", warning)
        rows = written.metadata.get(ROWS_WRITTEN)
        if published is None:
            _log.info("%s: %s", self.output.subject, written.summary)
            session = self.workspace.receipt.session if self.workspace.receipt else None
            set_links(self.run.ti.task, self.run, session, path=self.dataset.path)
            self._note(session, written.metadata)
            return reference(self.dataset, self.run.branch, session, None, rows)
        session, head = published.published.session, published.published.commit
        _log.info("%s: published with commit %s of %s", self.output.subject, head[:12], self.run.branch)
        commit = published_commit(self.run, published)
        set_links(self.run.ti.task, self.run, session, commit, self.dataset.path)
        self._note(head, written.metadata)
        files = [] if self.format.is_dataset else [self.dataset.path]
        changes = (
            []
            if commit is None
            else changes_of_commit(self.run.lake, commit, self.run.branch, files, ui_url=self.run.ui_url)
        )
        for change in changes:
            if change.path == self.dataset.path:
                add_event(self.dataset.asset, change, get_current_context())
        return reference(self.dataset, self.run.branch, session, head, rows)

    def _write(self, function: Callable[[], Any]) -> Callable[[], Written] | None:
        """Write what a function returns, and return what describes it once it is published. None for nothing."""
        with self.workspace:
            value = function()
            if value is None:
                self.workspace.discard()
                _log.warning("%s returned nothing, so nothing was written to %s", self.run.shown, self.dataset.path)
                return None
            write: AssetWrite[Any] = self.format.write(value, self.output)
            with nullcontext() if write.logged is None else catch_warnings():
                if write.logged is not None:
                    simplefilter("always", write.logged)
                result = write.to(self.workspace)
        return partial(write.written, result, self.workspace)

    def _publish_nothing(self) -> None:
        """Take out what an earlier try has published, if the task publishes by itself."""
        if self.run.own is not None:
            self.run.publish_own(writes_nothing=True)

    def _note(self, version: str | None, metadata: Mapping[str, Any]) -> None:
        note_written(self.run.lake, self.dataset.connection, self.run.branch, self.dataset.path, version, metadata)


def _output(
    dataset: LakeDataset,
    run: TaskRun,
    slice: str | DataInterval | None,
    mode: str | None,
    keys: Sequence[str] | None,
    context: Any,
) -> AssetOutput:
    producer = f"task {run.shown}"
    metadata: dict[str, Any] = dict(dataset.settings())
    partitions: Partitions | None = None
    partition_keys: Sequence[str] = ()
    if mode is not None:
        metadata["lake/mode"] = mode
    if keys is not None:
        metadata["lake/merge"] = list(keys)
    if isinstance(slice, DataInterval):
        window = _interval(context, producer)
        metadata["partition_expr"] = slice.column
        partitions = Partitions({"": Dimension(lambda _: window)}, lambda key: {"": key})
        partition_keys = [window.start.isoformat()]
    elif slice is not None:
        if REPLACE_WHERE not in asset_format_class(dataset.format).names.output:
            raise InvalidDefinition(
                f"the slice of {producer} is SQL, and {dataset.path} is no table: use a DataInterval, such as "
                "slice=DataInterval('time')"
            )
        metadata[REPLACE_WHERE] = slice
    return AssetOutput(
        producer=producer,
        asset_key=dataset.path.split("/"),
        metadata=metadata,
        partitions=partitions,
        keys=partition_keys,
        owner=Owner(f"{run.ti.dag_id}", "airflow"),
    )


def _replaces(output: AssetOutput) -> bool:
    """Return whether a write replaces what an earlier one of the same task wrote: all but appends do."""
    return output.metadata.get("lake/mode") != "append" and "lake/append_dim" not in output.metadata


def _interval(context: Mapping[str, Any], producer: str) -> TimeWindow:
    """Return the data interval of the run. Raises InvalidDefinition for a run without one."""
    start, end = context.get("data_interval_start"), context.get("data_interval_end")
    if start is None or end is None or start == end:
        raise InvalidDefinition(
            f"{producer} writes the slice of its data interval, and this run has none, as runs by hand, by assets and "
            "by schedules such as '@daily': schedule the DAG by a CronDataIntervalTimetable, or name the slice in SQL"
        )
    return TimeWindow(datetime.fromisoformat(start.isoformat()), datetime.fromisoformat(end.isoformat()))
