"""Two runs that write one asset at once: what is written again by itself, and what fails."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import dagster as dg
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.lake.errors import Conflict
from lake_orch import DeltaIOManager, FileIOManager, PoolIOManager, TableNotEmpty
from lake_orch.testing import materialize
from tests.orch.meanwhile import MEANWHILE, LakeOfOthers

ROWS = pa.table({"day": ["a"], "id": [1], "by": ["none"]})
DAYS = dg.StaticPartitionsDefinition(["a", "b"])


def rows_by(run: str) -> pa.Table:
    """Return two rows of a run. The other run has a row of the same id as the first."""
    return pa.table({"day": ["a", "a"], "id": [1, 2 if run == "earlier" else 3], "by": [run, run]})


class Race:
    """One asset, and two runs of it: the earlier one publishes while the later one has its session open."""

    def __init__(self, folder: Path) -> None:
        MEANWHILE.clear()
        self.root = str(folder / "lake")
        resource = LakeOfOthers(root=self.root)
        self.resources = {
            "io_manager": DeltaIOManager(lake=resource),
            "pools": PoolIOManager(lake=resource),
            "files": FileIOManager(lake=resource),
            "lake": resource,
        }

    def run(self, value: Any, metadata: Mapping[str, Any], **options: Any) -> dg.ExecuteInProcessResult:
        """Materialize the asset. A function is called in the step."""
        partition = options.pop("partition_key", None)
        run = options.pop("run", dg.materialize)
        key = options.pop("io_manager_key", "io_manager")

        @dg.asset(
            metadata={**metadata, **({"partition_expr": "day"} if partition else {})},
            partitions_def=DAYS if partition else None,
            io_manager_key=key,
        )
        def totals() -> dg.Output[Any]:
            return dg.Output(value() if callable(value) else value)  # Dagster would iterate over a generator

        result: dg.ExecuteInProcessResult = run(
            [totals], resources=self.resources, **({"partition_key": partition} if partition else {}), **options
        )
        return result

    def both(self, metadata: Mapping[str, Any], later: Any = None, **options: Any) -> dg.ExecuteInProcessResult:
        """Run both. Return the later one's result."""
        done: list[bool] = []
        earlier = {name: option for name, option in options.items() if name not in ("run", "raise_on_error")}
        MEANWHILE.append(lambda: done.append(self.run(rows_by("earlier"), metadata, **earlier).success))
        result = self.run(rows_by("later") if later is None else later, metadata, **options)
        assert done == [True]
        return result

    @property
    def lake(self) -> Lake:
        return Lake.open(self.root)

    def rows(self) -> list[str]:
        return sorted(f"{row['id']} {row['by']}" for row in self.lake.delta("tables/totals").to_arrow().to_pylist())


@pytest.fixture
def race(tmp_path: Path) -> Race:
    Lake.create(tmp_path / "lake")
    return Race(tmp_path)


EARLIER, LATER = ["1 earlier", "2 earlier"], ["1 later", "3 later"]
MODES: dict[str, tuple[dict[str, Any], list[str], type[Exception] | None]] = {
    "overwrite": ({}, LATER, None),
    "partition": ({}, LATER, None),
    "append": ({"lake/mode": "append"}, sorted(EARLIER + LATER), None),
    "merge": ({"lake/merge": ["id"]}, ["1 later", "2 earlier", "3 later"], None),
    "replace_where": ({"lake/mode": "replace_where", "lake/replace_where": "id > 0"}, LATER, None),
    "overwrite_partitions": ({"lake/mode": "overwrite_partitions", "lake/partition_by": ["day"]}, LATER, None),
    "ignore": ({"lake/mode": "ignore"}, EARLIER, None),
    "error": ({"lake/mode": "error"}, EARLIER, TableNotEmpty),
}


def check_mode(race: Race, mode: str) -> None:
    metadata, expected, error = MODES[mode]
    options = {"partition_key": "a"} if mode == "partition" else {}
    if error is None:
        assert race.both(metadata, **options).success
    else:
        with pytest.raises(error):
            race.both(metadata, **options)
    assert race.rows() == expected
    assert race.lake.list_sessions() == [], "no failed session is left of an attempt that was made again"


@pytest.mark.parametrize("mode", MODES)
def test_the_later_of_two_runs_writes_again_on_top(race: Race, mode: str) -> None:
    metadata, _, _ = MODES[mode]
    race.run(ROWS.slice(0, 0), metadata, **({"partition_key": "a"} if mode == "partition" else {}))
    check_mode(race, mode)


@pytest.mark.parametrize("mode", MODES)
def test_the_later_of_two_first_runs_writes_again_on_top(race: Race, mode: str) -> None:
    check_mode(race, mode)


def _dataset(folder: Path) -> ds.Dataset:
    pq.write_table(rows_by("later"), folder / "rows.parquet")
    return ds.dataset(folder / "rows.parquet")


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(lambda _: rows_by("later").to_batches()[0], id="batch"),
        pytest.param(lambda _: rows_by("later").to_pandas(), id="pandas"),
        pytest.param(lambda _: pl.from_arrow(rows_by("later")), id="polars"),
        pytest.param(lambda _: pl.from_arrow(rows_by("later")).lazy(), id="lazy"),  # type: ignore[union-attr]
        pytest.param(_dataset, id="dataset"),
    ],
)
def test_a_value_that_is_still_there_is_written_again(race: Race, tmp_path: Path, value: Callable[[Path], Any]) -> None:
    race.run(ROWS, {})
    assert race.both({}, lambda: value(tmp_path)).success
    assert race.rows() == LATER


@pytest.mark.spark
def test_a_dataframe_of_spark_is_computed_again(race: Race, spark: SparkSession) -> None:
    race.run(ROWS, {})
    later = spark.createDataFrame([("a", 1, "later"), ("a", 3, "later")], "day string, id long, by string")
    assert race.both({}, lambda: later).success
    assert race.rows() == LATER


def test_a_stream_that_was_read_fails_and_says_so(race: Race) -> None:
    race.run(ROWS, {})
    with pytest.raises(Conflict, match="a stream, which can be read only once"):
        race.both({}, lambda: rows_by("later").to_reader())
    assert race.rows() == EARLIER


def test_a_step_that_is_retried_does_not_write_a_second_time(race: Race) -> None:
    race.run(ROWS, {})
    tries: list[int] = []

    @dg.multi_asset(outs={"totals": dg.AssetOut(), "last": dg.AssetOut()})
    def outputs() -> Iterator[dg.Output[Any]]:
        yield dg.Output(rows_by("later"), "totals")
        tries.append(1)
        if len(tries) == 1:
            raise dg.RetryRequested
        yield dg.Output(rows_by("later"), "last")

    MEANWHILE.append(lambda: race.run(rows_by("earlier"), {}))
    assert dg.materialize([outputs], resources=race.resources).success
    assert race.rows() == LATER
    assert len(tries) == 2
    assert len(race.lake.log(dataset="tables/totals")) == 3


def test_a_write_that_conflicts_each_time_fails_in_the_end(race: Race) -> None:
    race.run(ROWS, {})
    published: list[int] = []

    def publish() -> None:
        published.append(1)
        with race.lake.session() as s:
            s.delta("tables/totals").append(ROWS)
        MEANWHILE.append(publish)

    MEANWHILE.append(publish)
    with pytest.raises(Conflict):
        race.run(rows_by("later"), {})
    MEANWHILE.clear()
    assert len(published) == 5
    assert len(race.rows()) == 6


def test_a_run_with_a_session_fails_as_a_whole(race: Race) -> None:
    race.run(ROWS, {})
    tags = {"lake/scope": "run"}
    published: list[int] = []

    def later() -> pa.Table:
        published.append(1)
        race.run(rows_by("earlier"), {})
        return rows_by("later")

    with pytest.raises(Conflict, match="re-execute all steps"):
        race.run(later, {}, run=materialize, tags=tags)
    assert published == [1]
    assert race.rows() == EARLIER


def test_tables_outside_of_a_lake_are_written_again_too(tmp_path: Path) -> None:
    race = Race(tmp_path)
    race.run(ROWS, {"lake/merge": ["id"]})

    def later() -> Any:
        return rows_by("later")

    assert race.both({"lake/merge": ["id"]}, later).success
    rows = DeltaTable.open(f"{race.root}/tables/totals").to_arrow().to_pylist()
    assert sorted(f"{row['id']} {row['by']}" for row in rows) == ["1 later", "2 earlier", "3 later"]


def records_by(run: str) -> list[dict[str, Any]]:
    return rows_by(run).drop(["day"]).to_pylist()


POOL = {"lake/key": "id"}


def records(race: Race) -> list[str]:
    return sorted(f"{record['id']} {record['by']}" for record in race.lake.pool("tables/totals").scan().records())


@pytest.mark.parametrize("mode", ["overwrite", "append"])
def test_the_later_of_two_runs_writes_its_records_again(race: Race, mode: str) -> None:
    metadata = {**POOL, "lake/mode": mode}
    race.run([{"id": 0, "by": "none"}], metadata, io_manager_key="pools")
    MEANWHILE.append(lambda: race.run(records_by("earlier"), metadata, io_manager_key="pools"))
    assert race.run(records_by("later"), metadata, io_manager_key="pools").success
    assert records(race) == (LATER if mode == "overwrite" else sorted(["0 none", *EARLIER, *LATER]))


@pytest.mark.parametrize("exists", [pytest.param(True, id="an empty pool"), pytest.param(False, id="no pool yet")])
@pytest.mark.parametrize("mode", ["overwrite", "append", "ignore", "error"])
def test_the_later_of_two_first_runs_writes_its_records_again(race: Race, mode: str, exists: bool) -> None:
    metadata = {**POOL, "lake/mode": mode}
    if exists:
        race.run([], metadata, io_manager_key="pools")
    MEANWHILE.append(lambda: race.run(records_by("earlier"), metadata, io_manager_key="pools"))
    if mode == "error":
        with pytest.raises(TableNotEmpty):
            race.run(records_by("later"), metadata, io_manager_key="pools")
    else:
        assert race.run(records_by("later"), metadata, io_manager_key="pools").success
    assert records(race) == {"overwrite": LATER, "append": sorted(EARLIER + LATER)}.get(mode, EARLIER)


def test_records_of_a_generator_are_stored_once_and_committed_again(race: Race) -> None:
    race.run([{"id": 0, "by": "none"}], POOL, io_manager_key="pools")
    MEANWHILE.append(lambda: race.run(records_by("earlier"), POOL, io_manager_key="pools"))
    assert race.run(lambda: iter(records_by("later")), POOL, io_manager_key="pools").success
    assert records(race) == LATER


def test_records_of_a_generator_of_a_first_run_are_committed_again(race: Race) -> None:
    MEANWHILE.append(lambda: race.run(records_by("earlier"), POOL, io_manager_key="pools"))
    assert race.run(lambda: iter(records_by("later")), POOL, io_manager_key="pools").success
    assert records(race) == LATER


@pytest.mark.parametrize("exists", [pytest.param(True, id="a file"), pytest.param(False, id="no file yet")])
def test_the_later_of_two_runs_writes_its_file_again(race: Race, exists: bool) -> None:
    if exists:
        race.run({"by": "none"}, {}, io_manager_key="files")
    MEANWHILE.append(lambda: race.run({"by": "earlier"}, {}, io_manager_key="files"))
    assert race.run({"by": "later"}, {}, io_manager_key="files").success
    assert b"later" in race.lake.at().get("files/totals.json")


def at_the_same_time(race: Race) -> list[bool]:
    """Run twice, so that both write at the same time by the clock."""
    results: list[bool] = []
    both = threading.Barrier(2, timeout=60)

    def rows(run: str) -> Callable[[], pa.Table]:
        def wait() -> pa.Table:
            both.wait()
            return rows_by(run)

        return wait

    threads = [
        threading.Thread(target=lambda run=run: results.append(race.run(rows(run), {}).success))  # type: ignore[misc]
        for run in ("earlier", "later")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def test_two_runs_in_a_race_leave_the_rows_of_one(race: Race) -> None:
    race.run(ROWS, {})
    for _ in range(3):
        assert at_the_same_time(race) == [True, True]
        assert race.rows() in (EARLIER, LATER)


def test_two_first_runs_in_a_race_leave_the_rows_of_one(tmp_path: Path) -> None:
    for number in range(3):
        Lake.create(tmp_path / f"{number}" / "lake")
        race = Race(tmp_path / f"{number}")
        assert at_the_same_time(race) == [True, True]
        assert race.rows() in (EARLIER, LATER)
