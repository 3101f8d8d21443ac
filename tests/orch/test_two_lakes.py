"""A run that uses two lakes: its session is in one, and the other publishes by asset, or refuses before it writes."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.errors import LakeError
from lake_orch import DeltaIOManager, FileIOManager, LakeResource, PoolIOManager, lake_executor, testing
from lake_orch.errors import OtherLake

Runner = Callable[..., dg.ExecuteInProcessResult]
MANAGERS: dict[str, Any] = {"table": DeltaIOManager, "pool": PoolIOManager, "files": FileIOManager}


def _lakes(folder: Path, scope: str) -> tuple[LakeResource, LakeResource]:
    for name in ("one", "other"):
        Lake.create(folder / name)
    first = LakeResource(root=str(folder / "one"), scope="run")
    return first, LakeResource(root=str(folder / "other"), scope=scope)  # type: ignore[arg-type]


@dg.asset
def a() -> pa.Table:
    return pa.table({"v": [1]})


@dg.asset(io_manager_key="second")
def b(a: pa.Table) -> pa.Table:
    return a


@dg.asset(io_manager_key="second")
def text(a: pa.Table) -> str:
    return f"{len(a)} rows"


def _resources(first: LakeResource, second: LakeResource, kind: str = "table") -> dict[str, Any]:
    return {"io_manager": DeltaIOManager(lake=first), "second": MANAGERS[kind](lake=second), "lake": first}


RUNNERS: dict[str, Runner] = {"session": testing.materialize, "bare": dg.materialize}


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("kind", MANAGERS)
def test_a_second_lake_of_runs_refuses_before_it_is_written(tmp_path: Path, kind: str, run: str) -> None:
    first, second = _lakes(tmp_path, "run")
    with pytest.raises(OtherLake) as caught:
        RUNNERS[run]([a, text if kind == "files" else b], resources=_resources(first, second, kind))
    assert first.root in str(caught.value)
    assert second.root in str(caught.value)
    assert [len(Lake.open(lake.root).list_datasets()) for lake in (first, second)] == [0, 0]
    assert {path.name for path in Path(second.root).iterdir()} == {"_lake"}


@pytest.mark.parametrize("run", RUNNERS)
@pytest.mark.parametrize("kind", MANAGERS)
def test_a_second_lake_of_assets_publishes_each_asset(tmp_path: Path, kind: str, run: str) -> None:
    first, second = _lakes(tmp_path, "asset")
    assert RUNNERS[run]([a, text if kind == "files" else b], resources=_resources(first, second, kind)).success
    assert Lake.open(first.root).delta("tables/a").to_arrow()["v"].to_pylist() == [1]
    assert [len(list(Lake.open(lake.root).log())) for lake in (first, second)] == [2, 2]


def test_a_failed_run_keeps_what_the_second_lake_published(tmp_path: Path) -> None:
    @dg.asset(deps=[b])
    def fails() -> pa.Table:
        raise ValueError("broken")

    first, second = _lakes(tmp_path, "asset")
    with pytest.raises(ValueError, match="broken"):
        testing.materialize([a, b, fails], resources=_resources(first, second))
    assert [len(Lake.open(lake.root).list_datasets()) for lake in (first, second)] == [0, 1]


def test_a_run_reads_a_second_lake_of_runs(tmp_path: Path) -> None:
    first, second = _lakes(tmp_path, "run")
    with Lake.open(second.root).session() as session:
        session.create_delta("tables/b", pa.schema([("v", pa.int64())])).append(pa.table({"v": [7]}))

    @dg.asset
    def reads(b: pa.Table) -> pa.Table:
        return b

    resources = _resources(first, second)
    upstream = dg.AssetSpec("b", metadata={"dagster/io_manager_key": "second"})
    assert testing.materialize([upstream, reads], resources=resources, selection=[reads]).success
    assert Lake.open(first.root).delta("tables/reads").to_arrow()["v"].to_pylist() == [7]


@pytest.mark.parametrize("order", [0, 1])
def test_the_code_of_a_step_may_use_both_lakes(tmp_path: Path, order: int) -> None:
    lakes = _lakes(tmp_path, "asset")

    @dg.asset
    def both(context: dg.AssetExecutionContext, lake: LakeResource, other: LakeResource) -> None:
        for each in (lake, other) if order else (other, lake):
            each.table(context, "tables/x").append(pa.table({"v": [1]}))

    assert testing.materialize([both], resources={"lake": lakes[0], "other": lakes[1]}).success
    assert [Lake.open(lake.root).delta("tables/x").to_arrow().num_rows for lake in lakes] == [1, 1]


def test_under_the_executor_the_run_fails_and_names_both_lakes(tmp_path: Path) -> None:
    first, second = _lakes(tmp_path, "run")
    definitions = dg.Definitions(assets=[a, b], resources=_resources(first, second), executor=lake_executor)
    job = definitions.resolve_implicit_global_asset_job_def()
    with pytest.raises(LakeError, match="one session of the lake"):
        testing.execute_in_process(job)
