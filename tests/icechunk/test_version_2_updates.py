"""The object `repo` of version 2: races, answers that are lost, backups and damage."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
import zstandard

from lake_core.errors import StoreUnavailable
from lake_core.icechunk import (
    ConflictDetector,
    Repository,
    RepositoryConfig,
)
from lake_core.icechunk.errors import (
    ConflictError,
    DamagedObject,
    IcechunkError,
    MissingObject,
    UnsupportedSpecVersion,
)
from lake_core.icechunk.file_header import FileType, encode_file
from lake_core.icechunk.flatbuffer_writer import FlatbufferWriter
from lake_core.icechunk.repo_info_file import decode_repo_info, encode_repo_info
from lake_core.icechunk.update import TagCreated
from lake_core.store import LocalStore, MemoryStore
from tests.icechunk.version_2 import ROOT, backups, kinds, new_repository, with_arrays, write


@pytest.mark.parametrize("most", [1, 2, 5, 8])
def test_the_log_goes_on_in_backups_and_the_others_are_deleted(most: int) -> None:
    repository = new_repository(config=RepositoryConfig(num_updates_per_repo_info_file=most))
    expected = ["RepoInitialized"]
    for number in range(40):
        write(repository, number)
        expected.insert(0, "NewCommit")
        assert kinds(repository) == expected
    info = repository.assets.layout.info()
    assert len(info.updates) <= most + 1
    named = {update.backup for update in info.updates} - {None}
    assert named <= backups(repository.storage)
    assert {update.backup_path for update in repository.ops_log()} - {None} <= backups(repository.storage)


def test_few_backups_stay_beside_a_long_log() -> None:
    repository = new_repository()
    for number in range(150):
        repository.set_metadata({"number": number})
    assert len(kinds(repository)) == 151
    assert len(backups(repository.storage)) <= 13


def test_a_log_whose_backup_is_gone_says_so() -> None:
    repository = new_repository(config=RepositoryConfig(num_updates_per_repo_info_file=3))
    for number in range(10):
        repository.set_metadata({"number": number})
    before = repository.assets.layout.info().before_updates
    repository.storage.delete([f"overwritten/{before}"])
    with pytest.raises(MissingObject, match="operations log"):
        list(repository.ops_log())


def test_collection_deletes_backups_that_nothing_names() -> None:
    repository = new_repository()
    write(repository, 1)
    repository.storage.put("overwritten/repo.30000000000000.00000000000000000000", b"x")
    summary = repository.garbage_collect(datetime.now(UTC) + timedelta(hours=1))
    assert summary.backups_deleted == 1
    assert kinds(repository) == ["GCRan", "NewCommit", "RepoInitialized"]


def _commit_many(arguments: tuple[str, dict[str, Any], int, int]) -> list[str]:
    location, options, worker, count = arguments
    ids = []
    for number in range(count):
        session = Repository.open(location, storage_options=options).writable_session("main")
        zarr.create_group(session.store, path=f"n{worker}x{number}")
        ids.append(str(session.commit(f"{worker} {number}", rebase_with=ConflictDetector())))
        if number % 3 == 0:
            Repository.open(location, storage_options=options).create_tag(f"t{worker}-{number}", ids[-1])
    return ids


@pytest.mark.parametrize("place", ["local files", pytest.param("S3", marks=pytest.mark.extended)])
def test_eight_processes_lose_no_acknowledged_commit(
    place: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    location, options = str(tmp_path), dict[str, Any]()
    if place == "S3":
        location, options = request.getfixturevalue("s3_url"), request.getfixturevalue("s3_options")
    first = write(Repository.create(location, storage_options=options, spec_version=2), 0)
    with multiprocessing.get_context("spawn").Pool(8) as pool:
        ids = pool.map(_commit_many, [(location, options, worker, 6) for worker in range(8)])
    repository = Repository.open(location, storage_options=options)
    history = [info.id for info in repository.ancestry(branch="main")]
    assert sorted(history) == sorted([*(each for some in ids for each in some), first, ROOT])
    assert len(list(repository.readonly_session("main").node_paths())) == 50
    assert len(repository.list_tags()) == 16
    assert kinds(repository).count("NewCommit") == 49
    assert kinds(repository).count("TagCreated") == 16


def test_a_commit_that_is_late_conflicts() -> None:
    repository = new_repository()
    write(repository, 0)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="late")
    write(repository, 1)
    with pytest.raises(ConflictError):
        session.commit("late")
    session.commit("late", rebase_with=ConflictDetector())
    newest, previous = list(repository.ancestry(branch="main"))[:2]
    assert (newest.message, previous.message) == ("late", "n1")
    assert newest.metadata == {"__icechunk": {"rebase_attempts": 1}}


class LosesAnswers(MemoryStore):
    """A store that does not answer some puts of `repo`, before or after they take effect."""

    plan: list[str]

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> Any:
        outcome = self.plan.pop(0) if key == "repo" and getattr(self, "plan", None) else "answered"
        if outcome == "lost before":
            raise StoreUnavailable("no answer", key=key)
        result = super()._put(key, data, if_absent, if_match, unique)
        if outcome == "lost after":
            raise StoreUnavailable("no answer", key=key)
        return result


def test_a_commit_whose_answer_is_lost_counts_once() -> None:
    store = LosesAnswers()
    repository = Repository.create(store, spec_version=2)
    write(repository, 0)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="n")
    store.plan = ["lost after"]
    session.commit("once")
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="m")
    store.plan = ["lost before"]
    with pytest.raises(StoreUnavailable):
        session.commit("again")
    session.commit("again")
    assert [info.message for info in repository.ancestry(branch="main")][:3] == ["again", "once", "n0"]
    assert kinds(repository) == ["NewCommit", "NewCommit", "NewCommit", "RepoInitialized"]


class OvertakenStore(MemoryStore):
    """A store that does not answer the put of an update, while other writers make more of them."""

    outcome: str | None = None
    others: Callable[[], None]

    def _put(self, key: str, data: Any, if_absent: bool, if_match: str | None, unique: bool) -> Any:
        if key != "repo" or self.outcome is None:
            return super()._put(key, data, if_absent, if_match, unique)
        outcome, self.outcome = self.outcome, None
        if outcome == "applied":
            super()._put(key, data, if_absent, if_match, unique)
        self.others()
        raise StoreUnavailable("no answer", key=key)


@pytest.mark.parametrize("outcome", ["applied", "not applied"])
@pytest.mark.parametrize("others", range(1, 6))
@pytest.mark.parametrize("most", range(1, 4))
def test_an_update_without_an_answer_counts_once_where_others_cut_the_log(most: int, others: int, outcome: str) -> None:
    store = OvertakenStore()
    repository = Repository.create(store, spec_version=2, config=RepositoryConfig(num_updates_per_repo_info_file=most))
    other, tip = Repository.open(store), repository.lookup_branch("main")
    theirs = [f"other {number}" for number in range(others)]

    def create_others() -> None:
        for name in theirs:
            other.create_tag(name, tip)

    store.others, store.outcome = create_others, outcome
    repository.create_tag("ours", tip)
    expected = ["ours", *theirs] if outcome == "applied" else [*theirs, "ours"]
    created = [update.kind.name for update in repository.ops_log() if isinstance(update.kind, TagCreated)]
    assert created[::-1] == expected


def test_an_equal_update_of_another_writer_does_not_count_as_ones_own() -> None:
    store, now = OvertakenStore(), datetime.now(UTC)
    repository = Repository.create(store, spec_version=2, clock=lambda: now)
    other = Repository.open(store, clock=lambda: now)
    store.others = lambda: other.set_metadata({"by": "other"})
    store.outcome = "not applied"
    repository.update_metadata({"at": "the same time"})
    assert repository.metadata == {"by": "other", "at": "the same time"}


def test_a_session_whose_commit_is_unconfirmed_finds_it_beneath_later_ones() -> None:
    store = LosesAnswers()
    repository = Repository.create(store, spec_version=2)
    write(repository, 0)
    session = repository.writable_session("main")
    zarr.create_group(session.store, path="n")
    store.plan = ["lost before"]
    with pytest.raises(StoreUnavailable):
        session.commit("first")
    write(repository, 1)
    session.commit("first", rebase_with=ConflictDetector())
    assert [info.message for info in repository.ancestry(branch="main")][:3] == ["first", "n1", "n0"]


def test_any_damage_of_repo_is_an_error_of_ours_and_no_endless_work() -> None:
    repository = new_repository(config=RepositoryConfig(inline_chunk_threshold_bytes=1))
    with_arrays(repository)
    write(repository, 1)
    repository.create_tag("v1", repository.lookup_branch("main"))
    repository.set_metadata({"a": {"b": [1, 2.5, "text"]}})
    data = bytes(repository.storage.get("repo"))
    body = zstandard.ZstdDecompressor().decompress(data[39:], max_output_size=2**20)
    random = np.random.default_rng(7)
    outcomes = set()
    for _ in range(1500):
        broken = bytearray(body)
        for _ in range(int(random.integers(1, 4))):
            broken[int(random.integers(len(broken)))] = int(random.integers(256))
        cut = int(random.integers(len(broken))) if random.random() < 0.1 else len(broken)
        file = data[:39] + zstandard.ZstdCompressor().compress(bytes(broken[:cut]))
        try:
            info = decode_repo_info(file)
            for entry in info.snapshots.values():
                dict(entry.metadata)
                list(info.ancestry(entry.snapshot_id))
            list(info.updates)
            dict(info.metadata)
            outcomes.add("read")
        except (DamagedObject, UnsupportedSpecVersion) as error:
            assert "repo" in str(error)
            outcomes.add("error")
    assert outcomes == {"read", "error"}


def test_a_loop_of_parents_ends_in_an_error() -> None:
    repository = new_repository()
    ids = [repository._existing(write(repository, number)) for number in range(2)]
    info = repository.assets.layout.info()
    entries = dict(info.snapshots)
    entries[ids[0]] = replace(entries[ids[0]], parent_id=ids[1])
    data = repository.storage.get("repo")
    repository.storage.put("repo", encode_repo_info(replace(info, snapshots=entries)), if_match=data.etag)
    for walk in (
        lambda: list(repository.ancestry(branch="main")),
        lambda: repository.expire_snapshots(datetime.now(UTC)),
        lambda: repository.garbage_collect(datetime.now(UTC)),
        lambda: repository.chunk_storage_stats(),
    ):
        with pytest.raises(DamagedObject, match="its own ancestor"):
            walk()


def test_a_repository_that_lost_its_state_says_so(tmp_path: Path) -> None:
    repository = Repository.create(LocalStore(tmp_path), spec_version=2)
    assert repository.spec_version == 2
    repository.storage.delete(["repo"])
    with pytest.raises(IcechunkError, match="repo"):
        repository.list_branches()


def test_texts_that_share_their_bytes_do_not_fill_the_memory() -> None:
    repository = new_repository()
    data = bytes(repository.storage.get("repo"))
    body = zstandard.ZstdDecompressor().decompress(data[39:], max_output_size=2**20)
    writer = FlatbufferWriter()
    writer.buffer[:] = body
    root = int.from_bytes(body[:4], "little")
    vtable = root - int.from_bytes(body[root : root + 4], "little", signed=True)
    deleted = root + int.from_bytes(body[vtable + 4 + 2 * 3 : vtable + 6 + 2 * 3], "little")
    offsets = writer.offsets(deleted, 100_000)
    for number in range(100_000):
        writer.link(offsets + 4 * number)
    writer.buffer += (2**20).to_bytes(4, "little") + b"x" * 2**20
    file = encode_file(FileType.REPO_INFO, writer.finish(), spec_version=2)
    with pytest.raises(DamagedObject, match="stand for"):
        decode_repo_info(file)
