"""The page of a merge before anybody runs it: what it would change, and what conflicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.ui.changes import changed_between
from lake_core.ui.commit import PAGE, dataset_rows
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.page import Page

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.lake.publish.preview import ChangePreview
    from lake_core.lake.publish.tree_update import MergeStrategy
    from lake_core.ui.visit import Visit

STRATEGIES: Mapping[str, str] = {
    "": "stop at conflicts",
    "theirs": "take what the merged ref has",
    "ours": "keep what the branch has",
}


_MERGES: Mapping[str, MergeStrategy | None] = {"": None, "theirs": "theirs", "ours": "ours"}


def what_a_strategy_loses(ref: str, into: str, strategy: str) -> str:
    """Say whose changes of a table that conflicts are gone after the merge."""
    loser, taken = (into, ref) if strategy == "theirs" else (ref, into)
    return (
        f"Tables and files that conflict become those of {taken} as a whole: what {loser} changed in them is not in "
        f"{into} afterwards. The comparison of the two sides shows it."
    )


def strategy_of(text: str) -> MergeStrategy | None:
    """Return the strategy that a page names; None for none. Raises InvalidRequest."""
    if text not in _MERGES:
        raise InvalidRequest("strategy must be theirs or ours")
    return _MERGES[text]


def merge_page(visit: Visit) -> Page:
    """Show what the merge of a ref into a branch would do now. Nothing is written."""
    ref, into = visit.get("ref"), visit.get("into") or "main"
    strategy = visit.get("strategy")
    strategy_of(strategy)
    if not ref:
        raise InvalidRequest("name the branch to merge by ref=")
    preview, conflict, nothing = None, None, ""
    try:
        preview = preview_of(visit, ref, into, strategy)
    except Conflict as error:
        if visit.get("format") == "json":
            raise
        conflict = error
    except NothingToApply as error:
        if visit.get("format") == "json":
            raise
        nothing = str(error)
    values: dict[str, Any] = {"rows": [], "paths": [], "files": [], "base": None}
    target, incoming = visit.revision(into), visit.revision(ref)
    if preview is not None:
        base = visit.revision(preview.base)
        paths, files = changed_between(visit, base, incoming)
        values = {
            "base": base,
            "paths": paths,
            "files": files,
            "rows": list(dataset_rows(visit, base, incoming, paths[:PAGE])),
        }
    return Page(
        "merge.html",
        {
            **values,
            "ref": ref,
            "into": into,
            "strategy": strategy,
            "strategies": STRATEGIES,
            "preview": preview,
            "loses": what_a_strategy_loses(ref, into, strategy) if preview is not None and preview.resolved else "",
            "conflict": conflict,
            "nothing": nothing,
            "target": target,
            "incoming": incoming,
        },
        preview,
    )


def preview_of(visit: Visit, ref: str, into: str, strategy: str) -> ChangePreview:
    """Return what the merge would do. Raises Conflict, NothingToApply."""
    return visit.lake.preview_merge(ref, into=into, strategy=strategy_of(strategy))
