"""Declarative automation that waits for what is published."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_orch import DeltaIOManager, GateFailed, LakeResource, LakeUnpublished, lake_eager, testing
from lake_orch.dagster.runs.visibility import awaited

ROWS = pa.table({"day": ["a"], "id": [1]})
PARTS = dg.StaticPartitionsDefinition(["a", "b"])


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


def definitions(
    root: Path,
    condition: Any,
    partitions: dg.PartitionsDefinition[Any] | None = None,
    mapping: dg.PartitionMapping | None = None,
    **resources: Any,
) -> dg.Definitions:
    metadata = {"partition_expr": "day"} if partitions else {}

    @dg.asset(partitions_def=partitions, metadata=metadata)
    def upstream(context: dg.AssetExecutionContext) -> pa.Table:
        return ROWS if not partitions else pa.table({"day": [context.partition_key], "id": [1]})

    @dg.asset_check(asset=upstream)
    def fine() -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=False)

    dependency = dg.AssetDep(upstream, partition_mapping=mapping)

    @dg.asset(deps=[dependency], partitions_def=partitions, automation_condition=condition)
    def downstream() -> None: ...

    return dg.Definitions(
        assets=[upstream, downstream],
        asset_checks=[fine],
        resources=resources or {"io_manager": DeltaIOManager(lake=LakeResource(root=str(root)))},
    )


class Automation:
    def __init__(
        self, root: Path, instance: dg.DagsterInstance, condition: Any, partitions: Any = None, **options: Any
    ) -> None:
        self.lake, self.instance = Lake.create(root), instance
        self.defs = definitions(root, condition, partitions, **options)
        self.resource = LakeResource(root=str(root))
        self.cursor: Any = None

    def materialize(self, **options: Any) -> Any:
        upstream, fine = next(iter(self.defs.assets or ())), *(self.defs.asset_checks or ())
        resources = {"io_manager": DeltaIOManager(lake=self.resource), "lake": self.resource}
        return testing.materialize([upstream, fine], resources=resources, instance=self.instance, **options)

    def materialize_by_asset(self, **options: Any) -> Any:
        """Materialize in a run that publishes each asset by itself."""
        upstream, *_ = self.defs.assets or ()
        resources = {"io_manager": DeltaIOManager(lake=self.resource), "lake": self.resource}
        return dg.materialize([upstream], resources=resources, instance=self.instance, **options)

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


def test_what_was_abandoned_is_not_waited_for(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    automation = Automation(tmp_path / "lake", instance, lake_eager())
    automation.tick()
    automation.materialize(gate="none", selection=["upstream"])
    with pytest.raises(GateFailed):
        automation.materialize(gate="error")
    assert automation.tick() == 0
    (session,) = automation.lake.list_sessions()
    automation.lake.get_session(session.id).abandon()
    assert automation.tick() == 1, "main has rows that nobody has read"


def test_of_partitions_those_that_are_published(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    automation = Automation(tmp_path / "lake", instance, lake_eager(), PARTS)
    automation.tick()
    automation.materialize(gate="none", partition_key="a", selection=["upstream"])
    with pytest.raises(GateFailed):
        automation.materialize(gate="error", partition_key="b")
    assert automation.tick() == 1
    assert automation.tick() == 0


# What is published later than the asset with the condition was made


class Staged(Automation):
    """A lake with an update of the upstream asset that is staged in a session."""

    def stage(self, **options: Any) -> None:
        assert not self._make_with_another(fails=True, raise_on_error=False, **options).success

    def publish(self, **options: Any) -> None:
        (session,) = self.lake.list_sessions()
        self._make_with_another(fails=False, resume=session.id, selection=["another"], **options)

    def _make_with_another(self, *, fails: bool, **options: Any) -> dg.ExecuteInProcessResult:
        assets: list[Any] = list(self.defs.assets or ())
        upstream = assets[0]

        @dg.asset(partitions_def=upstream.partitions_def)
        def another() -> None:
            if fails:
                raise ValueError

        resources = {"io_manager": DeltaIOManager(lake=self.resource), "lake": self.resource}
        return testing.materialize([upstream, another], resources=resources, instance=self.instance, **options)

    def make_downstream(self, partition: str = "a") -> None:
        assets: list[Any] = list(self.defs.assets or ())
        downstream = assets[1]
        resources = {"io_manager": DeltaIOManager(lake=self.resource)}
        key = partition if downstream.partitions_def else None
        assert dg.materialize([downstream], resources=resources, instance=self.instance, partition_key=key).success


@pytest.mark.parametrize("looks", ["always", "before the publish", "after the publish", "never"])
@pytest.mark.parametrize("partitions", [None, PARTS], ids=["whole", "partitioned"])
def test_a_publish_counts_that_is_later_than_the_last_run(
    tmp_path: Path, instance: dg.DagsterInstance, looks: str, partitions: Any
) -> None:
    automation = Staged(tmp_path / "lake", instance, lake_eager(), partitions)
    options = {} if partitions is None else {"partition_key": "a"}
    automation.tick()
    automation.materialize(gate="none", selection=["upstream"], **options)
    assert automation.tick() == 1
    automation.stage(**options)
    if looks in ("always", "after the publish"):
        assert automation.tick() == 0
    automation.make_downstream()
    if looks in ("always", "before the publish"):
        assert automation.tick() == 0
    automation.publish(**options)
    assert [automation.tick() for _ in range(3)] == [1, 0, 0], "it has read the rows before"


SHIFTED = dg.StaticPartitionMapping({"a": "b"})


@pytest.mark.parametrize(
    ("mapping", "made", "requested"),
    [
        pytest.param(None, "a", 0, id="the same partition, after the publish"),
        pytest.param(None, "b", 1, id="another partition"),
        pytest.param(SHIFTED, "b", 0, id="the next partition, after the publish"),
        pytest.param(SHIFTED, "a", 1, id="the same partition, which is not made of it"),
    ],
)
def test_of_partitions_those_count_that_are_made_of_what_is_published(
    tmp_path: Path, instance: dg.DagsterInstance, mapping: dg.PartitionMapping | None, made: str, requested: int
) -> None:
    automation = Staged(tmp_path / "lake", instance, lake_eager(), PARTS, mapping=mapping)
    for partition in ("a", "b"):
        automation.materialize(gate="none", selection=["upstream"], partition_key=partition)
        automation.make_downstream(partition)
    automation.tick()
    automation.stage(partition_key="a")
    assert automation.tick() == 0
    for partition in ("a", "b"):
        automation.make_downstream(partition)
    assert automation.tick() == 0
    automation.publish(partition_key="a")
    automation.make_downstream(made)
    assert [automation.tick() for _ in range(2)] == [requested, 0]


def test_what_was_made_after_the_publish_is_up_to_date(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    automation = Staged(tmp_path / "lake", instance, lake_eager())
    automation.tick()
    automation.stage()
    automation.tick()
    automation.publish()
    automation.make_downstream()
    assert [automation.tick() for _ in range(2)] == [0, 0]


def test_a_publish_of_both_assets_starts_nothing(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    automation = Automation(tmp_path / "lake", instance, lake_eager())
    automation.tick()
    upstream, downstream = automation.defs.assets or ()
    resources = {"io_manager": DeltaIOManager(lake=automation.resource), "lake": automation.resource}
    assert testing.materialize([upstream, downstream], resources=resources, instance=instance).success
    assert [automation.tick() for _ in range(2)] == [0, 0]


@pytest.mark.parametrize("looks", [True, False])
def test_a_merge_counts_that_is_later_than_the_last_run(
    tmp_path: Path, instance: dg.DagsterInstance, looks: bool
) -> None:
    automation = Staged(tmp_path / "lake", instance, lake_eager())
    automation.materialize(gate="none", selection=["upstream"])
    automation.tick()
    automation.lake.create_branch("pr")
    automation.materialize(tags={"lake/branch": "pr"}, gate="none", selection=["upstream"])
    assert automation.tick() == 0
    automation.make_downstream()
    if looks:
        assert automation.tick() == 0
    automation.lake.merge("pr")
    assert [automation.tick() for _ in range(2)] == [1, 0]


# On branches


@pytest.fixture
def branched(tmp_path: Path, instance: dg.DagsterInstance) -> Automation:
    automation = Automation(tmp_path / "lake", instance, lake_eager())
    automation.materialize(selection=["upstream"])
    automation.tick()
    automation.lake.create_branch("pr")
    return automation


def merge(lake: Lake) -> None:
    lake.merge("pr")


def squash(lake: Lake) -> None:
    lake.merge("pr", squash=True)
    lake.delete_branch("pr")


def pick(lake: Lake) -> None:
    lake.cherry_pick("pr", onto="main")
    lake.delete_branch("pr")


@pytest.mark.parametrize("bring", [merge, squash, pick])
@pytest.mark.parametrize("scope", ["run", "asset"])
def test_what_another_branch_has_starts_a_run_once_main_has_it(branched: Automation, bring: Any, scope: str) -> None:
    materialize = branched.materialize if scope == "run" else branched.materialize_by_asset
    assert materialize(tags={"lake/branch": "pr"}, selection=["upstream"]).success
    assert [branched.tick(), branched.tick()] == [0, 0]
    bring(branched.lake)
    assert [branched.tick(), branched.tick()] == [1, 0]


def test_a_branch_that_was_deleted_is_not_waited_for(branched: Automation) -> None:
    branched.materialize(selection=["upstream"])
    branched.materialize(tags={"lake/branch": "pr"}, selection=["upstream"])
    assert branched.tick() == 0
    branched.lake.delete_branch("pr")
    assert [branched.tick(), branched.tick()] == [1, 0], "main has rows that nobody has read"


def test_of_partitions_on_a_branch_those_that_were_picked(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    automation = Automation(tmp_path / "lake", instance, lake_eager(), PARTS)
    automation.tick()
    automation.lake.create_branch("pr")
    for partition in ("a", "b"):
        automation.materialize(partition_key=partition, tags={"lake/branch": "pr"}, selection=["upstream"])
    assert automation.tick() == 0
    automation.lake.cherry_pick("pr~1", onto="main")
    assert [automation.tick(), automation.tick()] == [1, 0]
    automation.lake.merge("pr")
    assert [automation.tick(), automation.tick()] == [1, 0]


def test_the_branch_is_that_of_the_resource(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    lake = LakeResource(root=str(tmp_path / "lake"), branch="stage", branch_from="main")
    io_manager = DeltaIOManager(lake=lake)
    automation = Automation(tmp_path / "lake", instance, lake_eager(), None, io_manager=io_manager)
    automation.lake.create_branch("stage")
    automation.tick()
    automation.materialize(selection=["upstream"])  # on main
    assert automation.tick() == 0
    automation.lake.merge("main", into="stage")
    assert [automation.tick(), automation.tick()] == [1, 0]
    automation.materialize(tags={"lake/branch": "stage"}, selection=["upstream"])
    assert automation.tick() == 1


@pytest.mark.parametrize(
    "resources",
    [
        {"other": dg.ResourceDefinition.hardcoded_resource(1)},
        {"io_manager": DeltaIOManager(lake=LakeResource(root="/no/such/lake"))},
        {"io_manager": DeltaIOManager(lake=LakeResource(root=dg.EnvVar("NO_SUCH_ROOT")))},
    ],
)
def test_without_a_lake_to_ask_what_is_on_another_branch_waits(
    tmp_path: Path, instance: dg.DagsterInstance, resources: Any, caplog: pytest.LogCaptureFixture
) -> None:
    automation = Automation(tmp_path / "lake", instance, lake_eager(), None, **resources)
    automation.tick()
    automation.materialize(selection=["upstream"])
    assert automation.tick() == 1, "on main it needs no lake"
    automation.lake.create_branch("pr")
    automation.materialize(tags={"lake/branch": "pr"}, selection=["upstream"])
    assert automation.tick() == 0
    assert "counts as unpublished" in caplog.text


@pytest.mark.parametrize("branch", ["main", "pr"])
def test_the_lake_is_opened_once_an_evaluation(
    branched: Automation, monkeypatch: pytest.MonkeyPatch, branch: str
) -> None:
    branched.materialize(tags={"lake/branch": branch}, selection=["upstream"])
    reads: list[object] = []
    read = Lake._open.__func__  # type: ignore[attr-defined]
    monkeypatch.setattr(Lake, "_open", classmethod(lambda cls, *a: (reads.append(a), read(cls, *a))[1]))
    branched.tick()
    assert len(reads) == 1


# Virtual assets between them


def test_an_asset_is_looked_up_once_an_evaluation(
    tmp_path: Path, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three conditions ask for it."""
    automation = Automation(tmp_path / "lake", instance, lake_eager())
    keys: list[dg.AssetKey] = []

    def counted(instance: dg.DagsterInstance, key: dg.AssetKey, branch: Any) -> Any:
        keys.append(key)
        return awaited(instance, key, branch)

    monkeypatch.setattr("lake_orch.automation.awaited", counted)
    for tick in range(1, 4):
        automation.tick()
        assert keys == [dg.AssetKey("upstream")] * tick


@pytest.mark.parametrize(
    ("resolves", "early"), [(True, 0), (False, 1)], ids=["both parts resolve", "only Dagster's part does"]
)
def test_both_parts_of_a_condition_look_through_virtual_assets(
    tmp_path: Path, instance: dg.DagsterInstance, resolves: bool, early: int
) -> None:
    waiting: Any = dg.AutomationCondition.any_deps_match(LakeUnpublished())
    waiting = waiting.resolve_through_virtual() if resolves else waiting
    condition = dg.AutomationCondition.eager().resolve_through_virtual() & ~waiting
    automation = Automation(tmp_path / "lake", instance, None)
    upstream, _ = automation.defs.assets or ()
    view = dg.AssetSpec("view", deps=[upstream], is_virtual=True)

    @dg.asset(deps=[view], automation_condition=condition)
    def downstream() -> None: ...

    automation.defs = dg.Definitions([upstream, view, downstream], asset_checks=automation.defs.asset_checks or ())
    assert automation.tick() == 0
    with pytest.raises(GateFailed):
        automation.materialize(gate="error")
    assert automation.tick() == early
