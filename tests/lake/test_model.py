"""Random histories of sessions, merges, reverts and cherry-picks on two branches, against dicts merged three ways."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lake_core import Lake
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.lake.refs.reached import Divergence
from lake_core.lake.session.private_session import Session
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.examples import examples
from tests.lake.lakes import SCHEMA, plain, rows, values

TABLES = ("t/a", "t/b")
FILES = ("x", "y", "z/w")
BRANCHES = ("main", "dev")


@dataclass
class State:
    """What a commit should hold: rows (id → value) by table, bytes by file."""

    tables: dict[str, dict[int, int]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)


class Contradiction(Exception):
    """Both sides changed the same thing."""


def three_way(base: dict[Any, Any], theirs: dict[Any, Any], head: dict[Any, Any]) -> dict[Any, Any]:
    """Merge dictionaries by key, or raise Contradiction."""
    merged = {}
    for key in {*base, *theirs, *head}:
        b, t, h = base.get(key), theirs.get(key), head.get(key)
        if t not in (b, h) and h != b:
            raise Contradiction(key)
        value = h if t == b else t
        if value is not None:
            merged[key] = value
    return merged


def merged(base: State, theirs: State, head: State) -> State:
    """Merge states three ways, or raise Contradiction."""
    tables = {}
    for path in {*base.tables, *theirs.tables, *head.tables}:
        b, t, h = (side.tables.get(path) for side in (base, theirs, head))
        if b == t or t == h:
            table = h
        elif h == b:
            table = t
        elif t is None or h is None:
            raise Contradiction(path)
        else:
            table = three_way(b or {}, t, h)
        if table is not None:
            tables[path] = table
    return State(tables, three_way(base.files, theirs.files, head.files))


OPERATION = st.one_of(
    st.tuples(st.just("append"), st.sampled_from(TABLES), st.integers(1, 4)),
    st.tuples(st.just("update"), st.sampled_from(TABLES), st.integers(0, 12)),
    st.tuples(st.just("delete"), st.sampled_from(TABLES), st.integers(0, 12)),
    st.tuples(st.just("drop"), st.sampled_from(TABLES), st.just(0)),
    st.tuples(st.just("put"), st.sampled_from(FILES), st.integers(0, 2)),
    st.tuples(st.just("remove"), st.sampled_from(FILES), st.just(0)),
)
WORK = st.lists(OPERATION, min_size=1, max_size=4)
STEP = st.one_of(
    st.tuples(st.just("session"), st.sampled_from(BRANCHES), WORK),
    st.tuples(st.just("two"), st.sampled_from(BRANCHES), st.tuples(WORK, WORK)),
    st.tuples(st.just("merge"), st.sampled_from(BRANCHES), st.booleans()),
    st.tuples(st.just("revert"), st.sampled_from(BRANCHES), st.integers(0, 3)),
    st.tuples(st.just("pick"), st.sampled_from(BRANCHES), st.integers(0, 3)),
)


class History:
    """A lake, and what each of its commits should hold."""

    def __init__(self) -> None:
        self.time = ManualClock()
        self.store = MemoryStore(clock=self.time)
        self.lake = Lake.create(self.store, clock=self.time)
        self.next_id = 0
        self.value = 0
        self.lake.create_branch("dev")
        self.states: dict[str, State] = {self.lake.list_branches()["main"]: State()}

    def head(self, branch: str) -> str:
        return self.lake.list_branches()[branch]

    def work(self, session: Session, state: State, operations: list[tuple[str, str, int]]) -> State:
        """Apply the same changes in a session and to a copy of its state."""
        state = copy.deepcopy(state)
        for kind, name, number in operations:
            if kind in ("append", "update", "delete") and name not in state.tables:
                session.create_delta(name, SCHEMA, partition_by=["p"])
                state.tables[name] = {}
            match kind:
                case "append":
                    new = range(self.next_id, self.next_id + number)
                    self.next_id += number
                    session.delta(name).append(rows(new))
                    state.tables[name] |= dict.fromkeys(new, 0)
                case "update":
                    self.value += 1
                    session.delta(name).update({"v": str(self.value)}, f"id % 13 = {number}")
                    hit = [i for i in state.tables[name] if i % 13 == number]
                    state.tables[name] |= dict.fromkeys(hit, self.value)
                case "delete":
                    session.delta(name).delete(f"id % 13 = {number}")
                    state.tables[name] = {i: v for i, v in state.tables[name].items() if i % 13 != number}
                case "drop" if name in state.tables:
                    session.drop(name)
                    del state.tables[name]
                case "put":
                    session.put(name, b"%d" % number)
                    state.files[name] = b"%d" % number
                case "remove":
                    session.delete([name])
                    state.files.pop(name, None)
        return state

    def settle(self, branch: str, before: str, expected: State | None, run: Any) -> None:
        """Run what should lead a branch to a state, or to a conflict where the state is None."""
        try:
            commit = run().commit
        except Conflict:
            assert self.head(branch) == before
            return
        except NothingToApply:
            return
        assert expected is not None, "a contradiction went through"
        assert commit == self.head(branch)
        if commit == before:
            assert expected == self.states[before], "a change was lost"
            return
        self.states[commit] = expected
        self.check(commit)

    def applied(self, base: State, theirs: State, branch: str) -> State | None:
        try:
            return merged(base, theirs, self.states[self.head(branch)])
        except Contradiction:
            return None

    def step(self, kind: str, branch: str, what: Any) -> None:
        before = self.head(branch)
        if kind == "session":
            session = self.lake.session(branch)
            expected = self.work(session, self.states[before], what)
            self.settle(branch, before, expected, session.publish)
        elif kind == "two":
            base = self.states[before]
            sessions = [self.lake.session(branch), self.lake.session(branch)]
            wanted_both = [self.work(session, base, work) for session, work in zip(sessions, what, strict=True)]
            for session, theirs in zip(sessions, wanted_both, strict=True):
                self.settle(branch, self.head(branch), self.applied(base, theirs, branch), session.publish)
        elif kind == "merge":
            other = "dev" if branch == "main" else "main"
            divergence = Divergence.of(self.lake.repository.refs(), self.head(branch), self.head(other))
            if not divergence.is_direct:  # writes came by other ways, so no single base tells the outcome
                self.observe(lambda: self.lake.merge(other, into=branch, squash=what))
                return
            base = divergence.bases[0].id
            expected = self.applied(self.states[base], self.states[self.head(other)], branch)
            self.settle(branch, before, expected, lambda: self.lake.merge(other, into=branch, squash=what))
        else:
            source = branch if kind == "revert" else ("dev" if branch == "main" else "main")
            log = self.lake.log(source, first_parent=True)
            commit = log[min(what, len(log) - 1)]
            if not commit.parents:
                return
            sides = [self.states[commit.id], self.states[commit.parents[0]]]
            old, new = sides if kind == "revert" else sides[::-1]
            run = self.lake.revert if kind == "revert" else None
            if run is not None:
                self.settle(branch, before, self.applied(old, new, branch), lambda: run(commit.id, branch=branch))
            else:
                self.settle(
                    branch,
                    before,
                    self.applied(old, new, branch),
                    lambda: self.lake.cherry_pick(commit.id, onto=branch),
                )

    def observe(self, run: Any) -> None:
        """Run what `tests/lake/merging` has a model for, and take what it leads to for what should be there."""
        try:
            commit = run().commit
        except (Conflict, NothingToApply):
            return
        at = self.lake.at(commit)
        tables = {path: values(at.delta(path)) for path in at.datasets()}
        files = {meta.key: bytes(at.get(meta.key)) for meta in at.list() if not meta.key.startswith("t/")}
        self.states[commit] = State(tables, files)
        self.check(commit)

    def check(self, commit: str) -> None:
        """Check a commit's contents, main as plain readers see it, and the commit's difference from its parent."""
        expected, at = self.states[commit], self.lake.at(commit)
        assert sorted(at.datasets()) == sorted(expected.tables)
        for path, table in expected.tables.items():
            assert values(at.delta(path)) == table
        files = {meta.key: bytes(at.get(meta.key)) for meta in at.list() if not meta.key.startswith("t/")}
        assert files == expected.files
        parent = self.lake.log(commit, limit=1)[0].parents[0]
        changed = {change.key for change in self.lake.diff(parent, commit) if change.dataset is None}
        old = self.states[parent].files
        assert changed == {key for key in {*old, *files} if old.get(key) != files.get(key)}
        if commit == self.head("main"):
            for path, table in expected.tables.items():
                assert values(plain(self.store, path)) == table


def _run(steps: list[tuple[str, str, Any]]) -> None:
    history = History()
    for step in steps:
        history.step(*step)
    assert history.lake.maintenance.verify() == []


CHECKS = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much, HealthCheck.large_base_example]


PICKED_AFTER_A_MERGE: list[tuple[str, str, Any]] = [
    ("session", "dev", [("append", "t/b", 4)]),
    ("session", "dev", [("delete", "t/b", 0), ("append", "t/a", 1), ("append", "t/a", 1)]),
    ("merge", "main", False),
    ("merge", "dev", False),
    ("pick", "main", 2),
]


@settings(max_examples=examples(50), deadline=None, suppress_health_check=CHECKS)
@example(PICKED_AFTER_A_MERGE)
@given(st.lists(STEP, min_size=2, max_size=8))
def test_random_histories(steps: list[tuple[str, str, Any]]) -> None:
    _run(steps)


@pytest.mark.exhaustive
@settings(max_examples=200, deadline=None, suppress_health_check=CHECKS)
@given(st.lists(STEP, min_size=2, max_size=8))
def test_more_random_histories(steps: list[tuple[str, str, Any]]) -> None:
    _run(steps)


@pytest.mark.histories
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(5))
@settings(max_examples=1000, deadline=None, suppress_health_check=CHECKS)
@given(steps=st.lists(STEP, min_size=2, max_size=8))
def test_many_random_histories(part: int, steps: list[tuple[str, str, Any]]) -> None:
    _run(steps)
