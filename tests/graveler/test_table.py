"""SSTables: lakeFS's and pebble's are read, ours are theirs byte for byte, and RocksDB takes them in."""

from __future__ import annotations

import hashlib
import json
import random
import struct
from pathlib import Path

import pytest

from lake_core.graveler import (
    CorruptTable,
    Entry,
    Record,
    Table,
    commit_id,
    file_id,
    range_id,
    read_sstable,
    write_sstable,
)
from lake_core.graveler.block import masked_crc32c
from lake_core.graveler.block_cache import BlockCache
from lake_core.graveler.identity import METARANGES, RANGES
from lake_core.graveler.key_columns import fnv64a, shared_prefixes
from lake_core.graveler.record import join_value, split_value
from lake_core.graveler.table_writer import separator, successor, write_table
from lake_core.graveler.varint import read_uvarint, uvarint
from tests.graveler.golden import PEBBLE_FILES, golden

RANGE_ID = "a83af763ba098c15369d9d6d723731eb9ce18b8dfac4f88c6f1287e772393d0e"


def test_a_range_of_lakefs() -> None:
    records, properties = read_sstable(golden("range.sst"))
    assert [record.key for record in records] == [b"a/b/c/no", b"a/b/c/yes"]
    assert properties == {
        "type": "ranges",
        "min_key": "a/b/c/no",
        "max_key": "a/b/c/yes",
        "count": "2",
        "estimated_size_bytes": "287",
    }
    assert range_id(records) == RANGE_ID
    for record in records:
        entry = Entry.decode(record.value)
        assert entry.identity == record.identity
        assert entry.encode() == record.value
        assert entry.record(record.key) == record


def test_a_metarange_of_lakefs_names_it() -> None:
    records, properties = read_sstable(golden("metarange.sst"))
    assert properties["type"] == "metaranges"
    assert [record.identity.decode() for record in records] == [RANGE_ID]
    assert (
        range_id(records, properties=METARANGES) == "732d4016245c5547113e0cd0f1a588fc55e36c21f460ac670cca4396922f5c11"
    )


@pytest.mark.parametrize(("name", "properties"), [("range.sst", RANGES), ("metarange.sst", METARANGES)])
def test_rewritten_byte_for_byte(name: str, properties: dict[str, str]) -> None:
    data = golden(name)
    assert write_table(*Table(data).columns, properties, with_file_id=False).data == data


def test_a_range_of_several_blocks_is_rewritten_byte_for_byte() -> None:
    """Its writer had a bug of its own: the property min_key holds what happened to lie in a buffer."""
    data = golden("ok1.sst")
    table = Table(data)
    ours = write_table(*table.columns, RANGES, with_file_id=False).data
    theirs = dict(table.table_properties)
    assert theirs.pop(b"min_key") != b"first"
    mine = dict(Table(ours).table_properties)
    assert mine.pop(b"min_key") == b"first"
    assert mine == theirs
    assert len(ours) == len(data)
    differing = [at for at in range(len(data)) if data[at] != ours[at]]
    at = data.rindex(theirs_min := table.table_properties[b"min_key"])
    checksum = differing[-1]
    assert set(differing) <= {*range(at, at + len(theirs_min)), *range(checksum - 3, checksum + 1)}


@pytest.mark.parametrize("name", PEBBLE_FILES)
def test_tables_of_pebble_hold_plain_values(name: str) -> None:
    table = read_sstable(golden(name))
    pairs = table.pairs
    assert len(pairs) == 1710
    assert pairs[0] == (b"a", b"97")
    assert pairs == Table(golden(PEBBLE_FILES[0])).pairs
    for key, value in pairs[::97]:
        assert table.find(key) == value
    assert table.find(b"zzz") is table.find(b"aa") is None
    with pytest.raises(CorruptTable, match="deletes ranges of keys"):
        _ = table.records


def test_commit_ids() -> None:
    commits = json.loads(golden("commit_ids.json"))["commits"]
    assert len(commits) == 20
    for commit in commits:
        named = commit.pop("id")
        assert commit_id(**commit) == named


def some_records(count: int, seed: int = 0, value_size: int = 60) -> list[Record]:
    rng = random.Random(seed)
    keys = sorted(
        {
            f"tables/t{rng.randrange(9)}/day={rng.randrange(400):03}/part-{rng.random()}.parquet".encode()
            for _ in range(count)
        }
    )
    return [Record(key, hashlib.sha256(key).digest(), rng.randbytes(rng.randrange(value_size))) for key in keys]


@pytest.mark.parametrize("count", [0, 1, 15, 17, 400, 9_000])
def test_round_trip(count: int) -> None:
    records = some_records(count)
    data = write_sstable(records)
    table = read_sstable(data)
    assert table.records == records
    assert table.properties["count"] == str(len(records))
    assert table.properties["file_id"] == file_id(records)
    assert range_id(table.records) == range_id(records)
    assert write_sstable(table.records) == data
    for record in records[:: max(count // 50, 1)]:
        assert table.find(record.key) == join_value(record.identity, record.value)
        assert table.find(record.key + b"!") is None
    two_levels = b"rocksdb.index.partitions" in table.table_properties
    assert two_levels == (count == 9_000)


def test_odd_keys_and_values() -> None:
    """Keys are prefixes of one another, continue like the bytes behind a key, or are long.

    Values are larger than blocks.
    """
    keys = sorted(
        {
            b"",
            b"\0",
            b"x",
            b"x\x01",
            b"x\x01\0\0\0",
            b"x" + b"\x01\0\0\0\0\0\0\0" * 3,
            b"\xff" * 5,
            b"\xff" * 300,
            b"k" * 60_000,
            b"k" * 60_001,
        }
    )
    records = [Record(key, b"", bytes([at]) * at**6) for at, key in enumerate(keys)]
    table = read_sstable(write_sstable(records))
    assert table.records == records


def test_what_cannot_be_a_range_is_refused() -> None:
    with pytest.raises(ValueError, match="ascending"):
        write_sstable([(b"b", b"", b""), (b"a", b"", b"")])
    with pytest.raises(ValueError, match="ascending"):
        write_sstable([(b"a", b"", b""), (b"a", b"", b"")])
    with pytest.raises(ValueError, match="at most"):
        write_sstable([(b"a" * 65_536, b"", b"")])
    with pytest.raises(ValueError, match="at most"):
        write_sstable([(b"a", b"", bytes((640 << 16) + 1))])


def test_further_properties_are_part_of_the_name() -> None:
    data = write_sstable([(b"a", b"i", b"v")], kind="metaranges", properties={"entity": "commit"})
    assert read_sstable(data).properties["entity"] == "commit"
    named = range_id([(b"a", b"i", b"v")], properties={"type": "metaranges", "entity": "commit"})
    assert named != range_id([(b"a", b"i", b"v")], properties=METARANGES)
    assert write_table([b"a"], [join_value(b"i", b"v")], {"type": "metaranges", "entity": "commit"}).id == named


def test_the_data_models_file_id() -> None:
    def h(data: bytes) -> bytes:
        return hashlib.sha256(data).digest()

    records = some_records(5)
    expected = h(b"".join(h(h(key) + h(identity)) for key, identity, _ in records))
    assert file_id(records) == expected.hex()
    moved = [Record(key, identity, b"elsewhere") for key, identity, _ in records]
    assert file_id(moved) == file_id(records)
    assert range_id(moved) != range_id(records)


def test_rocksdb_ingests_ours(tmp_path: Path) -> None:
    from rocksdict import Options, Rdict

    records = some_records(9_000)
    (tmp_path / "range.sst").write_bytes(write_sstable(records))
    database = Rdict(str(tmp_path / "db"), Options(raw_mode=True))
    database.ingest_external_file([str(tmp_path / "range.sst")])
    pairs = list(database.items())
    assert [(key, *split_value(value)) for key, value in pairs] == [tuple(record) for record in records]
    assert database[records[77].key] == join_value(records[77].identity, records[77].value)
    database.close()


def test_the_checksum_of_a_block_is_masked() -> None:
    # The check value of CRC-32C for these nine bytes is 0xE3069283.
    assert masked_crc32c(b"123456789") == ((0xE3069283 >> 15 | 0xE3069283 << 17) + 0xA282EAD8) & 0xFFFFFFFF


def test_hashes_and_prefixes_of_many_keys() -> None:
    rng = random.Random(3)
    keys = sorted(
        {rng.randbytes(rng.randrange(12)) for _ in range(3000)}
        | {b"a" * 5000, b"a" * 5001, b"a" * 4999 + b"b", b"", b"\0", b"\0\0"}
    )
    hashes = fnv64a(keys)
    for key, hashed in zip(keys, hashes.tolist(), strict=True):
        expected = 0xCBF29CE484222325
        for byte in key:
            expected = (expected ^ byte) * 0x100000001B3 % (1 << 64)
        assert hashed == expected
    shared = shared_prefixes(keys)
    assert shared[0] == 0
    for first, second, length in zip(keys, keys[1:], shared[1:], strict=False):
        assert first[:length] == second[:length]
        assert first[length : length + 1] != second[length : length + 1]
    assert shared_prefixes([]) == []
    assert fnv64a([b"a"]).tolist() == [0xAF63DC4C8601EC8C]


def test_index_keys_are_short() -> None:
    assert separator(b"abc1xyz", b"abc9") == b"abc2"
    assert separator(b"abc", b"abcd") == b"abc"
    assert separator(b"abc1\xffyz", b"abc2") == b"abc1\xffz"
    assert successor(b"\xff\xffa") == b"\xff\xffb"
    assert successor(b"\xff") == b"\xff"


def test_numbers_and_values() -> None:
    for number in (0, 1, 127, 128, 300, (1 << 64) - 1):
        assert read_uvarint(b"\xff" + uvarint(number), 1) == (number, 1 + len(uvarint(number)))
    for broken in (b"", b"\x80", b"\x80" * 11, b"\xff" * 9 + b"\x7f"):
        with pytest.raises(CorruptTable):
            read_uvarint(broken, 0)
    for identity, value in (
        (b"", b""),
        (bytes(32), bytes(63)),
        (bytes(32), bytes(64)),
        (bytes(32), bytes(9000)),
        (bytes(64), b"x"),
        (b"i", bytes(100)),
    ):
        assert split_value(join_value(identity, value) + b"ignored") == (identity, value)
    for broken in (b"", b"\x01", b"\x40" + bytes(20), b"\x40" + bytes(32) + b"\x7e", b"\x40" + bytes(32) + b"\xfe\x01"):
        with pytest.raises(CorruptTable):
            split_value(broken)


def test_a_table_cannot_make_its_reader_build_more_than_a_budget() -> None:
    """Four bytes of a block can stand for a key of any length."""
    keys = [b"k" * 40_000 + b"%04d" % at for at in range(500)]
    data = write_sstable([(key, b"", b"") for key in keys])
    assert len(data) < 1 << 22
    assert [key for key, _ in Table(data).pairs] == keys
    with pytest.raises(CorruptTable, match="memory"):
        _ = Table(data, budget=1 << 22).columns


def test_a_block_that_declares_more_than_it_holds_is_refused() -> None:
    from lake_core.graveler.block import Handle, read_block, store_block

    lying = uvarint(1 << 31) + bytes(50) + b"\x01"
    with pytest.raises(CorruptTable, match="declares"):
        read_block(lying + struct.pack("<I", masked_crc32c(lying)), Handle(0, len(lying) - 1))
    stored = store_block(b"abc" * 100)
    assert read_block(stored, Handle(0, len(stored) - 5)) == b"abc" * 100


@pytest.mark.parametrize("memory", [0, 40_000, 1 << 24], ids=["no room", "some", "all"])
def test_tables_that_share_blocks_are_read_as_by_themselves(memory: int) -> None:
    records, blocks = some_records(1_000), BlockCache(memory)
    for end in range(400, 1_000, 100):
        data = write_sstable(records[:end])
        assert Table(data, blocks=blocks).records == records[:end]


def test_a_damaged_block_is_noticed_beside_its_undamaged_twin() -> None:
    data, blocks = write_sstable(some_records(400)), BlockCache(1 << 24)
    assert Table(data, blocks=blocks).records
    damaged = bytes((data[0] ^ 1,)) + data[1:]
    with pytest.raises(CorruptTable, match="checksum"):
        _ = Table(damaged, blocks=blocks).records


def test_known_blocks_count_towards_the_budget() -> None:
    keys = [b"k" * 40_000 + b"%04d" % at for at in range(500)]
    data, blocks = write_sstable([(key, b"", b"") for key in keys]), BlockCache(1 << 28)
    assert Table(data, blocks=blocks).columns[0] == keys
    with pytest.raises(CorruptTable, match="memory"):
        _ = Table(data, budget=1 << 22, blocks=blocks).columns
