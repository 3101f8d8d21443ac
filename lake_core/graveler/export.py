"""Export of a whole lakeFS repository from commits.

`lakectl refs-restore` loads it into a bare repository over the same storage.

`_lakefs/<id>`: ranges and metaranges by lakeFS's own parameters, those of the trees and those that dump commits,
branches and tags · `_lakefs/refs_manifest.json`: the names of these three · `data/…`: the objects, each once.
"""

from __future__ import annotations

import json
from collections import ChainMap
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from lake_core.graveler.commit import Commit
from lake_core.graveler.dump import write_dumps
from lake_core.graveler.graveler import Graveler
from lake_core.graveler.object_copy import ObjectCopy, TreeChange
from lake_core.graveler.profile import LAKEFS
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from lake_core.graveler.entry import Entry
    from lake_core.graveler.record import Record
    from lake_core.store import ObjectStore

MANIFEST = "_lakefs/refs_manifest.json"
"""The key of the file that names the dumps."""


@dataclass(frozen=True, slots=True)
class Exported:
    """The result of an export."""

    commits: Mapping[str, str]
    """The id of each commit in the export, by its original id. It differs because the name of the tree does."""
    manifest: Mapping[str, str]
    """The content of `refs_manifest.json`."""
    copied: int
    """Objects that were copied. Those that an earlier export had copied are not counted.

    A lower bound where tasks run again: what the lost run of a task had copied counts as copied earlier.
    """
    copied_bytes: int


class EarlierExport:
    """The trees and commits that an earlier export wrote into the same target. They are not written again.

    `export_commits` adds to them, and calls `save` after each tree. Override `save` to store them: a later export can
    then continue one that was interrupted.
    """

    def __init__(self, trees: Mapping[str, str] | None = None, commits: Mapping[str, Commit] | None = None) -> None:
        self.trees = dict(trees or {})
        """The exported trees, by the names of the original ones."""
        self.commits = dict(commits or {})
        """The exported commits, by the ids of the original ones."""

    def __bool__(self) -> bool:
        return bool(self.trees)

    def save(self) -> None:
        """Store the trees and commits. This does nothing by default."""


def export_commits(
    commits: Iterable[Commit],
    target: ObjectStore,
    *,
    records: Callable[[Commit], Iterable[Record]],
    read: Callable[[Entry, int, int], bytes],
    branches: Mapping[str, str],
    tags: Mapping[str, str] | None = None,
    differences: Callable[[Commit, Commit], Iterable[tuple[bytes, Record | None]]] | None = None,
    earlier: EarlierExport | None = None,
    may_exist: bool = True,
    progress: Callable[[str, int], None] | None = None,
    workers: int = 4,
    run: Runner = run_here,
) -> Exported:
    """Write commits with their trees and objects as a lakeFS repository's storage namespace into `target`.

    The manifest is written last, so an interrupted export is not valid. A repeated export copies only what is missing.

    Args:
        commits: The commits, in any order. A parent that is neither among them nor in `earlier` is left out: history
            begins after it.
        target: The namespace.
        records: Returns a commit's whole tree, sorted by key, with entries as values. For a `Graveler`, pass `lambda
            commit: graveler.scan(commit.metarange_id)`.
        read: Returns the bytes [start, end) of an entry's object. It is called from several threads, and is picklable
            if `run` calls tasks in other processes.
        branches: The commit id of each branch, by its name.
        tags: The commit id of each tag, by its name.
        differences: Returns the changes between the trees of two commits, sorted by key: (key, the record in the second
            tree, or None if it was removed). Records that differ only in their values are included. With this
            function, the tree of a commit is built on that of a parent.
        earlier: The trees and commits that an earlier export into `target` wrote.
        may_exist: Whether `target` may have some of the objects. If False, no request asks for them.
        progress: Called with the kind of thing that was written ("object" or "commit") and how many there are by now.
        workers: The number of objects that one task copies at the same time.
        run: Calls the tasks that copy objects.

    Raises:
        ValueError: A branch or tag names a commit that is not among `commits`, the commits form a cycle, or a tree is
            not sorted.
    """
    ordered = _ancestors_first(commits)
    earlier = EarlierExport() if earlier is None else earlier
    for kind, refs in (("branch", branches), ("tag", tags or {})):
        for name, commit_id in refs.items():
            if commit_id not in ordered:
                raise ValueError(
                    f"the {kind} {name!r} names the commit {commit_id!r}, which is not exported; export it, too"
                )
    trees = Graveler(target, profile=LAKEFS)
    written: dict[str, Commit] = {}
    exported = ChainMap(written, earlier.commits)
    # The first commit of each tree that is not exported yet.
    building: dict[str, Commit] = {}
    for commit in ordered.values():
        if commit.metarange_id not in earlier.trees:
            building.setdefault(commit.metarange_id, commit)

    def base_of(commit: Commit) -> Commit | None:
        """Return the parent on whose tree that of a commit is built, or None."""
        return None if differences is None else next((ordered[id] for id in commit.parents if id in ordered), None)

    def changes() -> Iterator[TreeChange]:
        for number, commit in enumerate(building.values()):
            yield number, None, None
            base = base_of(commit)
            if base is None or differences is None:
                yield from ((number, record.key, record) for record in records(commit))
            else:
                yield from ((number, key, record) for key, record in differences(base, commit))

    copy = ObjectCopy(target, read, run, workers=workers, may_exist=may_exist, progress=progress)
    by_tree = groupby(copy.moved(changes()), key=itemgetter(0))
    for number, commit in enumerate(ordered.values()):
        if commit.metarange_id not in earlier.trees:
            base = base_of(commit)
            _, moved = next(by_tree)
            earlier.trees[commit.metarange_id] = trees.build(
                "" if base is None else earlier.trees[base.metarange_id],
                ((key, record) for _, key, record in moved if key is not None),
                exact=True,
            ).tree
            earlier.save()
        written[commit.id] = _exported(commit, earlier.trees[commit.metarange_id], exported)
        if progress is not None:
            progress("commit", number + 1)
    new = {old: commit.id for old, commit in written.items()}
    manifest = write_dumps(
        trees,
        _with_ancestors(written.values(), earlier.commits.values()),
        {name: new[commit] for name, commit in branches.items()},
        {name: new[commit] for name, commit in (tags or {}).items()},
    )
    target.put(MANIFEST, json.dumps(manifest, indent=2).encode())
    earlier.commits |= written
    return Exported(new, manifest, copy.count, copy.bytes)


def _exported(commit: Commit, tree: str, exported: Mapping[str, Commit]) -> Commit:
    """Return a commit over the exported tree, with those parents that are exported too."""
    created = Commit.create(
        commit.committer,
        commit.message,
        commit.creation_date,
        tree,
        metadata=commit.metadata,
        parents=[exported[parent] for parent in commit.parents if parent in exported],
    )
    return replace(created, version=commit.version)


def _with_ancestors(commits: Iterable[Commit], earlier: Iterable[Commit]) -> list[Commit]:
    """Return the commits, and those of the earlier ones that are their ancestors."""
    by_id = {commit.id: commit for commit in earlier}
    reached = {commit.id: commit for commit in commits}
    queue = list(reached.values())
    while queue:
        for parent in queue.pop().parents:
            if parent not in reached:
                reached[parent] = by_id[parent]
                queue.append(by_id[parent])
    return list(reached.values())


def _ancestors_first(commits: Iterable[Commit]) -> dict[str, Commit]:
    """Return the commits by id, each after its parents. It does not recurse, because histories can be long."""
    by_id = {commit.id: commit for commit in commits}
    out: dict[str, Commit] = {}
    for start in by_id.values():
        path, on_path = [(start, iter(start.parents))], {start.id}
        while path:
            commit, parents = path[-1]
            parent = next((parent for parent in parents if parent in by_id and parent not in out), None)
            if parent is None:
                out[commit.id] = commit
                on_path.discard(commit.id)
                path.pop()
            elif parent in on_path:
                raise ValueError(f"the commit {parent!r} is its own ancestor")
            else:
                path.append((by_id[parent], iter(by_id[parent].parents)))
                on_path.add(parent)
    return out
