"""Assets in S3: options of every shape reach the store, secrets from the environment and nowhere else."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import dagster as dg
import pyarrow as pa
import pytest

from lake_core.delta import DeltaTable
from lake_orch import DeltaIOManager, LakeResource
from lake_orch.errors import InvalidDefinition


def _resources(s3_url: str, s3_options: dict[str, object]) -> dict[str, object]:
    options = {
        "key": dg.EnvVar("LAKE_KEY"),
        "secret": dg.EnvVar("LAKE_SECRET"),
        "client_kwargs": {"endpoint_url": str(s3_options["endpoint_url"]), "region_name": dg.EnvVar("LAKE_REGION")},
        "use_ssl": False,
    }
    lake = LakeResource(root=s3_url, storage_options=options)
    return {"io_manager": DeltaIOManager(lake=lake), "lake": lake}


def _assets() -> list[dg.AssetsDefinition]:
    @dg.asset(partitions_def=dg.StaticPartitionsDefinition(["a", "b"]), metadata={"partition_expr": "p"})
    def parts(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"p": [context.partition_key] * 3, "n": [1, 2, 3]})

    @dg.asset(deps=[parts])
    def batches(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult:
        table = lake.table(context)
        table.append(pa.table({"n": [1]}))
        table.append(pa.table({"n": [2]}))
        return dg.MaterializeResult(metadata=table.metadata())

    return [parts, batches]


def test_a_table_in_s3(s3_url: str, s3_options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", str(s3_options["key"]))
    monkeypatch.setenv("LAKE_SECRET", str(s3_options["secret"]))
    monkeypatch.setenv("LAKE_REGION", "us-east-1")
    parts, batches = _assets()
    with dg.DagsterInstance.ephemeral() as instance:
        for key in ("a", "b", "a"):
            assert dg.materialize(
                [parts], partition_key=key, resources=_resources(s3_url, s3_options), instance=instance
            ).success
        result = dg.materialize(
            [batches, parts.to_source_assets()[0]], resources=_resources(s3_url, s3_options), instance=instance
        )
        assert result.success
        (event,) = result.get_asset_materialization_events()
        assert event.materialization.metadata["dagster/uri"].value == f"{s3_url}/tables/batches"
        logs = "".join(str(entry) for run in instance.get_runs() for entry in instance.all_logs(run.run_id))
        assert str(s3_options["secret"]) not in logs
    rows = DeltaTable.open(f"{s3_url}/tables/parts", storage_options=s3_options).to_arrow()
    assert sorted(zip(rows["p"].to_pylist(), rows["n"].to_pylist(), strict=True)) == [
        (p, n) for p in "ab" for n in (1, 2, 3)
    ]
    assert DeltaTable.open(f"{s3_url}/tables/batches", storage_options=s3_options).version == 2


def test_a_secret_that_is_not_set_is_named(
    s3_url: str, s3_options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LAKE_KEY", raising=False)
    with pytest.raises(InvalidDefinition, match="LAKE_KEY"):
        dg.materialize(_assets()[:1], partition_key="a", resources=_resources(s3_url, s3_options))
