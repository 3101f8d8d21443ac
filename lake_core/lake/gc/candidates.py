"""What a collection may delete: the objects that are the lake's own, and old enough that no session needs them."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from lake_core import runtime
from lake_core.dataset import KeyClass, dataset_format
from lake_core.errors import AccessDenied, NotFound
from lake_core.graveler import CorruptTable, read_properties
from lake_core.lake.gc.derived import needed_derived
from lake_core.lake.lake_format import ORIGIN_KEY
from lake_core.lake.refs.pending_deletions import collections
from lake_core.lake.repository import TREES, Repository
from lake_core.lake.state.claims import claimed
from lake_core.lake.state.content import OBJECTS, digest_of
from lake_core.lake.state.derived import DERIVED

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.store import ObjectMeta, ObjectStore

LISTS = "_lake/gc"
_LIST = re.compile(rf"{LISTS}/(clock-)?[0-9a-f]{{32}}(-[0-9a-z]+)?")
_RANGE = re.compile(rf"{TREES}/[0-9a-f]{{64}}")

MIN_AGE = timedelta(days=8)
"""How long unpublished objects are kept at least. This is longer than the life of any session."""
_UNDER_WAY = timedelta(seconds=10)


def age_limit(repository: Repository, *, dry_run: bool = False) -> datetime:
    """Return the time since which written objects may still be published.

    It is by the store's clock, or by the lake's if the caller passed one; then recent objects are spared as well. A
    `dry_run` without write access takes the lake's.
    """
    key = f"{LISTS}/clock-{runtime.uuid4().hex}"
    limit = repository.clock() - MIN_AGE
    try:
        repository.root.put(key, b"", unique=True)
    except AccessDenied:
        if not dry_run:
            raise
        return limit
    now = repository.root.head(key).last_modified
    repository.root.delete([key])
    return min(limit, now - _UNDER_WAY if repository.given_clock else now - MIN_AGE)


def has_old_objects(repository: Repository, limit: datetime) -> bool:
    """Return whether an object is old enough that a collection could list it."""
    return any(meta.last_modified < limit for meta in _collectable(repository.root))


def unreached(repository: Repository, refs: RefsState, reached: Set[str], limit: datetime) -> list[ObjectMeta]:
    """List the lake's own objects that are older than a limit, not reached, and of no other use as of these refs."""
    root = repository.root
    # Not in one set with the reached keys, which may be millions.
    needed = {*collections(refs).lists.values()} | needed_derived(repository, refs)
    # In the storage namespace of a lakeFS repository, objects older than the lake belong to the repository.
    since = root.head(ORIGIN_KEY).last_modified if repository.format.origin else None
    return [
        meta
        for meta in _collectable(root)
        if meta.last_modified < limit
        and (since is None or meta.last_modified > since)
        and meta.key not in reached
        and meta.key not in needed
        and _is_own(root, meta)
    ]


def _collectable(root: ObjectStore) -> Iterator[ObjectMeta]:
    """Yield content, ranges, derived objects, old lists, and unique objects of datasets."""
    yield from root.list(f"{OBJECTS}/")
    yield from root.list(f"{TREES}/")
    yield from root.list(f"{DERIVED}/")
    yield from (meta for meta in root.list(f"{LISTS}/") if _LIST.fullmatch(meta.key))
    for path, format in claimed(root):
        rules = dataset_format(format)
        for meta in root.list(f"{path}/"):
            key = meta.key[len(path) + 1 :]
            if rules.key_class(key) is KeyClass.UNIQUE and rules.collectable(key):
                yield meta


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
