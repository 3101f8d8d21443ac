"""Settings of maintenance that have no effect are refused, whatever the format is."""

from __future__ import annotations

from typing import Any

import dagster as dg
import pytest

from lake_orch.errors import InvalidDefinition
from lake_orch.maintenance import MaintenanceTarget, lake_maintenance


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
