"""Garbage collection: delete what no ref, retained commit or live session reaches, while publishes continue.

It marks what is live, lists the rest in an entry of the refs journal, marks again as of that entry, and deletes what is
still not reached. `docs/internals/gc.md` says why nothing that is needed goes.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from lake_core import runtime
from lake_core.errors import LakeError, NotFound
from lake_core.journal import Action, Add, Append, Delete, State, Update
from lake_core.lake.gc.candidates import LISTS, MIN_AGE, age_limit, has_old_objects, unreached
from lake_core.lake.gc.deletion import delete_listed
from lake_core.lake.gc.mark import Reachability
from lake_core.lake.gc.reap import reap
from lake_core.lake.gc.retention import kept_commits, retain
from lake_core.lake.refs.commit_graph import CommitGraph
from lake_core.lake.refs.commit_link import LINKS, link_value
from lake_core.lake.refs.pending_deletions import (
    PREFIX,
    Collections,
    begun,
    collections,
    encode_list,
    read_list,
    unfinished,
)
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.refs.session_record import MOST_EXPIRY
from lake_core.lake.repository import TREES, Repository
from lake_core.lake.state.claims import claimed_paths
from lake_core.lake.state.content import EPOCH, OBJECTS
from lake_core.lake.state.dataset_record import path_above
from lake_core.lake.state.derived import DERIVED
from lake_core.runner import RunnerFailed, run_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence, Set
    from datetime import datetime, timedelta

    from lake_core.lake.gc.retention import Retention
    from lake_core.runner import Runner
    from lake_core.store import ObjectStore

_MOST_COMMITS = 2048
"""The most commits that one entry of the refs journal removes. Their links are then neighbors in the archive."""
_MANY_COMMITS = 256
"""After so many removed commits, a snapshot of the refs moves their links to the archive at once."""


class CollectionRefused(LakeError):
    """A live dataset cannot be read, so the objects that it reaches are unknown. Nothing was deleted."""


@dataclass(frozen=True, slots=True)
class Collection:
    """The objects that a collection deleted, or would delete."""

    keys: Sequence[str]
    bytes: int
    commits: int
    """Commits past the retention that were removed."""
    dry_run: bool


def collect(
    repository: Repository,
    history: timedelta,
    *,
    dry_run: bool = False,
    progress: Callable[[str, int], None] | None = None,
    run: Runner = run_in_turn,
) -> Collection:
    """Delete unreachable objects.

    `history` is how long commits are kept, at least a week. `run` calls the tasks that compute remainders and delete.
    Raises CollectionRefused, RunnerFailed, StoreError.
    """
    tell = progress or (lambda phase, count: None)
    finished: list[str] = []
    if not dry_run:
        reap(repository)
        for id in sorted(repository.refs().under(PREFIX)):
            finished += _finish(repository, id, _Marks(repository, history, run), tell)
    marks = _Marks(repository, max(history, MOST_EXPIRY), run)  # keeps the commits at which private sessions began
    refs = repository.refs()
    now = repository.clock()
    retention = marks.retain(refs, now)
    dropped = marks.in_order(retention.dropped)
    limit = age_limit(repository, dry_run=dry_run)
    # In a young lake nothing can be garbage, whatever is reached.
    may_have_garbage = bool(dropped) or has_old_objects(repository, limit)
    if may_have_garbage:
        marks.add(retention, now)
        tell("marked", len(marks.keys))
    if not dry_run:
        repository.journal.purge(now - MIN_AGE)
    garbage = unreached(repository, refs, marks.keys, limit) if may_have_garbage else []
    size = sum(meta.size for meta in garbage)
    if dry_run or not (garbage or dropped):
        return Collection((*finished, *(meta.key for meta in garbage)), size, len(dropped), dry_run)
    id = _announce(repository, [meta.key for meta in garbage], dropped, marks)
    tell("listed", len(garbage))
    deleted = _finish(repository, id, marks, tell)
    sizes = {meta.key: meta.size for meta in garbage}
    return Collection((*finished, *deleted), sum(sizes.get(key, 0) for key in deleted), len(dropped), False)


class _Marks:
    """The objects that the retained states reach, also those of later refs. Each state is marked once."""

    def __init__(self, repository: Repository, history: timedelta, run: Runner = run_in_turn) -> None:
        self._reachable = Reachability(repository, run)
        self._graph = CommitGraph()
        self._branch = repository.format.branch
        self._history, self._cutoff = history, EPOCH
        self.run = run
        self.keys: Set[str] = self._reachable.keys

    def retain(self, refs: RefsState, now: datetime) -> Retention:
        """Return which states of these refs are kept.

        Raises CollectionRefused if a ref cannot be read.
        """
        self._cutoff = now - self._history
        with _refusing():
            self._graph.update(refs)
            return retain(self._graph, refs, self._branch, self._cutoff)

    def add(self, retention: Retention, now: datetime) -> None:
        """Mark what the retained states reach.

        Raises CollectionRefused if one cannot be read, and RunnerFailed.
        """
        with _refusing():
            self._reachable.add(retention, now)

    def add_dropped(self, refs: RefsState, now: datetime) -> None:
        """Mark what the commits reach that are not retained, as far as they can be read."""
        self._reachable.add(retain(self._graph, refs, self._branch, EPOCH), now, lambda name, error: None)

    def in_order(self, commits: Set[str]) -> Sequence[str]:
        """Return commits, parents first."""
        return sorted(commits, key=lambda commit: self._graph.nodes[commit].order)

    def still_dropped(self, commits: Sequence[str], refs: RefsState) -> list[str]:
        """Return those of some commits that newer refs have, and do not retain."""
        self._graph.update(refs)
        kept = kept_commits(self._graph, refs, self._cutoff)
        return [commit for commit in commits if commit in self._graph.nodes and commit not in kept]


@contextmanager
def _refusing() -> Iterator[None]:
    """Raise CollectionRefused for what cannot be read."""
    try:
        yield
    except RunnerFailed:
        raise
    except LakeError as error:
        raise CollectionRefused(
            f"a live state cannot be read, so it is unknown which objects it needs, and nothing was deleted: {error}"
        ) from error


def _announce(repository: Repository, keys: list[str], dropped: Sequence[str], marks: _Marks) -> str:
    """Remove the commits that are not retained from the refs journal, but for their links, and record a list in it.

    The list comes with the last of the commits. No branch can begin at a commit that only listed objects hold.
    """
    links: dict[str, Any] = {}
    parts = [dropped[start : start + _MOST_COMMITS] for start in range(0, len(dropped), _MOST_COMMITS)] or [[]]

    def remove(part: Sequence[str], state: State) -> list[Action]:
        refs = RefsState(state)
        actions: list[Action] = []
        for commit in marks.still_dropped(part, refs):
            if commit not in links:
                links[commit] = link_value(refs.commit(commit))
            actions.append(Delete(f"commit/{commit}"))
            # A commit that was removed once may have been published again, by the same process.
            if (key := f"{LINKS}{commit}") not in state:
                actions.append(Add(key, links[commit]))
        return actions

    def announce(id: str, known: Collections, state: State) -> Append[bool]:
        refs = RefsState(state)
        if collections(refs) != known:
            return Append((), False)
        begin = begun(refs, id, f"{LISTS}/{id}", repository.clock())
        return Append([*begin, *remove(parts[-1], state)], True)

    for part in parts[:-1]:
        repository.journal.append(partial(remove, part))
    while True:
        known = collections(repository.refs())
        id = runtime.uuid4().hex
        repository.root.put(f"{LISTS}/{id}", encode_list(keys), unique=True)
        if repository.journal.append(partial(announce, id, known)):
            break
        # Another collection began since the list was put. If that was long ago, it may be deleting the list.
        repository.root.delete([f"{LISTS}/{id}"])
    if len(links) >= _MANY_COMMITS:
        repository.journal.write_snapshot()
    return id


def _finish(repository: Repository, id: str, marks: _Marks, tell: Callable[[str, int], None]) -> list[str]:
    """Delete the listed objects that are still not reached, and return their keys.

    This can be repeated safely, by any process, also by several at once.
    """
    started = runtime.monotonic()
    refs = repository.refs()
    entry = unfinished(refs, id)
    if entry is not None and "final" not in entry:
        _decide(repository, id, refs, marks)
        entry = unfinished(repository.refs(), id)  # another process may have been faster
    if entry is None:
        return []
    gone = sorted(read_list(repository.root, entry["list"]) - {""})
    deleted = delete_listed(repository.root, gone, started, tell, marks.run)
    if len(deleted) < len(gone):
        return deleted

    def plan(state: State) -> Sequence[Action]:
        newest = unfinished(RefsState(state), id)
        return () if newest is None else [Update(f"{PREFIX}{id}", {**newest, "done": repository.clock().isoformat()})]

    repository.journal.append(plan)
    # Not before: publishers with refs from before the final list must not find it missing.
    if entry["list"] != f"{LISTS}/{id}":
        repository.root.delete([f"{LISTS}/{id}"])
    return gone


def _decide(repository: Repository, id: str, refs: RefsState, marks: _Marks) -> None:
    """Record the final list of a collection: the listed objects that the states of `refs` do not reach.

    The first process to record one decides for all. Otherwise a publish could use an object that one process has kept,
    while another, which marked at another time, deletes it.
    """
    now = repository.clock()
    lists = collections(refs).lists
    list_key = lists[id]
    listed = read_list(repository.root, list_key)
    # A branch can begin at any commit that the refs still have. Some may have been collected by an earlier release.
    retention = marks.retain(refs, now)
    marks.add(retention, now)
    if retention.dropped:
        marks.add_dropped(refs, now)
    gone = listed - marks.keys - set(lists.values())  # a slow collector may have named one of these only now
    gone -= _renewed(repository.root, list_key)
    gone -= _released(repository.root, gone)
    final_key = list_key
    if gone != listed:
        final_key = f"{list_key}-{runtime.uuid4().hex}"
        repository.root.put(final_key, encode_list(sorted(gone)), unique=True)

    def plan(state: State) -> Append[str]:
        newest = RefsState(state).under(PREFIX).get(id, {"list": ""})
        if newest["list"] != list_key or "final" in newest:
            return Append((), newest["list"])
        return Append([Update(f"{PREFIX}{id}", {**newest, "list": final_key, "final": True})], final_key)

    # Writers may now use the listed objects that were kept.
    recorded = repository.journal.append(plan)
    if final_key not in (list_key, recorded):
        repository.root.delete([final_key])


def _released(root: ObjectStore, keys: Set[str]) -> set[str]:
    """List the keys in the folders of datasets that were released from the lake after they were listed."""
    paths = set(claimed_paths(root))
    own = (f"{OBJECTS}/", f"{TREES}/", f"{DERIVED}/", f"{LISTS}/")
    return {key for key in keys if key and not key.startswith(own) and path_above(key, paths) is None}


def _renewed(root: ObjectStore, list_key: str) -> set[str]:
    """List the content that was stored again after a list was made, because a writer is about to use it."""
    try:
        listed = root.head(list_key).last_modified
    except NotFound:
        return set()
    return {meta.key for meta in root.list(f"{OBJECTS}/") if meta.last_modified > listed}
