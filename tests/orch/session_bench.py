"""What the tests of sessions share: an instance, a lake, and runs of the pipeline in `session_pipeline`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import dagster as dg

from lake_core import Lake
from lake_core.delta import DeltaTable

ALL = ["lines", "orders", "stock", "totals"]


class Bench:
    """An instance, a lake, and what the pipeline is to do."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder, instance
        self.lake = Lake.create(folder / "lake")

    def wish(self, **wishes: Any) -> None:
        (self.folder / "wish.json").write_text(json.dumps(wishes))

    def job(self, name: str = "all", in_process: bool = True) -> Any:
        kwargs = {"folder": str(self.folder), "name": name, "in_process": in_process}
        return dg.build_reconstructable_job("tests.orch.session_pipeline", "job", reconstructable_kwargs=kwargs)

    def run(
        self, name: str = "all", *, tags: dict[str, str] | None = None, in_process: bool = True, **options: Any
    ) -> dg.DagsterRun:
        with dg.execute_job(self.job(name, in_process), instance=self.instance, tags=tags, **options) as result:
            return self.run_of(result.run_id)

    def resume(self, run: dg.DagsterRun, name: str = "all") -> dg.DagsterRun:
        return self.run(name, reexecution_options=dg.ReexecutionOptions.from_failure(run.run_id, self.instance))

    def run_of(self, id: str) -> dg.DagsterRun:
        run = self.instance.get_run_by_id(id)
        assert run is not None
        return run

    def rows(self, table: str, ref: str = "main") -> list[str]:
        """Return the rows of a table as strings of origin and id."""
        state = self.lake.at(ref)
        if f"tables/{table}" not in state.datasets():
            return []
        data = state.delta(f"tables/{table}").to_arrow()
        return sorted(f"{of}-{id}" for of, id in zip(data["of"].to_pylist(), data["id"].to_pylist(), strict=True))

    def plain(self, table: str) -> int:
        """Return how many rows a plain Delta reader finds."""
        url = f"{self.folder}/lake/tables/{table}"
        return len(DeltaTable.open(url).to_arrow()) if DeltaTable.exists(url) else 0

    def session(self, run: dg.DagsterRun) -> str:
        return run.tags["lake/session"]

    def state(self, run: dg.DagsterRun) -> str:
        return self.lake.get_session(self.session(run)).record.state

    def error(self, run: dg.DagsterRun) -> str:
        entries = self.instance.all_logs(run.run_id)
        return "\n".join(str(entry.dagster_event.event_specific_data) for entry in entries if entry.dagster_event)


def of(step: str, round_number: int = 0, times: int = 1) -> list[str]:
    return sorted([f"{step}{round_number}-{id}" for id in range(3)] * times)
