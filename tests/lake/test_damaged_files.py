"""What `verify` finds of files that were cut short, emptied or overwritten: each kind of file, in each mode."""

from __future__ import annotations

import json
import struct
import uuid
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zarr

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.lake.gc.problem import Problem
from lake_core.store import MemoryStore
from tests.delta.test_deletion_vectors import PROTOCOL, _bitmap, _descriptor, _z85
from tests.lake.lakes import SCHEMA, rows

Damage = Callable[[bytes], bytes]
_SIZES: dict[str, Damage] = {
    "emptied": lambda data: b"",
    "cut short": lambda data: data[: len(data) - 3],
    "cut to a half": lambda data: data[: len(data) // 2],
}
MODES = {"quick": {"hashes": False}, "default": {}, "full": {"full": True}}


def _verified(root: Path, mode: str) -> list[Problem]:
    return Lake.open(root).maintenance.verify(**MODES[mode])  # type: ignore[arg-type]


def _found(root: Path, mode: str) -> list[tuple[str, str]]:
    return [(each.kind, each.key) for each in _verified(root, mode)]


def _damaged(root: Path, file: Path, damage: Damage) -> str:
    data = file.read_bytes()
    file.chmod(0o644)
    file.write_bytes(damage(data))
    assert file.read_bytes() != data
    return file.relative_to(root).as_posix()


def _overwritten(data: bytes) -> bytes:
    """Replace some bytes before the middle, and keep the size."""
    at = len(data) // 3
    return data[:at] + bytes(byte ^ 0x55 for byte in data[at : at + 12]) + data[at + 12 :]


def _table(root: Path) -> Path:
    with Lake.create(root).session() as s:
        s.create_delta("t", SCHEMA).append(rows(range(2000)))
    return next((root / "t").glob("*.parquet"))


def _change_file(root: Path) -> Path:
    lake = Lake.create(root)
    with lake.session() as s:
        s.create_delta("t", SCHEMA, properties={"delta.enableChangeDataFeed": "true"}).append(rows(range(2000)))
    with lake.session() as s:
        s.delta("t").delete("id < 900")
    return next((root / "t/_change_data").rglob("*.parquet"))


def _deletion_vector(root: Path) -> Path:
    """Import a table with a deletion vector, as other clients write them."""
    table = DeltaTable.create(root / "t", SCHEMA)
    table.append(rows(range(2000)))
    body, name = _bitmap([0, 3, 9]), uuid.uuid4()
    vector = _descriptor("u", _z85(name.bytes), body, 3, offset=1)
    for version, action, change in ((0, "protocol", PROTOCOL), (1, "add", {"deletionVector": vector})):
        log = root / f"t/_delta_log/{version:020}.json"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if action in line:
                line[action] |= change
        log.write_text("\n".join(map(json.dumps, lines)))
    for checksums in (root / "t/_delta_log").glob("*.crc"):
        checksums.unlink()
    file = root / f"t/deletion_vector_{name}.bin"
    file.write_bytes(b"\x01" + struct.pack(">i", len(body)) + body + struct.pack(">I", zlib.crc32(body)))
    with Lake.create(root).session() as s:
        s.import_delta("t")
    return file


def _of_history(root: Path) -> Path:
    lake = Lake.create(root)
    with lake.session() as s:
        s.create_delta("t", SCHEMA).append(rows(range(2000)))
    file = next((root / "t").glob("*.parquet"))
    with lake.session() as s:
        s.delta("t").overwrite(rows([1]))
    return file


def _of_a_branch(root: Path) -> Path:
    lake = Lake.create(root)
    with lake.session() as s:
        s.create_delta("t", SCHEMA)
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.delta("t").append(rows(range(2000)))
    return next((root / "t").glob("*.parquet"))


def _pool_object(root: Path) -> Path:
    with Lake.create(root).session() as s:
        s.create_pool("p").load(pa.table({"ts": range(5000)}))
    return next(file for file in (root / "p").glob("*/data/*.zng") if "-seek" not in file.name)


def _array(root: Path, folder: str) -> Path:
    rng = np.random.default_rng(7)
    with Lake.create(root).session() as s:
        array = zarr.create_array(
            s.create_icechunk("a").store, name="x", shape=(20_000,), chunks=(10_000,), dtype="float64"
        )
        array[:] = rng.integers(0, 99, 20_000)
    return max((root / "a" / folder).iterdir(), key=lambda file: file.stat().st_size)


def _chunk(root: Path) -> Path:
    return _array(root, "chunks")


def _manifest(root: Path) -> Path:
    return _array(root, "manifests")


def _plain_file(root: Path) -> Path:
    with Lake.create(root).session() as s:
        s.put("notes.txt", b"notes" * 99)
    return max((root / "_lake/objects").rglob("*"), key=lambda file: file.stat().st_size if file.is_file() else 0)


def _log(root: Path) -> Path:
    _table(root)
    return root / "t/_delta_log/00000000000000000000.json"


FILES = [
    _table,
    _change_file,
    _deletion_vector,
    _of_history,
    _of_a_branch,
    _pool_object,
    _chunk,
    _manifest,
    _plain_file,
    _log,
]


@pytest.mark.parametrize("damage", _SIZES)
@pytest.mark.parametrize("make", FILES)
def test_each_mode_finds_a_file_of_another_size(tmp_path: Path, make: Callable[[Path], Path], damage: str) -> None:
    key = _damaged(tmp_path, make(tmp_path), _SIZES[damage])
    found = {mode: set(_found(tmp_path, mode)) for mode in MODES}
    if make is _manifest:
        # What the manifest names is then unknown, so the array is named.
        assert all(("unreadable", "a") in each for each in found.values())
    else:
        assert all(each == {("corrupt", key)} for each in found.values())


@pytest.mark.parametrize("make", [_table, _change_file, _of_history, _of_a_branch, _plain_file])
def test_a_longer_file_is_found_too(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    key = _damaged(tmp_path, make(tmp_path), lambda data: data + b"more")
    assert _found(tmp_path, "quick") == [("corrupt", key)]


@pytest.mark.parametrize("make", FILES)
def test_full_finds_changed_bytes(tmp_path: Path, make: Callable[[Path], Path]) -> None:
    key = _damaged(tmp_path, make(tmp_path), _overwritten)
    found = _found(tmp_path, "full")
    assert ("unreadable", "a") in found if make is _manifest else found == [("corrupt", key)]


def test_a_whole_lake_of_every_kind_has_no_problems(tmp_path: Path) -> None:
    for make in FILES:
        make(tmp_path / make.__name__)
        assert [_found(tmp_path / make.__name__, mode) for mode in MODES] == [[], [], []]


def test_a_parquet_file_without_page_checksums_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    pq.write_table(rows(range(2000)), tmp_path / "plain/part.parquet", use_dictionary=False)
    DeltaTable.convert(tmp_path / "plain")
    with Lake.create(tmp_path).session() as s:
        s.import_delta("plain")
    assert _found(tmp_path, "full") == []
    key = _damaged(tmp_path, tmp_path / "plain/part.parquet", lambda data: data[:4] + bytes(400) + data[404:])
    assert ("corrupt", key) in _found(tmp_path, "full")


def test_quick_asks_for_no_file_by_itself() -> None:
    class Heads(MemoryStore):
        heads = 0

        def head(self, key: str) -> object:  # type: ignore[override]
            self.heads += key.endswith(".parquet")
            return super().head(key)

    store = Heads()
    lake = Lake.create(store)
    with lake.session() as s:
        table = s.create_delta("t", SCHEMA, partition_by=["id"])
        table.append(rows(range(1200)))
    before = store.heads
    assert lake.maintenance.verify(hashes=False) == []
    assert store.heads == before
