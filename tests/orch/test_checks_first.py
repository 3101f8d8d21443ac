"""A blocking check of a step keeps that step's own output from being published, once its result goes first."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import DeltaIOManager, LakeResource, checks_first

ROWS = pa.table({"n": [1, 2]})


@pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.exhaustive), "lake"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "lake":
        Lake.create(tmp_path / "lake")
    return str(tmp_path / "lake")


def run(root: str, *assets: Any) -> dg.ExecuteInProcessResult:
    lake = LakeResource(root=root)
    return dg.materialize(
        list(assets), resources={"io_manager": DeltaIOManager(lake=lake), "lake": lake}, raise_on_error=False
    )


def written(root: str, name: str = "checked") -> int:
    url = f"{root}/tables/{name}"
    return DeltaTable.open(url).to_arrow().num_rows if DeltaTable.exists(url) else 0


def error(result: dg.ExecuteInProcessResult) -> str:
    return "".join(event.step_failure_data.error.to_string() for event in result.get_step_failure_events())


SPECS = [dg.AssetCheckSpec("fine", asset="checked", blocking=True), dg.AssetCheckSpec("aside", asset="checked")]


def results(passed: bool) -> list[dg.AssetCheckResult]:
    return [
        dg.AssetCheckResult(passed=passed, check_name="fine"),
        dg.AssetCheckResult(passed=False, check_name="aside"),
    ]


# The same asset, declared in each way that Dagster allows.


def returning(passed: bool) -> Callable[..., Any]:
    def checked(context: dg.AssetExecutionContext):
        return dg.MaterializeResult(value=ROWS, check_results=results(passed), metadata={"mine": 7})

    return checked


def yielding(passed: bool) -> Callable[..., Any]:
    def checked() -> Iterator[Any]:
        yield dg.Output(ROWS, metadata={"mine": 7})
        yield from results(passed)

    return checked


def yielding_together(passed: bool) -> Callable[..., Any]:
    def checked():
        yield dg.MaterializeResult(asset_key="checked", value=ROWS, check_results=results(passed), metadata={"mine": 7})

    return checked


def returning_async(passed: bool) -> Callable[..., Any]:
    async def checked():
        return dg.MaterializeResult(value=ROWS, check_results=results(passed), metadata={"mine": 7})

    return checked


def yielding_async(passed: bool) -> Callable[..., Any]:
    async def checked():
        yield dg.Output(ROWS, metadata={"mine": 7})
        for result in results(passed):
            yield result

    return checked


WAYS = [returning, yielding, yielding_together, returning_async, yielding_async]


@pytest.mark.parametrize("way", WAYS)
def test_a_blocking_check_of_the_step_gates_its_output(root: str, way: Callable[[bool], Any]) -> None:
    for passed in (False, True):
        result = run(root, dg.asset(checks_first(way(passed)), name="checked", check_specs=SPECS))
        assert result.success is passed
        assert written(root) == (2 if passed else 0)
        checks = {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}
        assert checks == {"fine": passed, "aside": False}, "results are recorded either way"
    assert "GateFailed" not in error(result)
    (event,) = result.get_asset_materialization_events()
    assert event.materialization.metadata["mine"].value == 7


@pytest.mark.parametrize("way", WAYS)
def test_undecorated_its_check_comes_too_late(root: str, way: Callable[[bool], Any]) -> None:
    result = run(root, dg.asset(way(True), name="checked", check_specs=SPECS))
    assert not result.success
    assert "CheckPending" in error(result)
    assert "checks_first" in error(result)
    assert written(root) == 0


def test_of_several_assets_each_is_gated_by_its_own(root: str) -> None:
    specs = [dg.AssetCheckSpec("fine", asset=name, blocking=True) for name in ("good", "bad")]

    @dg.multi_asset(outs={"good": dg.AssetOut(), "bad": dg.AssetOut()}, check_specs=specs)
    @checks_first
    def both():
        for name in ("good", "bad"):
            check = dg.AssetCheckResult(passed=name == "good", asset_key=name)
            yield dg.MaterializeResult(asset_key=name, value=ROWS, check_results=[check])

    result = run(root, both)
    assert not result.success
    assert "asset bad is not published" in error(result)
    assert (written(root, "good"), written(root, "bad")) == (2, 0)


def test_what_dagster_sees_of_a_function_stays(root: str) -> None:
    class Config(dg.Config):
        rows: int = 3

    @dg.asset
    def upstream() -> pa.Table:
        return ROWS

    @dg.asset(check_specs=[dg.AssetCheckSpec("fine", asset="checked", blocking=True)])
    @checks_first
    def checked(context: dg.AssetExecutionContext, config: Config, upstream: pa.Table, lake: LakeResource):
        """What it is."""
        assert isinstance(lake, LakeResource)
        assert context.asset_key == dg.AssetKey("checked")
        return dg.MaterializeResult(
            value=upstream.slice(0, config.rows - 2), check_results=[dg.AssetCheckResult(passed=True)]
        )

    assert set(checked.keys_by_input_name.values()) == {dg.AssetKey("upstream")}
    assert checked.descriptions_by_key[dg.AssetKey("checked")] == "What it is."
    assert run(root, upstream, checked).success
    assert written(root) == 1


def test_called_by_hand_it_returns_what_it_returns() -> None:
    function = checks_first(returning(True))
    result = function(None)
    assert isinstance(result, dg.MaterializeResult)
    assert len(result.check_results) == 2
