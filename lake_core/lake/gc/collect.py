"""Garbage collection: delete what no ref, retained commit or live session reaches, while publishes continue.

1. Mark the live objects. The others, if they are older than any session may be, are put on a list, which an entry of
   the refs journal names. The entry also removes the commits that are not retained. From then on no process can find
   these commits, and no publish relies on a listed object.
2. Mark again, as of that entry, because a commit that was published in between may reach listed objects.
3. Delete the rest. Another entry records that the collection is complete.

After an interruption, the next collection continues from the refs journal. Unpublished objects are kept for more than
eight days.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.dataset import KeyClass, dataset_format
from lake_core.errors import LakeError, NotFound
from lake_core.graveler import CorruptTable, read_properties
from lake_core.journal import Action, Add, Delete, State, Update
from lake_core.lake.gc.deletion import delete_listed
from lake_core.lake.gc.mark import Reachability
from lake_core.lake.gc.retention import kept_commits, retain
from lake_core.lake.lake_format import ORIGIN_KEY
from lake_core.lake.refs.commit_graph import CommitGraph
from lake_core.lake.refs.pending_deletions import PREFIX, encode_list, read_list
from lake_core.lake.refs.refs_state import RefsState
from lake_core.lake.refs.session_record import BATCHES, EXPIRED, FAILED, MOST_EXPIRY, OPEN, PUBLISHED
from lake_core.lake.refs.values import instant_of, text_of
from lake_core.lake.repository import TREES, Repository
from lake_core.lake.state.claims import claimed
from lake_core.lake.state.content import OBJECTS, digest_of
from lake_core.runner import run_in_turn
from lake_core.store import FolderStore, ObjectMeta, ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lake_core.runner import Runner

LISTS = "_lake/gc"
_RANGE = re.compile(rf"{TREES}/[0-9a-f]{{64}}")

MIN_AGE = timedelta(days=8)
"""How long unpublished objects are kept at least. This is longer than the life of any session."""
_UNDER_WAY = timedelta(seconds=10)
_MOST_COMMITS = 50_000
"""The most commits that one collection removes, because one entry of the refs journal names them."""
_MOST_BATCHES = 10_000
"""The most batches of ended sessions that one collection removes."""


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
    Raises CollectionRefused, StoreError.
    """
    tell = progress or (lambda phase, count: None)
    finished: list[str] = []
    if not dry_run:
        _reap(repository)
        for id in sorted(repository.refs().under(PREFIX)):
            finished += _finish(repository, id, history, tell, Reachability(repository, run))
    refs = repository.refs()
    now = repository.clock()
    history = max(history, MOST_EXPIRY)  # keeps the commits at which private sessions began
    cutoff = now - history
    reachable, graph = Reachability(repository, run), CommitGraph()
    dropped = _mark(repository, refs, cutoff, reachable, graph, now)
    tell("marked", len(reachable.keys))
    if not dry_run:
        repository.journal.purge(now - MIN_AGE)
    old = _age_limit(repository)
    unreached = (
        meta for meta in _candidates(repository) if meta.key not in reachable.keys and meta.last_modified < old
    )
    garbage = [meta for meta in unreached if _is_own(repository.root, meta)]
    dead = set(sorted(dropped)[:_MOST_COMMITS])
    size = sum(meta.size for meta in garbage)
    if dry_run or not (garbage or dead):
        return Collection((*finished, *(meta.key for meta in garbage)), size, len(dead), dry_run)
    id = _announce(repository, [meta.key for meta in garbage], dead, graph, cutoff)
    tell("listed", len(garbage))
    deleted = _finish(repository, id, history, tell, reachable, graph)
    sizes = {meta.key: meta.size for meta in garbage}
    return Collection((*finished, *deleted), sum(sizes.get(key, 0) for key in deleted), len(dead), False)


def _mark(
    repository: Repository,
    refs: RefsState,
    cutoff: datetime,
    reachable: Reachability,
    graph: CommitGraph,
    now: datetime,
) -> frozenset[str]:
    """Mark what the retained states reach, and return the commits that are not retained.

    Raises CollectionRefused if a state cannot be read.
    """
    try:
        graph.update(refs)
        retention = retain(graph, refs, repository.format.branch, cutoff)
        reachable.add(retention, refs, now)
    except LakeError as error:
        raise CollectionRefused(
            f"a live state cannot be read, so it is unknown which objects it needs, and nothing was deleted: {error}"
        ) from error
    return retention.dropped


def _age_limit(repository: Repository) -> datetime:
    """Return the time since which written objects may still be published.

    It is by the store's clock, or by the lake's if the caller passed one; then recent objects are spared as well.
    """
    key = f"{LISTS}/clock-{runtime.uuid4().hex}"
    repository.root.put(key, b"", unique=True)
    now = repository.root.head(key).last_modified
    repository.root.delete([key])
    limit = repository.clock() - MIN_AGE
    return min(limit, now - _UNDER_WAY if repository.given_clock else now - MIN_AGE)


def _candidates(repository: Repository) -> Iterator[ObjectMeta]:
    """Yield the objects that the lake may delete: content, ranges, old collections' lists, datasets' unique objects."""
    root = repository.root
    # In the storage namespace of a lakeFS repository, objects older than the lake belong to the repository.
    since = root.head(ORIGIN_KEY).last_modified if repository.format.origin else None
    for meta in _collectable(root):
        if since is None or meta.last_modified > since:
            yield meta


def _collectable(root: ObjectStore) -> Iterator[ObjectMeta]:
    yield from root.list(f"{OBJECTS}/")
    yield from root.list(f"{TREES}/")
    for path, format in claimed(root):
        rules = dataset_format(format)
        for meta in FolderStore(root, path).list():
            if rules.key_class(meta.key) is KeyClass.UNIQUE and rules.collectable(meta.key):
                yield ObjectMeta(f"{path}/{meta.key}", meta.size, meta.etag, meta.last_modified)


def _is_own(root: ObjectStore, meta: ObjectMeta) -> bool:
    """Return whether this lake may have written an object in its folders.

    A lakeFS server may have a repository at the same location.
    """
    if meta.key.startswith(f"{OBJECTS}/"):
        return digest_of(meta.key) is not None
    if not meta.key.startswith(f"{TREES}/"):
        return True
    if not _RANGE.fullmatch(meta.key):
        return False
    try:
        return "file_id" in read_properties(root, meta.key, meta.size)  # which lakeFS does not write
    except (NotFound, CorruptTable):
        return False


def _announce(repository: Repository, keys: list[str], dead: set[str], graph: CommitGraph, cutoff: datetime) -> str:
    """Record a list in the refs journal, and remove the commits that are not retained."""
    id = runtime.uuid4().hex
    key = f"{LISTS}/{id}"
    repository.root.put(key, encode_list(keys), unique=True)

    def plan(state: State) -> Sequence[Action]:
        refs = RefsState(state)
        graph.update(refs)
        gone = (dead & graph.nodes.keys()) - kept_commits(graph, refs, cutoff)
        value = {"list": key, "time": repository.clock().isoformat()}
        return [
            Add(f"{PREFIX}{id}", value),
            *(Delete(f"commit/{commit}") for commit in sorted(gone)),
        ]

    repository.journal.append(plan)
    return id


def _finish(
    repository: Repository,
    id: str,
    history: timedelta,
    tell: Callable[[str, int], None],
    reachable: Reachability | None = None,
    graph: CommitGraph | None = None,
) -> list[str]:
    """Delete the listed objects that are still not reached, and return their keys.

    This can be repeated safely, by any process.
    """
    started = runtime.monotonic()
    refs = repository.refs()
    value = refs.under(PREFIX).get(id)
    if value is None or "done" in value:
        return []
    now = repository.clock()
    list_key = text_of(f"{PREFIX}{id}", value, "list")
    listed = read_list(repository.root, list_key)
    marked = reachable or Reachability(repository)
    _mark(repository, refs, now - history, marked, graph or CommitGraph(), now)
    gone = sorted(listed - marked.keys - _renewed(repository.root, list_key) - {""})
    deleted = delete_listed(repository.root, gone, list_key, started, tell, marked.run)
    if len(deleted) < len(gone):
        return deleted
    # From here on, writers may reuse the listed objects that were kept.
    done_key = f"{LISTS}/{id}-deleted"
    repository.root.put(done_key, encode_list(gone))

    def plan(state: State) -> Sequence[Action]:
        newest = RefsState(state).under(PREFIX).get(id)
        if newest is None or "done" in newest:
            return ()
        return [
            Update(f"{PREFIX}{id}", {"list": done_key, "time": newest["time"], "done": repository.clock().isoformat()})
        ]

    repository.journal.append(plan)
    repository.root.delete([list_key])
    return gone


def _renewed(root: ObjectStore, place: str) -> set[str]:
    """List the content that was stored again after a list was made, because a writer is about to use it."""
    try:
        listed = root.head(place).last_modified
    except NotFound:
        return set()
    return {meta.key for meta in root.list(f"{OBJECTS}/") if meta.last_modified > listed}


def _reap(repository: Repository) -> None:
    """Mark sessions past their time as expired.

    Ended sessions and collections are removed from the journal once no open session can be older than them.
    """

    def plan(state: State) -> Sequence[Action]:
        refs, now = RefsState(state), repository.clock()
        actions: list[Action] = []
        for record in refs.sessions():
            if record.state in (OPEN, FAILED):
                if now >= record.expires:
                    actions.append(Update(record.key, replace(record, state=EXPIRED).to_json()))
            elif record.state == PUBLISHED or now - record.opened > 2 * MIN_AGE:
                batches = refs.state.under(f"{BATCHES}{record.id}/")
                gone = batches[: max(0, _MOST_BATCHES - len(actions))]
                actions += [Delete(key) for key in gone]
                if now - record.opened > 2 * MIN_AGE and len(gone) == len(batches):
                    actions.append(Delete(record.key))
        for id, value in refs.under(PREFIX).items():
            if "done" in value and now - instant_of(f"{PREFIX}{id}", value, "done") > MIN_AGE:
                actions.append(Delete(f"{PREFIX}{id}"))
        return actions

    before = repository.refs().under(PREFIX)
    repository.journal.append(plan)
    after = repository.refs().under(PREFIX)
    repository.root.delete([value["list"] for id, value in before.items() if id not in after])
