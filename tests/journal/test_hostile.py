"""Bytes that nobody's journal wrote: refused by name, within bounds."""

from __future__ import annotations

import json
import random
import tracemalloc
from contextlib import suppress
from datetime import UTC

import pytest

from lake_core.journal import Add, Delete, Entry, Journal, JsonCodec, State, Update
from lake_core.journal.errors import CorruptEntry, CorruptSnapshot
from lake_core.journal.naming import ZED_NAMING, Naming
from lake_core.store import MemoryStore
from tests.journal.clocks import START
from tests.journal.plans import count

CODEC = JsonCodec()
VALUE = {"commit": "3f" * 16, "parents": [None, True, 1.5e300, -7, "ü\u2028"], "": {}}
SEED = Entry(17, START, "a" * 32, (Add("main", VALUE), Update("dev", [1, [2, [3]]]), Delete("old")))

INSERTS = [
    b'"', b"{", b"}", b"[", b"]", b",", b":", b"0", b"9", b"-", b"e400", b"NaN", b"Infinity", b"null", b"true",
    b"\\ud800", b"\\u0000", b"\xff", b"\x00", b'"add":', b'"delete":', b'"number":18,', b'"format":2,',
    b'"actions":null,', b"[" * 2000, b"9" * 5000, b"T24:00:00", b"+23:59",
    b"0001-01-01T00:00:00+23:00", b"9999-12-31T23:59:59-23:00",
]  # fmt: skip


def _mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        position, kind = chance.randrange(len(changed) + 1), chance.randrange(6)
        end = min(len(changed), position + chance.choice((1, 1, 3, 20)))
        if kind == 0 and changed:
            changed[position - 1] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[position:position] = chance.choice(INSERTS)
        elif kind == 2:
            del changed[position:end]
        elif kind == 3:
            changed[position:end] = chance.choice(INSERTS)
        elif kind == 4:
            changed[position:position] = changed[position:end]
        else:
            del changed[position:]
    return bytes(changed)


def test_mutated_entries_are_refused_or_valid() -> None:
    chance, data, valid = random.Random(7), CODEC.encode(SEED), 0
    assert CODEC.decode(17, data) == SEED
    for _ in range(6000):
        mutated = _mutated(data, chance)
        try:
            entry = CODEC.decode(17, mutated)
        except CorruptEntry:
            continue
        valid += 1
        assert entry.number == 17
        assert entry.time.tzinfo is UTC
        # Whatever is taken can be written again: a snapshot will have to.
        adds = tuple(
            Add(f"{index}", getattr(action, "value", action.key)) for index, action in enumerate(entry.actions)
        )
        state = State.empty().advanced([Entry(17, entry.time, "", adds)])
        assert dict(CODEC.decode_snapshot(CODEC.encode_snapshot(state))) == dict(state)
        for action in entry.actions:
            action.key.encode()
    assert 100 < valid < 5000


def test_mutated_snapshots_are_refused() -> None:
    chance = random.Random(7)
    state = State.empty().advanced([Entry(1, START, "", (Add("main", VALUE), Add("dev", 1)))])
    data = CODEC.encode_snapshot(state)
    assert dict(CODEC.decode_snapshot(data)) == dict(state)
    for _ in range(3000):
        mutated = _mutated(data, chance)
        with suppress(CorruptSnapshot):
            assert dict(CODEC.decode_snapshot(mutated)) == dict(state)


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"number": 18},
        {"number": 17.0},
        {"number": True},
        {"number": "17"},
        {"time": None},
        {"time": "2024-01-01"},
        {"time": "2024-01-01T00:00:00"},
        {"time": "0001-01-01T00:00:00+14:00"},
        {"time": 1704067200},
        {"writer": None},
        {"writer": 7},
        {"actions": None},
        {"actions": {}},
        {"actions": [None]},
        {"actions": [{}]},
        {"actions": [{"add": "a"}]},
        {"actions": [{"add": 7, "value": 1}]},
        {"actions": [{"delete": ["a"]}]},
        {"actions": [{"upsert": "a", "value": 1}]},
        {"actions": [{"delete": "a" * 5000}]},
        {"actions": [{"delete": "\ud800"}]},
        {"actions": [{"add": "a", "value": {"\udfff": 1}}]},
        {"actions": [{"add": "a", "value": ["\udfff"]}]},
    ],
    ids=str,
)
def test_entries_that_are_none(change: dict[str, object]) -> None:
    body = json.loads(CODEC.encode(SEED)) | change
    with pytest.raises(CorruptEntry, match="entry 17 is not valid"):
        CODEC.decode(17, json.dumps(body).encode())


@pytest.mark.parametrize(
    "data", [b"", b"[]", b"null", b"7", b"\xef\xbb\xbf{}", b"[" * 100_000, b'{"a":' * 100_000, b"1" * 100_000]
)
def test_bytes_that_are_no_object(data: bytes) -> None:
    with pytest.raises(CorruptEntry):
        CODEC.decode(1, data)
    with pytest.raises(CorruptSnapshot):
        CODEC.decode_snapshot(data)


def test_unknown_fields_are_ignored() -> None:
    body = json.loads(CODEC.encode(SEED)) | {"comment": "from a later version"}
    assert CODEC.decode(17, json.dumps(body).encode()) == SEED


def test_a_corrupt_entry_is_named_to_everybody() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs")
    for _ in range(3):
        journal.append(count)
    key = "refs/00000000000000000004.json"
    store.put(key, b"garbage")
    for ask in (
        journal.state,
        journal.head,
        lambda: journal.append(count),
        lambda: list(journal.entries(1)),
        lambda: journal.entry(4),
        lambda: journal.state_at(4),
        lambda: Journal(store, "refs").append(count),
    ):
        with pytest.raises(CorruptEntry, match=key.replace(".", r"\.")) as raised:
            ask()
        assert raised.value.key == key
    assert [meta.key for meta in store.list("refs/0")][-1] == key, "nothing is written behind it"
    assert journal.state_at(3) == {"n": 3}
    assert journal.state(refresh=False) == {"n": 3}


def test_an_entry_that_contradicts_those_before_is_corrupt() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs")
    for _ in range(3):
        journal.append(count)
    for action in (Add("n", 1), Delete("m"), Update("m", 1)):
        store.put("refs/00000000000000000004.json", CODEC.encode(Entry(4, START, "w", (action,))))
        with pytest.raises(CorruptEntry, match="contradicts the entries before it"):
            Journal(store, "refs").state()


def test_giant_entries_are_not_read() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs", max_entry_bytes=1 << 16)
    journal.append(count)
    store.put("refs/00000000000000000002.json", bytes(64 << 20))
    store.put("refs/HEAD", bytes(1 << 20))
    tracemalloc.start()
    for handle in (journal, Journal(store, "refs", max_entry_bytes=1 << 16)):
        with pytest.raises(CorruptEntry, match="larger than 65536 bytes"):
            handle.append(count)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 << 20


JUNK = [
    "0", "00000000000000000000.json", "1.json", "00000000000000000001.json.bak", "x/00000000000000000001.json",
    "README", "zzz", "snapshots/x", "snapshots/00000000000000000000.json", "bases/y", "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١.json",
]  # fmt: skip


def test_foreign_files_are_passed_over() -> None:
    store = MemoryStore()
    journal = Journal(store, "refs", snapshot_every=2)
    for name in JUNK:
        store.put(f"refs/{name}", b"junk")
    for _ in range(5):
        journal.append(count)
    assert Journal(store, "refs").state() == {"n": 5} == journal.state_at(5)
    assert journal.purge(START) == 0


@pytest.mark.parametrize(
    ("naming", "name", "number"),
    [
        (Naming(), "00000000000000000017.json", 17),
        (Naming(), "17.json", None),
        (Naming(), "00000000000000000000.json", None),
        (Naming(), "000000000000000000017.json", None),
        (Naming(), "00000000000000000017.zng", None),
        (Naming(), "HEAD", None),
        (ZED_NAMING, "17.zng", 17),
        (ZED_NAMING, "017.zng", None),
        (ZED_NAMING, "0.zng", None),
        (ZED_NAMING, "snap.zng", None),
        (ZED_NAMING, "１７.zng", None),
    ],
)
def test_names_are_read_strictly(naming: Naming, name: str, number: int | None) -> None:
    assert naming.number(name) == number
