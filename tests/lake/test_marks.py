"""What collection marks: as much as states need, one by one, and the same whatever is remembered of earlier runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Set
from contextlib import suppress
from datetime import timedelta
from itertools import combinations
from typing import NoReturn

import pytest

from lake_core import Lake
from lake_core.errors import StoreError
from lake_core.graveler import Entry
from lake_core.lake.errors import Conflict, DatasetNotFound, NothingToApply, RefNotFound
from lake_core.lake.gc import content_check, remainder_memo
from lake_core.lake.gc.collect import CollectionRefused
from lake_core.lake.gc.mark import Reachability
from lake_core.lake.gc.remainder import log_head
from lake_core.lake.gc.remainder_memo import FOLDER
from lake_core.lake.gc.retention import retain
from lake_core.lake.refs.commit_graph import CommitGraph
from lake_core.lake.refs.reached import Divergence
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.repository import Repository
from lake_core.lake.state.state_store import StateStore
from lake_core.store import MemoryStore, ObjectBytes
from lake_core.testing import FaultStore
from lake_core.testing.fault_store import FaultMode, StoreDied
from lake_core.testing.manual_clock import ManualClock
from tests.lake.arrays import PATH, create_array, set_chunk
from tests.lake.lakes import create_tables, ids, opened, rows

HISTORY = timedelta(days=30)
SEEDS = [pytest.param(seed, marks=[pytest.mark.exhaustive] if seed > 2 else []) for seed in range(60)]


def graph_of(refs: RefsState) -> CommitGraph:
    graph = CommitGraph()
    graph.update(refs)
    return graph


def marked(repository: Repository) -> set[str]:
    """Mark with what the store remembers."""
    refs, now = repository.refs(), repository.clock()
    reachable = Reachability(repository)
    reachable.add(retain(graph_of(refs), refs, "main", now - HISTORY), now)
    return reachable.keys - {""}


def marked_anew(lake: Lake, store: MemoryStore) -> set[str]:
    """Mark without what was remembered."""
    store.delete([meta.key for meta in store.list(f"{FOLDER}/")])
    return marked(lake.repository)


def reached(state: StateStore, paths: Set[str] | None = None) -> Iterator[str]:
    """Walk the keys that one state needs, without regard to any other; of its datasets only those at some paths."""
    graveler = state.view.graveler
    yield from (f"_lakefs/{id}" for id in graveler.names(state.view.tree))
    for record in graveler.scan(state.view.tree):
        yield Entry.decode(record.value).address
    for path, record in state.registered().items():
        if paths is None or path in paths:
            view = state.folder_of(record)
            yield from (f"{path}/{key}" for key in view.format.reachable(view, None))


def needed(lake: Lake) -> set[str]:
    """Return what all retained states need, each read by itself."""
    repository = lake.repository
    refs = repository.refs()
    retention = retain(graph_of(refs), refs, "main", repository.clock() - HISTORY)
    keys: set[str] = set()
    for retained in retention.states:
        state = repository.state(retained.tree, retained.name)
        keys.update(reached(state, {path for path in state.registered() if retention.keeps_files(retained, path)}))
    return keys - {""}


class Users:
    """People who do anything to a lake, by the numbers of a seed."""

    def __init__(self, seed: int, *, datasets: bool = False) -> None:
        self.random = random.Random(seed)
        self.time = ManualClock()
        self.store = MemoryStore(clock=self.time)
        self.lake = Lake.create(self.store, clock=self.time)
        create_tables(self.lake, "t/a", "t/b")
        self.has_datasets = datasets
        if datasets:
            self.create_datasets()
        self.number = 0

    def act(self) -> None:
        self.number += 1
        self.time.pass_days(self.random.choice([0.01, 0.5, 4]))
        actions: list[tuple[Callable[[], object], int]] = [
            (self.write, 6), (self.branch, 2), (self.merge, 2), (self.revert, 1), (self.drop_branch, 1),
            (self.tag, 1), (self.session, 1), (self.vacuum, 1), (self.drop_table, 1),
        ]  # fmt: skip
        if self.has_datasets:
            actions += [
                (self.change_rows, 5),
                (self.write_pool, 4),
                (self.write_array, 4),
                (self.cherry_pick, 2),
                (self.drop_any, 1),
            ]
        action = self.random.choices([each for each, _ in actions], [weight for _, weight in actions])[0]
        with suppress(Conflict, NothingToApply, RefNotFound, DatasetNotFound):
            action()

    def any_branch(self) -> str:
        return self.random.choice(sorted(self.lake.list_branches()))

    def write(self) -> None:
        with self.lake.session(self.any_branch()) as s:
            tables = sorted(path for path, record in s.datasets().items() if record.format == "delta")
            for path in self.random.sample(tables, min(len(tables), 1)):
                table = s.delta(path)
                if self.random.random() < 0.5:
                    table.append(rows([self.number]))
                else:
                    table.overwrite(rows([self.number]))
            s.put(f"files/{self.number % 5}", b"%d" % self.random.randrange(10))

    def branch(self) -> None:
        log = self.lake.log(self.any_branch(), limit=8)
        self.lake.create_branch(f"b{self.number}", at=self.random.choice(log).id)

    def drop_branch(self) -> None:
        name = self.any_branch()
        if name != "main":
            self.lake.delete_branch(name)

    def merge(self) -> None:
        self.lake.merge(self.any_branch())

    def revert(self) -> None:
        self.lake.revert(self.lake.log(limit=3)[-1].id)

    def tag(self) -> None:
        self.lake.create_tag(f"v{self.number}", at=self.random.choice(self.lake.log(limit=20)).id)

    def session(self) -> None:
        session = self.lake.open_session(self.any_branch())
        for part in range(3):
            with session.join(task=f"part {part}") as writer:
                writer.put(f"parts/{part}", b"%d" % self.number)
        if self.random.random() < 0.5:
            session.publish()

    def vacuum(self) -> None:
        with self.lake.session() as s:
            s.delta("t/a").vacuum()

    def drop_table(self) -> None:
        with self.lake.session() as s:
            s.drop("t/b")
        with self.lake.session() as s:
            s.create_delta("t/b", rows([]).schema).append(rows([self.number]))

    def create_datasets(self) -> None:
        """Create datasets of each format, and a table with deletion vectors and change files."""
        properties = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"}
        create_tables(self.lake, "t/c", properties=properties)
        with self.lake.session() as s:
            s.create_pool("pool", key="k", order="asc").load([{"k": 0}])
            create_array(s.create_icechunk(PATH).store)

    def change_rows(self) -> None:
        with self.lake.session(self.any_branch()) as s:
            if "t/c" in s.datasets():
                table = s.delta("t/c")
                if self.random.random() < 0.3:
                    table.append(rows(range(self.number, self.number + 4)))
                else:
                    table.delete(f"id = {self.random.randrange(12)}")

    def write_pool(self) -> None:
        with self.lake.session(self.any_branch()) as s:
            if "pool" in s.datasets():
                s.pool("pool").load([{"k": self.number}])

    def write_array(self) -> None:
        with self.lake.session(self.any_branch()) as s:
            if PATH in s.datasets():
                set_chunk(s.icechunk(PATH).store, self.random.randrange(3), self.number)

    def cherry_pick(self) -> None:
        commit = self.random.choice(self.lake.log(self.any_branch(), limit=6))
        self.lake.cherry_pick(commit.id, onto=self.any_branch())

    def drop_any(self) -> None:
        branch = self.any_branch()
        with self.lake.session(branch) as s:
            if s.datasets():
                s.drop(self.random.choice(sorted(s.datasets())))
        with self.lake.session(branch) as s:
            if "t/c" not in s.datasets():
                s.create_delta("t/c", rows([]).schema).append(rows([self.number]))
            elif "pool" not in s.datasets():
                s.create_pool("pool", key="k", order="asc").load([{"k": self.number}])


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(
    "datasets", [False, pytest.param(True, marks=pytest.mark.exhaustive)], ids=["tables", "all formats"]
)
def test_marks_of_a_random_history_are_complete_and_do_not_depend_on_what_is_remembered(
    seed: int, datasets: bool
) -> None:
    users = Users(seed, datasets=datasets)
    for number in range(24):
        users.act()
        if number % 6 == 5:
            remembered = marked(users.lake.repository)
            assert remembered == marked_anew(users.lake, users.store)
            assert needed(users.lake) <= remembered
            before = {meta.key for meta in users.store.list()}
            users.lake.maintenance.gc()
            problems = {problem.key for problem in users.lake.maintenance.verify(full=True)}
            assert not problems & before, "collection deleted what is needed"
            assert problems <= needed(users.lake), "only what is named after its retention had ended lacks files"


@pytest.mark.parametrize("seed", SEEDS)
def test_merge_bases_of_all_heads_are_those_of_each_pair(seed: int) -> None:
    users = Users(seed)
    for _ in range(10):
        users.act()
    for _ in range(6):
        users.number += 1
        users.branch()
        users.write()
    refs = users.lake.repository.refs()
    heads = {*refs.branches().values(), *refs.tags().values()}
    pairs = combinations(sorted(heads), 2)
    expected = {base.id for left, right in pairs for base in Divergence.of(refs, left, right).bases}
    bases = graph_of(refs).merge_bases(heads)
    assert expected <= bases
    ancestors = {commit.id: _ancestors(refs, commit.id) for commit in refs.commits()}
    for base in bases - expected:  # another one that is as good, after crossed merges
        assert any(
            base in (common := ancestors[left] & ancestors[right])
            and not any(base in ancestors[other] for other in common - {base})
            for left, right in combinations(heads, 2)
        )


def _ancestors(refs: RefsState, id: str) -> set[str]:
    ancestors, queue = {id}, [id]
    while queue:
        for parent in refs.commit(queue.pop()).parents:
            if parent not in ancestors:
                ancestors.add(parent)
                queue.append(parent)
    return ancestors


def test_states_that_are_named_between_two_markings_are_marked_whole() -> None:
    lake, _, time = history(8)
    time.pass_days(10)
    with lake.session() as s:
        s.delta("t/a").vacuum()
    repository = lake.repository
    refs, now = repository.refs(), repository.clock()
    reachable = Reachability(repository)
    reachable.add(retain(graph_of(refs), refs, "main", now - HISTORY), now)
    old = lake.log()[4:6]
    needs = {key for commit in old for key in reached(repository.commit_state(commit))}
    assert not needs <= reachable.keys, "the retention of the table has ended"
    for number, commit in enumerate(old):
        lake.create_tag(f"v{number}", at=commit.id)
    refs = repository.refs()
    reachable.add(retain(graph_of(refs), refs, "main", now - HISTORY), now)
    assert needs - {""} <= reachable.keys


def history(count: int) -> tuple[Lake, MemoryStore, ManualClock]:
    """Return a lake in which a table and a file change with each commit."""
    time = ManualClock()
    store = MemoryStore(clock=time)
    lake = Lake.create(store, clock=time)
    create_tables(lake, "t/a")
    for number in range(count):
        time.pass_days(0.1)
        with lake.session() as s:
            s.delta("t/a").overwrite(rows([number]))
            s.put("file", b"%d" % number)
    return lake, store, time


def paths_of(lake: Lake, ref: str) -> list[str]:
    return lake.delta("t/a", ref=ref).files(["path"])["path"].to_pylist()


def test_a_tag_keeps_no_file_of_the_commits_after_it() -> None:
    lake, _, time = history(1)
    lake.create_tag("v1")
    for number in range(5):
        with lake.session() as s:
            s.delta("t/a").overwrite(rows([number]))
    replaced = {f"t/a/{path}" for back in range(1, 5) for path in paths_of(lake, f"main~{back}")}
    time.pass_days(60)
    with lake.session() as s:
        s.delta("t/a").append(rows([6]))
    time.pass_days(60)
    collected = set(lake.maintenance.gc().keys)
    assert len(replaced & collected) == 4
    assert ids(lake.delta("t/a", ref="v1")) == [0]
    assert lake.maintenance.verify(full=True) == []


@pytest.fixture
def marks_in_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no hash end a group of pairs: the trees of a history, and so its groups, differ from run to run."""
    monkeypatch.setattr(remainder_memo, "_GROUP", 1 << 40)


def files_of_marks(store: MemoryStore) -> list[str]:
    return [meta.key for meta in store.list(f"{FOLDER}/")]


def test_a_second_run_reads_few_trees_of_the_history() -> None:
    lake, store, _ = history(12)
    lake.maintenance.gc()
    trees = {f"_lakefs/{commit.metarange_id}" for commit in lake.log()[1:] if commit.metarange_id}
    counting = _Reads(store)
    Lake.open(counting, clock=lake.repository.clock).maintenance.gc(dry_run=True)
    assert len(trees & counting.keys) <= 1, "the one from which on plain readers need the table"


class _Reads(FaultStore):
    """A store that notes what is read."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner, 0)
        self.keys: set[str] = set()

    def _get(self, key: str, start: int | None, end: int | None) -> ObjectBytes:
        self.keys.add(key)
        return super()._get(key, start, end)


@pytest.mark.usefixtures("marks_in_one_file")
@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
        lambda data: b"0" * 64 + b"\n" + data[65:],
    ],
    ids=["empty", "torn", "a bit flipped", "another checksum"],
)
def test_damaged_marks_are_computed_again(damage: Callable[[bytes], bytes]) -> None:
    lake, store, _ = history(6)
    whole = marked(lake.repository)
    (name,) = files_of_marks(store)
    data = bytes(store.get(name))
    store.put(name, damage(data))
    assert marked(lake.repository) == whole
    assert bytes(store.get(name)) == data


@pytest.mark.usefixtures("marks_in_one_file")
def test_marks_of_another_lake_are_not_used() -> None:
    lake, store, _ = history(6)
    other, other_store, _ = history(4)
    whole = marked(lake.repository)
    marked(other.repository)
    (name,), (foreign,) = files_of_marks(store), files_of_marks(other_store)
    store.put(name, other_store.get(foreign))
    assert marked(lake.repository) == whole


@pytest.mark.usefixtures("marks_in_one_file")
def test_new_commits_replace_only_the_marks_that_cover_them() -> None:
    lake, store, _ = history(6)
    marked(lake.repository)
    before = files_of_marks(store)
    with lake.session() as s:
        s.put("file", b"new")
    marked(lake.repository)
    after = files_of_marks(store)
    assert len(after) == 1
    assert after != before


@pytest.mark.parametrize(
    ("mode", "sampled"),
    [("before", 37), ("after", 41), *(pytest.param(m, 1, marks=pytest.mark.exhaustive) for m in ("before", "after"))],
)
def test_a_run_that_dies_anywhere_leaves_marks_that_are_right(mode: FaultMode, sampled: int) -> None:
    def run(lake: Lake) -> None:
        lake.maintenance.gc()
        lake.maintenance.verify()

    def aged_lake() -> tuple[MemoryStore, ManualClock]:
        lake, store, time = history(5)
        lake.maintenance.gc()
        with lake.session() as s:
            s.delta("t/a").overwrite(rows([7]))
        time.pass_days(31)
        with lake.session() as s:
            s.put("file", b"last")
        return store, time

    store, time = aged_lake()
    whole = FaultStore(store, 0)
    run(Lake.open(whole, clock=time))
    for at in range(1, whole.operations + 1, sampled):
        store, time = aged_lake()
        dying = FaultStore(store, at, mode)
        with suppress(StoreDied, CollectionRefused, StoreError):
            run(Lake.open(dying, clock=time))
        lake = opened(store, time)
        remembered = marked(lake.repository)
        assert remembered == marked_anew(lake, store)
        lake.maintenance.gc()
        assert ids(lake.delta("t/a")) == [7]
        assert lake.maintenance.verify(full=True) == []


def test_verify_reads_content_once() -> None:
    lake, store, _ = history(3)
    assert lake.maintenance.verify() == []
    counting = _Reads(store)
    assert Lake.open(counting, clock=lake.repository.clock).maintenance.verify() == []
    assert not [key for key in counting.keys if key.startswith("_lake/objects/") and key not in _read_by_marks(store)]


def _read_by_marks(store: MemoryStore) -> set[str]:
    """Return what is read to find out what the newest commit reaches: the log of its table."""
    counting = _Reads(store)
    Lake.open(counting, clock=ManualClock()).maintenance.verify(hashes=False)
    return counting.keys


def test_verify_tells_how_many_objects_it_did_not_read_again() -> None:
    lake, _, _ = history(3)
    counts: dict[str, int] = {}
    lake.maintenance.verify(progress=counts.__setitem__)
    assert counts["not read again"] == 0
    lake.maintenance.verify(progress=counts.__setitem__)
    assert counts["not read again"] > 10
    lake.maintenance.verify(full=True, progress=counts.__setitem__)
    assert counts["not read again"] == 0


def test_verify_remembers_more_objects_than_one_group_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_check, "_OBJECTS_A_GROUP", 2)
    monkeypatch.setattr(content_check, "_GROUPS_AT_ONCE", 2)
    lake, store, _ = history(3)
    counts: dict[str, int] = {}
    lake.maintenance.verify(progress=counts.__setitem__)
    with lake.session() as s:
        s.put("newer", b"newer")
    key = lake.at().view.get("newer").entry.address  # type: ignore[union-attr]
    checked = counts["checked"]
    store.put(key, b"other")
    assert [(each.kind, each.key) for each in lake.maintenance.verify(progress=counts.__setitem__)] == [
        ("corrupt", key)
    ]
    assert counts["checked"] > checked, "all are looked up"
    assert 10 < counts["not read again"] < counts["checked"]


@pytest.mark.parametrize("guess", [None, 0, 1, 2, 5, 6, 7, 8, 40])
def test_the_version_of_a_dataset_is_found_from_any_guess(guess: int | None) -> None:
    lake = Lake.create(MemoryStore())
    create_tables(lake, "t/a")
    for number in range(6):
        with lake.session() as s:
            s.delta("t/a").append(rows([number]))
    view = lake.at().dataset("t/a")
    assert log_head(view, guess) == view.format.version(view) == 6


def test_verify_reads_an_object_again_that_was_put_again() -> None:
    lake, store, _ = history(3)
    assert lake.maintenance.verify() == []
    key = lake.at().view.get("file").entry.address  # type: ignore[union-attr]
    store.put(key, b"other")
    assert [(each.kind, each.key) for each in lake.maintenance.verify()] == [("corrupt", key)]
    assert [(each.kind, each.key) for each in lake.maintenance.verify()] == [("corrupt", key)], "it is not remembered"


def test_verify_finds_what_is_missing_from_remembered_history() -> None:
    lake, store, _ = history(4)
    key = lake.at("main~2").view.get("file").entry.address  # type: ignore[union-attr]
    assert lake.maintenance.verify() == []
    store.delete([key])
    assert [(each.kind, each.key) for each in lake.maintenance.verify()] == [("missing", key)]


def test_a_reader_without_permission_to_write_verifies() -> None:
    _, store, time = history(2)
    assert Lake.open(_ReadOnly(store), clock=time).maintenance.verify() == []


class _ReadOnly(FaultStore):
    """A store that refuses writes."""

    def __init__(self, inner: MemoryStore) -> None:
        super().__init__(inner, 0)

    def _put(self, *arguments: object) -> NoReturn:
        raise StoreError("no permission to write")

    def _delete(self, keys: object) -> None:
        raise StoreError("no permission to write")
