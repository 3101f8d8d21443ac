"""Declarative automation that waits for what is published."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_orch import DeltaIOManager, GateFailed, LakeResource, lake_eager, testing

ROWS = pa.table({"day": ["a"], "id": [1]})
PARTS = dg.StaticPartitionsDefinition(["a", "b"])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def definitions(root: Path, condition: Any, partitions: dg.PartitionsDefinition[Any] | None = None) -> dg.Definitions:
    metadata = {"partition_expr": "day"} if partitions else {}

    @dg.asset(partitions_def=partitions, metadata=metadata)
    def upstream(context: dg.AssetExecutionContext) -> pa.Table:
        return ROWS if not partitions else pa.table({"day": [context.partition_key], "id": [1]})

    @dg.asset_check(asset=upstream)
    def fine() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    @dg.asset(deps=[upstream], partitions_def=partitions, automation_condition=condition)
    def downstream() -> None: ...

    return dg.Definitions(
        assets=[upstream, downstream], asset_checks=[fine], resources={"lake": LakeResource(root=str(root))}
    )


class Automation:
    def __init__(self, root: Path, instance: dg.DagsterInstance, condition: Any, partitions: Any = None) -> None:
        self.lake, self.instance = Lake.create(root), instance
        self.defs = definitions(root, condition, partitions)
        self.resource = LakeResource(root=str(root))
        self.cursor: Any = None

    def materialize(self, **options: Any) -> Any:
        upstream, fine = next(iter(self.defs.assets or ())), *(self.defs.asset_checks or ())
        resources = {"io_manager": DeltaIOManager(lake=self.resource), "lake": self.resource}
        return testing.materialize([upstream, fine], resources=resources, instance=self.instance, **options)

    def tick(self) -> int:
        result = dg.evaluate_automation_conditions(self.defs, self.instance, cursor=self.cursor)
        self.cursor = result.cursor
        return result.get_num_requested(dg.AssetKey("downstream"))


@pytest.mark.parametrize(("condition", "early"), [(dg.AutomationCondition.eager(), 1), (lake_eager(), 0)])
def test_what_was_not_published_starts_nothing(
    tmp_path: Path, instance: dg.DagsterInstance, condition: Any, early: int
) -> None:
    automation = Automation(tmp_path / "lake", instance, condition)
    assert automation.tick() == 0
    with pytest.raises(GateFailed):
        automation.materialize(gate="error")
    assert automation.tick() == early, "Dagster's own condition looks at materializations alone"
    (session,) = automation.lake.list_sessions()
    if not early:
        automation.materialize(gate="none", resume=session.id, selection=["upstream"])
        assert automation.tick() == 1
        assert automation.tick() == 0


def test_of_partitions_those_that_are_published(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    automation = Automation(tmp_path / "lake", instance, lake_eager(), PARTS)
    automation.tick()
    automation.materialize(gate="none", partition_key="a", selection=["upstream"])
    with pytest.raises(GateFailed):
        automation.materialize(gate="error", partition_key="b")
    assert automation.tick() == 1
    assert automation.tick() == 0
