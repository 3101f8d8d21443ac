"""Two sessions of one snapshot, the later rebased over the earlier: what icechunk says of every pair of changes."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from lake_core.icechunk import (
    BasicConflictSolver,
    ConflictDetector,
    ConflictSolver,
    RebaseFailedError,
    Repository,
    VersionSelection,
)
from lake_core.store import MemoryStore
from tests.icechunk.cases import CASES
from tests.icechunk.operations import OPERATIONS, create_base, differences, state
from tests.skip_rule import NO_CASES

pytestmark = pytest.mark.skipif(not CASES.exists(), reason=NO_CASES)

SOLVERS: dict[str, ConflictSolver] = {
    "detector": ConflictDetector(),
    "basic": BasicConflictSolver(),
    "basic, chunks: theirs": BasicConflictSolver(VersionSelection.UseTheirs),
    "basic, chunks: fail": BasicConflictSolver(VersionSelection.Fail),
    "basic, fail on deletes": BasicConflictSolver(
        fail_on_delete_of_updated_array=True, fail_on_delete_of_updated_group=True
    ),
}

_DELETE_G = "delete /g (with all in it)"
_DELETE_SUB = "delete /g/sub"
_REPLACE_SUB = "replace group /g/sub by an array"
_RECREATE = "delete and recreate /a"
_CREATE_NEW, _CREATE_SUB_NEW = "create array /g/new", "create array /g/sub/new"

REFUSED: dict[str, set[tuple[str, str]]] = {
    "both put a new node at one path, and icechunk writes a snapshot with two nodes there": {
        (_RECREATE, _RECREATE),
        (_REPLACE_SUB, _REPLACE_SUB),
    },
    "a node would be left without its group": {
        *((_DELETE_G, other) for other in (_CREATE_NEW, _CREATE_SUB_NEW, _REPLACE_SUB)),
        *((other, _DELETE_G) for other in (_CREATE_NEW, _CREATE_SUB_NEW, _REPLACE_SUB)),
        (_DELETE_SUB, _CREATE_SUB_NEW),
        (_CREATE_SUB_NEW, _DELETE_SUB),
    },
    "a node would lie inside an array": {(_REPLACE_SUB, _CREATE_SUB_NEW)},
}
"""Pairs (ours, theirs) that icechunk rebases into a broken hierarchy.

Here they are conflicts that no solver resolves.
"""
_ALL_REFUSED = set().union(*REFUSED.values())


def _all_rows() -> list[dict[str, Any]]:
    return list(json.loads((CASES / "conflicts.json").read_text())["rows"]) if CASES.exists() else []


def rows() -> list[Any]:
    return [
        pytest.param(row, id=f"{row['ours']} | {row['theirs']}")
        for row in _all_rows()
        if (row["ours"], row["theirs"]) not in _ALL_REFUSED
    ]


@cache
def _base() -> dict[str, bytes]:
    store = MemoryStore()
    session = Repository.create(store).writable_session("main")
    create_base(session)
    session.commit("base")
    return {meta.key: bytes(store.get(meta.key)) for meta in store.list()}


def prepared(ours: str, theirs: str) -> tuple[Repository, Any]:
    """Return a repository that theirs was committed to, and a session of the commit before in which ours was done."""
    store = MemoryStore()
    for key, data in _base().items():
        store.put(key, data)
    repository = Repository.open(store)
    mine, other = repository.writable_session("main"), repository.writable_session("main")
    OPERATIONS[theirs](other, "theirs", 200)
    other.commit("theirs")
    OPERATIONS[ours](mine, "ours", 100)
    return repository, mine


def result_of(session: Any, solver: ConflictSolver) -> Any:
    """Rebase a session. Returns "ok" or the conflicts as the cases list them."""
    try:
        session.rebase(solver)
    except RebaseFailedError as error:
        return sorted(
            [
                conflict.conflict_type.name,
                conflict.path,
                *([] if (chunks := conflict.conflicted_chunks) is None else [chunks]),
            ]
            for conflict in error.conflicts
        )
    return "ok"


def expected_of(row: dict[str, Any], name: str) -> tuple[Any, Any]:
    """Return the result of a solver, and the nodes that differ after it if it resolved everything."""
    if name == "detector" or "after" in row or row["solvers"] == "as the detector":
        return row["detector"], row.get("after")
    solved = row["solvers"].get(name, "as the detector")
    return (row["detector"], None) if solved == "as the detector" else (solved["result"], solved["after"])


def _check(row: dict[str, Any], name: str) -> None:
    repository, session = prepared(row["ours"], row["theirs"])
    result, after = expected_of(row, name)
    assert result_of(session, SOLVERS[name]) == result
    if result != "ok":
        assert session.snapshot_id != repository.lookup_branch("main")
        return
    base = next(info.id for info in repository.ancestry(branch="main") if info.message == "base")
    before = state(repository.readonly_session(snapshot_id=base))
    assert differences(before, state(session)) == after
    session.commit("ours")
    assert differences(before, state(repository.readonly_session("main"))) == after


@pytest.mark.parametrize("row", rows())
def test_a_pair_of_changes_conflicts_as_in_icechunk(row: dict[str, Any]) -> None:
    # Where nothing conflicts, all solvers do the same.
    for name in ["detector"] if row["detector"] == "ok" else SOLVERS:
        _check(row, name)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [pytest.param(*pair, id=f"{reason}: {pair}") for reason, pairs in REFUSED.items() for pair in sorted(pairs)],
)
def test_no_solver_breaks_the_hierarchy(ours: str, theirs: str) -> None:
    for solver in SOLVERS.values():
        repository, session = prepared(ours, theirs)
        with pytest.raises(RebaseFailedError):
            session.rebase(solver)
        assert session.snapshot_id != repository.lookup_branch("main")


def test_all_pairs_are_tried() -> None:
    assert len(rows()) + len(_ALL_REFUSED & {(row["ours"], row["theirs"]) for row in _all_rows()}) == 276
