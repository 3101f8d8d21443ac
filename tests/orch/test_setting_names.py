"""Settings that have no effect are refused, whatever the format is."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from lake_orch.arrays.settings import ArrayInputSettings, ArraySettings
from lake_orch.errors import InvalidDefinition
from lake_orch.maintenance import MaintenanceTarget, lake_maintenance
from lake_orch.pools.settings import PoolInputSettings, PoolSettings
from lake_orch.setting_names import INPUT_SETTINGS, OUTPUT_SETTINGS, Format, check_input, check_output
from lake_orch.tables.settings import InputSettings, TableSettings

FORMATS: tuple[Format, ...] = ("tables", "arrays", "pools", "files")


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("other", FORMATS)
def test_a_setting_of_another_format_is_refused(format: Format, other: Format) -> None:
    for name in OUTPUT_SETTINGS[other] - OUTPUT_SETTINGS[format]:
        with pytest.raises(InvalidDefinition, match=f"'{name}', which has no effect: it is for .*{other}"):
            check_output({name: 1}, format, "asset a")


@pytest.mark.parametrize("format", FORMATS)
def test_a_setting_of_inputs_is_refused_for_an_asset(format: Format) -> None:
    for name in set().union(*INPUT_SETTINGS.values()) - set().union(*OUTPUT_SETTINGS.values()):
        with pytest.raises(InvalidDefinition, match="it is for inputs"):
            check_output({name: 1}, format, "asset a")


@pytest.mark.parametrize("format", FORMATS)
def test_own_settings_and_names_of_other_tools_pass(format: Format) -> None:
    check_output(dict.fromkeys([*OUTPUT_SETTINGS[format], "lake/somebody_elses", "other/x"], 1), format, "asset a")
    check_input(dict.fromkeys([*INPUT_SETTINGS[format], "other/x"], 1), format, "input a")


@pytest.mark.parametrize(
    ("parse", "metadata"),
    [
        (TableSettings.parse, {"lake/encoding": {}}),
        (TableSettings.parse, {"lake/where": "id > 1"}),
        (ArraySettings.parse, {"lake/cluster_by": ["a"]}),
        (PoolSettings.parse, {"lake/merge": ["id"]}),
        (PoolSettings.parse, {"lake/partition_by": ["id"]}),
    ],
)
def test_each_format_checks_what_it_parses(parse: Any, metadata: dict[str, Any]) -> None:
    with pytest.raises(InvalidDefinition, match="which has no effect"):
        parse(["a"], metadata, "asset a")


@pytest.mark.parametrize("settings", [InputSettings, ArrayInputSettings, PoolInputSettings])
def test_each_format_checks_its_inputs(settings: Any) -> None:
    with pytest.raises(InvalidDefinition, match="which has no effect"):
        settings.parse({"lake/mode": "append"}, "input a")


@pytest.mark.parametrize(
    ("format", "setting"),
    [
        ("pool", {"zorder_by": ("a",)}),
        ("pool", {"max_uncheckpointed_commits": 3}),
        ("icechunk", {"target_size": 1}),
        ("delta", {"max_mergeable_objects": 3}),
    ],
)
def test_a_target_refuses_settings_of_other_formats(format: Any, setting: dict[str, Any]) -> None:
    (name,) = setting
    target = MaintenanceTarget("x", dg.AssetKey("x"), format=format, **setting)
    with pytest.raises(InvalidDefinition, match=f"{name} has no effect on x, which is of the format {format}"):
        target.check()


def test_a_setting_for_all_targets_needs_one_that_has_it() -> None:
    with pytest.raises(InvalidDefinition, match="small_file has no effect on targets of the format icechunk or pool"):
        lake_maintenance([], arrays=["tables/a"], pools=["tables/b"], small_file=1)


def test_a_setting_for_all_targets_holds_for_those_that_have_it() -> None:
    assert lake_maintenance(["tables/t"], arrays=["tables/a"], small_file=1, max_mergeable_manifests=3).assets
