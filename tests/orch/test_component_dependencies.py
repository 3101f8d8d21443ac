"""Dependencies of components on chosen partitions, in YAML, by Dagster's own partition mappings."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing.utils import create_defs_folder_sandbox

from lake_core import Lake

_DAILY = '{type: daily, start_date: "2025-01-01", end_date: "2025-01-05"}'
_SOURCE = f"""
type: lake_orch.components.DeltaTableComponent
attributes:
  asset: {{key: source, partitions_def: {_DAILY}}}
  engine: duckdb
  sql: SELECT CAST($partition_key AS DATE) AS day, 1 AS amount
  partition_expr: day
"""


@contextmanager
def _loaded(tmp_path: Path, files: dict[str, str]) -> Iterator[dg.Definitions]:
    if not Lake.exists(tmp_path / "lake"):
        Lake.create(tmp_path / "lake")
    lake = f"type: lake_orch.components.LakeComponent\nattributes: {{root: '{tmp_path / 'lake'}'}}\n"
    with create_defs_folder_sandbox() as sandbox:
        for name, text in {"lake/defs.yaml": lake, **files}.items():
            (sandbox.defs_folder_path / name).parent.mkdir(exist_ok=True)
            (sandbox.defs_folder_path / name).write_text(text)
        with sandbox.build_all_defs() as definitions:
            yield definitions


def _causes(error: BaseException | None) -> str:
    """Return the messages of an error and of those that it was raised from."""
    return "" if error is None else f"{error}\n{_causes(error.__cause__)}"


def _component(sql: str, inputs: str, partitions: str = f", partitions_def: {_DAILY}") -> str:
    expr = "partition_expr: day" if partitions else ""
    return f"""
type: lake_orch.components.DeltaTableComponent
attributes:
  asset: {{key: result{partitions}}}
  engine: duckdb
  sql: {sql}
  inputs: {inputs}
  {expr}
"""


def _rows(tmp_path: Path) -> list[tuple[str, int]]:
    rows = Lake.open(tmp_path / "lake").delta("tables/result").to_arrow().to_pylist()
    return sorted((str(row.get("day")), row["amount"]) for row in rows)


def _run(definitions: dg.Definitions, assets: str, key: str | None) -> None:
    job = definitions.resolve_implicit_global_asset_job_def()
    chosen = [dg.AssetKey(assets)]
    with dg.DagsterInstance.ephemeral() as instance:
        assert job.execute_in_process(asset_selection=chosen, partition_key=key, instance=instance).success


def test_a_component_depends_on_the_partition_before(tmp_path: Path) -> None:
    inputs = "{source: {partition_mapping: {type: TimeWindowPartitionMapping, start_offset: -1, end_offset: -1}}}"
    sql = "SELECT CAST($partition_key AS DATE) AS day, CAST(sum(amount) AS INT) AS amount FROM source"
    with _loaded(tmp_path, {"s/defs.yaml": _SOURCE, "r/defs.yaml": _component(sql, inputs)}) as definitions:
        _run(definitions, "source", "2025-01-02")
        _run(definitions, "result", "2025-01-03")
    assert _rows(tmp_path) == [("2025-01-03", 1)]


def test_a_component_depends_on_itself(tmp_path: Path) -> None:
    code = """
import pyarrow as pa
from dagster import AssetExecutionContext


def result(context: AssetExecutionContext, before: pa.Table | None) -> pa.Table:
    day = context.partition_time_window.start.date()
    return pa.table({"day": [day], "amount": [1 if before is None else len(before) + 1]})
"""
    text = f"""
type: lake_orch.components.DeltaTableComponent
attributes:
  asset: {{key: result, partitions_def: {_DAILY}}}
  function: .code:result
  inputs:
    before:
      asset: result
      partition_mapping: {{type: TimeWindowPartitionMapping, start_offset: -1, end_offset: -1}}
  partition_expr: day
"""
    with _loaded(tmp_path, {"r/defs.yaml": text, "r/code.py": code}) as definitions:
        _run(definitions, "result", "2025-01-01")
        _run(definitions, "result", "2025-01-02")
    assert [amount for _, amount in _rows(tmp_path)] == [1, 2]


def test_a_component_depends_on_all_partitions(tmp_path: Path) -> None:
    inputs = "{source: {partition_mapping: AllPartitionMapping}}"
    sql = "SELECT CAST(sum(amount) AS INT) AS amount FROM source"
    with _loaded(tmp_path, {"s/defs.yaml": _SOURCE, "r/defs.yaml": _component(sql, inputs, "")}) as definitions:
        for day in ("2025-01-01", "2025-01-02"):
            _run(definitions, "source", day)
        _run(definitions, "result", None)
    assert _rows(tmp_path) == [("None", 2)]


@pytest.mark.parametrize(
    "mapping", ["Nothing", "{type: TimeWindowPartitionMapping, offset: 1}", "{start_offset: -1}", "[1]"]
)
def test_a_wrong_mapping_is_refused_when_it_loads(tmp_path: Path, mapping: str) -> None:
    inputs = f"{{source: {{partition_mapping: {mapping}}}}}"
    component = _component("SELECT day, amount FROM source", inputs)
    with (
        pytest.raises(Exception, match=r"defs\.yaml") as caught,
        _loaded(tmp_path, {"s/defs.yaml": _SOURCE, "r/defs.yaml": component}),
    ):
        pass
    assert "partition_mapping" in _causes(caught.value)


def test_a_query_that_is_skippable_is_refused(tmp_path: Path) -> None:
    component = _SOURCE.replace("key: source,", "key: source, skippable: true,")
    with pytest.raises(Exception, match=r"defs\.yaml") as caught, _loaded(tmp_path, {"s/defs.yaml": component}):
        pass
    assert "skippable" in _causes(caught.value)


def test_a_skippable_function_may_yield_nothing(tmp_path: Path) -> None:
    code = "def source():\n    yield from ()\n"
    text = (
        "type: lake_orch.components.DeltaTableComponent\nattributes: {asset: {key: source, skippable: true}, "
        "function: '.code:source'}\n"
    )
    with _loaded(tmp_path, {"s/defs.yaml": text, "s/code.py": code}) as definitions:
        _run(definitions, "source", None)
    assert Lake.open(tmp_path / "lake").list_datasets() == []
