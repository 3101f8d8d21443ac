"""Spark finds the tables of a lake in catalogs, and reads what the lake has.

delta-spark reads by a Hive metastore. Needs an environment of its own: `make interop`. Unity Catalog's open server is
not on any package index: who has built it names its class path in the file of UNITY_CATALOG_CLASSPATH.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from lake_core import Lake
from lake_core.catalog import Catalog, sync_branch, sync_branches
from lake_core.catalog.hive import HiveCatalog
from lake_core.catalog.unity import UnityCatalog
from lake_core.testing.catalog_suite import CatalogSuite
from tests.catalog.foreign_tables import create_in_unity
from tests.catalog.hive_metastore import HiveMetastore
from tests.interop.test_delta_spark import PYTHON, DeltaSpark, DeltaSparkError
from tests.skip_rule import NO_UNITY

CLASSPATH = os.environ.get("UNITY_CATALOG_CLASSPATH", "")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

needs_delta_spark = pytest.mark.skipif(
    not PYTHON, reason="DELTA_SPARK_PYTHON names no environment with delta-spark: run `make interop`"
)
needs_unity = pytest.mark.skipif(not CLASSPATH, reason=NO_UNITY)


@pytest.fixture(scope="module")
def metastore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HiveMetastore]:
    with HiveMetastore(tmp_path_factory.mktemp("metastore")) as server:
        yield server


@pytest.fixture(scope="module")
def spark(metastore: HiveMetastore, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeltaSpark]:
    session = DeltaSpark(
        {
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.hive.metastore.uris": metastore.uri,
            "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        }
    )
    yield session
    session.close()


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """A lake with a table of many types, and one with partitions."""
    lake = Lake.create(tmp_path / "lake")
    wide = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int64()),
            "Amount": pa.array([Decimal(1), None, Decimal("-2.5")], pa.decimal128(10, 2)),
            "at": pa.array([0, 1, 2], pa.timestamp("us", "UTC")),
            "local": pa.array([0, 1, 2], pa.timestamp("us")),
            "tags": pa.array([["a"], [], None], pa.list_(pa.string())),
            "more": pa.array([{"Inner": 1}, None, {"Inner": 3}], pa.struct([("Inner", pa.int32())])),
        }
    )
    days = pa.table({"n": pa.array([1, 2], pa.int32()), "day": pa.array([0, 1], pa.date32())})
    with lake.session() as s:
        properties = {"delta.feature.timestampNtz": "supported"}
        s.create_delta("tables/Wide", wide.schema, properties=properties).append(wide)
        s.create_delta("tables/by/days", days.schema, partition_by=["day"]).append(days)
    return lake


def theirs(spark: DeltaSpark, table: str) -> list[dict[str, object]]:
    return spark.sql(f"SELECT to_json(struct(*)) AS row FROM {table} ORDER BY 1")


def ours(spark: DeltaSpark, lake: Lake, path: str) -> list[dict[str, object]]:
    return spark.sql(f"SELECT to_json(struct(*)) AS row FROM delta.`{lake.url}/{path}` ORDER BY 1")


@needs_delta_spark
def test_spark_reads_by_the_metastore_what_the_lake_has(
    lake: Lake, metastore: HiveMetastore, spark: DeltaSpark
) -> None:
    sync_branch(lake, HiveCatalog(metastore.uri), "reads")
    days = lake.delta("tables/by/days").to_arrow().select(["n", "day"]).to_pylist()
    rows = spark.sql("SELECT * FROM reads.by_days ORDER BY n")
    assert [(row["n"], row["day"]) for row in rows] == [(row["n"], str(row["day"])) for row in days]
    assert len(theirs(spark, "reads.wide")) == 3
    assert theirs(spark, "reads.wide") == ours(spark, lake, "tables/Wide")


@needs_delta_spark
def test_spark_reads_a_table_whose_folder_has_an_unusual_name(
    lake: Lake, metastore: HiveMetastore, spark: DeltaSpark
) -> None:
    path = "tables/Größe & mehr/100% x=1"
    with lake.session() as s:
        s.create_delta(path, pa.schema([("n", pa.int32())])).append(pa.table({"n": pa.array([7], pa.int32())}))
    sync_branch(lake, HiveCatalog(metastore.uri), "unusual", names={path: "sizes"})
    assert spark.sql("SELECT * FROM unusual.sizes") == [{"n": 7}]


@needs_delta_spark
def test_spark_shows_the_columns_of_the_lake(lake: Lake, metastore: HiveMetastore, spark: DeltaSpark) -> None:
    sync_branch(lake, HiveCatalog(metastore.uri), "shows")
    described = {row["col_name"]: row["data_type"] for row in spark.sql("DESCRIBE shows.wide")}
    assert described["Amount"] == "decimal(10,2)"
    assert described["local"] == "timestamp_ntz"
    assert described["more"] == "struct<Inner:int>"
    provider = [row for row in spark.sql("DESCRIBE EXTENDED shows.by_days") if row["col_name"] == "Provider"]
    assert [row["data_type"] for row in provider] == ["delta"]


@needs_delta_spark
def test_spark_reads_new_columns_before_and_after_the_next_sync(
    lake: Lake, metastore: HiveMetastore, spark: DeltaSpark
) -> None:
    catalog = HiveCatalog(metastore.uri)
    sync_branch(lake, catalog, "evolves")
    with lake.session() as s:
        new = {"n": pa.array([3], pa.int32()), "day": pa.array([2], pa.date32()), "new": ["x"]}
        s.delta("tables/by/days").append(pa.table(new), schema_mode="merge")
    assert len(spark.sql("SELECT new FROM evolves.by_days")) == 3
    sync_branch(lake, catalog, "evolves")
    spark.sql("REFRESH TABLE evolves.by_days")
    assert [row["new"] for row in spark.sql("SELECT new FROM evolves.by_days WHERE n = 3")] == ["x"]
    assert theirs(spark, "evolves.by_days") == ours(spark, lake, "tables/by/days")


@needs_delta_spark
def test_spark_does_not_see_a_dropped_table_and_its_files_stay(
    lake: Lake, metastore: HiveMetastore, spark: DeltaSpark, tmp_path: Path
) -> None:
    catalog = HiveCatalog(metastore.uri)
    sync_branch(lake, catalog, "drops")
    with lake.session() as s:
        s.drop("tables/Wide")
    sync_branch(lake, catalog, "drops")
    assert [row["tableName"] for row in spark.sql("SHOW TABLES IN drops")] == ["by_days"]
    assert list((tmp_path / "lake" / "tables" / "Wide").glob("*.parquet"))


@needs_delta_spark
def test_a_table_that_spark_created_stays(
    lake: Lake, metastore: HiveMetastore, spark: DeltaSpark, tmp_path: Path
) -> None:
    spark.sql("CREATE DATABASE theirs")
    spark.sql(f"CREATE TABLE theirs.wide (x INT) USING delta LOCATION '{tmp_path}/theirs'")
    synced = sync_branch(lake, HiveCatalog(metastore.uri), "theirs")
    assert [each.name for each in synced.refused] == ["tables/Wide"]
    assert next(row["col_name"] for row in spark.sql("DESCRIBE theirs.wide")) == "x"


@needs_delta_spark
@pytest.mark.parametrize("location", [None, "file"])
def test_spark_reads_every_branch_and_writes_to_none(
    lake: Lake, metastore: HiveMetastore, spark: DeltaSpark, tmp_path: Path, location: str | None
) -> None:
    """Deletion vectors, mapped columns and partitions whose folders need to be encoded are read, after changes too."""
    properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
    properties |= {"delta.columnMapping.mode": "name", "delta.enableRowTracking": "true"}
    rows = pa.table({"id": range(3000), "day": ["a b"] * 1500 + ["ü%"] * 1500})
    with lake.session() as s:
        s.create_delta("tables/all", rows.schema, partition_by=["day"], properties=properties).append(rows)
    lake.create_branch("Dev.1")
    url, schema = (f"file://{tmp_path}/lake", "by_file") if location else (None, "branch")
    catalog = HiveCatalog(metastore.uri)
    sync_branches(lake, catalog, schema, location=url)

    def read() -> list[dict[str, object]]:
        return spark.sql(f"SELECT * FROM {schema}_dev_1.all ORDER BY 1")

    def held() -> list[dict[str, object]]:
        return lake.delta("tables/all", ref="Dev.1").to_arrow().sort_by("id").to_pylist()

    assert read() == held()
    with lake.session("Dev.1") as s:
        s.delta("tables/all").delete("id % 7 = 2")
    sync_branches(lake, catalog, schema, location=url)
    assert read() == held()
    with lake.session("Dev.1") as s:
        s.delta("tables/all").delete("id % 7 = 3")
        s.delta("tables/all").append(pa.table({"id": [5000], "day": ["c"], "new": ["x"]}), schema_mode="merge")
    sync_branches(lake, catalog, schema, location=url)
    spark.sql(f"REFRESH TABLE {schema}_dev_1.all")
    assert read() == held()
    with pytest.raises(DeltaSparkError, match="lakeManaged"):
        spark.sql(f"INSERT INTO {schema}_dev_1.all VALUES (1, 'c', 'x')")
    with lake.session("Dev.1") as s:
        s.drop("tables/all")
        s.create_delta("tables/all", pa.schema([("n", pa.int32())])).append(pa.table({"n": pa.array([7], pa.int32())}))
    sync_branches(lake, catalog, schema, location=url)
    spark.sql(f"REFRESH TABLE {schema}_dev_1.all")
    assert read() == [{"n": 7}]
    lake.delete_branch("Dev.1")
    sync_branches(lake, catalog, schema, location=url)
    assert spark.sql(f"SHOW TABLES IN {schema}_dev_1") == []


class _Unity:
    """Unity Catalog's open server, with a catalog."""

    def __init__(self, folder: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        (folder / "etc" / "conf").mkdir(parents=True)
        (folder / "etc" / "conf" / "server.properties").write_text("server.env=dev\nserver.authorization=disable\n")
        settings = {"hibernate.connection.driver_class": "org.h2.Driver", "hibernate.hbm2ddl.auto": "update"}
        settings |= {"hibernate.connection.url": "jdbc:h2:mem:uc;DB_CLOSE_DELAY=-1", "hibernate.connection.user": "sa"}
        lines = "".join(f"{name}={value}\n" for name, value in settings.items())
        (folder / "etc" / "conf" / "hibernate.properties").write_text(lines)
        command = ["java", "-cp", Path(CLASSPATH).read_text().strip(), "io.unitycatalog.server.UnityCatalogServer"]
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [*command, "--port", str(port)], cwd=folder, stdout=self._log, stderr=subprocess.STDOUT
        )
        until = time.monotonic() + 120
        while True:
            try:
                body = json.dumps({"name": "lakes"}).encode()
                headers = {"Content-Type": "application/json"}
                url = f"{self.url}/api/2.1/unity-catalog/catalogs"
                urllib.request.urlopen(urllib.request.Request(url, body, headers), timeout=30).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.close()
                    raise
                time.sleep(0.3)

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()


@pytest.fixture(scope="module")
def unity_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    server = _Unity(tmp_path_factory.mktemp("unity"))
    yield server.url
    server.close()


@needs_unity
class TestUnity(CatalogSuite):
    """The open server itself passes what the server of `tests/catalog/unity_server.py` does."""

    without_form = ("void",)

    @pytest.fixture
    def catalog(self, unity_url: str) -> Catalog:
        return UnityCatalog(unity_url, "lakes")

    def create_foreign(self, catalog: Catalog, schema: str, name: str) -> None:
        create_in_unity(catalog, schema, name)


@needs_unity
def test_a_folder_with_an_unusual_name_is_registered_or_refused_by_its_name(lake: Lake, unity_url: str) -> None:
    path = "tables/Größe & mehr/100% x=1"
    with lake.session() as s:
        s.create_delta(path, pa.schema([("n", pa.int32())]))
    catalog = UnityCatalog(unity_url, "lakes")
    synced = sync_branch(lake, catalog, "unusual", names={path: "sizes"})
    assert len(synced.tables) + len(synced.refused) == 3
    again = sync_branch(lake, catalog, "unusual", names={path: "sizes"})
    assert (len(again.tables), again.refused) == (0, synced.refused)


@needs_unity
def test_a_lake_is_synced_to_unity_catalog(lake: Lake, unity_url: str, tmp_path: Path) -> None:
    catalog = UnityCatalog(unity_url, "lakes")
    assert len(sync_branch(lake, catalog, "synced").tables) == 2
    assert sync_branch(lake, catalog, "synced").tables == ()
    with lake.session() as s:
        s.drop("tables/Wide")
        new = {"n": pa.array([3], pa.int32()), "day": pa.array([2], pa.date32()), "new": ["x"]}
        s.delta("tables/by/days").append(pa.table(new), schema_mode="merge")
    assert [(each.action, each.name) for each in sync_branch(lake, catalog, "synced").tables] == [
        ("update", "by_days"),
        ("drop", "wide"),
    ]
    assert list((tmp_path / "lake" / "tables" / "Wide").glob("*.parquet")), "the files of the dropped table stay"
    assert lake.delta("tables/by/days").to_arrow().num_rows == 3
    table = catalog._ask("GET", "/tables/lakes.synced.by_days", "by_days")
    assert [column["name"] for column in table["columns"]] == ["n", "day", "new"]
    assert table["storage_location"] == f"{lake.url}/tables/by/days"
