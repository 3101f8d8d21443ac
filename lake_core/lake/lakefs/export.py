"""Export of a lake's commits as a lakeFS repository. Its trees list all files, including those of datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.graveler.export import Exported, export_commits
from lake_core.lake.lakefs.export_folder import ExportFolder
from lake_core.lake.lakefs.exported_trees import ExportedTrees
from lake_core.lake.lakefs.history import joined_commits
from lake_core.lake.lakefs.ref_names import exported_refs
from lake_core.lake.refs.history import log
from lake_core.runner import Runner, run_here

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from lake_core.lake.repository import Repository
    from lake_core.store import ObjectStore


def export(
    repository: Repository,
    target: ObjectStore,
    *,
    history: bool = True,
    rename: Mapping[str, str] | None = None,
    is_live: bool = False,
    progress: Callable[[str, int], None] | None = None,
    run: Runner = run_here,
) -> Exported:
    """Write branches and tags, with their commits and data files, into another store in the layout of lakeFS.

    Args:
        repository: The lake.
        target: An empty folder, or one with an earlier export of the lake.
        history: Whether to export all commits, or only those that a branch or tag names and their merge bases.
        rename: New names of branches and tags, by their names in the lake.
        is_live: Whether a lakeFS server works in the folder too.
        progress: Called with what was written ("object", "commit") and the number of these.
        run: Calls the tasks that copy data files.

    Raises InvalidRef for names that lakeFS does not accept, FolderInUse, and what reading the lake raises.
    """
    refs = repository.refs()
    branches, tags = exported_refs(refs.branches(), refs.tags(), rename or {})
    named = {*branches.values(), *tags.values()}
    if history:
        commits = list({commit.id: commit for id in named for commit in log(refs, refs.commit(id))}.values())
    else:
        commits = joined_commits(refs, named)
    folder = ExportFolder(target, repository.format.id, is_live=is_live)
    if history:
        folder.read_commits()
    trees = ExportedTrees(repository)
    exported = export_commits(
        commits,
        target,
        records=trees.records,
        differences=trees.differences,
        read=trees.read,
        branches=branches,
        tags=tags,
        earlier=folder,
        may_exist=not folder.is_new,
        progress=progress,
        run=run,
    )
    folder.finish(exported, history=history)
    return exported
