"""Landing zones that land in a format of another package, which is known by its entry points alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_orch import InvalidDefinition, LakeResource
from lake_orch.landing_zone import LandingZone, landing_zone_definitions
from tests.lake.lakes import TOY_FORMATS

sys.path.insert(0, str(TOY_FORMATS))


pytestmark = pytest.mark.usefixtures("toy_formats")


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


class Landing:
    """A folder of files, a register of a lake, and the sensor between them."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, **options: Any) -> None:
        self.folder, self.instance = folder / "landing", instance
        self.folder.mkdir()
        self.lake = Lake.create(folder / "lake")
        zone = LandingZone("names", str(self.folder))
        definitions = landing_zone_definitions(zone, into="register", **options)
        (self.asset,), (self.sensor,) = definitions.assets or (), definitions.sensors or ()
        self.resources = {"lake": LakeResource(root=str(folder / "lake"))}

    def request(self) -> dg.RunRequest | None:
        with dg.build_sensor_context(instance=self.instance, resources=self.resources) as context:
            result: Any = self.sensor(context)  # type: ignore[operator]
        return result.run_requests[0] if isinstance(result, dg.SensorResult) and result.run_requests else None

    def run(self, request: dg.RunRequest | None) -> dict[str, Any]:
        assert request is not None
        result = dg.materialize(
            [self.asset],  # type: ignore[list-item]
            resources=self.resources,
            instance=self.instance,
            tags=dict(request.tags),
        )
        (materialization,) = result.asset_materializations_for_node("names")
        return {name: value.value for name, value in materialization.metadata.items()}


def test_files_land_once_and_in_order(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    landing = Landing(tmp_path, instance)
    (landing.folder / "a.txt").write_text("Ada\nGrace\n")
    first = landing.request()
    assert landing.run(first)["lake/lines_written"] == 2
    assert landing.run(first)["lake/lines_written"] == 0, "the same batch again"
    (landing.folder / "b.txt").write_text("Grace\nEdsger\n")
    assert landing.run(landing.request())["lake/lines_written"] == 1
    assert landing.request() is None, "both batches have landed"
    lines = landing.lake.at().open("tables/names").lines()
    assert sorted(lines) == ["Ada", "Edsger", "Grace", "landing/names@1", "landing/names@2"]


def test_the_lines_of_a_batch_may_be_read_by_a_function(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    landing = Landing(tmp_path, instance, read=lambda batch: [file.key for file in batch.files])
    (landing.folder / "a.txt").write_text("Ada\n")
    landing.run(landing.request())
    assert "a.txt" in landing.lake.at().open("tables/names").lines()


def test_the_kind_of_an_asset_is_the_name_of_the_format(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    (spec,) = Landing(tmp_path, instance).asset.specs  # type: ignore[union-attr]
    assert spec.kinds == {"register"}


def test_a_format_in_which_no_files_land_is_refused_when_definitions_load() -> None:
    with pytest.raises(InvalidDefinition, match="lands in the format 'note', which takes no batches of files"):
        landing_zone_definitions(LandingZone("names", "landing"), into="note")


def test_a_setting_that_a_format_does_not_have_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="which have no partition_by: leave partition_by out"):
        landing_zone_definitions(LandingZone("names", "landing"), into="register", partition_by=["day"])


@pytest.mark.parametrize("into", ["table", "pool"])
def test_a_mode_that_would_replace_what_has_landed_is_refused(into: str) -> None:
    with pytest.raises(InvalidDefinition, match="lake/mode of landing zone 'names' is 'overwrite', but batches"):
        landing_zone_definitions(LandingZone("names", "landing"), into=into, metadata={"lake/mode": "overwrite"})
