"""`make demo` from end to end, and its tables in the eyes of another Delta reader."""

from __future__ import annotations

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from example_pipelines.flights import demo as script
from example_pipelines.flights import source
from lake_core.delta import DeltaTable
from tests.conftest import Demo


def test_it_says_what_it_did(demo: Demo) -> None:
    assert demo.exit_code == 0, demo.output
    for line in (
        "2013-12   28,135 flights",
        "the first batch is visible (9,655 rows): process",
        "batch 1 was committed to",
        "26,483 rows in the table, 26,483 departures in the source: every flight that left, once",
        "passed  departure_log: log_has_every_departure_once",
    ):
        assert line in demo.output, demo.output
    assert "FAILED" not in demo.output


@pytest.mark.parametrize("name", script.TABLES)
def test_deltalake_reads_the_same_rows(demo: Demo, name: str) -> None:
    url = f"{demo.lake}/tables/{name}"
    ours = DeltaTable.open(url).to_arrow()
    query = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(url)).execute("SELECT * FROM t")
    theirs = pa.table(query.read_all()).select(ours.column_names).cast(ours.schema)
    order = [(column, "ascending") for column in ours.column_names]
    assert ours.num_rows > 0
    assert ours.sort_by(order).equals(theirs.sort_by(order))


def test_tables_have_as_many_rows_as_the_source(demo: Demo) -> None:
    rows = {name: DeltaTable.open(f"{demo.lake}/tables/{name}").to_arrow().num_rows for name in script.TABLES[:5]}
    assert rows == {"flights": 336_776, "weather": 26_115, "planes": 3_322, "airlines": 16, "airports": 1_458}
    assert rows["flights"] == source.flights().num_rows


def test_only_its_own_tables_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(script, "LAKE_ROOT", str(tmp_path))
    for name in ("flights", "of_somebody_else"):
        DeltaTable.create(f"{tmp_path}/tables/{name}", pa.schema([("n", pa.int64())]))
    no_table = tmp_path / "tables" / "weather" / "notes.txt"
    no_table.parent.mkdir()
    no_table.touch()
    script.remove_tables(tmp_path)
    assert sorted(path.name for path in (tmp_path / "tables").iterdir()) == ["of_somebody_else", "weather"]
    assert no_table.exists()
    assert "removed 1 tables of an earlier demo: flights" in capsys.readouterr().out


def test_a_lake_in_a_bucket_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "LAKE_ROOT", "s3://bucket/lake")
    with pytest.raises(SystemExit, match="only from local folders"):
        script.remove_tables(Path("s3://bucket/lake"))
