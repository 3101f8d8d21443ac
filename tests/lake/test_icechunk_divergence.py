"""Repositories in which another client commits between a publish of the lake and its checkout."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lake_core import Lake
from lake_core.icechunk import Repository, upgrade_icechunk_repository
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.lake.publish import commit_to_branch
from lake_core.store import MemoryStore
from lake_core.store.folder import FolderStore
from tests.icechunk.test_version_2_maintenance import Interrupted
from tests.lake.arrays import PATH, chunk_values, create_array, filled, set_chunk

BESIDE = "arrays/waves"
COMMIT_IN_FOLDER = "by another client"


@pytest.fixture(params=[1, 2], ids=["version 1", "version 2"])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """Create a lake with two repositories, whose array `values` holds 0 in chunk 0."""
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        for path in (PATH, BESIDE):
            store = session.create_icechunk(path, spec_version=request.param).store
            create_array(store)
            set_chunk(store, 0, 0)
    return lake


def outside(root: Path, path: str = PATH) -> Repository:
    return Repository.open(root / path)


def commit_outside(root: Path, chunk: int, value: int, path: str = PATH) -> None:
    session = outside(root, path).writable_session("main")
    set_chunk(session.store, chunk, value)
    session.commit(COMMIT_IN_FOLDER)


def write(lake: Lake, chunk: int, value: int, *paths: str) -> None:
    with lake.session() as session:
        for path in paths or (PATH,):
            set_chunk(session.icechunk(path).store, chunk, value)


def write_while(lake: Lake, other: Callable[[], object], *paths: str) -> None:
    """Write 1 to chunk 1, while another client does something after the commit and before its checkout."""
    try_check_out = commit_to_branch.try_check_out

    def overtaken(*arguments: object) -> bool:
        other()
        return try_check_out(*arguments)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_to_branch, "try_check_out", overtaken)
        write(lake, 1, 1, *paths)


def values(lake: Lake, root: Path, path: str = PATH) -> tuple[list[int], list[int]]:
    """Return what readers of the lake and of the folder find."""
    return chunk_values(lake.icechunk(path).store), chunk_values(outside(root, path).readonly_session("main").store)


def test_adoption_brings_both_commits(lake: Lake, tmp_path: Path) -> None:
    write_while(lake, lambda: commit_outside(tmp_path, 2, 2))
    assert chunk_values(lake.icechunk(PATH).store) == filled(c0=0, c1=1)
    lake.maintenance.adopt(PATH)
    assert values(lake, tmp_path) == (filled(c0=0, c1=1, c2=2),) * 2
    assert COMMIT_IN_FOLDER in [info.message for info in outside(tmp_path).ancestry(branch="main")]
    assert lake.status().pending_checkout == []
    assert lake.maintenance.verify(full=True) == []
    with pytest.raises(NothingToApply):
        lake.maintenance.adopt(PATH)


def test_the_next_publish_adopts(lake: Lake, tmp_path: Path) -> None:
    write_while(lake, lambda: commit_outside(tmp_path, 2, 2))
    write(lake, 3, 3)
    assert values(lake, tmp_path) == (filled(c0=0, c1=1, c2=2, c3=3),) * 2
    assert lake.maintenance.verify(full=True) == []


def publish_and_commit(spec_version: int, moment: int) -> tuple[bool, list[int]]:
    """Publish twice, while another client commits before one request of the first publish.

    Return whether the publish has so many requests, and what readers of the lake and of the folder find.
    """
    root, commits = MemoryStore(), list[str]()
    folder, store = FolderStore(root, PATH), Interrupted(root, 0, lambda: None)
    lake = Lake.create(store)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH, spec_version=spec_version).store)

    def other() -> None:
        session = Repository.open(folder).writable_session("main")
        set_chunk(session.store, 2, 2)
        commits.append(session.commit(COMMIT_IN_FOLDER))

    store.moment, store.other = moment, other
    write(lake, 1, 1)
    store.moment = 0
    write(lake, 3, 3)
    values = chunk_values(lake.icechunk(PATH).store)
    assert chunk_values(Repository.open(folder).readonly_session("main").store) == values, moment
    assert lake.maintenance.verify(full=True) == [], moment
    return bool(commits), values


@pytest.mark.parametrize("spec_version", [1, 2])
def test_a_commit_at_any_moment_of_a_publish_is_kept(spec_version: int) -> None:
    for moment in range(1, 1_000):
        is_within, values = publish_and_commit(spec_version, moment)
        if not is_within:
            break
        assert values == filled(c1=1, c2=2, c3=3), moment
    assert moment > 10


def test_several_commits_of_both_sides_are_adopted(lake: Lake, tmp_path: Path) -> None:
    def other() -> None:
        commit_outside(tmp_path, 2, 5)
        commit_outside(tmp_path, 2, 2)

    write_while(lake, other)
    lake.maintenance.adopt(PATH)
    write_while(lake, other)
    commit_outside(tmp_path, 3, 3)
    lake.maintenance.adopt(PATH)
    assert values(lake, tmp_path) == (filled(c0=0, c1=1, c2=2, c3=3),) * 2


def test_verification_and_status_report_it_beside_the_rest_of_the_lake(lake: Lake, tmp_path: Path) -> None:
    write_while(lake, lambda: commit_outside(tmp_path, 2, 2))
    problems = lake.maintenance.verify()
    assert [(problem.kind, problem.key) for problem in problems] == [("diverged", PATH)]
    assert f"lake adopt {PATH}" in problems[0].detail
    assert len(lake.status().pending_checkout) == 1
    write(lake, 3, 3, BESIDE)
    assert [(problem.kind, problem.key) for problem in lake.maintenance.verify()] == [("diverged", PATH)]
    assert values(lake, tmp_path, BESIDE) == (filled(c0=0, c3=3),) * 2


def test_two_repositories_that_diverged_at_once_are_adopted_one_by_one(lake: Lake, tmp_path: Path) -> None:
    write_while(lake, lambda: [commit_outside(tmp_path, 2, 2, path) for path in (PATH, BESIDE)], PATH, BESIDE)
    lake.maintenance.adopt(PATH)
    write(lake, 3, 3)
    lake.maintenance.adopt(BESIDE)
    write(lake, 3, 3, BESIDE)
    for path in (PATH, BESIDE):
        assert values(lake, tmp_path, path) == (filled(c0=0, c1=1, c2=2, c3=3),) * 2
    assert lake.status().pending_checkout == []
    assert lake.maintenance.verify(full=True) == []


def test_commits_to_the_same_chunk_are_a_conflict_that_loses_neither(lake: Lake, tmp_path: Path) -> None:
    write_while(lake, lambda: commit_outside(tmp_path, 1, 2))
    published = lake.log()[0].id
    for attempt in (lambda: lake.maintenance.adopt(PATH), lambda: write(lake, 3, 3)):
        with pytest.raises(Conflict, match="both wrote") as caught:
            attempt()
        assert f"lake release {PATH}" in str(caught.value)
    assert values(lake, tmp_path) == (filled(c0=0, c1=1), filled(c0=0, c1=2))
    lake.maintenance.release(PATH)
    with lake.session() as session:
        session.import_dataset(PATH, "icechunk")
    assert values(lake, tmp_path) == (filled(c0=0, c1=2),) * 2
    assert chunk_values(lake.icechunk(PATH, ref=published).store) == filled(c0=0, c1=1)
    assert lake.maintenance.verify(full=True) == []


def test_settings_of_another_client_stay(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH, spec_version=2).store)

    def other() -> None:
        outside(tmp_path).set_metadata({"owner": "another"})
        outside(tmp_path).create_tag("v1", outside(tmp_path).lookup_branch("main"))

    write_while(lake, other)
    write(lake, 2, 2)
    assert values(lake, tmp_path) == (filled(c1=1, c2=2),) * 2
    assert (outside(tmp_path).metadata, outside(tmp_path).list_tags()) == ({"owner": "another"}, {"v1"})


def test_an_upgrade_by_another_client_stays(tmp_path: Path) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH).store)

    def other() -> None:
        upgrade_icechunk_repository(outside(tmp_path), dry_run=False)
        commit_outside(tmp_path, 2, 2)

    write_while(lake, other)
    write(lake, 3, 3)
    assert outside(tmp_path).spec_version == 2
    assert values(lake, tmp_path) == (filled(c1=1, c2=2, c3=3),) * 2
    assert lake.maintenance.verify(full=True) == []


@pytest.mark.parametrize("change", ["reset", "amend"])
def test_what_another_client_takes_back_knowingly_is_not_adopted(tmp_path: Path, change: str) -> None:
    lake = Lake.create(tmp_path)
    with lake.session() as session:
        create_array(session.create_icechunk(PATH, spec_version=2).store)
    write(lake, 1, 1)
    repository = outside(tmp_path)
    if change == "reset":
        repository.reset_branch("main", list(repository.ancestry(branch="main"))[1].id)
    else:
        amending = repository.writable_session("main")
        set_chunk(amending.store, 2, 2)
        amending.amend("amended")
    for attempt in (lambda: lake.maintenance.adopt(PATH), lambda: write(lake, 3, 3)):
        with pytest.raises(Conflict, match="does not follow what the lake has published"):
            attempt()
    assert [problem.kind for problem in lake.maintenance.verify()] == ["diverged"]
