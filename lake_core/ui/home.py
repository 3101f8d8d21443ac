"""The first page: branches, the last publishes, sessions, and what is wrong."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any

from lake_core.errors import LakeError, StoreUnavailable
from lake_core.lake.publish.difference import Difference
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.refs.history import History, ahead_and_behind
from lake_core.lake.refs.session_record import EXPIRED, FAILED, OPEN
from lake_core.readable import count_of
from lake_core.report.commits import run_of
from lake_core.report.status import status_report
from lake_core.ui.changes import dataset_change
from lake_core.ui.history import entry
from lake_core.ui.page import Page
from lake_core.ui.upkeep import upkeep_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.lake.refs.session_record import SessionRecord
    from lake_core.ui.visit import Visit

_PUBLISHES = 8
_MOST_BRANCHES = 30
_MOST_TAGS = 12
_MOST_PROBLEMS = 5
_MOST_COUNTED = 999
_COUNT_SECONDS = 0.25
"""How long the first page counts rows of publishes. The others are counted on their own pages."""


def home_page(visit: Visit) -> Page:
    """Show a lake at a glance."""
    main = visit.lake.repository.format.branch
    head = visit.refs.branch(main)
    report = status_report(visit.lake)
    branches = visit.refs.branches()
    others = sorted(
        (name for name in branches if name != main), key=lambda name: _date(visit, branches[name]), reverse=True
    )
    tags = visit.refs.tags()
    newest_tags = sorted(tags, key=lambda name: _date(visit, tags[name]), reverse=True)
    sessions = visit.lake.list_sessions()
    publishes = list(_publishes(visit, head))
    formats: dict[str, int] = {}
    for record in report["datasets"]:
        formats[record.format] = formats.get(record.format, 0) + 1
    upkeep = upkeep_of(visit, report["status"].pending_checkout)
    failed = [record for record in sessions if state_of(visit, record) == FAILED]
    return Page(
        "home.html",
        {
            "report": report,
            "formats": formats,
            "branches": [_branch(visit, name, branches[name], head) for name in [main, *others[:_MOST_BRANCHES]]],
            "more_branches": max(0, len(others) - _MOST_BRANCHES),
            "tags": [(name, tags[name]) for name in newest_tags[:_MOST_TAGS]],
            "more_tags": max(0, len(tags) - _MOST_TAGS),
            "publishes": publishes,
            "upkeep": upkeep,
            "sessions": [session_entry(visit, record) for record in sessions[-_MOST_BRANCHES:]],
            "problems": list(_problems(upkeep, failed, publishes)),
        },
        report,
    )


def _problems(
    upkeep: Mapping[str, Any], failed: Sequence[SessionRecord], publishes: Sequence[Mapping[str, Any]]
) -> Any:
    unreadable = {each.path: each.problem for each in upkeep["look"].due if each.problem}
    unreadable |= {path: problem for row in publishes for path, _, problem in row["rows"] if problem}
    for path, problem in list(unreadable.items())[:_MOST_PROBLEMS]:
        yield {"kind": "bad", "text": f"{path} cannot be read: {problem}", "commits": (), "sessions": ()}
    if len(unreadable) > _MOST_PROBLEMS:
        more = count_of(len(unreadable) - _MOST_PROBLEMS, "other dataset")
        yield {"kind": "bad", "text": f"{more} cannot be read: see Upkeep", "commits": (), "sessions": ()}
    damage, pending = upkeep["damage"], upkeep["pending"]
    if damage is not None and damage.count:
        text = f"{count_of(damage.count, 'problem')} of stored objects found at the last look: see Upkeep"
        yield {"kind": "bad", "text": text, "commits": (), "sessions": ()}
    if pending:
        yield {
            "kind": "warning",
            "text": f"{count_of(len(pending), 'commit')} published, not yet checked out: readers of plain files see an "
            "older state. "
            "The next publish completes the checkout, or `lake checkout` does.",
            "commits": pending[:5],
            "sessions": (),
        }
    if failed:
        yield {
            "kind": "warning",
            "text": f"{count_of(len(failed), 'session')} failed, and what was written there is kept, not published:",
            "sessions": [record.id for record in failed[:5]],
            "commits": (),
        }


def _date(visit: Visit, id: str) -> str:
    link = visit.refs.link(id)
    return "" if link is None else link.date.isoformat()


def _branch(visit: Visit, name: str, id: str, main: str) -> dict[str, Any]:
    commit = visit.refs.commit(id) if visit.refs.has_commit(id) else None
    counts = visit.site.counts.get((id, main), lambda: ahead_and_behind(visit.refs, id, main, _MOST_COUNTED))
    return {
        "name": name,
        "id": id,
        "commit": commit,
        "is_main": name == visit.lake.repository.format.branch,
        "ahead": counts[0],
        "behind": counts[1],
        "is_whole": counts[2],
        "protected": visit.refs.protected(name),
    }


def _publishes(visit: Visit, head: str) -> Any:
    end = time.monotonic() + _COUNT_SECONDS
    for commit in islice(History(visit.refs, [head], first_parent=True), _PUBLISHES):
        rows = []
        for path in list(changed_datasets(commit))[:3]:
            change, problem = None, ""
            if time.monotonic() < end and commit.parents:
                try:
                    change = dataset_change(visit, commit.parents[0], commit.id, path, most_rows=0)
                except StoreUnavailable:
                    raise
                except LakeError as error:
                    problem = str(error)
            rows.append((path, change, problem))
        yield entry(visit, commit) | {"rows": rows}


def state_of(visit: Visit, record: SessionRecord) -> str:
    """Return the state of a session: one whose time is over has expired, though no entry of the journal says so yet."""
    is_over = record.state in (OPEN, FAILED) and record.expires <= visit.lake.repository.clock()
    return EXPIRED if is_over else record.state


def session_entry(visit: Visit, record: SessionRecord) -> dict[str, Any]:
    """Return what a list shows of a session: what it holds, and until when."""
    holds: dict[str, Any] = {"datasets": [], "files": [], "problem": ""}
    try:
        revision = visit.revision(record.id)
        base = visit.lake.repository.commit_state(revision.commit)
        difference = visit.site.changes.get(
            ("holds", revision.commit.metarange_id, record.tree), lambda: Difference.between(base, revision.state)
        )
        holds["datasets"] = sorted(difference.formats)
        holds["files"] = sorted(difference.plain)
    except LakeError as error:
        holds["problem"] = str(error)
    return {
        "record": record,
        "state": state_of(visit, record),
        "run": run_of(record.metadata),
        "run_url": visit.settings.run_url(record.metadata),
        **holds,
    }
