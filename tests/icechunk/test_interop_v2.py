"""This package and icechunk 2 on the same repositories of version 2, in turns."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import lake_core.icechunk as ours
from lake_core import Lake
from lake_core.lake.errors import Conflict
from tests.icechunk.driver import Driver
from tests.icechunk.icechunk2 import MISSING, Icechunk2, is_there
from tests.icechunk.operations import OPERATIONS, create_base, state

pytestmark = [pytest.mark.interop, pytest.mark.skipif(not is_there(), reason=MISSING)]
ROOT = "1CECHNKREP0F1RSTCMT0"


@pytest.fixture(scope="module")
def icechunk2() -> Iterator[Any]:
    process = Icechunk2()
    yield process
    process.close()


@pytest.fixture(params=["ours first", "icechunk first"])
def pair(request: pytest.FixtureRequest, icechunk2: Any) -> tuple[Any, Any]:
    return (Driver(ours), icechunk2) if request.param == "ours first" else (icechunk2, Driver(ours))


def check_same(pair: tuple[Any, Any], path: str) -> None:
    """Check that both read the same, at every branch and between all snapshots of main."""
    first, second = pair
    facts = first.describe(path)
    assert facts == second.describe(path)
    for branch in facts["branches"]:
        assert first.state(path, branch) == second.state(path, branch)
    ids = [entry[0] for entry in facts["history"]["main"]]
    for newer, older in itertools.combinations(ids, 2):
        assert first.diff(path, older, newer) == second.diff(path, older, newer), (older, newer)


def test_in_turns(pair: tuple[Any, Any], tmp_path: Path) -> None:
    first, second = pair
    path = str(tmp_path / "r")
    first.create(path, 2)
    base = second.base(path)
    check_same(pair, path)
    turns = itertools.cycle([first, second])
    for number, operation in enumerate(
        [
            *("write chunk 0 of /a", "append to /a (resize 6, write chunks 4 and 5)", "attrs of /g", "create array /n"),
            *("delete /g/x", "erase chunk 0 of /a", "resize /a to 2", "create array /g/new"),
        ]
    ):
        next(turns).commit(path, operation, number)
    check_same(pair, path)
    next(turns).call(path, "create_tag", "v1", base)
    next(turns).call(path, "create_branch", "dev", base)
    next(turns).commit(path, "write chunk 3 of /a", 77, "dev")
    next(turns).call(path, "create_tag", "gone", base)
    next(turns).call(path, "delete_tag", "gone")
    next(turns).amend(path, "write chunk 0 of /a", 4)
    next(turns).move(path, [["/g", "/h"], ["/a", "/h/a"]])
    next(turns).move(path, [["/h/a", "/z"], ["/b", "/h/b"], ["/z", "/b"]])
    next(turns).commit(path, "attrs of /", 3)
    next(turns).amend(path, "create array /m", 4)
    check_same(pair, path)
    next(turns).set_config(path, 100, 6)
    for number in range(8):
        next(turns).call(path, "set_metadata", {"number": number, "list": [1.5, None, {"x": "ü"}]})
    next(turns).call(path, "update_metadata", {"other": 2**40})
    next(turns).call(path, "set_feature_flag", "create_tag", False)
    next(turns).call(path, "set_feature_flag", "delete_tag", True)
    next(turns).call(path, "set_feature_flag", "create_tag", None)
    next(turns).call(path, "reset_branch", "dev", base)
    next(turns).call(path, "delete_branch", "dev")
    next(turns).set_status(path, "read_only", "why")
    next(turns).set_status(path, "online", None)
    check_same(pair, path)


def test_expiration_and_collection(pair: tuple[Any, Any], tmp_path: Path) -> None:
    first, second = pair
    path = str(tmp_path / "r")
    first.create(path, 2)
    first.base(path)
    for number in range(3):
        second.commit(path, "write chunk 0 of /a", number)
    tag = first.commit(path, "create array /n", 1)
    second.call(path, "create_tag", "kept", tag)
    first.move(path, [["/n", "/m"]])
    first.flush(path, "write chunk 3 of /a")
    between = datetime.now(UTC).timestamp()
    second.commit(path, "attrs of /", 1)
    first.commit(path, "write chunk 3 of /a", 9)
    tip = first.describe(path)["branches"]["main"]
    everything = first.diff(path, ROOT, tip)
    before = first.state(path)
    copy = str(tmp_path / "copy")
    import shutil

    shutil.copytree(path, copy)
    assert first.expire(path, between, False, False) == second.expire(copy, between, False, False)
    check_same(pair, path)
    assert first.describe(path)["history"] == second.describe(copy)["history"]
    assert second.collect(path)["snapshots_deleted"] > 0
    assert first.collect(copy)["snapshots_deleted"] > 0
    for each in (path, copy):
        check_same(pair, each)
        assert first.state(each) == before
        assert second.diff(each, ROOT, tip) == everything
        second.commit(each, "write chunks 0 and 1 of /a", 4)
        first.commit(each, "attrs of /g", 4)
        check_same(pair, each)


def test_both_upgrade_a_repository_alike(icechunk2: Any, tmp_path: Path) -> None:
    mine = Driver(ours)
    described = []
    for version, driver in (("ours", mine), ("theirs", icechunk2)):
        path = str(tmp_path / version)
        mine.create(path, 1)
        base = mine.base(path)
        mine.commit(path, "write chunk 0 of /a", 5)
        mine.call(path, "create_branch", "dev", base)
        mine.commit(path, "write chunk 3 of /a", 6, "dev")
        mine.call(path, "create_tag", "v1", base)
        mine.call(path, "create_tag", "gone", base)
        mine.call(path, "delete_tag", "gone")
        mine.set_config(path, 50, 1000)
        driver.upgrade(path)
        check_same((mine, icechunk2), path)
        described.append(sorted(entry[0] for entry in mine.describe(path)["log"]))
        icechunk2.commit(path, "attrs of /a", 3)
        mine.commit(path, "attrs of /g", 3)
        check_same((mine, icechunk2), path)
    assert described[0] == described[1]


MOVES: dict[str, list[list[str]]] = {
    "/a to /m": [["/a", "/m"]],
    "/g to /h": [["/g", "/h"]],
    "/g/x to /x": [["/g/x", "/x"]],
    "/a to /n": [["/a", "/n"]],
    "/a and /b swapped": [["/a", "/t"], ["/b", "/a"], ["/t", "/b"]],
}


@pytest.fixture(scope="module")
def bases(icechunk2: Any, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, str, str]]:
    prepared = []
    for driver in (Driver(ours), icechunk2):
        path = str(tmp_path_factory.mktemp("base") / "r")
        driver.create(path, 2)
        prepared.append((driver, path, driver.base(path)))
    return prepared


def outcomes(bases: list[tuple[Any, str, str]], mine: Any, theirs: Any, solver: str) -> list[Any]:
    results: list[Any] = []
    for driver, path, base in bases:
        try:
            results.append(driver.conflicts(path, base, mine, theirs, solver))
        except Exception as error:  # what icechunk ends in is compared, too
            results.append({"error": str(error)})
    return results


@pytest.mark.parametrize("name", MOVES)
def test_moves_conflict_as_in_icechunk_or_are_refused_where_it_loses_nodes(
    bases: list[tuple[Any, str, str]], name: str
) -> None:
    for operation in OPERATIONS:
        for mine, theirs in ((MOVES[name], operation), (operation, MOVES[name])):
            result, reference = outcomes(bases, mine, theirs, "ConflictDetector")
            if result == reference:
                continue
            # Icechunk fails without a conflict, drops the moved nodes, or leaves two of them at one path.
            assert mine == MOVES[name]
            assert operation.startswith(("delete ", "create "))
            if "conflicts" not in result:
                assert "not found" in reference["error"]
    for other in MOVES.values():
        result, reference = outcomes(bases, MOVES[name], other, "BasicConflictSolver")
        assert result == reference == {"conflicts": [["moveoperationcannotberebased", ""]]}


PAIRS = list(itertools.product(OPERATIONS, OPERATIONS))


@pytest.mark.parametrize("solver", ["ConflictDetector", "BasicConflictSolver"])
def test_operations_conflict_as_in_icechunk(bases: list[tuple[Any, str, str]], solver: str) -> None:
    different = []
    # Where a solver lets ours delete a node that theirs has created again, icechunk leaves the new one there.
    pairs = [pair for pair in PAIRS if pair[1] != "delete and recreate /a" or solver == "ConflictDetector"]
    for mine, theirs in pairs[:: 3 if solver == "ConflictDetector" else 5]:
        result, reference = outcomes(bases, mine, theirs, solver)
        if result != reference and not is_stricter(result, reference):
            different.append((mine, theirs, result, reference))
    assert different == []


def is_stricter(result: dict[str, Any], reference: dict[str, Any]) -> bool:
    """Return whether ours has all conflicts of icechunk, and others that keep the hierarchy sound.

    Zarr 3.4 erases the chunks that a smaller shape cuts off, and icechunk 2 logs them. This is not compared.
    """
    reference = without_cut_off(reference)
    result = without_cut_off(result)
    if result == reference or (not reference.get("conflicts") and "conflicts" in reference):
        return True
    more = [each for each in result.get("conflicts", []) if each not in reference.get("conflicts", [])]
    stricter = ("newnode", "deleteofupdated", "chunkdoubleupdate")
    return (
        bool(more)
        and all(each in result["conflicts"] for each in reference.get("conflicts", []))
        and all(each[0].startswith(stricter) for each in more)
    )


def without_cut_off(outcome: dict[str, Any]) -> dict[str, Any]:
    if "conflicts" not in outcome:
        return outcome
    return {
        "conflicts": [each for each in outcome["conflicts"] if each[0] != "chunkdoubleupdate" or min(each[2]) < [2]]
    }


def test_icechunk_finds_all_commits_of_threads_that_raced(icechunk2: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "r")
    mine = Driver(ours)
    mine.create(path, 2)
    mine.base(path)
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda first=first: ids.extend(mine.commits(path, 10, first))) for first in (0, 100)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    history = [entry[0] for entry in icechunk2.describe(path)["history"]["main"]]
    assert set(ids) <= set(history)
    assert len(ids) == 20


def test_a_lake_and_icechunk_write_one_repository_in_turns(icechunk2: Any, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    path = str(tmp_path / "a" / "w")

    def in_lake(operation: str) -> None:
        with lake.session() as session:
            OPERATIONS[operation](session.icechunk("a/w").session, operation, 5)

    def published() -> dict[str, Any]:
        return state(lake.icechunk("a/w").session)

    with lake.session() as session:
        create_base(session.create_icechunk("a/w", spec_version=2).session)
    in_lake("write chunk 0 of /a")
    assert icechunk2.state(path) == published()
    icechunk2.commit(path, "write chunk 3 of /a", 7)
    icechunk2.call(path, "create_tag", "x", icechunk2.call(path, "lookup_branch", "main"))
    icechunk2.call(path, "set_metadata", {"owner": "icechunk"})
    in_lake("attrs of /g")
    assert icechunk2.state(path) == published()
    assert published()["/a"]["values"] == [5, 1, 2, 7]
    assert icechunk2.describe(path)["metadata"] == {"owner": "icechunk"}
    icechunk2.move(path, [["/b", "/c"]])
    lake.maintenance.adopt("a/w")
    with lake.session() as session:
        moving = session.icechunk("a/w").rearrange_session("main")
        moving.move("/c", "/d")
        moving.commit("moved")
    newest, previous = [entry[0] for entry in icechunk2.describe(path)["history"]["main"]][:2]
    assert icechunk2.diff(path, previous, newest)["moved"] == [["/c", "/d"]]
    in_lake("write chunks 0 and 1 of /a")
    assert Driver(ours).describe(path) == icechunk2.describe(path)
    assert lake.maintenance.verify(full=True) == []
    icechunk2.amend(path, "write chunk 3 of /a", 9)
    with pytest.raises(Conflict, match="does not follow what the lake has published"):
        in_lake("attrs of /")
    assert published()["/a"]["values"] == [5, 5, 2, 7]


def test_a_lake_adopts_an_upgrade_by_icechunk(icechunk2: Any, tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    path = str(tmp_path / "a" / "w")
    with lake.session() as session:
        create_base(session.create_icechunk("a/w").session)
    icechunk2.upgrade(path)
    icechunk2.commit(path, "write chunk 3 of /a", 7)
    with lake.session() as session:
        OPERATIONS["write chunk 0 of /a"](session.icechunk("a/w").session, "side", 5)
    assert icechunk2.state(path) == state(lake.icechunk("a/w").session)
    assert icechunk2.state(path)["/a"]["values"] == [5, 1, 2, 7]
    assert lake.maintenance.verify(full=True) == []
