"""Landing zones: each file is in its table exactly once, whatever is killed, fired again or rewritten."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import os
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_orch import LakeResource
from lake_orch.errors import FilesGone, InvalidDefinition, LandingForgotten
from lake_orch.landing_zone import LandedBatch, LandingZone, landing_zone_definitions
from lake_orch.landing_zone.definitions import BATCH_TAG, ledger_of
from tests.lake.lakes import forget_datasets


class Zone:
    """A folder of files, a table, and the sensor between them."""

    def __init__(self, folder: Path, instance: dg.DagsterInstance, *, is_lake: bool = True, **options: Any) -> None:
        self.folder, self.instance = folder, instance
        self.landing = folder / "landing"
        self.landing.mkdir()
        self.zone = LandingZone("events", str(self.landing), **{"pattern": "*.parquet", **options})
        self.lake = LakeResource(root=str(folder / "lake"))
        if is_lake:
            Lake.create(folder / "lake")
        self.lake_is_made = is_lake
        self.fail = False
        self.cursor: str | None = None
        self.define()

    def define(self, **sensor: Any) -> None:
        def read(batch: LandedBatch) -> pa.Table:
            if self.fail:
                raise RuntimeError("as it was to")
            return batch.to_arrow()

        self.defs = landing_zone_definitions(self.zone, read=read, sensor=sensor)
        (self.asset,), (self.sensor,) = self.defs.assets or (), self.defs.sensors or ()

    def drop(self, name: str, *ids: int) -> None:
        path = self.landing / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64())}), path)

    def tick(self) -> Any:
        with dg.build_sensor_context(
            instance=self.instance, cursor=self.cursor, resources={"lake": self.lake}
        ) as context:
            result = self.sensor(context)
            self.cursor = context.cursor
        return result

    def requests(self) -> list[dg.RunRequest]:
        result = self.tick()
        return list(result.run_requests) if isinstance(result, dg.SensorResult) else []

    def run(self, request: dg.RunRequest) -> bool:
        result = dg.materialize(
            [self.asset],
            resources={"lake": self.lake},
            instance=self.instance,
            tags=dict(request.tags),
            raise_on_error=False,
        )
        return result.success

    def drain(self) -> int:
        """Run whatever the sensor requests, and return the number of runs."""
        count = 0
        while requests := self.requests():
            for request in requests:
                self.run(request)
                count += 1
        return count

    def ids(self) -> list[int]:
        table = self.lake.find_table("tables/events")
        return [] if table is None else sorted(table.to_arrow()["id"].to_pylist())

    def observations(self) -> list[dict[str, Any]]:
        records = self.instance.fetch_observations(dg.AssetKey("events"), limit=50).records
        events = [record.event_log_entry.asset_observation for record in records]
        return [{name: value.value for name, value in event.metadata.items()} for event in events if event is not None]


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture(params=["lake", pytest.param("plain", marks=pytest.mark.exhaustive)])
def zone(request: pytest.FixtureRequest, tmp_path: Path, instance: dg.DagsterInstance) -> Zone:
    return Zone(tmp_path, instance, is_lake=request.param == "lake")


def test_files_land_once_in_order(zone: Zone) -> None:
    assert "no new files" in str(zone.tick())
    zone.drop("a.parquet", 1, 2)
    zone.drop("sub/b.parquet", 3)
    zone.drop("_hidden.parquet", 99)
    zone.drop("other.csv", 98)
    assert zone.drain() == 1
    assert zone.ids() == [1, 2, 3]
    assert zone.drain() == 0
    zone.drop("c.parquet", 4)
    assert zone.drain() == 1
    assert zone.ids() == [1, 2, 3, 4]
    event = zone.instance.get_latest_materialization_event(dg.AssetKey("events"))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    assert metadata["lake/landing_batch"].value == 2
    assert metadata["lake/files_landed"].value == 1


def test_a_lost_cursor_lands_nothing_twice(zone: Zone) -> None:
    zone.drop("a.parquet", 1)
    zone.drain()
    zone.cursor = None
    assert zone.drain() == 0
    zone.drop("b.parquet", 2)
    zone.cursor = '{"landed": 0, "batch": 0}'
    assert zone.drain() == 1
    assert zone.ids() == [1, 2]


@pytest.mark.parametrize("zone", ["lake", "plain"], indirect=True)
def test_a_batch_that_is_run_again_adds_nothing(zone: Zone) -> None:
    zone.drop("a.parquet", 1)
    (request,) = zone.requests()
    zone.drop("b.parquet", 2)
    assert zone.run(request)
    assert zone.run(request)
    assert zone.ids() == [1]
    assert zone.drain() == 1
    assert zone.ids() == [1, 2]
    assert zone.run(request)
    assert zone.ids() == [1, 2], "an orphan of the first batch comes last"


def test_a_failed_batch_is_tried_again_and_those_behind_it_wait(zone: Zone) -> None:
    zone.fail = True
    zone.drop("a.parquet", 1)
    keys = []
    for _ in range(4):
        (request,) = zone.requests()
        keys.append(request.run_key)
        assert not zone.run(request)
    assert len(set(keys)) == 4, "each try is a run of its own"
    zone.drop("b.parquet", 2)
    message = str(zone.tick())
    assert "failed 4 times" in message
    assert "re-execute" in message
    zone.fail = False
    zone.run(request)
    assert zone.ids() == [1]
    assert zone.drain() == 1
    assert zone.ids() == [1, 2]


def test_a_batch_does_not_land_before_an_earlier_one(zone: Zone) -> None:
    """Its marker would make the earlier one look landed."""
    zone.drop("a.parquet", 1)
    (first,) = zone.requests()
    zone.drop("b.parquet", 2)
    ledger = ledger_of(zone.zone, zone.lake)
    batch = ledger.make_batch(zone.zone.files())
    assert batch is not None
    assert batch.number == 2
    second = dg.RunRequest(tags={**first.tags, BATCH_TAG: "2"})
    assert not zone.run(second)
    assert zone.ids() == []
    assert zone.run(first)
    assert zone.run(second)
    assert zone.ids() == [1, 2]


def test_late_and_rewritten_files_are_told_once(zone: Zone) -> None:
    zone.drop("2024-02.parquet", 2)
    zone.drain()
    zone.drop("2024-01.parquet", 1)
    zone.drain()
    assert zone.ids() == [1, 2]
    assert [metadata["lake/late_files"] for metadata in zone.observations() if "lake/late_files" in metadata] == [1]
    zone.drop("2024-02.parquet", 2, 22)
    assert zone.drain() == 0
    assert zone.drain() == 0
    assert zone.ids() == [1, 2]
    assert [
        metadata["lake/rewritten_files"] for metadata in zone.observations() if "lake/rewritten_files" in metadata
    ] == [1]


def test_a_file_that_is_rewritten_is_told_though_its_batch_ran_again_before_the_sensor(zone: Zone) -> None:
    zone.drop("a.parquet", 1)
    (request,) = zone.requests()
    assert zone.run(request)
    zone.drop("a.parquet", 10, 11)
    assert zone.run(request)
    zone.drain()
    assert zone.ids() == [1]
    assert [metadata.get("lake/rewritten_files") for metadata in zone.observations()] == [1]


def test_a_file_that_is_replaced_before_it_landed_is_read_as_it_is(zone: Zone) -> None:
    zone.fail = True
    zone.drop("a.parquet", 1)
    (request,) = zone.requests()
    zone.run(request)
    zone.drop("a.parquet", 10, 11)
    zone.fail = False
    assert zone.drain() == 1
    assert zone.ids() == [10, 11]
    assert zone.drain() == 0
    assert zone.observations() == []


def test_a_file_that_is_gone_before_it_landed(zone: Zone) -> None:
    zone.drop("a.parquet", 1)
    (request,) = zone.requests()
    (zone.landing / "a.parquet").unlink()
    assert not zone.run(request)
    with pytest.raises(FilesGone, match=r"a\.parquet is gone"):
        LandedBatch.begin(ledger_of(zone.zone, zone.lake), 1)
    zone.drop("a.parquet", 1)
    assert zone.drain() == 1
    assert zone.ids() == [1]


def test_an_expired_marker_is_no_reason_to_land_again(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance, is_lake=False)
    zone.drop("a.parquet", 1)
    assert zone.drain() == 1
    assert zone.drain() == 0
    table = DeltaTable.open(f"{zone.lake.root}/tables/events")
    table.set_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    zone.drop("b.parquet", 2)
    assert zone.drain() == 1
    assert zone.ids() == [1, 2]


def test_batches_are_bounded(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance, max_files=2)
    for number in range(5):
        zone.drop(f"{number}.parquet", number)
    assert zone.drain() == 3
    assert zone.ids() == [0, 1, 2, 3, 4]
    assert [len(batch.files) for batch in ledger_of(zone.zone, zone.lake).batches()] == [2, 2, 1]


def test_files_settle_before_they_count(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance, settle=timedelta(minutes=5))
    zone.drop("a.parquet", 1)
    assert zone.drain() == 0
    an_hour_ago = (datetime.now(UTC) - timedelta(hours=1)).timestamp()
    os.utime(zone.landing / "a.parquet", (an_hour_ago, an_hour_ago))
    assert zone.drain() == 1
    assert zone.ids() == [1]


def test_formats_by_name(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance, pattern="*.csv")
    csv.write_csv(pa.table({"id": [7]}), zone.landing / "a.csv")
    assert zone.drain() == 1
    assert zone.ids() == [7]
    mixed = Zone(tmp_path / "mixed", instance, pattern="*") if (tmp_path / "mixed").mkdir() is None else zone
    mixed.drop("a.parquet", 1)
    (mixed.landing / "b.unknown").write_bytes(b"?")
    batch = mixed.requests()
    assert not mixed.run(batch[0])
    with pytest.raises(InvalidDefinition, match="name the format"):
        LandedBatch.begin(ledger_of(mixed.zone, mixed.lake), 1).to_arrow()


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 200])
def test_names_that_name_no_zone(name: str) -> None:
    with pytest.raises(InvalidDefinition):
        LandingZone(name, "/landing")


def test_two_sensors_make_one_batch_between_them(zone: Zone) -> None:
    zone.drop("a.parquet", 1)
    first, other = ledger_of(zone.zone, zone.lake), ledger_of(zone.zone, zone.lake)
    files = zone.zone.files()
    assert first.make_batch(files) is not None
    assert other.make_batch(files) is None
    assert [batch.number for batch in other.batches()] == [1]


def test_a_lake_that_is_made_anew_lands_its_files_again_though_dagster_knows_the_earlier_runs(zone: Zone) -> None:
    zone.drop("a.parquet", 1)
    zone.fail = True
    keys = set()
    while requests := zone.requests():  # until it gives up
        keys.add(requests[0].run_key)
        zone.run(dg.RunRequest(tags={**requests[0].tags, "dagster/run_key": str(requests[0].run_key)}))
    assert len(keys) == 4
    shutil.rmtree(zone.folder / "lake")
    if zone.lake_is_made:
        Lake.create(zone.folder / "lake")
    zone.fail = False
    (request,) = zone.requests()
    assert request.run_key not in keys
    assert zone.run(request)
    assert zone.ids() == [1]


def test_each_dataset_and_branch_says_what_has_landed_in_it(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    zone.lake = LakeResource(root=zone.lake.root, branch="pr-1", branch_from="main")
    zone.drop("a.parquet", 1)
    zone.drop("b.parquet", 2)
    assert zone.drain() == 1, "on a branch that main does not know of"
    zone.lake = LakeResource(root=zone.lake.root)
    assert zone.ids() == []
    assert zone.drain() == 1
    assert zone.ids() == [1, 2]
    zone.define(name="other")
    zone.defs = landing_zone_definitions(zone.zone, key="others")
    (zone.asset,), (zone.sensor,) = zone.defs.assets or (), zone.defs.sensors or ()
    assert zone.drain() == 1, "in another table"
    assert sorted(zone.lake.find_table("tables/others").to_arrow()["id"].to_pylist()) == [1, 2]
    assert zone.ids() == [1, 2]


def test_the_retries_of_one_branch_are_not_those_of_another(zone: Zone) -> None:
    zone.fail = True
    zone.drop("a.parquet", 1)
    main = zone.lake
    zone.lake = LakeResource(root=main.root, branch="staging")
    if main.is_lake():
        Lake.open(main.root).create_branch("staging")
    assert zone.drain() == 4
    zone.fail, zone.lake = False, main
    assert zone.drain() == int(main.is_lake()), "in a folder of plain tables, there are no branches"


def test_a_batch_that_was_reverted_lands_again(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    zone.drain()
    zone.drop("b.parquet", 2)
    zone.drain()
    lake = Lake.open(zone.lake.root)
    for commit in lake.log()[:2]:
        lake.revert(commit.id)
    assert zone.ids() == []
    assert zone.drain() == 2
    assert zone.ids() == [1, 2]


def test_a_batch_that_lands_again_after_a_drop_is_no_failure(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    zone.define(max_retries=0)
    zone.drop("a.parquet", 1)
    for _ in range(3):
        assert zone.drain() == 1
        with Lake.open(zone.lake.root).session() as session:
            session.drop("tables/events")


def test_a_branch_that_is_set_back_gets_the_files_again(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    lake = Lake.open(zone.lake.root)
    with lake.session() as session:
        session.create_delta("tables/events", pa.schema([("id", pa.int64())]))
    zone.lake = LakeResource(root=zone.lake.root, branch="dev")
    zone.drop("a.parquet", 1)
    for _ in range(2):
        lake.create_branch("dev")
        assert zone.drain() == 1
        assert lake.delta("tables/events", ref="dev").to_arrow()["id"].to_pylist() == [1]
        lake.delete_branch("dev")


def test_two_folders_do_not_share_a_name(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    zone.drain()
    moved = zone.landing.rename(tmp_path / "moved")
    zone.landing = moved
    zone.zone = LandingZone("events", str(moved))
    zone.define()
    with pytest.raises(InvalidDefinition, match=r"has landed files of .*/landing, and not of .*/moved.*moved_from="):
        zone.tick()
    zone.zone = LandingZone("events", str(moved), moved_from=str(tmp_path / "landing"))
    zone.define()
    zone.drop("b.parquet", 2)
    assert zone.drain() == 1
    assert zone.ids() == [1, 2]


def test_the_password_of_a_url_is_not_stored(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    files = zone.zone.files()
    ledger = ledger_of(LandingZone("remote", "sftp://ada:secret@host/landing"), zone.lake)
    ledger.make_batch(files)
    stored = b"".join(file.read_bytes() for file in (tmp_path / "lake" / "_landing").rglob("*") if file.is_file())
    assert b"sftp://host/landing" in stored
    assert b"secret" not in stored


def test_a_forgotten_batch_does_not_land_again(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance, is_lake=False)
    zone.drop("a.parquet", 1)
    (request,) = zone.requests()
    zone.run(request)
    table = DeltaTable.open(f"{zone.lake.root}/tables/events")
    table.set_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    assert zone.run(request)
    assert zone.ids() == [1]


def test_a_table_that_has_forgotten_takes_no_batch_on_a_new_branch(
    tmp_path: Path, instance: dg.DagsterInstance
) -> None:
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    zone.drain()
    assert zone.drain() == 0
    lake = Lake.open(zone.lake.root)
    with lake.session() as session:
        table = session.delta("tables/events")
        table.set_properties({"delta.setTransactionRetentionDuration": "interval 0 seconds"})
    lake.maintenance.checkpoint("tables/events")
    lake.create_branch("pr-1")
    forget_datasets()  # a new process reads the checkpoint
    table = Lake.open(zone.lake.root).delta("tables/events")
    assert table.txn_version("landing/events") is None, "the checkpoint leaves it out"
    assert zone.drain() == 0, "the ledger remembers it"
    zone.lake = LakeResource(root=zone.lake.root, branch="pr-1")
    with pytest.raises(LandingForgotten, match="its transaction identifiers expire"):
        zone.tick()


def test_a_file_from_the_future_lands_where_none_has_to_settle(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    tomorrow = datetime.now(UTC).timestamp() + 86400
    os.utime(zone.landing / "a.parquet", (tomorrow, tomorrow))
    assert zone.drain() == 1


@pytest.mark.parametrize("metadata", [{"lake/format": "pool"}, {"lake/owner": "events"}])
def test_a_setting_without_effect_is_refused(tmp_path: Path, metadata: dict[str, str]) -> None:
    with pytest.raises(InvalidDefinition, match=f"{next(iter(metadata))}"):
        landing_zone_definitions(LandingZone("events", str(tmp_path)), metadata=metadata)


def test_a_name_that_is_not_utf_8_is_told(tmp_path: Path, instance: dg.DagsterInstance) -> None:
    zone = Zone(tmp_path, instance)
    zone.drop("a.parquet", 1)
    os.rename(zone.landing / "a.parquet", os.fsencode(zone.landing) + b"/\xff.parquet")
    with pytest.raises(InvalidDefinition, match="whose name is not UTF-8: rename it"):
        zone.tick()


def test_links_are_listed_by_what_they_lead_to(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "landing"
    elsewhere.mkdir()
    folder.mkdir()
    (elsewhere / "rows.csv").write_text("id\n1\n")
    os.utime(elsewhere / "rows.csv", (1, 1))
    (folder / "a.csv").symlink_to(elsewhere / "rows.csv")
    (folder / "broken.csv").symlink_to(elsewhere / "nothing.csv")
    zone = LandingZone("events", str(folder), settle=timedelta(hours=1))
    (file,) = zone.files()
    assert (file.key, file.size) == ("a.csv", 5)
    (elsewhere / "rows.csv").write_text("id\n1\n2")
    assert zone.files() == [], "the target may still be written to"


def test_a_link_to_a_folder_is_refused(tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "landing"
    elsewhere.mkdir()
    folder.mkdir()
    (folder / "more").symlink_to(elsewhere)
    with pytest.raises(InvalidDefinition, match="the link 'more' to a folder"):
        LandingZone("events", str(folder)).files()
