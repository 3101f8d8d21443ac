"""A Dagster in one process that is asked as its UI asks: by GraphQL, with the daemon's iterations of backfills."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.remote_origin import InProcessCodeLocationOrigin
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin
from dagster._core.workspace.context import WorkspaceProcessContext
from dagster._core.workspace.load_target import InProcessWorkspaceLoadTarget
from dagster._daemon.backfill import execute_backfill_iteration
from dagster_graphql.test.utils import execute_dagster_graphql

_CONFIG = """
telemetry: {enabled: false}
run_launcher: {module: dagster._core.launcher.sync_in_memory_run_launcher, class: SyncInMemoryRunLauncher}
run_coordinator: {module: dagster._core.run_coordinator.default_run_coordinator, class: DefaultRunCoordinator}
"""
_ERROR = "... on PythonError { message }"
_RUN = f"{{ __typename ... on LaunchRunSuccess {{ run {{ runId }} }} {_ERROR} }}"
_BACKFILL = f"{{ __typename ... on LaunchBackfillSuccess {{ backfillId }} {_ERROR} }}"


class UserInterface:
    """The buttons of the UI."""

    def __init__(self, instance: dg.DagsterInstance, context: Any) -> None:
        self.instance, self._context = instance, context

    def launch(
        self,
        assets: Sequence[str] | None = None,
        partition: str | None = None,
        *,
        job: str = "__ASSET_JOB",
        **tags: str,
    ) -> dg.DagsterRun:
        """Launch a run, as "Materialize" or the launchpad does. In names of tags, __ stands for a slash."""
        all_tags = _tags(tags) | ({"dagster/partition": partition} if partition else {})
        selector: dict[str, Any] = {
            "repositoryName": "__repository__",
            "repositoryLocationName": "here",
            "pipelineName": job,
        }
        if assets is not None:
            selector["assetSelection"] = [{"path": asset.split("/")} for asset in assets]
        params = {"selector": selector, "mode": "default", "executionMetadata": {"tags": _pairs(all_tags)}}
        query = f"mutation L($p: ExecutionParams!) {{ launchPipelineExecution(executionParams: $p) {_RUN} }}"
        return self._run(self._ask(query, params)["run"]["runId"])

    def again(self, run: dg.DagsterRun, strategy: str = "FROM_FAILURE") -> dg.DagsterRun:
        """Re-execute a run."""
        query = f"mutation A($p: ReexecutionParams!) {{ launchRunReexecution(reexecutionParams: $p) {_RUN} }}"
        return self._run(self._ask(query, {"parentRunId": run.run_id, "strategy": strategy})["run"]["runId"])

    def backfill(self, assets: Sequence[str], partitions: Sequence[str], **tags: str) -> str:
        """Backfill assets, until the daemon has nothing left to do."""
        params = {
            "tags": _pairs(_tags(tags)),
            "partitionNames": list(partitions),
            "assetSelection": [{"path": asset.split("/")} for asset in assets],
        }
        query = f"mutation B($p: LaunchBackfillParams!) {{ launchPartitionBackfill(backfillParams: $p) {_BACKFILL} }}"
        return self._wait(self._ask(query, params)["backfillId"])

    def backfill_again(self, backfill: str, strategy: str = "FROM_FAILURE") -> str:
        """Re-execute a backfill."""
        query = (
            f"mutation R($p: ReexecutionParams!) {{ reexecutePartitionBackfill(reexecutionParams: $p) {_BACKFILL} }}"
        )
        return self._wait(self._ask(query, {"parentRunId": backfill, "strategy": strategy})["backfillId"])

    def errors(self, run: dg.DagsterRun) -> str:
        """Return the errors in the log of a run."""
        entries = self.instance.all_logs(run.run_id)
        return "\n".join(str(entry.dagster_event.event_specific_data) for entry in entries if entry.dagster_event)

    def _ask(self, query: str, params: Any) -> Any:
        (answer,) = execute_dagster_graphql(self._context.create_request_context(), query, {"p": params}).data.values()
        assert answer["__typename"].endswith("Success"), answer
        return answer

    def _wait(self, backfill: str) -> str:
        for _ in range(50):
            list(execute_backfill_iteration(self._context, logging.getLogger("quiet")))
            record = self.instance.get_backfill(backfill)
            if record is not None and record.status.value not in ("REQUESTED", "CANCELING", "FAILING"):
                break
        return backfill

    def _run(self, id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(id)
        assert run is not None
        return run


@contextmanager
def user_interface(folder: Path, script: Path) -> Iterator[UserInterface]:
    """Start Dagster in a folder, with the definitions `defs` of a script."""
    folder.mkdir(exist_ok=True)
    (folder / "dagster.yaml").write_text(_CONFIG)
    target = LoadableTargetOrigin(
        executable_path=sys.executable, python_file=str(script), attribute="defs", working_directory=str(script.parent)
    )
    origin = InProcessCodeLocationOrigin(target, location_name="here")
    with ExitStack() as stack:
        instance = stack.enter_context(dg.DagsterInstance.from_config(str(folder)))
        context = stack.enter_context(WorkspaceProcessContext(instance, InProcessWorkspaceLoadTarget(origin)))
        yield UserInterface(instance, context)


def _tags(tags: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "/"): value for name, value in tags.items()}


def _pairs(tags: dict[str, str]) -> list[dict[str, str]]:
    return [{"key": key, "value": value} for key, value in tags.items()]
