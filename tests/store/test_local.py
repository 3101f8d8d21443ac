"""The store on a file system."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from lake_core.errors import (
    AccessDenied,
    AlreadyExists,
    InvalidKey,
    InvalidUrl,
    NotFound,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    UnsafeStore,
)
from lake_core.store import LocalStore, ObjectStore, open_store
from lake_core.testing import SharedObjectStoreSuite


class TestLocalStore(SharedObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[ObjectStore]:
        return LocalStore(tmp_path / "root" / "below")


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "root")


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def test_objects_are_plain_files(store: LocalStore, tmp_path: Path) -> None:
    store.put("a/b", b"hello")
    assert (tmp_path / "root/a/b").read_bytes() == b"hello"
    (tmp_path / "root/a/c").write_bytes(b"by hand")
    assert store.get("a/c") == b"by hand"
    assert open_store(store.url()).get("a/b") == b"hello"


def test_root_need_not_exist_for_reading(store: LocalStore, tmp_path: Path) -> None:
    assert list(store.list()) == []
    assert store.list_folders() == []
    with pytest.raises(NotFound):
        store.get("a")
    store.delete(["a"])
    with pytest.raises(PreconditionFailed):
        store.put("a/b", b"", if_match="x")
    assert not (tmp_path / "root").exists()


def test_root_must_not_be_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(InvalidUrl, match="is a file"):
        LocalStore(tmp_path / "file")


def test_root_stays_where_it_was_when_the_process_moves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore("relative")
    monkeypatch.chdir("/")
    store.put("a", b"")
    assert (tmp_path / "relative/a").exists()


def test_no_temporary_file_is_left(store: LocalStore, tmp_path: Path) -> None:
    meta = store.put("a", b"1", if_absent=True)
    store.put("a", b"2", if_match=meta.etag)
    store.put("a", b"3")
    with pytest.raises(AlreadyExists):
        store.put("a", b"4", if_absent=True)
    with pytest.raises(PreconditionFailed):
        store.put("a", b"4", if_match=meta.etag)
    assert _files(tmp_path / "root") == ["a"]


def test_what_is_replaced_leaves_no_checksum_of_hadoop(store: LocalStore, tmp_path: Path) -> None:
    for name in ("kept", "replaced"):
        store.put(f"log/{name}", b"old")
        (next(tmp_path.rglob(name)).parent / f".{name}.crc").write_bytes(b"of the old content")
    store.put("log/replaced", b"new")
    assert [path.name for path in tmp_path.rglob(".*.crc")] == [".kept.crc"]


def test_temporary_files_are_hidden(store: LocalStore, tmp_path: Path) -> None:
    store.put("a/b", b"")
    (tmp_path / "root/a/.lake-tmp-1").write_bytes(b"half")
    (tmp_path / "root/.lake-tmp-folder").mkdir()
    (tmp_path / "root/.lake-tmp-folder/x").write_bytes(b"")
    assert [meta.key for meta in store.list()] == ["a/b"]
    assert store.list_folders() == ["a"]


def test_object_and_folder_of_one_name(store: LocalStore) -> None:
    store.put("a", b"")
    store.put("b/c", b"")
    for if_absent in (False, True):
        with pytest.raises(InvalidKey, match="'a/b/c' cannot be below the object 'a' on a file system"):
            store.put("a/b/c", b"", if_absent=if_absent)
        with pytest.raises(InvalidKey, match="'b' is a folder here"):
            store.put("b", b"", if_absent=if_absent)
    with pytest.raises(PreconditionFailed):
        store.put("b", b"", if_match="x")
    store.delete(["b"])
    assert [meta.key for meta in store.list()] == ["a", "b/c"]


def test_empty_folders_are_no_folders(store: LocalStore, tmp_path: Path) -> None:
    store.put("a/b", b"")
    (tmp_path / "root/empty/nested").mkdir(parents=True)
    assert store.list_folders() == ["a"]
    store.delete(["a/b"])
    assert store.list_folders() == []
    assert (tmp_path / "root/a").is_dir()


# Nothing outside


@pytest.fixture
def trap(store: LocalStore, tmp_path: Path) -> Path:
    """Create a folder outside the root, to which links of every kind lead."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_bytes(b"secret")
    store.put("inside/real", b"real")
    root = tmp_path / "root"
    (root / "folder").symlink_to(outside)
    (root / "relative").symlink_to("../outside")
    (root / "file").symlink_to(outside / "secret")
    (root / "new").symlink_to(outside / "new")
    (root / "chain").symlink_to("folder")
    (root / "inside/up").symlink_to("..")
    (root / "neighbour").symlink_to(tmp_path / "root-neighbour")
    (tmp_path / "root-neighbour").mkdir()
    return outside


OUTSIDE = [
    "folder/secret",
    "relative/secret",
    "file",
    "new",
    "chain/secret",
    "chain/new/deep",
    "inside/up/folder/secret",
    "neighbour/x",
]


@pytest.mark.parametrize("key", OUTSIDE)
def test_nothing_outside_is_reached_through_links(store: LocalStore, trap: Path, key: str, tmp_path: Path) -> None:
    for use in (
        lambda: store.get(key),
        lambda: store.head(key),
        lambda: store.put(key, b"overwritten"),
        lambda: store.put(key, b"overwritten", if_absent=True),
        lambda: store.put(key, b"overwritten", if_match="x"),
        lambda: store.delete(["inside/absent", key]),
    ):
        with pytest.raises(InvalidKey, match="outside the store"):
            use()
    assert _files(trap) == ["secret"]
    assert (trap / "secret").read_bytes() == b"secret"
    assert _files(tmp_path / "root-neighbour") == []
    assert os.path.lexists(tmp_path / "root" / key.partition("/")[0])


def test_listings_do_not_follow_links(store: LocalStore, trap: Path) -> None:
    assert [meta.key for meta in store.list()] == ["inside/real"]
    assert store.list_folders() == ["inside"]
    for prefix in ("folder/", "chain/", "inside/up/", "inside/up/inside/", "fo", "file", "relative/sec"):
        assert list(store.list(prefix)) == []
        if prefix.endswith("/"):
            assert store.list_folders(prefix) == []


def test_links_inside_lead_where_they_point(store: LocalStore, tmp_path: Path) -> None:
    store.put("a/real", b"1")
    root = tmp_path / "root"
    (root / "link").symlink_to("a/real")
    (root / "folder").symlink_to("a")
    (root / "dangling").symlink_to("a/nothing")
    (root / "loop").symlink_to("loop")
    assert store.get("link") == store.get("folder/real") == b"1"
    assert store.head("link").etag == store.head("a/real").etag
    assert [meta.key for meta in store.list()] == ["a/real", "link"]
    store.put("link", b"2", if_match=store.head("link").etag)
    assert store.get("a/real") == b"2"
    with pytest.raises(NotFound):
        store.get("dangling")
    with pytest.raises((NotFound, InvalidKey)):
        store.get("loop")
    store.delete(["link"])
    assert store.get("a/real") == b"2"


def test_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    store = LocalStore(tmp_path / "link")
    store.put("a/b", b"1")
    assert store.get("a/b") == b"1"
    assert [meta.key for meta in store.list()] == ["a/b"]
    assert (tmp_path / "real/a/b").exists()


def test_pipes_do_not_hang(store: LocalStore, tmp_path: Path) -> None:
    store.put("a", b"")
    os.mkfifo(tmp_path / "root/pipe")
    for read in (store.get, store.head):
        with pytest.raises(NotFound):
            read("pipe")
    assert [meta.key for meta in store.list()] == ["a"]


def test_names_that_can_be_no_keys_are_not_listed(store: LocalStore, tmp_path: Path) -> None:
    store.put("a/b", b"")
    with open(os.fsencode(tmp_path / "root/a") + b"/\xff\xfe", "wb"):
        pass
    (tmp_path / "root/a/line\nbreak").write_bytes(b"")
    assert [meta.key for meta in store.list()] == ["a/b"]


def test_foreign_normal_form_is_reached_by_its_own_name(store: LocalStore, tmp_path: Path) -> None:
    store.put("a", b"")
    composed = "café/é"
    decomposed = unicodedata.normalize("NFD", composed)
    path = tmp_path / "root" / decomposed
    path.parent.mkdir()
    path.write_bytes(b"by another tool")
    listed = [meta.key for meta in store.list()]
    assert listed == ["a", decomposed]
    assert store.get(decomposed) == b"by another tool"
    assert store.get_many(["a", decomposed]) == [b"", b"by another tool"]
    assert store.head(decomposed).key == decomposed
    folder = decomposed.partition("/")[0]
    assert store.list_folders() == [folder]
    assert [meta.key for meta in store.list(folder + "/")] == [decomposed]
    assert [meta.key for meta in store.list(start_after=decomposed)] == []
    assert not store.exists(composed)
    store.put(decomposed, b"ours", if_absent=True)
    assert store.get(composed) == store.get(decomposed) == b"ours"
    assert path.read_bytes() == b"by another tool"
    # Every listed name can be deleted by that name without deleting anything else.
    store.delete([decomposed])
    assert not path.exists()
    assert store.get(composed) == b"ours"


# Etags


def test_etag_never_comes_twice(store: LocalStore) -> None:
    etags = []
    for i in range(100):
        etags.append(store.put("a", b"same").etag)
        if i % 3 == 0:
            store.delete(["a"])
            etags.append(store.put("a", b"same", if_absent=True).etag)
    assert len(set(etags)) == len(etags)


def test_etag_differs_though_the_clock_went_back(store: LocalStore, tmp_path: Path) -> None:
    store.put("a", b"same")
    future = time.time_ns() + 3_600_000_000_000
    os.utime(tmp_path / "root/a", ns=(future, future))
    old = store.head("a")
    new = store.put("a", b"same", if_match=old.etag)
    assert new.last_modified > old.last_modified
    assert (tmp_path / "root/a").stat().st_mtime_ns > future


def test_modification_time_is_told_exactly(store: LocalStore, tmp_path: Path) -> None:
    store.put("a", b"")
    os.utime(tmp_path / "root/a", ns=(1_700_000_000_123_456_789,) * 2)
    assert store.head("a").last_modified == datetime(2023, 11, 14, 22, 13, 20, 123456, UTC)


# Kinds of file systems


@pytest.mark.parametrize("existing", ["a/b", "A/x"])
def test_keys_equal_but_for_case_where_that_is_one_file(tmp_path: Path, existing: str) -> None:
    store = LocalStore(tmp_path / "root", case_insensitive=True)
    store.put(existing, b"1")
    store.put(existing, b"2")
    for key in ("A/b", "a/B", "A/B", "a/X"):
        if (
            not any(existing.startswith(part) for part in (key, key.partition("/")[0] + "/"))
            or key.lower() == existing.lower()
        ):
            for if_absent in (False, True):
                with pytest.raises(InvalidKey, match="only in case"):
                    store.put(key, b"3", if_absent=if_absent)
    assert [meta.key for meta in store.list()] == [existing]


def test_keys_equal_but_for_case_elsewhere(store: LocalStore) -> None:
    store.put("a", b"1")
    store.put("A", b"2")
    assert [bytes(got) for got in store.get_many(["A", "a"])] == [b"2", b"1"]


def test_file_system_without_hard_links_is_refused(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No such file system can be mounted here, so the call fails as it does there."""

    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(UnsafeStore, match="without hard links"):
        store.put("a", b"", if_absent=True)
    assert _files(tmp_path / "root") == []


def test_file_system_whose_links_replace_is_refused(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", lambda *_, **__: None)
    with pytest.raises(UnsafeStore, match="replaces an existing file"):
        store.put("a", b"", if_absent=True)
    assert _files(tmp_path / "root") == []


def test_file_system_without_locks_is_refused(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fcntl

    def flock(*_: object) -> None:
        raise OSError(errno.EBADF, "as on NFS")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UnsafeStore, match="no locks on folders"):
        store.put("a", b"")
    assert _files(tmp_path / "root") == []


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ENOSPC, StoreError),
        (errno.EIO, StoreUnavailable),
        (errno.EROFS, AccessDenied),
        (errno.EACCES, AccessDenied),
    ],
)
def test_failing_disk(
    store: LocalStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[StoreError]
) -> None:
    store.put("a", b"before")

    def fsync(_: int) -> None:
        raise OSError(number, "no")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        for etag in (None, store.head("a").etag):
            with pytest.raises(StoreError) as caught:
                store.put("a", b"after", if_match=etag)
            assert type(caught.value) is kind
            assert errno.errorcode[number] in str(caught.value)
            assert caught.value.key == "a"
    assert _files(tmp_path / "root") == ["a"]
    assert store.get("a") == b"before"


def test_full_disk() -> None:
    """/dev/full takes no byte: the one disk that is full everywhere."""
    from lake_core.store.local import _translated, _write

    fd = os.open("/dev/full", os.O_WRONLY)
    try:
        with pytest.raises(StoreError, match="ENOSPC"), _translated("a", reading=False):
            _write(fd, b"x")
    finally:
        os.close(fd)


def test_no_permission(store: LocalStore, tmp_path: Path) -> None:
    """In a process that is not root, for which there are no permissions."""
    store.put("a/b", b"")
    os.chmod(tmp_path, 0o755)
    for folder in tmp_path.parents:
        if folder.stat().st_uid == os.getuid() and folder != Path("/"):
            os.chmod(folder, folder.stat().st_mode | 0o055)
    (tmp_path / "root/secret").write_bytes(b"")
    os.chmod(tmp_path / "root/secret", 0)
    os.chmod(tmp_path / "root/a", 0)
    os.chmod(tmp_path / "root", 0o555)
    program = f"""
import os
from lake_core.errors import AccessDenied
from lake_core.store.local import LocalStore
if os.getuid() == 0:
    os.setuid(65534)
store = LocalStore({str(tmp_path / "root")!r})
for use in (
    lambda: store.get("secret"), lambda: store.get("a/b"),
    lambda: store.put("c", b""), lambda: store.put("c", b"", if_absent=True),
    lambda: store.delete(["secret"]), lambda: list(store.list()),
):
    try:
        use()
    except AccessDenied as error:
        print("refused", error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=os.getcwd())
    os.chmod(tmp_path / "root/a", 0o755)
    os.chmod(tmp_path / "root", 0o755)
    assert (run.stdout.count("refused"), run.stderr) == (6, "")


# Races and crashes


def test_put_survives_that_empty_folders_are_tidied_up(store: LocalStore, tmp_path: Path) -> None:
    stop = threading.Event()

    def tidy() -> None:
        while not stop.is_set():
            for folder in ("a/b", "a"):
                try:
                    os.rmdir(tmp_path / "root" / folder)
                except OSError:
                    continue
            time.sleep(0.0005)

    tidying = threading.Thread(target=tidy)
    tidying.start()
    try:
        for _ in range(150):
            store.put("a/b/c", b"", if_absent=True)
            store.delete(["a/b/c"])
    finally:
        stop.set()
        tidying.join()


_WRITER = """
import sys
from lake_core.store.local import LocalStore
store = LocalStore(sys.argv[1])
print("ready", flush=True)
meta = store.put("replaced", bytes([0]) * 100_000)
for i in range(1_000_000):
    data = bytes([i % 256]) * 100_000
    store.put(f"{i % 3}/{i}", data, if_absent=True)
    store.put("overwritten", data)
    meta = store.put("replaced", data, if_match=meta.etag)
    print(i, flush=True)
"""


def test_killed_writer_leaves_only_whole_objects(tmp_path: Path) -> None:
    acknowledged = 0
    for turn in range(6):
        root = tmp_path / str(turn)
        with subprocess.Popen([sys.executable, "-c", _WRITER, str(root)], stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "ready\n"
            time.sleep(0.05 + turn * 0.017)
            writer.send_signal(signal.SIGKILL)
            lines = writer.stdout.read().split()
        store = LocalStore(root)
        listed = list(store.list())
        for meta in listed:
            data = store.get(meta.key)
            assert len(data) == meta.size == 100_000
            assert len(set(data)) == 1
        keys = {meta.key for meta in listed}
        assert {f"{int(line) % 3}/{line}" for line in lines} <= keys
        acknowledged += len(lines)
        # The lock died with its holder.
        store.put("overwritten", b"")
        if "replaced" in keys:
            store.put("replaced", b"", if_match=store.head("replaced").etag)
    assert acknowledged
