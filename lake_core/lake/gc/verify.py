"""Verification of a lake: objects that live states reach exist in their sizes, and their contents are right."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from lake_core.dataset import NOT_EMPTY, AtLeast, Sizes
from lake_core.errors import InvalidKey, LakeError, NotFound
from lake_core.journal.errors import JournalDamaged
from lake_core.lake.gc.content_check import check_contents, is_named_by_content
from lake_core.lake.gc.log_check import check_log
from lake_core.lake.gc.mark import Reachability
from lake_core.lake.gc.problem import Problem
from lake_core.lake.gc.retention import retain
from lake_core.lake.gc.verified import VerifiedObjects
from lake_core.lake.publish.checkout import divergence, has_moved, is_checked_out
from lake_core.lake.refs.commit_graph import CommitGraph
from lake_core.lake.repository import REFS, TREES
from lake_core.lake.state.content import nanoseconds
from lake_core.runner import run_here, run_in_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from datetime import timedelta

    from lake_core.graveler import Entry
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.state_store import StateStore
    from lake_core.runner import Runner
    from lake_core.store import ObjectMeta, ObjectStore

_LISTED_FROM = 1000
"""The most objects that are looked up one by one. For more objects the whole lake is listed."""


def verify(
    repository: Repository,
    history: timedelta,
    *,
    hashes: bool = True,
    full: bool = False,
    progress: Callable[[str, int], None] | None = None,
    run: Runner | None = None,
) -> Iterator[Problem]:
    """Yield the problems of a lake.

    Args:
        repository: The lake.
        history: How long commits are retained.
        hashes: Whether to read content and compare it with its hash, or only to check that it exists in its size.
        full: Whether to read all content, and to decode the files of datasets too. By default, objects that an earlier
            run has read, and that were not written since, are not read again.
        progress: Called with a phase and a count; at the end with `not read again` and a number of objects.
        run: Calls the tasks that compute remainders and read content. By default they run in this process.
    """
    tell = progress or (lambda phase, count: None)
    refs = repository.refs()
    now = repository.clock()
    sizes: Sizes = {}
    reachable, graph = Reachability(repository, run or run_in_turn, sizes=sizes), CommitGraph()
    try:
        graph.update(refs)
        retention = retain(graph, refs, repository.format.branch, now - history)
    except JournalDamaged as error:
        yield Problem("unreadable", REFS, str(error))
        return
    unreadable: dict[str, Problem] = {}

    def note(name: str, error: LakeError) -> None:
        unreadable.setdefault(name, Problem("unreadable", name, str(error)))

    reachable.add(retention, now, note)
    yield from unreadable.values()
    tell("marked", len(reachable.keys))
    verified = VerifiedObjects()
    before = VerifiedObjects.read(repository.root) if hashes and not full else verified
    unchanged = number = 0

    def is_read(meta: ObjectMeta) -> bool:
        return hashes and (meta not in before if is_named_by_content(meta.key) else full)

    objects = _objects(repository.root, reachable.keys)
    for group in check_contents(repository.root, objects, is_read, reachable.formats, run or run_here):
        for key, meta in group.objects:
            if meta is None:
                yield Problem("missing", key, "a live state refers to it, but it is missing: restore it from a backup")
                continue
            if key in group.problems:
                yield group.problems[key]
            elif (detail := _size_problem(meta, sizes)) is not None:
                yield Problem("corrupt", key, f"{detail}: restore it from a backup")
            elif hashes and is_named_by_content(key):
                unchanged += not group.read
                verified.add(meta)
            if key in reachable.references:
                yield from _check_reference(repository, meta, reachable.references[key])
        number += len(group.objects)
        tell("checked", number)
    if hashes:
        del before  # nothing is looked up any longer, and its memory is needed to sort the new ones
        verified.write(repository.root)
    for entry in reachable.external.values():
        yield from _check_external(repository, entry)
    head = refs.commit(refs.branch(repository.format.branch))
    yield from _check_folders(repository.commit_state(head), full=full)
    diverged = [] if has_moved(repository, refs, repository.format.branch) else _diverged(repository.commit_state(head))
    yield from diverged
    if not diverged and not is_checked_out(repository, head):
        yield Problem(
            "not checked out",
            head.id,
            "main's last commit is published but not yet checked out: run `lake checkout` to complete it",
        )
    tell("not read again", unchanged)


def _objects(root: ObjectStore, keys: set[str]) -> Iterator[tuple[str, ObjectMeta | None]]:
    """Yield each key with the object's metadata, or None if it does not exist."""
    missing = keys - {""}
    if len(missing) <= _LISTED_FROM:
        for key in sorted(missing):
            try:
                yield key, root.head(key)
            except (NotFound, InvalidKey):  # a tree that another program wrote may name what no object can be called
                yield key, None
        return
    for meta in root.list():
        if meta.key in missing:
            missing.remove(meta.key)
            yield meta.key, meta
    for key in sorted(missing):
        yield key, None


def _size_problem(meta: ObjectMeta, sizes: Sizes) -> str | None:
    """Return what is wrong with the size of an object, if another one was recorded. No range of a tree is empty."""
    recorded = sizes.get(meta.key, NOT_EMPTY if meta.key.startswith(f"{TREES}/") else None)
    if recorded is None or meta.size == recorded:
        return None
    if not isinstance(recorded, AtLeast):
        return f"it has {meta.size} bytes, but was written with {recorded}"
    if meta.size > recorded:
        return None
    return f"it has {meta.size} bytes, but what is named in it ends at byte {recorded}" if meta.size else "it is empty"


def _check_reference(
    repository: Repository, meta: ObjectMeta, entries: Collection[tuple[int, str, int]]
) -> Iterator[Problem]:
    """Yield a problem if an object has changed since it was imported, for any live state."""
    # A copy of a store keeps at most the times, not the etags. lakeFS has its own etags and times.
    is_lakefs = repository.format.origin == "lakefs"
    same = {
        size == meta.size and (is_lakefs or etag == meta.etag or modified == nanoseconds(meta.last_modified))
        for size, etag, modified in entries
    }
    if False in same:
        detail = (
            "it is not the file that was imported, which must not change: "
            "restore that file, or import this one under another name"
        )
        yield Problem("changed", meta.key, detail)


def _check_folders(head: StateStore, *, full: bool) -> Iterator[Problem]:
    """Yield a problem for each dataset whose folder the lake can no longer follow, and for damaged logs in folders."""
    try:
        registered = head.registered()
    except LakeError:
        return  # it is reported as unreadable
    for path, record in sorted(registered.items()):
        view = head.folder_of(record)
        reason = view.format.incompatibility(view.checkout_store)
        if reason is not None:
            yield Problem("changed", path, f"{reason}. To leave it to its other writers, run `lake release {path}`")
        else:
            yield from check_log(view, full=full)


def _diverged(head: StateStore) -> list[Problem]:
    """Return a problem for each dataset whose folder another writer changed so that main cannot be checked out to it.

    What cannot be read is no such problem: it is reported as unreadable.
    """
    problems = []
    with suppress(LakeError):
        for path, record in sorted(head.registered().items()):
            with suppress(LakeError):
                error = divergence(head.folder_of(record))
                if error is not None:
                    problems.append(Problem("diverged", path, str(error)))
    return problems


def _check_external(repository: Repository, entry: Entry) -> Iterator[Problem]:
    """Yield a problem if an object outside of the lake is missing, has another size, or may not be read."""
    try:
        store, key = repository.content.addresses.locate(entry)
        size = store.head(key).size
    except NotFound:
        yield Problem("missing", entry.address, "a live state refers to it, but it is missing: restore it")
    except LakeError as error:
        yield Problem("unreadable", entry.address, str(error))
    else:
        if size != entry.size:
            yield Problem("changed", entry.address, f"it has {size} bytes, but had {entry.size}: restore that file")
