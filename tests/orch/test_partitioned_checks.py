"""Checks of a partitioned component: each result is of its partition, so that a failed day stays failed."""

from pathlib import Path

import dagster as dg
import pytest
from dagster.components.testing.utils import create_defs_folder_sandbox

from lake_core import Lake

_STATIC = """
import pyarrow as pa
from dagster import AssetExecutionContext


def orders(context: AssetExecutionContext) -> pa.Table:
    return pa.table({"day": [context.partition_key], "amount": [-1 if context.partition_key == "a" else 1]})
"""


def _results(tmp_path: Path, partitions: str, code: str, keys: list[str]) -> list[tuple[str | None, bool]]:
    Lake.create(tmp_path / "lake")
    files = {
        "lake/defs.yaml": f"type: lake_orch.components.LakeComponent\nattributes: {{root: '{tmp_path / 'lake'}'}}\n",
        "orders/defs.yaml": f"""
type: lake_orch.components.DeltaTableComponent
attributes:
  asset: {{key: orders{partitions}}}
  function: .orders:orders
  {"partition_expr: day" if partitions else ""}
  checks:
    - {{name: positive, expression: amount > 0}}
""",
        "orders/orders.py": code,
    }
    with create_defs_folder_sandbox() as sandbox:
        for name, text in files.items():
            (sandbox.defs_folder_path / name).parent.mkdir(exist_ok=True)
            (sandbox.defs_folder_path / name).write_text(text)
        with sandbox.build_all_defs() as definitions, dg.DagsterInstance.ephemeral() as instance:
            job = definitions.resolve_implicit_global_asset_job_def()
            results = []
            for key in keys or [None]:
                result = job.execute_in_process(partition_key=key, instance=instance)
                results += [(check.partition, check.passed) for check in result.get_asset_check_evaluations()]
    return results


def test_static_partitions_have_their_results(tmp_path: Path) -> None:
    partitions = ", partitions_def: {type: static, partition_keys: [a, b]}"
    assert _results(tmp_path, partitions, _STATIC, ["a", "b"]) == [("a", False), ("b", True)]


@pytest.mark.filterwarnings("error::dagster.PreviewWarning")
def test_no_warning_of_a_new_parameter_is_shown(tmp_path: Path) -> None:
    partitions = ", partitions_def: {type: static, partition_keys: [a, b]}"
    assert _results(tmp_path, partitions, _STATIC, ["b"]) == [("b", True)]


def test_without_partitions_there_is_none(tmp_path: Path) -> None:
    code = "import pyarrow as pa\n\n\ndef orders() -> pa.Table:\n    return pa.table({'amount': [1]})\n"
    assert _results(tmp_path, "", code, []) == [(None, True)]


def test_a_run_over_several_partitions_has_one_result(tmp_path: Path) -> None:
    Lake.create(tmp_path / "lake")
    code = """
import pyarrow as pa
from dagster import AssetExecutionContext


def orders(context: AssetExecutionContext) -> pa.Table:
    keys = list(context.partition_keys)
    return pa.table({"day": keys, "amount": [-1 if key == "a" else 1 for key in keys]})
"""
    files = {
        "lake/defs.yaml": f"type: lake_orch.components.LakeComponent\nattributes: {{root: '{tmp_path / 'lake'}'}}\n",
        "orders/defs.yaml": """
type: lake_orch.components.DeltaTableComponent
attributes:
  asset: {key: orders, partitions_def: {type: static, partition_keys: [a, b, c]}}
  function: .orders:orders
  partition_expr: day
  backfill: single_run
  checks:
    - {name: positive, expression: amount > 0}
""",
        "orders/orders.py": code,
    }
    with create_defs_folder_sandbox() as sandbox:
        for name, text in files.items():
            (sandbox.defs_folder_path / name).parent.mkdir(exist_ok=True)
            (sandbox.defs_folder_path / name).write_text(text)
        with sandbox.build_all_defs() as definitions, dg.DagsterInstance.ephemeral() as instance:
            job = definitions.resolve_implicit_global_asset_job_def()
            tags = {"dagster/asset_partition_range_start": "a", "dagster/asset_partition_range_end": "c"}
            result = job.execute_in_process(instance=instance, tags=tags)
            found = [(check.partition, check.passed) for check in result.get_asset_check_evaluations()]
    assert found == [(None, False)], "Dagster gives a result the partition of its step, if the step has one"
