"""Landing zones that land in pools: records of any shape, each file once, and files that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from lake_core import Lake
from lake_orch import InvalidDefinition, LakeResource, UnsupportedData
from lake_orch.assets.pools import landing as pools_landing
from lake_orch.errors import LandingForgotten
from lake_orch.landing_zone import LandingZone, landing_zone_definitions


class Landing:
    """A folder of files, a pool, and the sensor between them."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance) -> None:
        self.folder, self.instance = folder / "landing", instance
        self.folder.mkdir()
        self.lake = LakeResource(root=str(folder / "root"))
        zone = LandingZone("events", str(self.folder), pattern="*.ndjson*")
        definitions = landing_zone_definitions(zone, into="pool", metadata={"lake/key": "k", "lake/order": "asc"})
        (self.asset,), (self.sensor,) = definitions.assets or (), definitions.sensors or ()

    def request(self) -> dg.RunRequest | None:
        with dg.build_sensor_context(instance=self.instance, resources={"lake": self.lake}) as context:
            result: Any = self.sensor(context)  # type: ignore[operator]
        return result.run_requests[0] if isinstance(result, dg.SensorResult) and result.run_requests else None

    def run(self, request: dg.RunRequest | None) -> dict[str, Any]:
        assert request is not None
        result = dg.materialize(
            [self.asset], resources={"lake": self.lake}, instance=self.instance, tags=dict(request.tags)
        )  # type: ignore[list-item]
        return {
            name: value.value for name, value in result.asset_materializations_for_node("events")[0].metadata.items()
        }

    def records(self) -> list[str]:
        return self.lake.read_pool("tables/events", None).scan().to_zson().splitlines()


@pytest.fixture
def landing(tmp_path: Path) -> Iterator[Landing]:
    with dg.DagsterInstance.ephemeral(str(tmp_path)) as instance:
        yield Landing(tmp_path, instance)


def test_a_batch_lands_once_also_one_without_records(landing: Landing) -> None:
    (landing.folder / "a.ndjson").write_text('{"k": 2}\n{"k": null}\n{"other": {"shape": [1, "x"]}}\n')
    request = landing.request()
    shown = landing.run(request)
    assert (shown["lake/records_written"], shown["lake/landing_batch"], shown["lake/num_shapes"]) == (3, 1, 3)
    assert landing.run(request)["lake/skipped"], "the same batch again"
    assert landing.records() == ["{k:2}", "{k:null}", '{other:{shape:[1,"x"]}}']
    (landing.folder / "b.ndjson").write_text("\n")
    assert landing.run(landing.request())["lake/records_written"] == 0
    assert landing.request() is None, "the batch without records has landed"


def test_a_pool_that_was_there_lands_again_what_is_reverted(landing: Landing) -> None:
    lake = Lake.create(landing.lake.root)
    with lake.session() as session:
        session.create("tables/events", "pool", key="k", order="asc")
    (landing.folder / "a.ndjson").write_text('{"k": 1}\n')
    landing.run(landing.request())
    assert landing.request() is None
    lake.revert(lake.log()[0].id)
    assert landing.records() == []
    landing.run(landing.request())
    assert landing.records() == ["{k:1}"]


def test_a_pool_that_has_forgotten_refuses_what_may_be_there(landing: Landing, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = Lake.create(landing.lake.root)
    with lake.session() as session:
        session.create("tables/events", "pool", key="k", order="asc")
    (landing.folder / "a.ndjson").write_text('{"k": 1}\n')
    landing.run(landing.request())
    monkeypatch.setattr(pools_landing, "TXN_RETENTION", timedelta(0))
    monkeypatch.setattr(pools_landing.PoolLanding, "last_batch", lambda *arguments: None)
    (landing.folder / "b.ndjson").write_text('{"k": 2}\n')
    with pytest.raises(LandingForgotten, match="assume_landed="):
        landing.request()


def test_a_file_that_is_not_json_is_named_and_holds_up_its_batch(landing: Landing) -> None:
    (landing.folder / "a.ndjson").write_text('{"k": 1}\n')
    (landing.folder / "b.ndjson").write_text('{"k": 2}\n{"k": \n')
    request = landing.request()
    with pytest.raises(
        UnsupportedData,
        match=r"b\.ndjson of landing zone 'events' does not have one JSON object in each line: "
        r"line 2: .* Correct the file",
    ):
        landing.run(request)
    (landing.folder / "b.ndjson").write_text('{"k": 2}\n')
    assert landing.run(request)["lake/records_written"] == 2
    assert landing.records() == ["{k:1}", "{k:2}"]


@pytest.mark.parametrize(
    ("line", "reason"), [('[{"k": 2}]', "is an array; write one object on each line"), ("7", "is no object")]
)
def test_a_line_that_is_not_an_object_holds_up_its_batch(landing: Landing, line: str, reason: str) -> None:
    (landing.folder / "a.ndjson").write_text(f'{{"k": 1}}\n\n{line}\n')
    with pytest.raises(UnsupportedData, match=rf"a\.ndjson of landing zone 'events' .* line 3: .* {reason}"):
        landing.run(landing.request())


def test_a_byte_order_mark_before_the_first_line_is_passed_over(landing: Landing) -> None:
    (landing.folder / "a.ndjson").write_text('{"k": 1}\n', encoding="utf-8-sig")
    landing.run(landing.request())
    assert landing.records() == ["{k:1}"]


def test_a_pool_takes_no_schema() -> None:
    with pytest.raises(InvalidDefinition, match="lands in pools, which have no partition_by: leave partition_by out"):
        landing_zone_definitions(LandingZone("events", "landing"), into="pool", partition_by=["day"])
