"""Damaged and hostile bytes end in CorruptTable: never in another error, nor in unbounded time or memory."""

from __future__ import annotations

import contextlib
import random
import resource
import time

import pytest

from lake_core.graveler import Commit, CorruptTable, Entry, Graveler, RangeInfo, Record, Table, write_sstable
from lake_core.graveler.block import masked_crc32c
from lake_core.graveler.metarange import Metarange
from lake_core.graveler.record import join_value
from lake_core.graveler.table_writer import write_table
from lake_core.store import MemoryStore
from tests.graveler.golden import LAKEFS_FILES, PEBBLE_FILES, golden
from tests.graveler.records import record

NAMES = (*LAKEFS_FILES, *PEBBLE_FILES)
MUTATIONS = 400
"""Of each file."""


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The file with a few bytes flipped, cut, repeated or moved."""
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 5))):
        at = rng.randrange(len(out))
        kind = rng.randrange(6)
        if kind <= 1:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            # Footer and trailers are the few bytes that no checksum covers.
            at = len(out) - rng.randrange(1, min(54, len(out) + 1))
            out[at] = rng.randrange(256)
        elif kind == 3:
            del out[at : at + rng.randrange(1, 40)]
        elif kind == 4:
            out[at:at] = rng.randbytes(rng.randrange(1, 20))
        else:
            del out[at:]
        if not out:
            break
    return bytes(out)


def read_all(data: bytes, keys: list[bytes]) -> None:
    """Everything that a table is asked for; each way for itself, so that one refusal does not hide another's crash."""
    for read in (
        lambda: Table(data).pairs,
        lambda: Table(data).records,
        lambda: Table(data).properties,
        lambda: Table(data).find(keys[0]),
        lambda: list(Metarange(*Table(data).columns)),
    ):
        with contextlib.suppress(CorruptTable):
            read()


@pytest.mark.parametrize("name", NAMES)
def test_every_file_flipped_and_cut(name: str) -> None:
    data = golden(name)
    keys = Table(data).columns[0]
    rng = random.Random(name)
    begin = time.process_time()
    for _ in range(MUTATIONS):
        read_all(mutated(data, rng), keys)
    for cut in range(0, len(data), max(len(data) // 60, 1)):
        read_all(data[:cut], keys)
        read_all(data[cut:], keys)
    assert time.process_time() - begin < 40


def with_right_checksums(data: bytes, rng: random.Random) -> bytes:
    """A file with a damaged block whose checksum was made to fit: what a hostile writer gives."""
    table = Table(data)
    _, handles = table._index
    blocks = [*handles, table._index_handle, table._metaindex]
    handle = rng.choice(blocks)
    begin, end = handle.offset, handle.offset + handle.length
    out = bytearray(data)
    for _ in range(rng.choice((1, 2, 4))):
        out[rng.randrange(begin, end + 1)] = rng.choice((0, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    out[end + 1 : end + 5] = masked_crc32c(bytes(out[begin : end + 1])).to_bytes(4, "little")
    return bytes(out)


@pytest.mark.parametrize("name", NAMES)
def test_damage_that_its_checksum_covers_up(name: str) -> None:
    data = golden(name)
    keys = Table(data).columns[0]
    rng = random.Random(name)
    for _ in range(MUTATIONS):
        read_all(with_right_checksums(data, rng), keys)


@pytest.mark.parametrize("decode", [Entry.decode, Commit.decode])
def test_messages(decode: object) -> None:
    rng = random.Random(1)
    entry = Entry("a/b", 10, "etag", 1_600_000_000_000_000_001, {"k": "v", "": ""}, "text/plain").encode()
    for _ in range(4000):
        data = mutated(entry, rng) if rng.random() < 0.7 else rng.randbytes(rng.randrange(60))
        with contextlib.suppress(CorruptTable):
            decode(data)  # type: ignore[operator]


def test_ranges_cannot_be_named_outside_their_folder() -> None:
    """A metarange of a stranger names a range `../../secret`."""
    store = MemoryStore()
    value = RangeInfo("../../secret", b"a", b"z", 1, 1).value()
    name = "ab" * 32
    store.put(f"_lakefs/{name}", write_table([b"z"], [value], {"type": "metaranges"}).data)
    graveler = Graveler(store)
    for read in (lambda: graveler.get(name, b"b"), lambda: list(graveler.scan(name)), lambda: graveler.names(name)):
        with pytest.raises(CorruptTable, match="64 hexadecimal"):
            read()
    for tree in ("../x", "AB" * 32, "ab" * 31, "ab" * 32 + "\n"):
        with pytest.raises(CorruptTable, match="64 hexadecimal"):
            graveler.get(tree, b"b")


@pytest.mark.parametrize("bounds", [(b"k010", b"k099"), (b"k000", b"k120")])
def test_a_metarange_that_promises_other_keys_is_not_built_upon(bounds: tuple[bytes, bytes]) -> None:
    store = MemoryStore()
    graveler = Graveler(store)
    tree = graveler.build("", [(b"k%03d" % at, record(b"k%03d" % at, at)) for at in range(100)]).tree
    (info,) = graveler.ranges(tree)
    lying = RangeInfo(info.id, *bounds, info.count, info.estimated_size)
    store.put(f"_lakefs/{'ab' * 32}", write_table([lying.max_key], [lying.value()], {"type": "metaranges"}).data)
    with pytest.raises(CorruptTable, match="does not contain the keys"):
        graveler.build("ab" * 32, [(b"k050", None)])


def test_a_file_of_any_size_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lake_core.graveler.reader._LARGEST", 1000)
    store = MemoryStore()
    store.put(f"_lakefs/{'ab' * 32}", bytes(1001))
    with pytest.raises(CorruptTable, match="larger than 1000 bytes"):
        Graveler(store).ranges("ab" * 32)


def test_a_small_file_cannot_ask_for_much_memory() -> None:
    """Blocks named twice, and values that repeat, are what would make a small file large."""
    records = [Record(b"%06d" % at, b"i" * 32, b"same" * 200) for at in range(20_000)]
    data = write_sstable(records)
    table = Table(data, budget=1 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(CorruptTable, match="memory"):
        _ = table.columns
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 << 10
    assert table.find(b"000777") == join_value(*records[777][1:])


def test_a_tree_with_a_damaged_range_says_which() -> None:
    store = MemoryStore()
    graveler = Graveler(store)
    tree = graveler.build("", [(b"k%03d" % at, record(b"k%03d" % at, at)) for at in range(100)]).tree
    (info,) = graveler.ranges(tree)
    data = bytearray(store.get(f"_lakefs/{info.id}"))
    data[100] ^= 1
    store.put(f"_lakefs/{info.id}", bytes(data))
    with pytest.raises(CorruptTable, match=info.id):
        list(Graveler(store).scan(tree))
