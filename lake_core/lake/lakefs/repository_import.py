"""Conversion of a lakeFS repository to a lake in its storage namespace, with its history, without copying data.

The root of the lake is the namespace, so the names of trees and the addresses of objects stay valid. Garbage collection
never deletes objects that are older than the lake.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.errors import NotFound
from lake_core.graveler import Commit, Graveler
from lake_core.graveler.export import MANIFEST
from lake_core.graveler.wire import read_message, text
from lake_core.journal import Action, Add, State
from lake_core.lake.errors import ForeignRepository, InvalidRef, LakeAlreadyExists
from lake_core.lake.lakefs.ref_names import rename_refs
from lake_core.lake.refs.commit_record import commit_value
from lake_core.lake.refs.refs_state import check_name
from lake_core.lake.state.view import RESERVED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from lake_core.lake.repository import Repository
    from lake_core.store import ObjectStore

_ENTRY_BYTES = 1 << 20
"""The size of the journal entries that take the commits, in bytes."""
_DUMPS = ("commits_meta_range_id", "branches_meta_range_id", "tags_meta_range_id")


@dataclass(frozen=True, slots=True)
class ImportedRepository:
    """The commits, branches and tags of a lakeFS repository."""

    commits: Mapping[str, Commit]
    """By id, each after its parents."""
    branches: Mapping[str, str]
    tags: Mapping[str, str]
    """The commits' ids, by name."""
    manifest: Mapping[str, str]
    """The names of the dumps."""


def read_repository(
    root: ObjectStore,
    branch: str,
    *,
    rename: Mapping[str, str],
    progress: Callable[[str, int], None] | None = None,
) -> ImportedRepository:
    """Read the dumps of a lakeFS repository, and check that a lake can go on with it.

    Args:
        root: The storage namespace.
        branch: The branch that the lake needs.
        rename: New names of branches and tags, by their names in the repository.
        progress: Called with "checked" and the number of commits.

    Raises ForeignRepository, CorruptTable, InvalidRef, RefNotFound.
    """
    manifest = _manifest(root)
    trees = Graveler(root)
    try:
        dumped = [Commit.decode(record.value) for record in trees.scan(manifest["commits_meta_range_id"])]
        branches, tags = (_refs(trees, manifest[f"{kind}_meta_range_id"]) for kind in ("branches", "tags"))
    except NotFound as error:
        raise ForeignRepository(
            f"{error.key}, which {MANIFEST} names, is missing: run `lakectl refs-dump` again"
        ) from None
    commits = {commit.id: commit for commit in sorted(dumped, key=lambda commit: commit.generation)}
    for kind, refs in (("branch", branches), ("tag", tags)):
        for name, commit in refs.items():
            if commit not in commits:
                raise ForeignRepository(
                    f"the {kind} {name!r} names the commit {commit!r}, which the dump does not have"
                )
    branches, tags = rename_refs(branches, tags, rename)
    _check_names("branch", branches)
    _check_names("tag", tags)
    if branch not in branches:
        raise ForeignRepository(
            f"the repository has no branch {branch!r}, which a lake needs: rename one, such as with "
            f"rename={{{min(branches, default='master')!r}: {branch!r}}}"
        )
    for number, checked in enumerate(commits.values()):
        _check_commit(trees, checked, commits)
        if progress is not None:
            progress("checked", number + 1)
    return ImportedRepository(commits, branches, tags, manifest)


def write_refs(repository: Repository, imported: ImportedRepository) -> None:
    """Write a repository's commits, branches and tags to a new lake. Branches come last and make it complete.

    Raises LakeAlreadyExists where it has branches.
    """
    branch = repository.format.branch

    def plan_for(actions: Sequence[Action]) -> Callable[[State], Sequence[Action]]:
        def plan(state: State) -> Sequence[Action]:
            if f"branch/{branch}" in state:
                raise LakeAlreadyExists(f"{repository.root.url()} is a lake already: open it with Lake.open")
            return [action for action in actions if action.key not in state]

        return plan

    for batch in _batches(imported.commits.values()):
        repository.journal.append(plan_for(batch))
    refs: list[Action] = [Add(f"branch/{name}", {"commit": commit}) for name, commit in imported.branches.items()]
    refs += [Add(f"tag/{name}", {"commit": commit}) for name, commit in imported.tags.items()]
    refs.append(Add(f"place/{branch}", {"commit": imported.branches[branch]}))
    repository.journal.append(plan_for(refs))


def _batches(commits: Iterable[Commit]) -> Iterator[list[Action]]:
    batch: list[Action] = []
    size = 0
    for commit in commits:
        value = commit_value(commit)
        batch.append(Add(f"commit/{commit.id}", value))
        size += len(json.dumps(value))
        if size > _ENTRY_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _manifest(root: ObjectStore) -> dict[str, str]:
    """Read the names of the dumps. Raises ForeignRepository."""
    try:
        manifest = json.loads(root.get(MANIFEST))
        return {name: str(manifest[name]) for name in _DUMPS}
    except NotFound:
        raise ForeignRepository(
            f"{root.url()} has no {MANIFEST}: commit what is uncommitted, and run `lakectl refs-dump lakefs://NAME`, "
            "which writes it there"
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ForeignRepository(f"{MANIFEST} of {root.url()} is damaged: run `lakectl refs-dump` again") from None


def _refs(trees: Graveler, dump: str) -> dict[str, str]:
    """Return the commits of branches or tags."""
    messages = (read_message(record.value) for record in trees.scan(dump))
    return {text(fields, 1): text(fields, 2) for fields in messages}


def _check_names(kind: str, names: Iterable[str]) -> None:
    for name in names:
        try:
            check_name(name, kind)
        except InvalidRef as error:
            raise InvalidRef(f"{error}; rename it, such as by rename={{{name!r}: '…'}}") from None


def _check_commit(trees: Graveler, commit: Commit, commits: Mapping[str, Commit]) -> None:
    """Check a commit's name, its parents, and that its tree is there and has no keys that are a lake's own."""
    if not commit.is_named_right:
        raise ForeignRepository(f"the commit {commit.id!r} has another content than its id says")
    missing = [parent for parent in commit.parents if parent not in commits]
    if missing:
        raise ForeignRepository(f"the dump does not have {missing[0]!r}, a parent of {commit.id[:12]}: dump it again")
    try:
        for prefix in RESERVED:
            record = next(trees.scan(commit.metarange_id, prefix.encode()), None)
            if record is not None:
                raise ForeignRepository(
                    f"commit {commit.id[:12]} has an object {record.key.decode(errors='replace')!r}, but keys that "
                    f"begin with {prefix!r} are a lake's own: the repository cannot become a lake"
                )
    except NotFound as error:
        raise ForeignRepository(f"the tree of commit {commit.id[:12]} is missing: {error.key}") from None
