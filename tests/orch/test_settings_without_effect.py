"""Settings that have no effect on the format of an asset or input are refused, whatever they are."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest

from lake_core import Lake
from lake_orch import DeltaIOManager, FileIOManager, LakeResource, PoolIOManager
from lake_orch.assets.arrays import settings as array_settings
from lake_orch.assets.asset_format import asset_format_class
from lake_orch.assets.metadata_names import Use
from lake_orch.assets.pools import settings as pool_settings
from lake_orch.assets.tables import settings as table_settings
from lake_orch.errors import InvalidDefinition

NAMES = {format: asset_format_class(format).names for format in ("delta", "icechunk", "pool", "files")}
SETTINGS: dict[tuple[str, Use], Sequence[str]] = {
    (format, use): getattr(names, use) for format, names in NAMES.items() for use in ("output", "input")
}
EVERY = sorted({name for names in SETTINGS.values() for name in names})


@pytest.mark.parametrize("use", ["output", "input"])
@pytest.mark.parametrize("format", ["delta", "icechunk", "pool", "files"])
def test_only_settings_of_the_format_pass(format: str, use: Use) -> None:
    accepted = []
    for name in (*EVERY, "lake/zorder_by", "lake/mine", "lake/pth"):
        try:
            NAMES[format].check({name: 1}, use, "asset x")
        except InvalidDefinition as error:
            assert name in str(error)
        else:
            accepted.append(name)
    assert sorted(accepted) == sorted(SETTINGS[format, use])


def test_every_constant_of_a_setting_is_in_the_table() -> None:
    for module in (array_settings, pool_settings, table_settings):
        names = {value for value in vars(module).values() if isinstance(value, str) and value.startswith("lake/")}
        assert names <= set(EVERY)


def test_names_of_others_pass() -> None:
    NAMES["delta"].check({"team": 1, "dagster/uri": "x", "my/lake/path": 1}, "output", "asset x")


def test_the_error_names_the_format_that_has_the_setting() -> None:
    with pytest.raises(InvalidDefinition, match=r"'lake/times'.*setting of pools"):
        NAMES["delta"].check({"lake/times": ["a"]}, "output", "asset x")


@pytest.mark.parametrize(
    ("manager", "name", "value"),
    [
        (PoolIOManager, "lake/zorder_by", ["a"]),
        (PoolIOManager, "lake/cluster_by", ["a"]),
        (PoolIOManager, "lake/schema_mode", "merge"),
        (DeltaIOManager, "lake/times", ["a"]),
        (DeltaIOManager, "lake/zorder_by", ["a"]),
        (DeltaIOManager, "lake/schma_mode", "merge"),
        (DeltaIOManager, "lake/ref", "main"),
        (FileIOManager, "lake/mode", "append"),
        (FileIOManager, "lake/paht", "x"),
    ],
)
def test_nothing_is_written_for_an_asset_with_one(tmp_path: Path, manager: Any, name: str, value: Any) -> None:
    lake = Lake.create(tmp_path)

    @dg.asset(metadata={name: value})
    def text() -> str:
        return "x"

    @dg.asset(metadata={name: value})
    def rows() -> pa.Table:
        return pa.table({"ts": [1], "a": ["x"]})

    asset = text if manager is FileIOManager else rows
    resources = {"io_manager": manager(lake=LakeResource(root=str(tmp_path)))}
    with pytest.raises(InvalidDefinition, match=name):
        dg.materialize([asset], resources=resources)
    assert len(lake.log()) == 1


def test_a_setting_that_only_a_step_knows_is_refused(tmp_path: Path) -> None:
    @dg.asset
    def rows() -> dg.Output[pa.Table]:
        return dg.Output(pa.table({"a": [1]}), metadata={"lake/mode": "append"})

    lake = LakeResource(root=str(tmp_path))
    with pytest.raises(InvalidDefinition, match="code of asset rows returns the metadata 'lake/mode'"):
        dg.materialize([rows], resources={"io_manager": DeltaIOManager(lake=lake)})
    assert not any(tmp_path.iterdir())
