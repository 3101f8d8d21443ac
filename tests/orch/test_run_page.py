"""What the pages of a run and of an asset say: the publish of each partition, and what a failed run leaves.

They say nothing that goes stale.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pyarrow as pa
import pytest
import xarray as xr
from dagster._core.storage.tags import TagType, get_tag_type

from lake_core import Lake
from lake_orch import DeltaIOManager, GateFailed, IcechunkIOManager, LakeResource, lake_job, testing
from lake_orch.dagster.runs.recovery import settle
from lake_orch.tags import EPOCH_TAG
from tests.orch.session_bench import ALL, Bench

DAYS = dg.DailyPartitionsDefinition("2025-01-01", end_date="2025-01-11")
TEXT_DAYS = dg.DailyPartitionsDefinition("2024-01-01", end_date="2025-11-21")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake.create(tmp_path / "lake")


@pytest.fixture
def io(tmp_path: Path, lake: Lake) -> dict[str, Any]:
    resource = LakeResource(root=str(tmp_path / "lake"))
    return {"io_manager": DeltaIOManager(lake=resource), "lake": resource}


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@dg.asset(partitions_def=DAYS, metadata={"partition_expr": "day"}, backfill_policy=dg.BackfillPolicy.single_run())
def sales(context: dg.AssetExecutionContext) -> pa.Table:
    return pa.table({"day": list(context.partition_keys), "amount": [1] * len(context.partition_keys)})


@dg.asset_check(asset=sales)
def never() -> dg.AssetCheckResult:
    return dg.AssetCheckResult(passed=False)


def days(first: str, last: str) -> dict[str, str]:
    return {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last}


def values(event: Any) -> dict[str, Any]:
    return {name: value.value for name, value in event.metadata.items()}


def materializations(instance: dg.DagsterInstance, key: str) -> list[dict[str, Any]]:
    records = instance.fetch_materializations(dg.AssetKey(key), limit=50).records
    return [values(record.event_log_entry.asset_materialization) for record in records]


def observations(instance: dg.DagsterInstance, key: str) -> list[tuple[str, dg.AssetObservation]]:
    """Return the run and the event of each observation, newest first."""
    records = instance.fetch_observations(dg.AssetKey(key), limit=50).records
    pairs = [(record.run_id, record.event_log_entry.asset_observation) for record in records]
    return [(run, event) for run, event in pairs if event is not None]


def messages(instance: dg.DagsterInstance, run: str) -> list[str]:
    return [entry.message for entry in instance.all_logs(run)]


def log_lines(instance: dg.DagsterInstance, run: str) -> list[str]:
    return [entry.user_message for entry in instance.all_logs(run) if entry.dagster_event is None]


# Published, or not


def test_a_materialization_says_only_what_stays_true(io: dict[str, Any], instance: dg.DagsterInstance) -> None:
    run = testing.materialize([sales], resources=io, instance=instance, partition_key="2025-01-01")
    (metadata,) = materializations(instance, "sales")
    assert metadata["lake/session"] == run.dagster_run.tags["lake/session"]
    assert not metadata.keys() & {"lake/state", "lake/version", "lake/commit"}


def test_the_publish_is_observed_for_each_partition_in_the_run_that_published(
    io: dict[str, Any], instance: dg.DagsterInstance, lake: Lake
) -> None:
    run = testing.materialize([sales], resources=io, instance=instance, tags=days("2025-01-01", "2025-01-03"))
    published = observations(instance, "sales")
    assert sorted(str(event.partition) for _, event in published) == ["2025-01-01", "2025-01-02", "2025-01-03"]
    assert {run_id for run_id, _ in published} == {run.run_id}
    metadata = values(published[0][1])
    assert metadata["lake/state"] == "published"
    assert metadata["lake/commit"] == lake.list_branches()["main"]
    assert metadata["lake/version"] == lake.delta("tables/sales").version
    assert metadata["lake/rows_written"] == 3


@pytest.mark.parametrize("scope", ["run", "asset"])
def test_what_is_published_says_how_it_is_read(
    io: dict[str, Any], instance: dg.DagsterInstance, lake: Lake, scope: str
) -> None:
    materialize = testing.materialize if scope == "run" else dg.materialize
    materialize([sales], resources=io, instance=instance, partition_key="2025-01-01")
    metadata = (
        values(observations(instance, "sales")[0][1]) if scope == "run" else materializations(instance, "sales")[0]
    )
    rows = eval(metadata["lake/read_with"].strip("`"), {"lake": lake})
    assert rows["day"].to_pylist() == ["2025-01-01"]


@dg.asset(io_manager_key="arrays")
def grid() -> xr.Dataset:
    return xr.Dataset({"t2m": ("station", np.array([1.5, 2.5]))})


@pytest.mark.parametrize("scope", ["run", "asset"])
def test_arrays_that_are_published_say_how_they_are_read(
    io: dict[str, Any], instance: dg.DagsterInstance, lake: Lake, scope: str
) -> None:
    materialize = testing.materialize if scope == "run" else dg.materialize
    materialize([grid], resources={**io, "arrays": IcechunkIOManager(lake=io["lake"])}, instance=instance)
    metadata = values(observations(instance, "grid")[0][1]) if scope == "run" else materializations(instance, "grid")[0]
    dataset = eval(metadata["lake/read_with"].strip("`"), {"lake": lake, "xarray": xr})
    assert dataset.t2m.to_numpy().tolist() == [1.5, 2.5]


def test_of_a_failed_run_nothing_says_published(io: dict[str, Any], instance: dg.DagsterInstance) -> None:
    with pytest.raises(GateFailed):
        testing.materialize([sales, never], resources=io, instance=instance, gate="error", partition_key="2025-01-01")
    (metadata,) = materializations(instance, "sales")
    assert "lake/state" not in metadata
    assert observations(instance, "sales") == []


def test_a_resumed_run_observes_what_the_failed_one_had_staged(bench: Bench) -> None:
    bench.wish(totals="fail")
    failed = bench.run()
    bench.wish()
    resumed = bench.resume(failed)
    assert {key: [run for run, _ in observations(bench.instance, key)] for key in ALL} == {
        key: [resumed.run_id] for key in ALL
    }


@pytest.mark.extended
def test_a_publish_that_is_repeated_observes_nothing_twice(bench: Bench) -> None:
    from lake_orch.dagster.runs.publishing import publish_session
    from lake_orch.dagster.runs.run_session import session_of

    run = bench.run()
    session = session_of(bench.instance, run.run_id)
    assert session is not None
    publish_session(bench.instance, bench.lake, session, gate="none", keep_failed_for=timedelta(hours=1))
    assert len(observations(bench.instance, "orders")) == 1


# The end of a failed run


def last_words(bench: Bench, run: dg.DagsterRun) -> str:
    entries = bench.instance.all_logs(run.run_id, of_type=dg.DagsterEventType.ENGINE_EVENT)
    return entries[-1].message


def test_a_failed_run_ends_by_saying_what_is_kept_and_how_to_go_on(bench: Bench) -> None:
    bench.wish(totals="fail")
    run = bench.run()
    message, session = last_words(bench, run), bench.session(run)
    assert "branch main is unchanged" in message
    assert f"{datetime.now(UTC) + timedelta(hours=24):%Y-%m-%d}" in message, "kept for a day"
    assert f"lake.at('{session}')" in message
    assert f"lake diff main {session}" in message
    assert "re-execute this run from failure" in message


@pytest.mark.extended
def test_it_is_said_after_everything_but_the_failure_itself(bench: Bench) -> None:
    bench.wish(totals="fail")
    run = bench.run()
    kinds = [
        entry.dagster_event.event_type_value for entry in bench.instance.all_logs(run.run_id) if entry.dagster_event
    ]
    end = kinds.index("PIPELINE_FAILURE")
    assert kinds[end - 1] == "ENGINE_EVENT"
    assert "ENGINE_EVENT" not in kinds[end:]


def test_a_run_that_its_gate_holds_back_says_what_the_gate_needs(bench: Bench) -> None:
    bench.wish(totals_fine="fail")
    run = bench.run("strict")
    assert "re-execute the steps that wrote the checked assets" in last_words(bench, run)
    assert "lake_recover" in last_words(bench, run)


def test_a_run_whose_check_failed_as_a_step_says_what_to_select(bench: Bench) -> None:
    bench.wish(lines_seen="fail")
    run = bench.run()
    assert "re-execute the steps that wrote the checked assets" in last_words(bench, run)
    assert "lake_recover" not in last_words(bench, run), "a failed step is not made up for by publishing"


@pytest.mark.extended
def test_a_run_that_succeeds_says_nothing_of_the_kind(bench: Bench) -> None:
    run = bench.run()
    assert not any("Nothing of this run is published" in message for message in messages(bench.instance, run.run_id))


@pytest.mark.extended
def test_a_run_whose_process_died_is_told_after_its_end(bench: Bench) -> None:
    bench.wish(totals="fail")
    run = bench.run()
    bench.lake.open_session(id=bench.session(run))  # as if its process had died before it could report that
    bench.instance.add_run_tags(run.run_id, {EPOCH_TAG: "2"})
    before = len(messages(bench.instance, run.run_id))
    settle(bench.instance, bench.lake, keep_failed_for=timedelta(hours=24))
    settle(bench.instance, bench.lake, keep_failed_for=timedelta(hours=24))
    (message,) = messages(bench.instance, run.run_id)[before:]
    assert "branch main is unchanged" in message


# Tags


@pytest.mark.parametrize("job", ["executor", "lake_job"])
def test_a_run_shows_one_tag(bench: Bench, job: str) -> None:
    if job == "executor":
        tags = bench.run().tags
    else:
        resource = LakeResource(root=f"{bench.folder}/lake")
        io = {"io_manager": DeltaIOManager(lake=resource), "lake": resource}
        defs = dg.Definitions([sales], jobs=[lake_job("nightly", [sales], gate="error")], resources=io)
        result = testing.execute_in_process(
            defs.resolve_job_def("nightly"), instance=bench.instance, partition_key="2025-01-01"
        )
        tags = bench.run_of(result.run_id).tags
    shown = [tag for tag in tags if get_tag_type(tag) is not TagType.HIDDEN and not tag.startswith("dagster/")]
    assert shown == ["lake/session"]


def test_runs_are_found_by_a_hidden_tag(bench: Bench) -> None:
    run = bench.run()
    assert [tagged.run_id for tagged in bench.instance.get_runs(dg.RunsFilter(tags={EPOCH_TAG: "1"}))] == [run.run_id]


# Log lines


def test_a_log_line_of_a_session_names_no_version(bench: Bench) -> None:
    run = bench.run()
    lines = log_lines(bench.instance, run.run_id)
    assert any("3 rows" in line and f"to be published with session {bench.session(run)}" in line for line in lines)
    assert any("input 'orders' is tables/orders, as this run has staged it" in line for line in lines)
    assert not any("version" in line for line in lines)


def test_a_log_line_of_a_published_write_names_the_version_that_readers_see(
    io: dict[str, Any], instance: dg.DagsterInstance, lake: Lake
) -> None:
    run = dg.materialize([sales], resources=io, instance=instance, partition_key="2025-01-01")
    (line,) = [line for line in log_lines(instance, run.run_id) if line.startswith("the output of")]
    assert line.endswith(f"version {lake.delta('tables/sales').version}")


@pytest.mark.extended
def test_what_a_run_only_reads_is_named_by_its_version(
    io: dict[str, Any], instance: dg.DagsterInstance, lake: Lake
) -> None:
    @dg.asset(ins={"sales": dg.AssetIn(partition_mapping=dg.AllPartitionMapping())})
    def total(sales: pa.Table) -> pa.Table:
        return pa.table({"n": [len(sales)]})

    testing.materialize([sales], resources=io, instance=instance, partition_key="2025-01-01")
    run = testing.materialize([sales, total], selection=[total], resources=io, instance=instance)
    (line,) = [line for line in log_lines(instance, run.run_id) if line.startswith("input")]
    assert f"version {lake.delta('tables/sales').version}, partitions 2025-01-01 to 2025-01-10 (10)" in line


def test_hundreds_of_text_days_are_a_short_line(io: dict[str, Any], instance: dg.DagsterInstance) -> None:
    @dg.asset(partitions_def=TEXT_DAYS, metadata={"partition_expr": "day"})
    def orders(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"day": [context.partition_key]})

    @dg.asset_check(asset=orders)
    def any_rows(orders: pa.Table) -> dg.AssetCheckResult:
        return dg.AssetCheckResult(passed=len(orders) == 1)

    dg.materialize([orders], resources=io, instance=instance, partition_key="2024-01-01")
    checks = dg.AssetSelection.checks(any_rows)
    run = dg.materialize([orders, any_rows], selection=checks, resources=io, instance=instance)
    (line,) = [line for line in log_lines(instance, run.run_id) if line.startswith("input")]
    assert line.endswith("partitions 2024-01-01 to 2025-11-20 (690)")


def test_partitions_without_an_order_are_counted(io: dict[str, Any], instance: dg.DagsterInstance) -> None:
    keys = [f"k{number}" for number in range(200)]

    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(keys), metadata={"partition_expr": "k"})
    def keyed() -> pa.Table:
        return pa.table({"k": ["k0"]})

    @dg.asset
    def all_of_it(keyed: pa.Table) -> pa.Table:
        return keyed

    dg.materialize([keyed], resources=io, instance=instance, partition_key="k0")
    run = dg.materialize([keyed, all_of_it], selection=[all_of_it], resources=io, instance=instance)
    (line,) = [line for line in log_lines(instance, run.run_id) if line.startswith("input")]
    assert line.endswith(", 200 partitions")


# None


def warnings_of(instance: dg.DagsterInstance, run: str) -> list[str]:
    return [entry.user_message for entry in instance.all_logs(run) if entry.dagster_event is None and entry.level == 30]


def test_empty_partition_values_are_warned_of(io: dict[str, Any], instance: dg.DagsterInstance) -> None:
    @dg.asset(metadata={"lake/partition_by": ["p"]})
    def parts() -> pa.Table:
        return pa.table({"p": ["", "a"], "id": [1, 2]})

    run = dg.materialize([parts], resources=io, instance=instance).run_id
    assert [line for line in warnings_of(instance, run) if "column 'p' has empty texts" in line]


def test_a_forgotten_return_is_warned_of_once(io: dict[str, Any], instance: dg.DagsterInstance) -> None:
    @dg.asset
    def bare():  # type: ignore[no-untyped-def]
        pa.table({"n": [1]})

    run = dg.materialize([bare], resources=io, instance=instance)
    (warning,) = warnings_of(instance, run.run_id)
    assert "bare returned None: nothing was written" in warning


def test_a_none_where_a_table_is_promised_is_warned_of(io: dict[str, Any], instance: dg.DagsterInstance) -> None:
    @dg.asset
    def promised() -> Any:
        return None

    run = dg.materialize([promised], resources=io, instance=instance)
    assert len(warnings_of(instance, run.run_id)) == 1


@pytest.mark.parametrize("how", ["none", "optional", "by hand"])
def test_a_none_that_is_meant_is_silent(io: dict[str, Any], instance: dg.DagsterInstance, how: str) -> None:
    @dg.asset
    def none() -> None: ...

    @dg.asset
    def optional() -> pa.Table | None:
        return None

    @dg.asset(key="by_hand")
    def by_hand(context: dg.AssetExecutionContext, lake: LakeResource):  # type: ignore[no-untyped-def]
        lake.table(context).append(pa.table({"n": [1]}))

    asset = {"none": none, "optional": optional, "by hand": by_hand}[how]
    run = dg.materialize([asset], resources=io, instance=instance)
    assert warnings_of(instance, run.run_id) == []
