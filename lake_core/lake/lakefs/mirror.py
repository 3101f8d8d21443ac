"""A mirror of a lake on a lakeFS server: an export to the server's storage, and calls of its API for new commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.graveler import Commit, Exported, Graveler
from lake_core.lake.errors import ServerDiverged
from lake_core.lake.lakefs.export import export
from lake_core.lake.lakefs.ref_names import exported_refs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake_core.lake.lakefs.server import LakeFSRepository
    from lake_core.lake.repository import Repository
    from lake_core.store import ObjectStore


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The result of a mirror."""

    exported: Exported
    commits: int
    """The commits that the server did not have."""
    refs: tuple[str, ...]
    """The branches and tags that were created or moved, by their names on the server."""


def mirror(
    repository: Repository,
    target: ObjectStore,
    server: LakeFSRepository,
    *,
    rename: Mapping[str, str] | None = None,
    progress: Callable[[str, int], None] | None = None,
) -> Mirrored:
    """Copy new commits, branches and tags to a lakeFS repository that was restored from an export of the lake.

    Commits are copied first, from the oldest on, and branches last, so that an interrupted mirror can be repeated.
    Branches that the lake has deleted stay on the server.

    Args:
        repository: The lake.
        target: The storage namespace of the lakeFS repository, with the export.
        server: The lakeFS repository.
        rename: New names of branches and tags, by their names in the lake.
        progress: Called with what was written ("object", "commit", "record") and the number of these.

    Raises ServerDiverged for a branch that has commits which the lake does not have, before anything on the server
    changes; ServerRefused, ServerUnavailable, and what an export raises.
    """
    server.check_exists()
    exported = export(repository, target, rename=rename, is_live=True, progress=progress)
    dump = Graveler(target).scan(exported.manifest["commits_meta_range_id"])
    commits = {record.key.decode(): Commit.decode(record.value) for record in dump}
    refs = repository.refs()
    branches, tags = (
        {name: exported.commits[commit] for name, commit in named.items() if commit in exported.commits}
        for named in exported_refs(refs.branches(), refs.tags(), rename or {})
    )
    branches_there, tags_there = server.branches(branches), server.tags(tags)
    moved = [name for name, commit in branches_there.items() if commit not in commits]
    moved += [name for name, commit in tags_there.items() if commit != tags[name]]
    if moved:
        raise ServerDiverged(
            f"{', '.join(map(repr, sorted(moved)))} on {server.endpoint} was moved by somebody else: keep that work "
            "under another name there, delete the branch or tag, and mirror again; or rename the lake's by `rename`"
        )
    missing = _missing(server, commits, {*branches.values(), *tags.values()})
    for number, commit in enumerate(missing):
        server.create_commit_record(commit)
        if progress is not None:
            progress("record", number + 1)
    changed = {name: commit for name, commit in branches.items() if branches_there.get(name) != commit}
    for commit_id in set(changed.values()):
        server.check_readable(commit_id)
    for name, commit_id in changed.items():
        (server.hard_reset if name in branches_there else server.create_branch)(name, commit_id)
    new_tags = {name: commit for name, commit in tags.items() if name not in tags_there}
    for name, commit_id in new_tags.items():
        server.create_tag(name, commit_id)
    return Mirrored(exported, len(missing), (*sorted(changed), *sorted(new_tags)))


def _missing(server: LakeFSRepository, commits: Mapping[str, Commit], heads: set[str]) -> list[Commit]:
    """Return the commits that the server does not have, parents first. It has the parents of those that it has."""
    seen: set[str] = set()
    missing: list[Commit] = []
    queue = sorted(heads)
    while queue:
        id = queue.pop()
        if id not in seen:
            seen.add(id)
            if not server.has_commit(id):
                missing.append(commits[id])
                queue += commits[id].parents
    return sorted(missing, key=lambda commit: commit.generation)
