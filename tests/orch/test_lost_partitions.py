"""An asset that lost its partitions does not replace all of them by accident."""

from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_orch import DeltaIOManager, LakeResource
from lake_orch.errors import TableOwned

_DAYS = dg.StaticPartitionsDefinition(["a", "b"])


def _asset(partitions: dg.PartitionsDefinition[str] | None, **metadata: Any) -> dg.AssetsDefinition:
    @dg.asset(partitions_def=partitions, metadata={"partition_expr": "p"} | metadata if partitions else metadata)
    def rows(context: dg.AssetExecutionContext) -> pa.Table:
        return pa.table({"p": [context.partition_key if context.has_partition_key else "a"], "v": [1]})

    definition: dg.AssetsDefinition = rows
    return definition


def _run(root: Path, asset: dg.AssetsDefinition, key: str | None = None) -> None:
    resources = {"io_manager": DeltaIOManager(lake=LakeResource(root=str(root)))}
    assert dg.materialize([asset], resources=resources, partition_key=key).success


def _partitions(root: Path) -> list[str]:
    return sorted(
        DeltaIOManager(lake=LakeResource(root=str(root)))
        .lake.read_table("tables/rows", None)
        .to_arrow()["p"]
        .to_pylist()
    )


@pytest.fixture(params=["lake", "folder"])
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "lake":
        Lake.create(tmp_path)
    for key in "ab":
        _run(tmp_path, _asset(_DAYS), key)
    return tmp_path


def test_an_overwrite_without_partitions_is_refused(root: Path) -> None:
    with pytest.raises(TableOwned, match="replace all partitions"):
        _run(root, _asset(None))
    assert _partitions(root) == ["a", "b"]


def test_it_may_be_asked_for(root: Path) -> None:
    _run(root, _asset(None, **{"lake/owner": "take"}))
    assert _partitions(root) == ["a"]
    _run(root, _asset(None))
    assert _partitions(root) == ["a"], "the table is one without partitions from then on"


@pytest.mark.parametrize("mode", ["append", "overwrite_partitions"])
def test_what_keeps_the_other_partitions_is_written(root: Path, mode: str) -> None:
    _run(root, _asset(None, **{"lake/mode": mode}))
    assert set(_partitions(root)) == {"a", "b"}


def test_partitions_go_on(root: Path) -> None:
    _run(root, _asset(_DAYS), "a")
    assert _partitions(root) == ["a", "b"]
