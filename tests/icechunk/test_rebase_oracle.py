"""Random histories on this package and on icechunk: the same conflicts, and the same state after every rebase."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import icechunk
import pytest
import zarr
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import lake_core.icechunk as ours
from lake_core.icechunk import ConflictType, Repository
from lake_core.store import MemoryStore
from tests.icechunk.operations import FILL, create_base, erase, state

ARRAYS = ("a", "b", "g/x", "g/new", "n")
GROUPS = ("g", "g/sub", "n")
_numbers = itertools.count()


@dataclass(frozen=True)
class Operation:
    """A change of one node. It is left out where the node is not as it requires."""

    kind: str
    path: str
    number: int = 0

    def __call__(self, session: Any, side: str, value: int) -> None:
        members = dict(zarr.open_group(session.store).members(max_depth=None))
        member = members.get(self.path)
        parent = self.path.rpartition("/")[0]
        if self.kind.startswith("create"):
            if member is None and (not parent or isinstance(members.get(parent), zarr.Group)):
                _CREATE[self.kind](session.store, self.path, side, value)
        elif self.kind == "attributes" and not self.path:
            zarr.open_group(session.store).attrs["v"] = side
        elif isinstance(member, zarr.Array | zarr.Group) and (member is not None):
            self._change(session, member, side, value)

    def _change(self, session: Any, member: Any, side: str, value: int) -> None:
        if self.kind == "delete":
            del zarr.open_group(session.store)[self.path]
        elif self.kind == "attributes":
            member.attrs["v"] = side
        elif isinstance(member, zarr.Array):
            if self.kind == "resize":
                member.resize((self.number,))
            elif self.kind == "write" and self.number < member.shape[0]:
                member[self.number] = value
            elif self.kind == "erase" and self.number * member.chunks[0] < member.shape[0]:
                erase(f"{self.path}/c/{self.number}")(session, side, value)


def _create_array(store: Any, path: str, side: str, value: int) -> None:
    zarr.create_array(store, name=path, shape=(3,), chunks=(1,), dtype="i4", fill_value=FILL, compressors=None)[:2] = (
        value
    )


def _create_group(store: Any, path: str, side: str, value: int) -> None:
    zarr.create_group(store, path=path, attributes={"v": side})


_CREATE: dict[str, Callable[[Any, str, str, int], None]] = {
    "create array": _create_array,
    "create group": _create_group,
}

_operations = st.one_of(
    st.builds(Operation, st.sampled_from(["write", "erase"]), st.sampled_from(ARRAYS), st.integers(0, 4)),
    st.builds(Operation, st.just("resize"), st.sampled_from(ARRAYS), st.integers(1, 6)),
    st.builds(Operation, st.just("attributes"), st.sampled_from(("", *ARRAYS, *GROUPS))),
    st.builds(Operation, st.just("delete"), st.sampled_from((*ARRAYS, *GROUPS))),
    st.builds(Operation, st.just("create array"), st.sampled_from((*ARRAYS, "g/sub"))),
    st.builds(Operation, st.just("create group"), st.sampled_from((*GROUPS, "a"))),
)
_changes = st.lists(_operations, min_size=1, max_size=3)


@cache
def _repositories() -> list[tuple[Any, str]]:
    both: list[tuple[Any, str]] = []
    for repository in (Repository.create(MemoryStore()), icechunk.Repository.create(icechunk.in_memory_storage())):
        session = repository.writable_session("main")
        create_base(session)
        both.append((repository, session.commit("base")))
    return both


@dataclass(frozen=True)
class Outcome:
    """What a rebase came to."""

    conflicts: list[Any] | None
    """The conflicts that it failed with; None where it went through."""
    commit: int | None
    """The number of the commit of theirs that they are with."""
    state: dict[str, Any] | None
    """The nodes of the commit that followed."""


def outcome(
    module: Any, repository: Any, base: str, changes: list[Operation], commits: list[list[Operation]], solver: Any
) -> Outcome:
    branch = f"b{next(_numbers)}"
    repository.create_branch(branch, base)
    session = repository.writable_session(branch)
    ids = {}
    for number, commit in enumerate(commits):
        other = repository.writable_session(branch)
        for operation in commit:
            operation(other, f"theirs {number}", 200 + number)
        if other.has_uncommitted_changes:
            ids[other.commit("theirs")] = number
    for operation in changes:
        operation(session, "ours", 100)
    try:
        session.rebase(solver)
    except module.RebaseFailedError as error:
        return Outcome(sorted(_listed(conflict) for conflict in error.conflicts), ids[error.snapshot], None)
    if session.has_uncommitted_changes:
        session.commit("ours")
    return Outcome(None, None, state(repository.readonly_session(branch)))


def _listed(conflict: Any) -> list[Any]:
    kind = conflict.conflict_type
    name = kind.name if isinstance(kind, ConflictType) else str(kind).title().replace(" ", "")
    chunks = conflict.conflicted_chunks
    return [name, conflict.path, *([] if chunks is None else [sorted(map(list, chunks))])]


SOLVERS = [
    (ours.ConflictDetector(), icechunk.ConflictDetector()),
    (ours.BasicConflictSolver(), icechunk.BasicConflictSolver()),
    (
        ours.BasicConflictSolver(ours.VersionSelection.UseTheirs),
        icechunk.BasicConflictSolver(on_chunk_conflict=icechunk.VersionSelection.UseTheirs),
    ),
]


def _check(changes: list[Operation], commits: list[list[Operation]], solvers: tuple[Any, Any]) -> None:
    (repository, base), (other, other_base) = _repositories()
    mine = outcome(ours, repository, base, changes, commits, solvers[0])
    theirs = outcome(icechunk, other, other_base, changes, commits, solvers[1])
    if mine.conflicts is None:
        assert theirs.conflicts is None
        assert mine.state == _without_recreated(theirs.state or {}, mine.state or {}, changes)
        return
    resolves = not isinstance(solvers[0], ours.ConflictDetector)
    assert mine == theirs or _is_stricter(mine, theirs, len(commits) - 1, changes, resolves=resolves)
    if theirs.commit is not None and mine.commit is not None and theirs.commit < mine.commit:
        # The other conflicts that icechunk names with that commit are such as the solver resolves.
        _check(changes, commits[: theirs.commit + 1], solvers)


def _without_recreated(theirs: dict[str, Any], mine: dict[str, Any], changes: list[Operation]) -> dict[str, Any]:
    """Return the state without the nodes that ours deleted and theirs made anew.

    A solver that lets ours delete them leaves them there in icechunk.
    """
    deleted = ["/" + operation.path for operation in changes if operation.kind == "delete"]
    return {path: node for path, node in theirs.items() if path in mine or path not in deleted}


def _is_stricter(mine: Outcome, theirs: Outcome, last_commit: int, changes: list[Operation], *, resolves: bool) -> bool:
    """Return whether ours has all conflicts of icechunk, and others besides.

    The others keep the hierarchy sound, or are about its deletes, or about chunks that ours cut off by a smaller shape:
    a solver cannot bring these back one by one. Such a conflict comes with those that a solver `resolves`.
    """
    assert mine.conflicts is not None
    assert mine.commit is not None
    reference = theirs.conflicts or []
    if theirs.commit is not None and theirs.commit < mine.commit:
        # icechunk looks for new nodes in the tip, and names the first commit for those of a later one.
        by_path = [conflict for conflict in reference if conflict[0] in _BY_PATH]
        return bool(by_path) and all(conflict in mine.conflicts for conflict in by_path)
    if theirs.commit != mine.commit:
        reference = []
    elif mine.commit < last_commit:
        # For the same reason it lists new nodes of later commits here.
        reference = [conflict for conflict in reference if conflict[0] not in _BY_PATH or conflict in mine.conflicts]
    # The log of a commit that made an array smaller and larger again does not list the chunks that were cut off. The
    # array conflicts.
    cut_off = {conflict[1] for conflict in mine.conflicts if conflict[0] == "ChunksUpdatedInUpdatedArray"}
    reference = [conflict for conflict in reference if conflict[0] != "ChunkDoubleUpdate" or conflict[1] not in cut_off]
    more = [
        conflict
        for conflict in mine.conflicts
        if conflict not in reference and conflict not in (theirs.conflicts or [])
    ]
    resized = {"/" + operation.path for operation in changes if operation.kind == "resize"}
    unresolved = [
        conflict
        for conflict in more
        if conflict[0] in _STRICTER or (conflict[0] == "ChunkDoubleUpdate" and conflict[1] in resized)
    ]
    return all(conflict in mine.conflicts for conflict in reference) and all(
        conflict in unresolved or (resolves and unresolved and conflict[0] == "ChunkDoubleUpdate") for conflict in more
    )


_BY_PATH = {"NewNodeInInvalidGroup", "NewNodeConflictsWithExistingNode"}
_STRICTER = {*_BY_PATH, "DeleteOfUpdatedArray", "DeleteOfUpdatedGroup"}


_history = (_changes, st.lists(_changes, min_size=1, max_size=2), st.sampled_from(SOLVERS))
_SETTINGS = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow], "database": None}


def test_chunks_that_were_cut_off_are_not_brought_back() -> None:
    changes = [Operation("resize", "g/x", 1), Operation("resize", "g/x", 3)]
    commits = [[Operation("write", "g/x", 2)]]
    (repository, base), _ = _repositories()
    result = outcome(ours, repository, base, changes, commits, SOLVERS[2][0])
    assert result.conflicts == [["ChunkDoubleUpdate", "/g/x", [[1]]]]


@settings(max_examples=25, derandomize=True, **_SETTINGS)  # type: ignore[arg-type]
@given(*_history)
@example(
    [Operation("write", "a", 0), Operation("create array", "g/new")],
    [[Operation("write", "a", 0), Operation("delete", "g")]],
    SOLVERS[1],
)
@example(
    [Operation("create group", "n"), Operation("write", "a", 0)],
    [[Operation("write", "a", 0)], [Operation("create group", "n")]],
    SOLVERS[1],
)
def test_a_random_history_is_rebased_as_by_icechunk(
    changes: list[Operation], commits: list[list[Operation]], solvers: tuple[Any, Any]
) -> None:
    _check(changes, commits, solvers)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@settings(max_examples=2_000, **_SETTINGS)  # type: ignore[arg-type]
@given(*_history)
def test_many_random_histories_are_rebased_as_by_icechunk(
    changes: list[Operation], commits: list[list[Operation]], solvers: tuple[Any, Any]
) -> None:
    _check(changes, commits, solvers)
