"""Every kind of value in every mode, on plain tables, on a lake and in a run's session: each write happens once."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import DataFrame, SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import DeltaIOManager, LakeResource, SparkResource, testing

TARGETS = ["plain", "lake", "session"]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])

# Each mode's metadata, and the rows after two rounds: of `first`, then of `second`.
FIRST, SECOND = [(2, "a"), (3, "a")], [(3, "b"), (4, "b")]
MODES: dict[str, tuple[dict[str, Any], list[tuple[int, str]]]] = {
    "overwrite": ({"lake/mode": "overwrite"}, SECOND),
    "append": ({"lake/mode": "append"}, [(2, "a"), (3, "a"), (3, "b"), (4, "b")]),
    "merge": ({"lake/merge": ["id"]}, [(2, "a"), (3, "b"), (4, "b")]),
    "ignore": ({"lake/mode": "ignore"}, FIRST),
    # Two assets, one table: each replaces its own rows.
    "high": ({"lake/replace_where": "id > 1", "lake/path": "tables/both"}, [(0, "z"), *SECOND]),
    "low": ({"lake/replace_where": "id <= 1", "lake/path": "tables/both"}, [(0, "z"), *SECOND]),
}

KINDS: dict[str, tuple[type, Callable[[pa.Table], Any], Callable[[Any], list[dict[str, Any]]]]] = {
    "table": (pa.Table, lambda rows: rows, pa.Table.to_pylist),
    "reader": (pa.RecordBatchReader, pa.Table.to_reader, lambda reader: reader.read_all().to_pylist()),
    "dataset": (ds.Dataset, ds.dataset, lambda dataset: dataset.to_table().to_pylist()),
    "pandas": (pd.DataFrame, pa.Table.to_pandas, lambda frame: frame.to_dict("records")),
    "polars": (pl.DataFrame, pl.DataFrame, pl.DataFrame.to_dicts),
    "lazy": (pl.LazyFrame, lambda rows: pl.DataFrame(rows).lazy(), lambda frame: frame.collect().to_dicts()),
}


def table_of(rows: list[tuple[int, str]]) -> pa.Table:
    return pa.table({"id": [id for id, _ in rows], "v": [v for _, v in rows]}, SCHEMA)


def check(
    folder: Path,
    target: str,
    annotation: type,
    give: Callable[[pa.Table], Any],
    take: Callable[[Any], list[dict[str, Any]]],
    spark: SparkResource | None = None,
) -> None:
    root = str(folder / "lake")
    if target != "plain":
        Lake.create(root)
    lake = LakeResource(root=root)
    resources = {"io_manager": DeltaIOManager(lake=lake, spark=spark), "lake": lake}
    loaded: dict[str, list[tuple[int, str]]] = {}
    rounds = iter([FIRST, SECOND])
    rows_by_run: dict[str, list[tuple[int, str]]] = {}

    outs = {mode: dg.AssetOut(metadata=metadata) for mode, (metadata, _) in MODES.items()}

    @dg.multi_asset(outs=outs, retry_policy=dg.RetryPolicy(max_retries=1))
    def tables_by_mode(context: dg.AssetExecutionContext):
        if context.retry_number == 0:
            rows_by_run[context.run.run_id] = next(rounds)
        for mode in MODES:
            rows = [(0, "z")] if mode == "low" else rows_by_run[context.run.run_id]
            yield dg.Output(give(table_of(rows)), mode)
        if context.retry_number == 0:
            raise RuntimeError("every output is stored, and the step has failed")

    def seen_by(**values: Any) -> None:
        for mode, value in values.items():
            loaded[mode] = sorted((row["id"], row["v"]) for row in take(value))

    def reads(overwrite, append, merge, high) -> None:
        seen_by(overwrite=overwrite, append=append, merge=merge, high=high)

    reads.__annotations__ = dict.fromkeys(("overwrite", "append", "merge", "high"), annotation)

    @dg.asset(metadata={"lake/path": "tables/both"})
    def both() -> pa.Table:
        return table_of([])

    # An attempt that created a table cannot be replaced once others have written to it, so this table is created first.
    assert dg.materialize([both], resources=resources).success
    assets = [tables_by_mode, dg.asset(reads)]
    for run in (1, 2):
        result = (testing.materialize if target == "session" else dg.materialize)(assets, resources=resources)
        assert result.success
        if run == 2:
            for mode in loaded:
                assert loaded[mode] == MODES[mode][1], (mode, "as the next asset of the run reads it")
    for mode, (metadata, expected) in MODES.items():
        url = f"{root}/{metadata.get('lake/path', f'tables/{mode}')}"
        rows = DeltaTable.open(url).to_arrow().to_pylist()  # as any plain reader finds it
        assert sorted((row["id"], row["v"]) for row in rows) == sorted(expected), mode
    if target == "lake":
        datasets = [
            json.loads(commit.metadata["datasets"]) for commit in Lake.open(root).log() if "datasets" in commit.metadata
        ]
        assert sum("tables/append" in names for names in datasets) == 2, "two rounds, each published once"
    metadata_by_mode = {
        entry.materialization.asset_key.to_user_string(): {
            name: value.value for name, value in entry.materialization.metadata.items()
        }
        for entry in result.get_asset_materialization_events()
        if entry.materialization.asset_key.path[-1] in MODES
    }
    assert {mode: metadata_by_mode[mode]["lake/operation"] for mode in ("append", "merge", "ignore", "high")} == {
        "append": "append",
        "merge": "merge",
        "ignore": "ignore",
        "high": "replace_where",
    }
    assert (metadata_by_mode["merge"]["lake/rows_written"], metadata_by_mode["merge"]["dagster/row_count"]) == (2, 3)
    assert metadata_by_mode["append"].get("lake/skipped", False) is (target != "session"), (
        "a session replaces what the attempt before wrote"
    )


# By default each kind has its turn with one target.
DEFAULTS = set(zip(KINDS, ["session", "lake", "plain"] * 2, strict=True))


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        pytest.param(kind, target, marks=[] if (kind, target) in DEFAULTS else pytest.mark.exhaustive)
        for kind in KINDS
        for target in TARGETS
    ],
)
def test_every_mode(tmp_path: Path, kind: str, target: str) -> None:
    check(tmp_path, target, *KINDS[kind])


@pytest.mark.extended
@pytest.mark.parametrize("target", [pytest.param("plain", marks=pytest.mark.exhaustive), "session"])
def test_every_mode_in_spark(tmp_path: Path, spark: SparkSession, target: str) -> None:
    def rows(frame: DataFrame) -> list[dict[str, Any]]:
        return [row.asDict() for row in frame.collect()]

    check(tmp_path, target, DataFrame, spark.createDataFrame, rows, SparkResource())
