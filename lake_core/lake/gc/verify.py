"""Verification of a lake: all objects that live states reach exist, and those named by content have that content."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from lake_core.errors import LakeError, NotFound
from lake_core.graveler import read_sstable
from lake_core.graveler.identity import AFTER_HASHING, table_id
from lake_core.journal.errors import JournalDamaged
from lake_core.lake.gc.mark import Reachability, divide_commits, retained_states
from lake_core.lake.publish.checkout import is_checked_out
from lake_core.lake.repository import REFS
from lake_core.lake.state.content import digest_of, nanoseconds

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from datetime import timedelta

    from lake_core.graveler import Entry
    from lake_core.lake.repository import Repository
    from lake_core.store import ObjectMeta


@dataclass(frozen=True, slots=True)
class Problem:
    """A defect of a lake."""

    kind: Literal["missing", "corrupt", "changed", "unreadable", "not in place"]
    key: str
    detail: str


def verify(
    repository: Repository,
    history: timedelta,
    *,
    hashes: bool = True,
    progress: Callable[[str, int], None] | None = None,
) -> Iterator[Problem]:
    """Yield the defects. With `hashes`, read all content and compare it with its hash."""
    tell = progress or (lambda phase, count: None)
    refs = repository.refs()
    now = repository.clock()
    reachable = Reachability(repository)
    try:
        states = retained_states(refs, divide_commits(refs, now - history))
    except JournalDamaged as error:
        yield Problem("unreadable", REFS, str(error))
        return
    for state in states:
        try:
            reachable.add_state(state, refs, now)
        except LakeError as error:
            yield Problem("unreadable", state.name, str(error))
    for log in reachable.logs():
        try:
            reachable.add_log(log)
        except LakeError as error:
            yield Problem("unreadable", log.view.record.path, str(error))
    tell("marked", len(reachable.keys))
    present = {meta.key: meta for meta in repository.root.list("")} if len(reachable.keys) > 1000 else None
    for number, key in enumerate(sorted(reachable.keys - {""})):
        if number % 1000 == 0:
            tell("checked", number)
        yield from _check(repository, key, present, hashes)
    for key, entries in sorted(reachable.references.items()):
        yield from _check_reference(repository, key, entries, present)
    for entry in reachable.external.values():
        yield from _check_external(repository, entry)
    head = refs.commit(refs.branch(repository.format.branch))
    if not is_checked_out(repository, head):
        yield Problem(
            "not in place",
            head.id,
            "main's last commit is published but not yet in place: run `lake checkout` to complete it",
        )


def _check(
    repository: Repository, key: str, present: Mapping[str, ObjectMeta] | None, hashes: bool
) -> Iterator[Problem]:
    root = repository.root
    digest = digest_of(key)
    try:
        if hashes and digest is not None:
            if sha256(root.get(key)).hexdigest() != digest:
                yield Problem("corrupt", key, "its bytes do not match its name: restore it from a backup")
        elif hashes and key.startswith("_lakefs/"):
            table = read_sstable(root.get(key))
            named = {name: str(value) for name, value in table.properties.items() if name not in AFTER_HASHING}
            if table_id(table.pairs, named) != key.removeprefix("_lakefs/"):
                yield Problem("corrupt", key, "its records do not match its name: restore it from a backup")
        elif (key not in present) if present is not None else not root.exists(key):
            yield Problem("missing", key, "a live state refers to it, but it is missing: restore it from a backup")
    except NotFound:
        yield Problem("missing", key, "a live state refers to it, but it is missing: restore it from a backup")
    except LakeError as error:
        yield Problem("corrupt", key, str(error))


def _check_reference(
    repository: Repository,
    key: str,
    entries: Collection[tuple[int, str, int]],
    present: Mapping[str, ObjectMeta] | None,
) -> Iterator[Problem]:
    """Yield a problem where an object is not, or not for every live state, the one that was brought in."""
    try:
        meta = repository.root.head(key) if present is None else present[key]
    except (LakeError, KeyError):
        return  # which is a problem of its own
    # A copy of a store keeps the times at most, not the etags. lakeFS has etags and times of its own.
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
        yield Problem("changed", key, detail)


def _check_external(repository: Repository, entry: Entry) -> Iterator[Problem]:
    """Yield a problem where an object outside of the lake is missing, has another size, or may not be read."""
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
