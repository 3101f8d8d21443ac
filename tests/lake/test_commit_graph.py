"""The graph of commits outlives their content: collection changes nothing about a merge but to `ContentGone`."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from itertools import combinations

import pytest

from lake_core import Lake
from lake_core.graveler import Commit
from lake_core.journal import Add, Delete
from lake_core.lake.errors import ContentGone, InvalidRef, NothingToApply, RefNotFound
from lake_core.lake.refs.commit_graph import CommitGraph
from lake_core.lake.refs.commit_link import LINKS, link_value
from lake_core.lake.refs.commit_record import commit_value
from lake_core.lake.refs.reached import Divergence
from lake_core.lake.refs.refs_state import RefsState
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import rows

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def lake(time: ManualClock) -> Lake:
    return Lake.create(MemoryStore(clock=time), clock=time)


def put(lake: Lake, branch: str, key: str) -> str:
    with lake.session(branch) as s:
        s.put(key, b"1")
    return head(lake, branch)


def head(lake: Lake, branch: str) -> str:
    return lake.repository.refs().branch(branch)


def files(lake: Lake, branch: str = "main") -> set[str]:
    return {meta.key for meta in lake.at(branch).list()}


def work(lake: Lake, time: ManualClock, days: int, *branches: str, collects: bool = True) -> None:
    """Commit to branches every day, and collect every week."""
    for _ in range(days):
        time.pass_days(1)
        for branch in branches:
            put(lake, branch, f"{branch}/{time():%j}")
        if collects and time().timetuple().tm_yday % 7 == 0:
            lake.maintenance.gc()


def test_a_branch_that_is_older_than_the_retention_merges(lake: Lake, time: ManualClock) -> None:
    put(lake, "main", "first")
    lake.create_branch("dev")
    work(lake, time, 45, "main", "dev")
    lake.maintenance.gc()
    assert len(lake.log()) < 45, "the history between is collected"
    lake.merge("dev")
    assert len([key for key in files(lake) if key.startswith("dev/")]) == 45


def test_a_branch_that_the_target_has_had_has_nothing_to_apply(lake: Lake, time: ManualClock) -> None:
    lake.create_branch("old")
    put(lake, "old", "a")
    lake.merge("old")
    work(lake, time, 45, "main")
    lake.maintenance.gc()
    with pytest.raises(NothingToApply):
        lake.merge("old")


@pytest.mark.parametrize("collects", [False, True])
def test_an_older_base_by_another_path_is_never_taken(lake: Lake, time: ManualClock, collects: bool) -> None:
    put(lake, "main", "removed")
    lake.create_tag("v1")
    base = put(lake, "main", "since")
    lake.create_branch("dev")
    with lake.session() as s:
        s.delete(["removed"])
    work(lake, time, 45, "main", collects=collects)
    lake.create_branch("hotfix", at="v1")
    put(lake, "hotfix", "fix")
    lake.merge("hotfix")
    if collects:
        lake.maintenance.gc()
    put(lake, "dev", "more")
    assert lake.preview_merge("dev").base == base
    lake.merge("dev")
    assert "more" in files(lake)
    assert "removed" not in files(lake)


def test_a_base_whose_content_is_gone_is_named(lake: Lake, time: ManualClock) -> None:
    base = put(lake, "main", "first")
    lake.create_branch("dev")
    put(lake, "dev", "early")
    work(lake, time, 20, "main")
    dev = put(lake, "dev", "late")
    lake.delete_branch("dev")
    work(lake, time, 20, "main")
    lake.maintenance.gc()
    lake.create_branch("again", at=dev)
    with pytest.raises(ContentGone, match="merge base") as gone:
        lake.merge("again")
    assert gone.value.commit == base
    assert gone.value.since is not None
    assert f"{gone.value.since:%Y-%m-%d}" in str(gone.value)
    assert "set a tag" in str(gone.value)
    assert "late" not in files(lake), "nothing was merged"


def test_a_revert_whose_parent_is_gone_says_so(lake: Lake, time: ManualClock) -> None:
    parent = put(lake, "main", "first")
    lake.create_branch("dev", at=put(lake, "main", "second"))
    time.pass_days(40)
    put(lake, "main", "third")
    lake.maintenance.gc()
    with pytest.raises(ContentGone) as gone:
        lake.revert("dev")
    assert gone.value.commit == parent


def test_a_link_keeps_the_place_and_the_edges_of_a_commit(lake: Lake, time: ManualClock) -> None:
    lake.create_branch("dev")
    with lake.session("dev") as s:
        s.create_delta("t", rows([]).schema).append(rows([1]))
    source = head(lake, "dev")
    squashed = lake.merge("dev", squash=True).commit
    before = lake.repository.refs().link(squashed)
    reverted = lake.revert(squashed).commit
    lake.delete_branch("dev")
    time.pass_days(40)
    put(lake, "main", "x")
    time.pass_days(40)
    put(lake, "main", "y")
    lake.maintenance.gc()
    refs = lake.repository.refs()
    link = refs.link(squashed)
    assert before is not None
    assert link is not None
    assert (before.has_content, link.has_content) == (True, False)
    assert (link.parents, link.generation, link.date) == (before.parents, before.generation, before.date)
    assert link.squashed == source
    assert link.metadata == {"squash": source, "datasets": '{"t":{"format":""}}'}
    assert link.datasets == before.datasets == {"t"}
    undone = refs.link(reverted)
    assert undone is not None
    assert undone.metadata["revert"] == squashed
    assert refs.link("0" * 64) is None
    assert squashed not in {commit.id for commit in lake.log()}, "the log ends where content does"


def test_a_link_of_a_large_session_does_not_list_its_datasets(lake: Lake, time: ManualClock) -> None:
    with lake.session() as s:
        for number in range(60):
            s.create_delta(f"tables/{number:03}", rows([]).schema)
    large = head(lake, "main")
    for _ in range(2):
        time.pass_days(40)
        put(lake, "main", f"{time():%j}")
    lake.maintenance.gc()
    link = lake.repository.refs().link(large)
    assert link is not None
    assert not link.has_content
    assert link.datasets is None, "not known, rather than none"


def test_all_best_bases_of_crossed_merges_are_kept(lake: Lake, time: ManualClock) -> None:
    lake.create_branch("dev")
    main, dev = put(lake, "main", "m"), put(lake, "dev", "d")
    lake.merge(dev)
    lake.merge(main, into="dev")
    work(lake, time, 45, "main", "dev")
    lake.maintenance.gc()
    refs = lake.repository.refs()
    assert refs.has_commit(main)
    assert refs.has_commit(dev)
    assert len(lake.log()) < 45


def test_the_source_of_a_squash_is_kept_as_a_base(lake: Lake, time: ManualClock) -> None:
    lake.create_branch("dev")
    for number in range(5):  # the source has a higher generation than the commit that squashes it
        source = put(lake, "dev", f"d{number}")
    lake.merge("dev", squash=True)
    work(lake, time, 45, "main", "dev")
    lake.maintenance.gc()
    assert lake.repository.refs().has_commit(source)


def test_a_commit_that_is_collected_twice_has_one_link(lake: Lake, time: ManualClock) -> None:
    old = put(lake, "main", "first")
    commit = lake.repository.refs().commit(old)
    time.pass_days(40)
    put(lake, "main", "second")
    time.pass_days(40)
    put(lake, "main", "third")
    lake.maintenance.gc()
    link = lake.repository.refs().link(old)
    lake.repository.journal.append(lambda state: [Add(f"commit/{old}", commit_value(commit))])
    assert lake.repository.refs().link(old) != link
    lake.maintenance.gc()
    assert lake.repository.refs().link(old) == link


def test_a_way_that_an_earlier_release_deleted_is_told(lake: Lake, time: ManualClock) -> None:
    put(lake, "main", "removed")
    lake.create_tag("v1")
    put(lake, "main", "since")
    lake.create_branch("dev")
    way = put(lake, "main", "way")
    put(lake, "main", "after")
    lake.create_branch("hotfix", at="v1")
    put(lake, "hotfix", "fix")
    lake.merge("hotfix")
    lake.repository.journal.append(lambda state: [Delete(f"commit/{way}")])
    put(lake, "dev", "more")
    with pytest.raises(ContentGone, match=way[:12]):
        lake.merge("dev")


class RandomGraph:
    """Commits with any parents and squashed commits, some of which are collected."""

    def __init__(self, seed: int, *, squashes: bool) -> None:
        chance = random.Random(seed)
        journal = Lake.create(MemoryStore(), clock=ManualClock(START)).repository.journal
        self.commits: dict[str, Commit] = {}
        ids: list[str] = []
        for number in range(30):
            parents = chance.sample(ids[-6:], min(len(ids), chance.choice([1, 1, 2, 2, 3])))
            source = chance.choice(ids) if squashes and ids and chance.random() < 0.3 else None
            commit = Commit.create(
                "ada",
                "",
                START + timedelta(minutes=number),
                "",
                parents=[self.commits[id] for id in parents],
                metadata={"n": str(number)} | ({} if source is None else {"squash": source}),
            )
            self.commits[commit.id] = commit
            ids.append(commit.id)
        actions = [Add(f"commit/{id}", commit_value(commit)) for id, commit in self.commits.items()]
        journal.append(lambda state: actions)
        self.heads = set(chance.sample(ids[-12:], 5))
        gone = [id for id in ids if id not in self.heads and chance.random() < 0.6]
        self.whole = RefsState(journal.state())
        values = {id: self.commits[id] for id in gone}
        journal.append(
            lambda state: [
                action
                for id, commit in values.items()
                for action in (Delete(f"commit/{id}"), Add(f"{LINKS}{id}", link_value(commit)))
            ]
        )
        self.refs = RefsState(journal.state())

    def ancestors(self, *, with_squashed: bool) -> Mapping[str, set[str]]:
        ancestors: dict[str, set[str]] = {}
        for id, commit in self.commits.items():
            sources = {*commit.parents, *([commit.metadata["squash"]] if "squash" in commit.metadata else [])}
            near = sources if with_squashed else set(commit.parents)
            ancestors[id] = {id}.union(*(ancestors[source] for source in near))
        return ancestors

    def best(self, *, with_squashed: bool) -> set[str]:
        ancestors = self.ancestors(with_squashed=with_squashed)
        bases: set[str] = set()
        for left, right in combinations(self.heads, 2):
            common = ancestors[left] & ancestors[right]
            bases |= {id for id in common if not any(id in ancestors[other] - {other} for other in common)}
        return bases


@pytest.mark.parametrize("seed", range(60))
def test_collected_commits_change_no_merge_base(seed: int) -> None:
    history = RandomGraph(seed, squashes=False)
    graph = CommitGraph()
    graph.update(history.refs)
    assert graph.merge_bases(history.heads) == history.best(with_squashed=False)
    ancestors = history.ancestors(with_squashed=False)
    for left, right in combinations(sorted(history.heads), 2):
        whole, collected = (Divergence.of(refs, right, left) for refs in (history.whole, history.refs))
        assert (not collected.missing) == (left in ancestors[right])
        assert [base.id for base in collected.bases] == [base.id for base in whole.bases]


@pytest.mark.parametrize("seed", range(60))
def test_merge_bases_over_squashed_commits_are_found(seed: int) -> None:
    history = RandomGraph(seed, squashes=True)
    graph = CommitGraph()
    graph.update(history.refs)
    bases = graph.merge_bases(history.heads)
    assert history.best(with_squashed=False) <= bases
    assert history.best(with_squashed=True) <= bases


def test_a_branch_that_was_squashed_has_nothing_left_to_bring(time: ManualClock) -> None:
    """Whatever the ids of its commits are, by which those of one generation are sorted."""
    for seed in range(40):
        lake = Lake.create(MemoryStore(clock=time), clock=time)
        lake.create_branch("dev")
        for number in range(3):
            put(lake, "dev", f"dev/{seed}/{number}")
        put(lake, "main", f"main/{seed}")
        lake.merge("dev", squash=True)
        for number in range(seed % 4):
            put(lake, "main", f"later/{seed}/{number}")
        divergence = Divergence.of(lake.repository.refs(), head(lake, "main"), head(lake, "dev"))
        assert list(divergence.missing) == []


# What has reached a branch


def test_a_commit_has_reached_a_branch_once_it_was_merged(lake: Lake) -> None:
    lake.create_branch("dev")
    first, second = put(lake, "dev", "d1"), put(lake, "dev", "d2")
    put(lake, "main", "m")
    assert not lake.has_reached(first)
    assert lake.has_reached(first, "dev")
    lake.merge(first)
    assert (lake.has_reached(first), lake.has_reached(second), lake.has_reached("dev")) == (True, False, False)
    merged = lake.merge("dev").commit
    assert lake.has_reached(second, "main")
    assert not lake.has_reached(second, "main~1")
    assert lake.has_reached(merged, "dev"), "it brought only what dev has"
    assert not lake.has_reached(put(lake, "main", "later"), "dev")


def test_a_branch_that_begins_at_a_commit_has_it(lake: Lake) -> None:
    lake.create_branch("dev")
    commit = put(lake, "dev", "d")
    lake.create_branch("release", at="dev")
    assert (lake.has_reached(commit, "release"), lake.has_reached(commit)) == (True, False)


def test_a_squash_and_a_cherry_pick_bring_what_they_name(lake: Lake) -> None:
    lake.create_branch("squashed")
    lake.create_branch("picked")
    lake.create_branch("picked-again")
    whole, parts = put(lake, "squashed", "s"), [put(lake, "picked", f"p{number}") for number in range(2)]
    put(lake, "main", "m")
    lake.merge("squashed", squash=True)
    assert lake.has_reached(whole)
    picked = lake.cherry_pick(parts[1], onto="main").commit
    assert [lake.has_reached(part) for part in parts] == [False, True]
    again = lake.cherry_pick(picked, onto="picked-again").commit
    assert [lake.has_reached(part, "picked-again") for part in parts] == [False, True]
    assert lake.has_reached(again), "it brought only what main has"
    assert lake.has_reached("picked"), "what is before the commit does not count"
    lake.delete_branch("picked")
    assert lake.has_reached(parts[1])


def test_what_was_reverted_has_reached_all_the_same(lake: Lake) -> None:
    lake.create_branch("dev")
    commit = put(lake, "dev", "d")
    lake.merge("dev")
    lake.revert(commit)
    assert lake.has_reached(commit)
    assert "d" not in files(lake)


@pytest.mark.parametrize("way", ["merge", "squash", "pick"])
def test_a_commit_whose_content_is_collected_has_still_reached(lake: Lake, time: ManualClock, way: str) -> None:
    lake.create_branch("dev")
    commit, other = put(lake, "dev", "d"), put(lake, "dev", "later")
    put(lake, "main", "m")
    if way == "pick":
        lake.cherry_pick(commit, onto="main")
    else:
        lake.merge(commit, squash=way == "squash")
    lake.delete_branch("dev")
    for _ in range(2):
        time.pass_days(40)
        put(lake, "main", f"{time():%j}")
    lake.maintenance.gc()
    assert not lake.repository.refs().has_commit(commit)
    assert (lake.has_reached(commit), lake.has_reached(other)) == (True, False)


def test_what_is_not_there_has_not_reached_but_is_an_error(lake: Lake) -> None:
    with pytest.raises(RefNotFound):
        lake.has_reached("0" * 64)
    with pytest.raises(RefNotFound, match="gone"):
        lake.has_reached("main", "gone")
    session = lake.open_session()
    with pytest.raises(InvalidRef, match="session"):
        lake.has_reached(session.id)
