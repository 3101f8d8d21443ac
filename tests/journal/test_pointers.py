"""HEAD is a hint at most, TAIL is a promise, snapshots are caches: what happens when they lie."""

from __future__ import annotations

import pytest

from lake_core.errors import AccessDenied
from lake_core.journal import ZED_NAMING, Journal, JsonCodec, Naming
from lake_core.journal.errors import AppendOutcomeUnknown, JournalDamaged
from lake_core.journal.pointer import raise_head
from lake_core.store import MemoryStore, ObjectMeta
from tests.journal.plans import count
from tests.journal.stores import Do, ScriptedStore

LIES = [b"", b"garbage", b"-1", b"3.5", b"0", b"7", b"1000000", b"9" * 20, b"9" * 5000, b"\xff\xfe", "٣".encode()]


def _journal_of(entries: int, **options: int) -> MemoryStore:
    store = MemoryStore()
    journal = Journal(store, "refs", **options)  # type: ignore[arg-type]
    for _ in range(entries):
        journal.append(count)
    return store


@pytest.mark.parametrize("lie", [*LIES, None], ids=lambda lie: repr(lie)[:20])
@pytest.mark.parametrize("entries", [0, 3, 70])
def test_head_is_only_a_hint(entries: int, lie: bytes | None) -> None:
    store = _journal_of(entries)
    if lie is not None:
        store.put("refs/HEAD", lie)
    else:
        store.delete(["refs/HEAD"])
    journal = Journal(store, "refs")
    assert journal.state().number == entries
    entry = journal.append(count)
    assert entry is not None
    assert entry.number == entries + 1
    if lie is not None and lie not in (b"0", b"7"):
        assert int(store.get("refs/HEAD")) == entries + 1, "healed by whoever appends"
    assert [each.number for each in Journal(store, "refs").entries(1)] == list(range(1, entries + 2))
    assert Journal(store, "refs").head() == entries + 1
    hint = int(store.get("refs/HEAD")) if store.exists("refs/HEAD") else 0
    assert entries + 1 - 8 < hint <= entries + 1, "healed"


def test_who_may_only_read_heals_nothing() -> None:
    store = ScriptedStore(_journal_of(20))
    store.inner.put("refs/HEAD", b"lie")

    def on_put(key: str, do: Do) -> ObjectMeta:
        raise AccessDenied("read only")

    store.on_put = on_put
    assert Journal(store, "refs").head() == 20


def test_a_writer_that_dies_before_head_jams_nobody() -> None:
    """As the journals of `zed` 1.7.0, which gives up after ten attempts."""
    store = MemoryStore()
    for _ in range(5):
        Journal(store, "refs", naming=ZED_NAMING, head_every=10**9).append(count)
    assert not store.exists("refs/HEAD")
    journal = Journal(store, "refs", naming=ZED_NAMING, head_every=1)
    assert journal.head() == 5
    assert store.get("refs/HEAD") == b"5"
    store.put("refs/HEAD", b"2")
    assert Journal(store, "refs", naming=ZED_NAMING, head_every=1).append(count) is not None
    assert store.get("refs/HEAD") == b"6"


def test_head_never_falls_behind_a_later_writers() -> None:
    store = _journal_of(9, head_every=1)
    assert store.get("refs/HEAD") == b"9"
    has_entry = Journal(store, "refs")._reader.has_entry
    raise_head(store, "refs/HEAD", 5, has_entry)
    assert store.get("refs/HEAD") == b"9"
    store.put("refs/HEAD", b"12")
    raise_head(store, "refs/HEAD", 5, has_entry)
    assert store.get("refs/HEAD") == b"5", "there is no entry 12"


def test_a_slow_writer_of_head_is_compared() -> None:
    store = ScriptedStore(_journal_of(3, head_every=1))
    journal = Journal(store, "refs", head_every=1)
    journal.append(count)
    raced: list[bool] = []

    def on_put(key: str, do: Do) -> ObjectMeta:
        if key.endswith("HEAD") and not raced:
            raced.append(True)
            Journal(store.inner, "refs", head_every=1).append(count)
        return do()

    store.on_put = on_put
    journal.append(count)
    assert store.inner.get("refs/HEAD") == b"6"


def test_a_missing_entry_that_head_knows_of_is_no_end() -> None:
    """Appending there would hide entries that were acknowledged."""
    store = _journal_of(8, snapshot_every=10**9)
    store.delete(["refs/00000000000000000004.json"])
    journal = Journal(store, "refs")
    for action in (journal.state, lambda: journal.append(count), journal.head):
        with pytest.raises(JournalDamaged, match=r"00000000000000000004.json is missing, though entry 8 exists"):
            action()
    assert not store.exists("refs/00000000000000000004.json")


def test_entries_say_where_one_is_missing() -> None:
    store = _journal_of(8)
    journal = Journal(store, "refs")
    journal.state()
    store.delete(["refs/00000000000000000004.json"])
    with pytest.raises(JournalDamaged, match=r"00000000000000000004.json is missing"):
        list(journal.entries(1))
    assert [entry.number for entry in journal.entries(5)] == [5, 6, 7, 8]
    with pytest.raises(JournalDamaged):
        journal.state_at(journal.entry(3).time)


@pytest.mark.parametrize("lie", [b"", b"garbage", b"0 0", b"1", b"1 0 0", b"-1 0", b"\xff"])
def test_a_garbled_tail_stops_readers_and_writers(lie: bytes) -> None:
    store = _journal_of(3)
    open_journal = Journal(store, "refs")
    open_journal.state()
    store.put("refs/TAIL", lie)
    fresh = Journal(store, "refs")
    for action in (
        fresh.state,
        lambda: fresh.append(count),
        lambda: list(fresh.entries(1)),
    ):
        with pytest.raises(JournalDamaged, match="refs/TAIL"):
            action()
    assert not store.exists("refs/00000000000000000004.json")
    with pytest.raises(AppendOutcomeUnknown, match="refs/TAIL"):
        open_journal.append(count)


def test_a_tail_that_is_being_overwritten_is_read_again() -> None:
    """`zed` does not do it atomically."""
    store = ScriptedStore(_journal_of(3))
    store.inner.put("refs/TAIL", b"1 ")
    reads: list[str] = []

    def on_get(key: str) -> None:
        if key == "refs/TAIL":
            reads.append(key)
            if len(reads) == 3:
                store.inner.put("refs/TAIL", b"1 0")

    store.on_get = on_get
    assert Journal(store, "refs").state().number == 3


def test_a_tail_beyond_the_end_is_damage() -> None:
    store = _journal_of(3)
    store.put("refs/TAIL", b"50 49")
    with pytest.raises(JournalDamaged, match=r"bases/00000000000000000049.json is missing"):
        Journal(store, "refs").append(count)
    assert not store.exists("refs/00000000000000000004.json")


# Snapshots

SNAPSHOT = "refs/snapshots/{:020d}.json"


def _torn(data: bytes) -> list[bytes]:
    flipped = bytearray(data)
    flipped[-3] ^= 1
    return [
        b"",
        b"\n",
        b"{}",
        data[: len(data) // 2],
        data[:-1],
        data + b" ",
        bytes(flipped),
        b"\x00" * len(data),
        data.replace(b"sha256", b"sha257"),
    ]


@pytest.mark.parametrize("kind", range(9))
@pytest.mark.parametrize("torn", [[192], [192, 128], [192, 128, 64]])
def test_torn_snapshots_are_skipped(kind: int, torn: list[int], caplog: pytest.LogCaptureFixture) -> None:
    store = _journal_of(200)
    for number in torn:
        store.put(SNAPSHOT.format(number), _torn(store.get(SNAPSHOT.format(number)))[kind])
    journal = Journal(store, "refs")
    assert journal.state() == {"n": 200}
    assert journal.state().number == 200
    assert SNAPSHOT.format(192) in caplog.text
    assert journal.state_at(100) == {"n": 100}


def test_a_snapshot_under_another_number_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    store = _journal_of(200)
    store.put(SNAPSHOT.format(199), store.get(SNAPSHOT.format(128)))
    store.put(SNAPSHOT.format(500), store.get(SNAPSHOT.format(192)))
    store.put("refs/snapshots/junk", b"")
    store.put("refs/snapshots/deeper/" + "0" * 20 + ".json", b"")
    assert Journal(store, "refs").state() == {"n": 200}
    assert "claims to be the snapshot of entry 128" in caplog.text


def test_too_large_a_snapshot_is_neither_read_nor_written(caplog: pytest.LogCaptureFixture) -> None:
    store = _journal_of(200)
    journal = Journal(store, "refs", max_snapshot_bytes=50, snapshot_every=1)
    assert journal.state() == {"n": 200}
    assert "at most 50 are read" in caplog.text
    before = [meta.key for meta in store.list("refs/snapshots/")]
    journal.append(count)
    assert [meta.key for meta in store.list("refs/snapshots/")] == before


def test_whoever_replayed_much_writes_a_snapshot() -> None:
    """The writer whose turn it was may have died, or not be allowed to."""
    store = _journal_of(200, snapshot_every=10**9)
    assert list(store.list("refs/snapshots/")) == []
    Journal(store, "refs").append(count)
    assert [meta.key for meta in store.list("refs/snapshots/")] == [SNAPSHOT.format(201)]


def test_the_newest_snapshots_stay() -> None:
    store = _journal_of(100, snapshot_every=10)
    assert [meta.key for meta in store.list("refs/snapshots/")] == [SNAPSHOT.format(number) for number in (80, 90, 100)]


def test_one_fixed_snapshot_is_never_replaced_by_an_older() -> None:
    naming = Naming(fixed_snapshot="snap.json")
    store = ScriptedStore(MemoryStore())
    journal = Journal(store, "refs", naming=naming, snapshot_every=10)
    for _ in range(9):
        journal.append(count)
    other = Journal(store.inner, "refs", naming=naming, snapshot_every=5)

    def on_put(key: str, do: Do) -> ObjectMeta:
        if key.endswith("snap.json"):
            for _ in range(10):
                other.append(count)
        return do()

    store.on_put = on_put
    journal.append(count)
    assert JsonCodec().decode_snapshot(store.inner.get("refs/snap.json")).number == 20
    store.on_put = lambda key, do: do()
    store.inner.put("refs/snap.json", b"torn")
    fresh = Journal(store, "refs", naming=naming, snapshot_every=10)
    assert fresh.state() == {"n": 20}
    for _ in range(10):
        fresh.append(count)
    assert JsonCodec().decode_snapshot(store.inner.get("refs/snap.json")).number == 30
