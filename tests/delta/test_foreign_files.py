"""No table is made among somebody else's files without being asked for."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake_core.delta import DeltaTable
from lake_core.delta.errors import FolderNotEmpty
from lake_core.store import MemoryStore
from tests.delta.tables import SCHEMA, ids, rows


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.mark.parametrize("key", ["part.parquet", "raw/2024/orders.csv", "README.md", "p=p0/x.parquet"])
def test_a_table_is_not_created_among_foreign_files(store: MemoryStore, key: str) -> None:
    store.put(key, b"x")
    with pytest.raises(FolderNotEmpty, match=r"already holds files.*DeltaTable.convert.*choose another path") as raised:
        DeltaTable.create(store, SCHEMA)
    assert key in str(raised.value)
    assert [meta.key for meta in store.list()] == [key]


def test_the_error_names_the_first_files_only(store: MemoryStore) -> None:
    for number in range(5):
        store.put(f"{number}.parquet", b"x")
    with pytest.raises(FolderNotEmpty, match=r"'0.parquet', '1.parquet', '2.parquet', …\. Convert"):
        DeltaTable.create(store, SCHEMA, exist_ok=True)


def test_the_remedy_of_the_error_brings_the_files_in(tmp_path: Path) -> None:
    pq.write_table(rows(0, 3), tmp_path / "part.parquet")
    with pytest.raises(FolderNotEmpty):
        DeltaTable.create(tmp_path, SCHEMA)
    assert ids(DeltaTable.convert(tmp_path).to_arrow()) == [0, 1, 2]


@pytest.mark.parametrize("key", ["_SUCCESS", ".DS_Store", "_spark_metadata/0", "p=p0/.part.crc"])
def test_hidden_files_are_not_in_the_way(store: MemoryStore, key: str) -> None:
    store.put(key, b"x")
    assert DeltaTable.create(store, SCHEMA).version == 0


def test_a_table_in_a_folder_below_is_not_in_the_way(tmp_path: Path) -> None:
    inner = DeltaTable.create(tmp_path / "t" / "inner" / "deep", SCHEMA, partition_by=["p"])
    inner.append(rows(0, 3))
    outer = DeltaTable.create(tmp_path / "t", SCHEMA)
    assert outer.append(rows(3, 6)).rows == 3


def test_a_file_beside_a_table_below_is_in_the_way(tmp_path: Path) -> None:
    DeltaTable.create(tmp_path / "t" / "inner", SCHEMA).append(rows(0, 3))
    (tmp_path / "t" / "z.parquet").write_bytes(b"x")
    with pytest.raises(FolderNotEmpty, match=r"that do not belong to a table: 'z.parquet'\."):
        DeltaTable.create(tmp_path / "t", SCHEMA)


def test_a_table_whose_log_was_deleted_is_not_replaced_silently(tmp_path: Path) -> None:
    table = DeltaTable.create(tmp_path, pa.schema([("id", pa.int64())]))
    table.append(pa.table({"id": [1]}))
    for path in (tmp_path / "_delta_log").iterdir():
        path.unlink()
    with pytest.raises(FolderNotEmpty):
        DeltaTable.create(tmp_path, SCHEMA)


def test_a_table_that_another_writer_creates_and_fills_meanwhile_is_opened(store: MemoryStore) -> None:
    class Late(MemoryStore):
        """Another writer is faster than the listing."""

        def _list(self, prefix: str, start_after: str):  # type: ignore[no-untyped-def]
            if not prefix and not other:
                other.append(DeltaTable.create(store, SCHEMA))
                other[0].append(rows(0, 3))
            yield from super()._list(prefix, start_after)

    other: list[DeltaTable] = []
    late = Late()
    late._space = store._space
    assert ids(DeltaTable.create(late, SCHEMA, exist_ok=True).refresh().to_arrow()) == [0, 1, 2]
