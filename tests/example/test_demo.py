"""`make demo` from end to end, and its tables and arrays in the eyes of other readers."""

from __future__ import annotations

from pathlib import Path

import deltalake
import icechunk
import pyarrow as pa
import pytest
import xarray as xr

from example_pipelines.flights import demo as script
from example_pipelines.flights import folders, places, report, source
from lake_core import Lake
from lake_core.delta import DeltaTable
from tests.conftest import DEMO_SECONDS, Demo

pytestmark = pytest.mark.timeout(DEMO_SECONDS + 300)  # the first test runs the demo


@pytest.mark.exhaustive
def test_it_tells_its_story(demo: Demo) -> None:
    assert demo.exit_code == 0, demo.output
    for line in (
        "2013-12   28,135 flights  720 hours of weather  6 datasets",
        "2013-06  arrived broken: the checks 'identified' and 'possible' failed",
        "main still has 5 months, and 0 flights of this one",
        "the session can be read: it has 167,158 flights of 6 months",
        "the arrays are held back with the tables: main has 0 hours of its weather, the session 720",
        "resumes the session: 28,243 flights",
        "Corrections for 2013-02 came late: 28 arrivals merged, 5 tables in one commit",
        "the first batch is visible (9,655 rows): process",
        "batch 1: an earlier attempt committed it to",
        "26,483 rows in the table, 26,483 departures in the source: every flight that left, once",
        "a flight is late from an hour on: 8.1% are late there, and on main 21.5%, as before",
        "merged: 8.1% on main",
        "monthly_totals: 12 files became 1; the commit before still reads its 12",
        "hourly_weather: 12 manifests became 1",
        "passed  hourly_weather: arrays_as_in_table",
        "passed  departure_log: log_has_every_departure_once",
    ):
        assert line in demo.output, demo.output
    assert "FAILED" not in demo.output


@pytest.mark.exhaustive
def test_it_ends_with_what_to_look_at(demo: Demo) -> None:
    assert "Minutes that flights left late, by hour of departure" in demo.output
    assert demo.output.count("█") > 100
    assert "7 variables, 3 along origin, 8,760 along time" in demo.output
    assert "make ui" in demo.output.split("Look at it:")[1]


@pytest.mark.exhaustive
@pytest.mark.parametrize("noise", ["WARN", "log4j", "incubator", "Warning:", "log level"])
def test_other_libraries_say_nothing_in_its_story(demo: Demo, noise: str) -> None:
    assert noise not in demo.output


@pytest.mark.exhaustive
def test_its_runs_are_sessions(demo: Demo) -> None:
    """Thirteen publishes (twelve months, corrections; the broken month once), and nothing half done."""
    lake = Lake.open(demo.lake)
    assert lake.maintenance.verify(hashes=False) == []
    assert lake.list_branches().keys() == {"main"}
    assert [session.state for session in lake.list_sessions()] == []
    published = [commit for commit in lake.log() if commit.message.split()[0] in ("month", "corrections")]
    assert len(published) == 13
    flights = lake.delta("tables/flights")
    assert flights.txn_version("landing/flights") == 12
    assert flights.txn_version("landing/corrections") == 1


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", report.TABLES)
def test_deltalake_reads_the_same_rows(demo: Demo, name: str) -> None:
    url = f"{demo.lake}/tables/{name}"
    ours = DeltaTable.open(url).to_arrow()
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(url)).execute("SELECT * FROM t")
    theirs = pa.table(query.read_all()).select(ours.column_names).cast(ours.schema)
    order = [(column, "ascending") for column in ours.column_names]
    assert ours.num_rows > 0
    assert ours.sort_by(order).equals(theirs.sort_by(order))


@pytest.mark.exhaustive
def test_icechunk_reads_the_same_hours(demo: Demo) -> None:
    repository = icechunk.Repository.open(icechunk.local_filesystem_storage(f"{demo.lake}/{report.ARRAYS}"))
    arrays = xr.open_zarr(repository.readonly_session("main").store, consolidated=False)
    assert arrays.load().identical(report.open_arrays(Lake.open(demo.lake)).load())


@pytest.mark.exhaustive
def test_tables_have_as_many_rows_as_the_source(demo: Demo) -> None:
    rows = {name: DeltaTable.open(f"{demo.lake}/tables/{name}").to_arrow().num_rows for name in report.TABLES[:5]}
    assert rows == {"flights": 336_776, "weather": 26_115, "planes": 3_322, "airlines": 16, "airports": 1_458}
    assert rows["flights"] == source.flights().num_rows


def test_only_its_own_lake_is_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, landing = tmp_path / "lake", tmp_path / "landing"
    folders.remove_lake(str(root), str(landing))
    (root / "something").touch()
    folders.remove_lake(str(root), str(landing))
    assert not (root / "something").exists()
    assert f"Removed {root} of an earlier demo" in capsys.readouterr().out
    (root / folders.MARK).unlink()
    lake = Lake.create(root)
    folders.remove_lake(str(root), str(landing))
    assert not Lake.exists(root), "a lake that nobody has written to is no loss"
    (root / folders.MARK).unlink()
    lake = Lake.create(root)
    with lake.session() as session:
        session.put("of_somebody_else", b"")
    with pytest.raises(SystemExit, match="not known to be the demo's"):
        folders.remove_lake(str(root), str(landing))
    (root / "of_somebody_else").touch()
    with pytest.raises(SystemExit, match="not known to be the demo's"):
        folders.remove_lake(str(root), str(landing))
    assert (root / "of_somebody_else").exists()


def test_files_arrive_in_a_folder_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "LANDING", "s3://bucket/landing")
    with pytest.raises(SystemExit, match="in a folder of this machine"):
        script.tell_story()
