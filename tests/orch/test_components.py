"""Components: what YAML becomes, that it runs, and what is said of YAML that cannot be followed."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import importlib
import sys
import textwrap
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import dagster as dg
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import xarray as xr
import yaml
import zarr
from dagster.components.testing.utils import create_defs_folder_sandbox
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.icechunk import Repository
from lake_orch import DeltaIOManager, LakeResource, TableSlice, TypeHandler
from lake_orch import components as ours
from lake_orch.components import (
    BranchSensorComponent,
    DeltaTableComponent,
    IcechunkRepositoryComponent,
    LakeComponent,
    LandingZoneComponent,
    MaintenanceComponent,
    PoolComponent,
    TableChangeSensorComponent,
)
from lake_orch.components.sql_engine import run_query
from lake_orch.components.sql_query import Query, parse_query
from lake_orch.errors import InvalidDefinition

ALL = [getattr(ours, name) for name in ours.__all__]

PROJECT = {
    "lake/defs.yaml": """
        type: lake_orch.components.LakeComponent
        attributes:
          root: "{{ env.TEST_LAKE }}"
          scope: run
          storage_options: {auto_mkdir: true}
    """,
    "landing/defs.yaml": """
        type: lake_orch.components.LandingZoneComponent
        attributes:
          name: orders
          url: "{{ env.TEST_LANDING }}"
          pattern: "*.parquet"
          asset: {key: raw/orders, owners: ["team:sales"]}
    """,
    "tables/rates.py": """
        import pyarrow as pa

        def rates() -> pa.Table:
            return pa.table({"currency": ["EUR", "USD"], "rate": [1.0, 0.5]})
    """,
    "tables/defs.yaml": """
        type: lake_orch.components.DeltaTableComponent
        attributes:
          asset: {key: rates}
          function: .rates:rates
        ---
        type: lake_orch.components.DeltaTableComponent
        attributes:
          asset: {key: revenue, group_name: sales, kinds: [gold]}
          engine: duckdb
          sql_file: revenue.sql
          merge: [currency]
          checks:
            - {name: positive, expression: "amount > 0", blocking: true}
    """,
    "tables/revenue.sql": """
        WITH paid AS (SELECT * FROM raw.orders WHERE amount IS NOT NULL)
        SELECT paid.currency, sum(paid.amount * rates.rate) AS amount
        FROM paid JOIN rates ON paid.currency = rates.currency
        GROUP BY 1
    """,
    "maintenance/defs.yaml": """
        type: lake_orch.components.MaintenanceComponent
        attributes:
          tables:
            raw/orders: {min_small_file_ratio: 0.0}
            revenue:
          tasks: {compaction: "0 3 * * *", checkpoint: null}
          settings: {max_uncheckpointed_commits: 1}
    """,
    "sensors/defs.yaml": """
        type: lake_orch.components.TableChangeSensorComponent
        attributes: {assets: [others], external: true, target: "key:revenue"}
        ---
        type: lake_orch.components.BranchSensorComponent
        attributes: {prefix: pr-, target: "*"}
    """,
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.Definitions]:
    """Create and load a project folder of components, as `dg` makes one."""
    package = tmp_path / "project" / "lake_test_project"
    for name, text in PROJECT.items():
        file = package / "defs" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
    (package / "defs" / "__init__.py").touch()
    (package / "__init__.py").touch()
    (tmp_path / "project" / "pyproject.toml").write_text(
        '[tool.dg]\ndirectory_type = "project"\n[tool.dg.project]\nroot_module = "lake_test_project"\n'
    )
    (package / "definitions.py").write_text(
        "from pathlib import Path\nimport dagster as dg\n\n@dg.definitions\ndef defs():\n"
        "    return dg.load_from_defs_folder(path_within_project=Path(__file__).parent)\n"
    )
    monkeypatch.setenv("TEST_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("TEST_LANDING", str(tmp_path / "landing"))
    monkeypatch.syspath_prepend(str(tmp_path / "project"))
    Lake.create(tmp_path / "lake")
    yield importlib.import_module("lake_test_project.definitions").defs()
    for name in [name for name in sys.modules if name.startswith("lake_test_project")]:
        del sys.modules[name]


def drop(folder: Path, name: str, amounts: list[float | None]) -> None:
    folder.mkdir(exist_ok=True)
    pq.write_table(pa.table({"currency": ["EUR", "USD"], "amount": pa.array(amounts, pa.float64())}), folder / name)


def test_a_project_lands_computes_and_maintains(project: dg.Definitions, tmp_path: Path) -> None:
    """All in sessions, from files to a checked table; a check that fails leaves main as it was."""
    dg.Definitions.validate_loadable(project)
    drop(tmp_path / "landing", "1.parquet", [10.0, 4.0])
    lake = Lake.open(tmp_path / "lake")
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        land(project, instance)
        assert len(lake.delta("tables/raw/orders").to_arrow()) == 2
        assert run(project, instance, "rates", "revenue").success
        assert amounts(lake) == {"EUR": 10.0, "USD": 2.0}
        event = instance.get_latest_materialization_event(dg.AssetKey("revenue"))
        assert event is not None
        assert event.asset_materialization is not None
        assert str(event.asset_materialization.metadata["lake/session"].value).startswith("run-"), (
            "the executor makes a run one session"
        )

        drop(tmp_path / "landing", "2.parquet", [-100.0, None])
        land(project, instance)
        before = lake.list_branches()["main"]
        refused = run(project, instance, "revenue")
        assert not refused.success
        assert lake.list_branches()["main"] == before
        assert amounts(lake) == {"EUR": 10.0, "USD": 2.0}
        evaluated = refused.get_asset_check_evaluations()
        assert [(evaluation.check_name, evaluation.passed) for evaluation in evaluated] == [("positive", False)]
        assert evaluated[0].metadata["lake/violations"].value == 1

        drop(tmp_path / "landing", "3.parquet", [100.0, 2.0])
        land(project, instance)
        assert run(project, instance, "revenue").success
        assert amounts(lake) == {"EUR": 10.0, "USD": 3.0}

        assert run(project, instance, "maintenance/checkpoint", partition="tables/raw/orders").success
        assert list((tmp_path / "lake/tables/raw/orders/_delta_log").glob("*.checkpoint*.parquet"))


def run(
    defs: dg.Definitions, instance: dg.DagsterInstance, *keys: str, partition: str | None = None, **options: Any
) -> Any:
    """Run assets once, under the code location's executor."""
    selection = dg.AssetSelection.assets(*(dg.AssetKey.from_user_string(key) for key in keys))
    job = dg.define_asset_job("by_hand", selection)
    merged = dg.Definitions.merge(defs, dg.Definitions(jobs=[job])).resolve_job_def("by_hand")
    from lake_orch.testing import execute_in_process

    return execute_in_process(merged, instance=instance, partition_key=partition, raise_on_error=False, **options)


def land(defs: dg.Definitions, instance: dg.DagsterInstance) -> None:
    """Run what the zone's sensor requests."""
    repository = defs.get_repository_def()
    sensor = repository.get_sensor_def("orders_landing_zone")
    resources = {"lake": repository.get_top_level_resources()["lake"]}
    with dg.build_sensor_context(instance, repository_def=repository, resources=resources) as context:
        asked: Any = sensor.evaluate_tick(context)
    assert len(asked.run_requests) == 1, asked.skip_message
    assert run(defs, instance, "raw/orders", tags=asked.run_requests[0].tags).success


def amounts(lake: Lake) -> dict[str, float]:
    rows = lake.delta("tables/revenue").to_arrow()
    return dict(zip(rows["currency"].to_pylist(), rows["amount"].to_pylist(), strict=True))


def test_what_the_project_defines(project: dg.Definitions) -> None:
    graph = project.resolve_asset_graph()
    revenue = graph.get(dg.AssetKey("revenue"))
    assert {key.to_user_string() for key in revenue.parent_keys} == {"raw/orders", "rates"}
    assert revenue.group_name == "sales"
    assert revenue.kinds == {"gold"}
    assert revenue.code_version
    assert revenue.metadata["lake/merge"] == ["currency"]
    assert graph.get(dg.AssetKey(["raw", "orders"])).owners == ["team:sales"]
    assert not graph.get(dg.AssetKey("others")).is_materializable
    names = {sensor.name for sensor in project.sensors or []}
    assert names == {
        *(f"lake_sessions_on_{status}" for status in ("failure", "canceled", "success")),
        "orders_landing_zone",
        "table_changes",
        "lake_branches",
    }
    assert {schedule.name for schedule in project.schedules or []} == {
        "lake_session_reaper",
        "maintenance_compaction_schedule",
        "maintenance_health_schedule",
    }
    assert [getattr(job, "name", None) for job in project.jobs or []] == ["lake_recover"]
    assert project.executor is not None
    assert "lake_executor" in str(getattr(project.executor, "name", ""))
    assert set(project.resources or {}) == {"lake", "io_manager", "file_io_manager"}


def build(component: Any, **attributes: Any) -> dg.Definitions:
    from dagster.components import build_defs_for_component

    return build_defs_for_component(component.from_attributes_dict(attributes=attributes))


def materialize(root: Path, *components: dg.Definitions, **options: Any) -> Any:
    """Run all the assets of components, each published by itself."""
    lake = build(LakeComponent, root=str(root), sessions=False, **options.pop("lake", {}))
    defs = dg.Definitions.merge(lake, *components)
    return defs.resolve_implicit_global_asset_job_def().execute_in_process(**options)


def test_secrets_stay_references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_SECRET", "hunter2")
    attributes = {
        "root": "s3://bucket/lake",
        "storage_options": {
            "secret": "{{ env.TEST_SECRET }}",
            "client_kwargs": {"region_name": "{{ env('TEST_REGION', 'eu') }}"},
        },
        "spark": {"remote": "{{ env('TEST_SECRET') }}"},
    }
    component = LakeComponent.from_attributes_dict(attributes=attributes)
    defs = build(LakeComponent, **attributes)
    assert defs.resources is not None
    lake, spark = defs.resources["lake"], defs.resources["spark"]
    assert isinstance(lake, LakeResource)
    assert lake.options() == {"secret": "hunter2", "client_kwargs": {"region_name": "eu"}}
    defaults = lake.get_resource_definition().config_schema.default_value
    described = f"{component!r} {lake!r} {spark!r} {lake.model_dump()} {defaults}"
    assert "hunter2" not in described
    with dg.build_resources({"spark": spark}) as built:
        assert built.spark.remote == "hunter2"
    zone = build(LandingZoneComponent, name="z", url="memory://z", storage_options={"secret": "{{ env.TEST_SECRET }}"})
    assert "hunter2" not in repr(zone)


BROKEN_DAY = "| 2025-01-01 | 2 | -2.0 | 2025-01-02 |"


@pytest.mark.extended
def test_sql_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """Upstream slices, parameters of the partition, quoted names, columns called by their tables' names."""
    days = {"type": "daily", "start_date": "2025-01-01", "end_date": "2025-01-04"}
    rows = DeltaTable.create(
        tmp_path / "lake/tables/raw/my orders",
        pa.schema([("day", pa.string()), ("id", pa.int64()), ("amount", pa.float64())]),
    )
    rows.append(
        pa.table({"day": ["2025-01-01", "2025-01-02"] * 2, "id": [1, 2, 3, 4], "amount": [1.0, 2.0, -3.0, 4.0]})
    )
    table = build(
        DeltaTableComponent,
        asset={"key": "daily_orders", "partitions_def": days},
        partition_expr="day",
        sql="SELECT `my orders`.day, count(*) AS orders, sum(amount) AS amount, cast(:partition_end AS date) AS until "
        "FROM raw.`my orders` WHERE `my orders`.day = :partition_key GROUP BY 1",
        checks=[
            {"name": "some", "expression": "orders > 0"},
            {"name": "rich", "expression": "amount > 0", "severity": "WARN"},
        ],
    )
    for day in ("2025-01-01", "2025-01-02"):
        others = build(TableChangeSensorComponent, assets=["raw/my orders"], external=True)
        result = materialize(tmp_path / "lake", table, others, lake={"spark": {}}, partition_key=day)
        assert {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()} == {
            "some": True,
            "rich": day == "2025-01-02",
        }
        samples = [
            str(evaluation.metadata["lake/broken_rows"].value)
            for evaluation in result.get_asset_check_evaluations()
            if not evaluation.passed
        ]
        assert samples == (
            []
            if day == "2025-01-02"
            else ["| day | orders | amount | until |\n| --- | --- | --- | --- |\n" + BROKEN_DAY]
        )
    orders = DeltaTable.open(tmp_path / "lake/tables/daily_orders").to_arrow().sort_by("day").to_pylist()
    assert [(row["day"], row["orders"], row["amount"], str(row["until"])) for row in orders] == [
        ("2025-01-01", 2, -2.0, "2025-01-02"),
        ("2025-01-02", 2, 6.0, "2025-01-03"),
    ]
    assert not [view for view in spark.catalog.listTables() if view.name.startswith("lake_")], (
        "views are taken away again"
    )


def test_partitions_of_any_kind_and_inputs_of_a_query(tmp_path: Path) -> None:
    """Definitions from templates, several names for one table, columns and rows of an input, an older version."""
    log = DeltaTable.create(tmp_path / "lake/tables/events", pa.schema([("id", pa.int64()), ("kind", pa.string())]))
    log.append(pa.table({"id": [1, 2, 3], "kind": ["a", "b", "a"]}))
    log.append(pa.table({"id": [4], "kind": ["a"]}))
    table = build(
        DeltaTableComponent,
        asset={"key": "kinds", "partitions_def": "{{ dg.StaticPartitionsDefinition(['a', 'b']) }}"},
        partition_expr="kind",
        engine="duckdb",
        inputs={
            "new": {"asset": "events", "columns": ["id", "kind"], "where": "id > 1"},
            "old": {"asset": "old/events", "version": 1},
        },
        sql="SELECT new.kind, count(DISTINCT new.id) AS new, count(DISTINCT old.id) AS old "
        "FROM new FULL JOIN old ON new.kind = old.kind "
        "WHERE new.kind = $partition_key GROUP BY 1",
    )
    others = build(TableChangeSensorComponent, assets=["events"], tables={"old/events": "tables/events"}, external=True)
    assert materialize(tmp_path / "lake", table, others, partition_key="a").success
    assert DeltaTable.open(tmp_path / "lake/tables/kinds").to_arrow().to_pylist() == [{"kind": "a", "new": 2, "old": 2}]


@pytest.mark.parametrize(
    "sql",
    ["SELECT * FROM read_csv('/etc/passwd')", "COPY t TO 'x'", "SELECT 1; SELECT 2", "SELEC", "SELECT * FROM (VALUES"],
)
def test_a_query_that_is_no_select_over_tables_is_refused(sql: str) -> None:
    with pytest.raises(InvalidDefinition):
        build(DeltaTableComponent, asset={"key": "t"}, engine="duckdb", sql=sql)


def test_duckdb_reaches_nothing_but_what_it_is_given() -> None:
    query = Query("SELECT * FROM read_csv('/etc/passwd')", [], frozenset())
    with pytest.raises(Exception, match="disabled"), run_query(query, "duckdb", {}, {}, dg.AssetKey("t"), None):
        pass


def test_tables_of_a_query() -> None:
    text = (
        "WITH b AS (SELECT * FROM a) "
        "SELECT * FROM b JOIN s.c AS c2 ON EXISTS (SELECT 1 FROM a WHERE a.x = b.x) UNION SELECT * FROM d"
    )
    query = parse_query(text, "spark", "t")
    assert query.tables == ["a", "s.c", "d"]
    assert query.naming({"a": "v0", "s.c": "v1", "d": "v2"}) == (
        "WITH b AS (SELECT * FROM v0 AS a) "
        "SELECT * FROM b JOIN v1 AS c2 ON EXISTS (SELECT 1 FROM v0 AS a WHERE a.x = b.x) UNION SELECT * FROM v2 AS d"
    )


@pytest.mark.parametrize(
    ("text", "tables", "named"),
    [
        ("WITH a AS (SELECT * FROM a) SELECT * FROM a", ["a"], "WITH a AS (SELECT * FROM v0 AS a) SELECT * FROM a"),
        ("WITH b AS (SELECT 1) SELECT * FROM B, c", ["c"], "WITH b AS (SELECT 1) SELECT * FROM B, v0 AS c"),
        ("SELECT * FROM x.a JOIN y.a AS b", ["x.a", "y.a"], "SELECT * FROM v0 AS a JOIN v1 AS b"),
        ("SELECT * FROM `a``b`", ["a`b"], "SELECT * FROM v0 AS `a``b`"),
        (
            "SELECT (SELECT max(x) FROM b) FROM a TABLESAMPLE (5 ROWS)",
            ["b", "a"],
            "SELECT (SELECT max(x) FROM v0 AS b) FROM v1 TABLESAMPLE (5 ROWS)",
        ),
        ("WITH RECURSIVE t AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM t WHERE n < 5) SELECT * FROM t", [], None),
    ],
)
def test_names_of_tables_and_of_the_querys_own(text: str, tables: list[str], named: str | None) -> None:
    query = parse_query(text, "spark", "t")
    assert query.tables == tables
    assert query.naming({name: f"v{number}" for number, name in enumerate(tables)}) == (named or text)


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"sql": "SELECT 1", "function": "a:b"}, "one of sql, sql_file and function"),
        ({}, "none of them"),
        ({"sql_file": "gone.sql"}, "is not beside"),
        ({"function": "json:nothing"}, "cannot be imported"),
        ({"function": "json"}, "module:function"),
        ({"sql": "SELECT * FROM t"}, "reads the table that it writes"),
        ({"sql": "SELECT * FROM a JOIN b", "inputs": {"b": {"asset": "a"}}}, "the same asset"),
        ({"sql": "SELECT * FROM a VERSION AS OF 1"}, "give the version to its input"),
        ({"sql": "SELECT :day"}, "parameter 'day'"),
        ({"sql": "SELECT :partition_key"}, "not partitioned"),
        ({"sql": "SELECT 1", "inputs": {"x": {"asset": "y"}}}, "has the input 'x'"),
        ({"sql": "SELECT 1", "mode": "merge"}, "lake/merge"),
        ({"sql": "SELECT 1", "modus": "merge"}, "modus"),
        (
            {"sql": "SELECT 1", "checks": [{"name": "c", "expression": "true", "blocking": True, "severity": "WARN"}]},
            "blocking",
        ),
        ({"sql": "SELECT 1", "columns": [{"name": "a", "type": "sqlite"}]}, "sqlite"),
        ({"sql": "DELETE FROM t"}, "not one SELECT"),
    ],
)
def test_what_cannot_be_followed_is_said_when_it_is_loaded(attributes: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        build(DeltaTableComponent, asset={"key": "t"}, **attributes)


def test_a_partitioned_table_names_its_column() -> None:
    with pytest.raises(InvalidDefinition, match="partition_expr"):
        build(
            DeltaTableComponent,
            asset={"key": "t", "partitions_def": {"type": "static", "partition_keys": ["a"]}},
            sql="SELECT 1",
        )


def test_functions_with_checks_inputs_and_a_definition(tmp_path: Path) -> None:
    assert materialize(
        tmp_path,
        build(DeltaTableComponent, asset={"key": "numbers"}, function=f"{__name__}:numbers", max_retries=1),
        build(
            DeltaTableComponent,
            asset={"key": "doubled", "kinds": ["arrow"]},
            function=f"{__name__}:doubled",
            inputs={"rows": {"asset": "numbers", "where": "id > 0"}},
            columns=[{"name": "id", "type": "int", "description": "twice", "nullable": False}],
            constraints={"even": "id % 2 = 0"},
            checks=[{"name": "even", "expression": "id % 2 = 0", "blocking": True, "max_violations": 0}],
        ),
    ).success
    table = DeltaTable.open(tmp_path / "tables/doubled")
    assert table.to_arrow()["id"].to_pylist() == [2, 4]
    assert table.schema.field("id").type == pa.int32()
    assert table.constraints == {"even": "id % 2 = 0"}


@pytest.mark.parametrize("lake", [True, False], ids=["lake", "plain"])
def test_a_blocking_check_keeps_one_asset_from_being_written(lake: bool, tmp_path: Path) -> None:
    """Without a session for the run, and without a lake."""
    if lake:
        Lake.create(tmp_path)
    check = {"name": "no_zero", "expression": "id > 0", "blocking": True}
    table = build(DeltaTableComponent, asset={"key": "numbers"}, function=f"{__name__}:numbers", checks=[check])
    result = materialize(tmp_path, table, raise_on_error=False)
    assert not result.success
    assert not DeltaTable.exists(tmp_path / "tables/numbers")
    (evaluation,) = result.get_asset_check_evaluations()
    assert not evaluation.passed
    assert (evaluation.metadata["lake/violations"].value, evaluation.metadata["lake/rows"].value) == (1, 3)
    tolerant = build(
        DeltaTableComponent,
        asset={"key": "numbers"},
        function=f"{__name__}:numbers",
        checks=[{**check, "max_violations": 1}],
    )
    assert materialize(tmp_path, tolerant).success
    assert DeltaTable.open(tmp_path / "tables/numbers").to_arrow().num_rows == 3


def test_checks_take_the_types_that_the_io_manager_knows(tmp_path: Path) -> None:
    check = {"name": "large", "expression": "id > 1"}
    table = build(DeltaTableComponent, asset={"key": "counted"}, function=f"{__name__}:counted", checks=[check])
    resources = {"io_manager": CounterIOManager(lake=LakeResource(root=str(tmp_path)))}
    job = dg.Definitions.merge(table, dg.Definitions(resources=resources)).resolve_implicit_global_asset_job_def()
    (evaluation,) = job.execute_in_process().get_asset_check_evaluations()
    assert evaluation.metadata["lake/violations"].value == 2
    assert DeltaTable.open(tmp_path / "tables/counted").to_arrow()["id"].to_pylist() == [0, 1, 2]


@pytest.mark.parametrize(("sample_rows", "shown"), [(1, "| id |\n| --- |\n| 0 |"), (0, None)])
def test_a_failed_check_shows_rows_that_break_it(tmp_path: Path, sample_rows: int, shown: str | None) -> None:
    check = {"name": "large", "expression": "id > 1", "sample_rows": sample_rows}
    table = build(DeltaTableComponent, asset={"key": "numbers"}, function=f"{__name__}:numbers", checks=[check])
    (evaluation,) = materialize(tmp_path, table).get_asset_check_evaluations()
    sample = evaluation.metadata.get("lake/broken_rows")
    assert (None if sample is None else sample.value) == shown
    assert evaluation.description == "2 of 3 rows break id > 1"


def test_an_asset_that_shows_no_rows_shows_none_that_break_a_check(tmp_path: Path) -> None:
    asset = {"key": "numbers", "metadata": {"lake/preview_rows": 0}}
    check = {"name": "large", "expression": "id > 1"}
    table = build(DeltaTableComponent, asset=asset, function=f"{__name__}:numbers", checks=[check])
    (evaluation,) = materialize(tmp_path, table).get_asset_check_evaluations()
    assert "lake/broken_rows" not in evaluation.metadata


class CounterHandler:
    supported_types = (range,)

    def to_rows(self, value: range) -> pa.Table:
        return pa.table({"id": list(value)})

    def from_table(self, part: TableSlice, annotation: type) -> range:
        return range(part.to_arrow().num_rows)


class CounterIOManager(DeltaIOManager):
    @classmethod
    def type_handlers(cls) -> tuple[TypeHandler, ...]:
        return (CounterHandler(), *super().type_handlers())


def counted() -> range:
    return range(3)


def numbers() -> pa.Table:
    return pa.table({"id": [0, 1, 2]})


def doubled(context: dg.AssetExecutionContext, rows: pa.Table) -> pa.Table:
    assert context.asset_key == dg.AssetKey("doubled")
    return pa.table({"id": [value * 2 for value in rows["id"].to_pylist()]})


HOURS = {"type": "daily", "start_date": "2025-01-01", "end_date": "2025-01-03"}


def temperature(context: dg.AssetExecutionContext) -> xr.Dataset:
    time = pd.date_range(context.partition_key, periods=24, freq="h")
    return xr.Dataset({"t2m": (("time", "station"), np.full((24, 2), 20.0))}, {"time": time})


def warmest(rows: xr.Dataset) -> pa.Table:
    return pa.table({"t2m": [float(rows.t2m.max())], "hours": [rows.sizes["time"]]})


def test_arrays_are_stored_and_read_by_a_table(tmp_path: Path) -> None:
    arrays = build(
        IcechunkRepositoryComponent,
        asset={"key": "temperature", "partitions_def": HOURS},
        function=f"{__name__}:temperature",
        partition_expr="time",
        coordinates={"time": "h"},
        encoding={
            "t2m": {
                "dtype": "float32",
                "chunks": [12, 2],
                "compressors": [{"name": "zstd", "configuration": {"level": 3}}],
            }
        },
    )
    assert materialize(tmp_path, arrays, lake={"arrays": True}, partition_key="2025-01-02").success
    array = zarr.open_group(Repository.open(tmp_path / "tables/temperature").readonly_session("main").store, mode="r")[
        "t2m"
    ]
    assert isinstance(array, zarr.Array)
    assert (array.shape, array.chunks, str(array.dtype)) == ((48, 2), (12, 2), "float32")
    table = build(
        DeltaTableComponent,
        asset={"key": "warmest"},
        function=f"{__name__}:warmest",
        inputs={
            "rows": {
                "asset": "temperature",
                "columns": ["t2m"],
                "sel": {"time": {"start": "2025-01-02", "stop": "2025-01-02T05"}},
            }
        },
    )
    lake = build(LakeComponent, root=str(tmp_path), sessions=False, arrays=True)
    job = dg.define_asset_job("table", dg.AssetSelection.assets("warmest"))
    whole = dg.Definitions.merge(lake, arrays, table, dg.Definitions(jobs=[job]))
    assert whole.resolve_job_def("table").execute_in_process().success
    assert DeltaTable.open(tmp_path / "tables/warmest").to_arrow().to_pylist() == [{"t2m": 20.0, "hours": 6}]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"function": "json:nothing"}, "cannot be imported"),
        ({"partitions_def": HOURS}, "the dimension that the partitions stand for"),
        ({"partitions_def": HOURS, "partition_expr": {"day": "time"}}, "partition_expr"),
        ({"partitions_def": HOURS, "partition_expr": "time", "append_dim": "time"}, "does not go with partitions"),
        (
            {"partitions_def": {**HOURS, "end_date": None}, "partition_expr": "time", "coordinates": {"time": "h"}},
            "give them an end_date",
        ),
        ({"coordinates": {"time": "h"}}, "the asset is not partitioned"),
        ({"encoding": {"t2m": {"chunk": [1]}}}, "the encoding 'chunk': use chunks"),
        ({"encoding": {"t2m": {"chunks": 24}}}, "use a list of whole numbers"),
        ({"mode": "merge"}, "mode"),
        ({"mode": "append"}, "name the dimension that grows"),
        ({"path": "../elsewhere"}, "relative to the lake's root"),
    ],
)
def test_arrays_that_cannot_be_stored_so_are_refused_when_they_are_loaded(
    attributes: dict[str, Any], message: str
) -> None:
    settings = {"function": f"{__name__}:temperature", **attributes}
    partitions = {"partitions_def": settings.pop("partitions_def")} if "partitions_def" in settings else {}
    with pytest.raises(Exception, match=message):
        build(IcechunkRepositoryComponent, asset={"key": "temperature", **partitions}, **settings)


def records(context: dg.AssetExecutionContext) -> list[dict[str, Any]]:
    return [
        {"ts": f"{context.partition_key}T05:00:00Z", "v": 1},
        {"ts": f"{context.partition_key}T06:00:00Z", "w": "x"},
    ]


def counts(rows: pa.Table) -> pa.Table:
    return pa.table({"rows": [rows.num_rows]})


def test_records_are_stored_in_a_pool_and_read_by_a_table(tmp_path: Path) -> None:
    pool = build(
        PoolComponent,
        asset={"key": "events", "partitions_def": HOURS},
        function=f"{__name__}:records",
        partition_expr="ts",
        times=["ts"],
        order="asc",
    )
    assert materialize(tmp_path, pool, lake={"pools": True}, partition_key="2025-01-02").success
    table = build(
        DeltaTableComponent,
        asset={"key": "counts"},
        function=f"{__name__}:counts",
        inputs={"rows": {"asset": "events", "shape": "{ts:time,w:string}"}},
    )
    lake = build(LakeComponent, root=str(tmp_path), sessions=False, pools=True)
    job = dg.define_asset_job("table", dg.AssetSelection.assets("counts"))
    whole = dg.Definitions.merge(lake, pool, table, dg.Definitions(jobs=[job]))
    assert whole.resolve_job_def("table").execute_in_process().success
    assert DeltaTable.open(tmp_path / "tables/counts").to_arrow().to_pylist() == [{"rows": 1}]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"function": "json:nothing"}, "cannot be imported"),
        ({"partitions_def": HOURS}, "the column that the partitions stand for"),
        ({"partitions_def": HOURS, "partition_expr": "ts", "key": "k"}, "partitions stand for the key"),
        ({"order": "up"}, "order"),
        ({"mode": "merge"}, "mode"),
        ({"path": "../elsewhere"}, "relative to the lake's root"),
    ],
)
def test_pools_that_cannot_be_are_refused_when_they_are_loaded(attributes: dict[str, Any], message: str) -> None:
    settings = {"function": f"{__name__}:records", **attributes}
    partitions = {"partitions_def": settings.pop("partitions_def")} if "partitions_def" in settings else {}
    with pytest.raises(Exception, match=message):
        build(PoolComponent, asset={"key": "events", **partitions}, **settings)


def test_a_query_selects_no_coordinates() -> None:
    with pytest.raises(InvalidDefinition, match="has sel, which is for arrays"):
        build(DeltaTableComponent, asset={"key": "t"}, sql="SELECT * FROM a", inputs={"a": {"sel": {"x": 1}}})
    with pytest.raises(InvalidDefinition, match="has shape, which is for pools"):
        build(DeltaTableComponent, asset={"key": "t"}, sql="SELECT * FROM a", inputs={"a": {"shape": "conn"}})


def test_tables_and_arrays_are_maintained_in_one_block() -> None:
    defs = build(
        MaintenanceComponent,
        tables=["a"],
        arrays={"weather": {"max_mergeable_manifests": 5}, "radar": None},
        paths={"radar": "arrays/radar"},
        schedule="0 1 * * *",
        settings={"retention": "14 days"},
        limits={"mergeable_manifests": 9},
    )
    graph = dg.Definitions.merge(defs, build(LakeComponent, root="x", sessions=False)).resolve_asset_graph()
    rewrite = graph.get(dg.AssetKey(["maintenance", "manifest_rewrite"]))
    assert rewrite.partitions_def is not None
    assert rewrite.partitions_def.get_partition_keys() == ["tables/weather", "arrays/radar"]
    assert {key.asset_key.path[-1] for key in graph.asset_check_keys} == {"a", "weather", "radar"}


def test_maintenance_in_one_block(tmp_path: Path) -> None:
    defs = build(
        MaintenanceComponent,
        tables=["a", "b"],
        paths={"b": "elsewhere/b"},
        tasks=["compaction", "session_reaper"],
        schedule="0 1 * * *",
        automation=True,
        limits={"small_files": 1},
        key_prefix="keep/up",
    )
    graph = dg.Definitions.merge(defs, build(LakeComponent, root="x", sessions=False)).resolve_asset_graph()
    compaction = graph.get(dg.AssetKey(["keep", "up", "compaction"]))
    assert compaction.partitions_def is not None
    assert compaction.partitions_def.get_partition_keys() == ["tables/a", "elsewhere/b"]
    assert compaction.automation_condition is not None
    assert not defs.schedules
    assert {key.asset_key.to_user_string() for key in graph.asset_check_keys} == {
        "keep/up/health/a",
        "keep/up/health/b",
        "keep/up/session_reaper",
    }
    with pytest.raises(InvalidDefinition, match="not among the tables, arrays and pools"):
        build(MaintenanceComponent, tables=["a"], paths={"c": "x"})


def test_landing_with_types_and_a_reader(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/1.csv").write_text("id,day\n1,2025-01-01\n")
    typed = build(
        LandingZoneComponent,
        name="typed",
        url=str(tmp_path / "in"),
        columns={"id": "int", "day": "string"},
        partition_by=["day"],
    )
    custom = build(
        LandingZoneComponent,
        name="custom",
        url=str(tmp_path / "in"),
        read=f"{__name__}:count_files",
        path="custom/table",
    )
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        for zone, defs in (("typed", typed), ("custom", custom)):
            whole = dg.Definitions.merge(defs, build(LakeComponent, root=str(tmp_path / "lake"), sessions=False))
            repository = whole.get_repository_def()
            resources = {"lake": LakeResource(root=str(tmp_path / "lake"))}
            with dg.build_sensor_context(instance, repository_def=repository, resources=resources) as context:
                asked: Any = repository.get_sensor_def(f"{zone}_landing_zone").evaluate_tick(context)
            job = whole.resolve_implicit_global_asset_job_def()
            assert job.execute_in_process(instance=instance, tags=asked.run_requests[0].tags).success
    landed = DeltaTable.open(tmp_path / "lake/tables/typed")
    assert landed.to_arrow().to_pylist() == [{"id": 1, "day": "2025-01-01"}]
    assert landed.schema.field("id").type == pa.int32()
    assert landed.metadata.partition_columns == ("day",)
    assert DeltaTable.open(tmp_path / "lake/custom/table").to_arrow().to_pylist() == [{"files": 1}]
    with pytest.raises(InvalidDefinition, match="column 'a'"):
        build(LandingZoneComponent, name="z", url="x", columns={"a": "wat"})


def count_files(batch: Any) -> pa.Table:
    return pa.table({"files": [len(batch.files)]})


def test_a_lake_refuses_a_gate_that_cannot_hold() -> None:
    with pytest.raises(Exception, match="gate='error' holds back a whole run"):
        build(LakeComponent, root="x", gate="error")
    gathering = build(
        LakeComponent, root="x", backfills="gather", reaper_schedule=None, sensors="STOPPED", scope="run", gate="error"
    )
    assert {sensor.name for sensor in gathering.sensors or []} >= {"lake_backfills"}
    assert not gathering.schedules
    assert {sensor.default_status for sensor in gathering.sensors or []} == {dg.DefaultSensorStatus.STOPPED}
    assert build(LakeComponent, root="x", scope="run", executor=False).executor is None


def test_dg_finds_them() -> None:
    (entry_point,) = [
        point for point in entry_points(group="dagster_dg_cli.registry_modules") if point.name == "lake_orch"
    ]
    module = entry_point.load()
    assert module is ours
    assert all(issubclass(getattr(module, name), dg.Component) for name in module.__all__)


@pytest.mark.parametrize("component", ALL, ids=lambda component: component.__name__)
def test_the_schema_is_documented(component: Any) -> None:
    assert component.__doc__
    schema = component.model().model_json_schema()
    undocumented = [
        f"{name}.{field}"
        for name, part in {component.__name__: schema, **schema.get("$defs", {})}.items()
        for field, definition in part.get("properties", {}).items()
        if not definition.get("description")
        and not name.startswith(
            ("AssetSpecKwargs", "DailyPart", "HourlyPart", "WeeklyPart", "TimeWindow", "StaticPart")
        )
    ]
    assert undocumented == []


@pytest.mark.parametrize("component", ALL, ids=lambda component: component.__name__)
def test_what_is_scaffolded_loads(component: Any) -> None:
    with create_defs_folder_sandbox() as sandbox:
        path = sandbox.scaffold_component(component_cls=getattr(ours, component.__name__), defs_path="my_part")
        scaffolded = yaml.safe_load((path / "defs.yaml").read_text())
        assert scaffolded["type"].endswith(component.__name__)
        assert "NAME" not in str(scaffolded)
        with sandbox.load_component_and_build_defs(defs_path=path) as (loaded, defs):
            assert isinstance(loaded, component)
            # A list of a lake's tables is empty until its state is refreshed.
            is_empty = issubclass(component, dg.StateBackedComponent)
            assert bool(defs.resources or defs.assets or defs.sensors or defs.asset_checks) is not is_empty
        python = sandbox.scaffold_component(
            component_cls=getattr(ours, component.__name__), defs_path="other", scaffold_format="python"
        )
        assert component.__name__ in (python / "component.py").read_text()


def test_a_scaffolded_table_is_made(tmp_path: Path) -> None:
    with create_defs_folder_sandbox() as sandbox:
        for number, component in enumerate((LakeComponent, DeltaTableComponent)):
            sandbox.scaffold_component(component_cls=component, defs_path=f"part_{number}")
        lake = sandbox.defs_folder_path / "part_0/defs.yaml"
        lake.write_text(lake.read_text().replace("{{ env('LAKE_ROOT', 'lake') }}", str(tmp_path)))
        with sandbox.build_all_defs() as defs:
            assert defs.resolve_implicit_global_asset_job_def().execute_in_process().success
    assert DeltaTable.open(tmp_path / "tables/part_1").to_arrow().num_rows == 1
    assert {BranchSensorComponent, TableChangeSensorComponent} <= set(ALL)
