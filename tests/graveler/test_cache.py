"""The folder of ranges on this machine: bounded, shared, and never in the way."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lake_core.graveler import Graveler, RangeCache
from lake_core.graveler.cache import default_folder
from lake_core.graveler.reader import RangeReader
from lake_core.graveler.table import MAGIC
from lake_core.store import MemoryStore, ObjectBytes, open_store
from tests.graveler.records import TINY, record


class Remote(MemoryStore):
    """A store that counts what is read of it."""

    reads = 0

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        self.reads += 1
        return super()._get(key, start, end)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def filled(store: MemoryStore, cache: RangeCache, count: int = 300) -> tuple[str, list[bytes]]:
    keys = [b"%04d" % at for at in range(count)]
    return Graveler(store, profile=TINY, cache=cache).build("", [(key, record(key, 1)) for key in keys]).tree, keys


def test_what_was_read_or_written_once_is_not_fetched_again(tmp_path: Path) -> None:
    store = Remote()
    cache = RangeCache(tmp_path / "made" / "when needed")
    assert not (tmp_path / "made").exists()
    tree, keys = filled(store, cache)
    store.reads = 0
    assert len(list(Graveler(store, cache=cache).scan(tree))) == len(keys)
    assert store.reads == 0
    other = RangeCache(tmp_path / "other")
    assert len(list(Graveler(store, cache=other).scan(tree))) == len(keys)
    reads, store.reads = store.reads, 0
    assert reads == len(Graveler(store, cache=other).names(tree))
    assert len(list(Graveler(store, cache=RangeCache(tmp_path / "other")).scan(tree))) == len(keys)
    assert store.reads == 0


def test_damaged_files_are_fetched_again(tmp_path: Path) -> None:
    store, cache = Remote(), RangeCache(tmp_path)
    tree, keys = filled(store, cache)
    for damage in (
        lambda data: data[: len(data) // 2],
        lambda data: b"",
        lambda data: bytes(len(data)),
        lambda data: b"x" + data[1:],
    ):
        for path in files(tmp_path):
            path.write_bytes(damage(path.read_bytes()))
        trees = Graveler(store, cache=cache)
        assert [entry.key for entry in trees.scan(tree)] == keys
        assert Graveler(store, cache=cache).get(tree, keys[7]) is not None
        store.reads = 0
        assert [entry.key for entry in Graveler(store, cache=cache).scan(tree)] == keys
        assert store.reads == 0, "what was fetched stands there again"


def test_bytes_are_bounded_and_the_oldest_go_first(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path, max_bytes=100_000)
    data = bytes(1000) + MAGIC
    names = [f"{number:064x}" for number in range(400)]
    for at, name in enumerate(names):
        cache.put(name, data)
        (remaining,) = (path for path in files(tmp_path) if path.name == name)
        # Files that are written within one tick of the clock have no order.
        os.utime(remaining, (at, at + 1e6 * (at == 0)))
        assert sum(path.stat().st_size for path in files(tmp_path)) <= 100_000 + 100_000 // 16 + len(data)
    assert cache.get(names[0]) == cache.get(names[399]) == data
    assert cache.get(names[1]) is None
    assert cache.trim() <= 100_000


def test_a_file_larger_than_an_eighth_is_not_kept(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path / "c", max_bytes=1000)
    cache.put("00" * 32, bytes(126))
    assert not (tmp_path / "c").exists()
    with pytest.raises(ValueError, match="must not be negative"):
        RangeCache(tmp_path, max_bytes=-1)


def test_a_folder_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    store, cache = Remote(), RangeCache(tmp_path / "file" / "below")
    tree, keys = filled(store, cache)
    assert [entry.key for entry in Graveler(store, cache=cache).scan(tree)] == keys
    assert cache.trim() == 0
    cache.drop("00" * 32)


def test_half_written_files_of_the_dead_go_away(tmp_path: Path) -> None:
    cache = RangeCache(tmp_path)
    old, new = tmp_path / ".tmp-old", tmp_path / ".tmp-new"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200, time.time() - 7200))
    cache.trim()
    assert files(tmp_path) == [new]


def test_stores_do_not_vouch_for_one_another(tmp_path: Path) -> None:
    """The same name in another store: each is served what it holds itself."""
    cache = RangeCache(tmp_path)
    store = Remote()
    tree, _ = filled(store, cache)
    stranger = Graveler(Remote(), cache=cache)
    with pytest.raises(Exception, match="there is no object"):
        stranger.ranges(tree)


SHARER = """
import sys, random
from lake_core.graveler import RangeCache
cache = RangeCache(sys.argv[1], max_bytes=60_000)
data = {f"{n:064x}": bytes([n]) * 3000 + bytes.fromhex("f7cff485b741e288") for n in range(40)}
rng = random.Random(int(sys.argv[2]))
for _ in range(1500):
    name = rng.choice(list(data))
    found = cache.get(name)
    assert found is None or found == data[name], "torn"
    if found is None:
        cache.put(name, data[name])
"""


def test_processes_share_it_while_it_is_trimmed(tmp_path: Path) -> None:
    running = [subprocess.Popen([sys.executable, "-c", SHARER, str(tmp_path), str(seed)]) for seed in range(3)]
    assert [process.wait(timeout=50) for process in running] == [0, 0, 0]
    assert sum(path.stat().st_size for path in files(tmp_path)) <= 60_000 + 3 * (60_000 // 16 + 3008)
    assert not [path for path in files(tmp_path) if path.name.startswith(".tmp-")]


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "lake-orch" / "ranges"
    assert RangeCache().folder == default_folder()
    monkeypatch.setenv("XDG_CACHE_HOME", "relative is ignored")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_folder() == tmp_path / "home" / ".cache" / "lake-orch" / "ranges"


def test_decoded_ranges_are_bounded_by_bytes_too() -> None:
    store = Remote()
    keys = [b"%05d" % at for at in range(5000)]
    trees = Graveler(store, profile=TINY)
    tree = trees.build("", [(key, record(key, 1)) for key in keys]).tree
    reader = RangeReader(store, None, "_lakefs", memory_bytes=200_000)
    trees.reader = reader
    for _ in range(2):
        assert len(list(trees.scan(tree))) == 5000
        for key in keys[::50]:
            assert trees.get(tree, key) is not None
    assert sum(size for _, size in reader._kept.values()) == reader._used <= 200_000 or len(reader._kept) == 1


def test_ranges_that_are_asked_often_are_decoded_once() -> None:
    store = Remote()
    keys = [b"%04d" % at for at in range(2000)]
    trees = Graveler(store)
    tree = trees.build("", [(key, record(key, 1)) for key in keys]).tree
    fresh = Graveler(store)
    store.reads = 0
    for key in keys[:20]:
        assert fresh.get(tree, key) == trees.get(tree, key)
    name = fresh.ranges(tree)[0].id
    assert ("columns", name) in fresh.reader._kept
    assert ("table", name) not in fresh.reader._kept


def test_many_threads_read_and_build() -> None:
    store = Remote()
    keys = [b"%04d" % at for at in range(1000)]
    trees = Graveler(store, profile=TINY)
    trees.reader = RangeReader(store, None, "_lakefs", memory_bytes=60_000)
    tree = trees.build("", [(key, record(key, 1)) for key in keys]).tree
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            for key in keys[seed::7]:
                assert trees.get(tree, key) is not None
            built = trees.build(tree, [(keys[seed], record(keys[seed], seed + 2))])
            assert [difference.key for difference in trees.diff(tree, built.tree)] == [keys[seed]]
            assert all(trees.get_many(tree, keys[::-3]))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_over_s3_each_file_is_fetched_once_on_this_machine(
    s3_url: str, s3_options: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache needs no setting: the default folder serves the second handle.

    The store may lose what that folder holds.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = open_store(s3_url, storage_options=s3_options)
    keys = [b"%04d" % at for at in range(400)]
    built = Graveler(store, profile=TINY).build("", [(key, record(key, 1)) for key in keys])
    assert len(built.written) > 20
    assert {meta.key for meta in store.list()} == {f"_lakefs/{name}" for name in built.written}
    store.delete([f"_lakefs/{name}" for name in built.written])
    assert [entry.key for entry in Graveler(store).scan(built.tree)] == keys
    assert len(files(tmp_path / "lake-orch")) == len(built.written)
