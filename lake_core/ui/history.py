"""The page of commits, as a graph of lanes or as a filtered list."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake_core.lake.refs.commit_record import MERGE_FIELD, SESSION_FIELD, changed_datasets
from lake_core.lake.refs.history import History
from lake_core.report.commits import commit_row, is_run, run_of
from lake_core.ui.errors import InvalidRequest
from lake_core.ui.lanes import Lanes
from lake_core.ui.page import Page

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.graveler import Commit
    from lake_core.ui.visit import Visit

ALL = "*"
"""What stands for all branches and tags in the place of a ref."""
_PAGE = 40
_MOST_SEARCHED = 20_000
_SEARCH_SECONDS = 1.5
_MOST_LABELED = 12
_MOST_OLDER = 500
"""Commits in a row before the wanted time after which a search stops: clocks of writers differ."""


@dataclass(frozen=True, slots=True)
class Filters:
    """Which commits to list."""

    dataset: str
    author: str
    run: str
    text: str
    since: dt.datetime | None
    until: dt.datetime | None

    @property
    def are_set(self) -> bool:
        """Return whether some commits may be left out."""
        return any((self.dataset, self.author, self.run, self.text, self.since, self.until))

    def accept(self, commit: Commit) -> bool:
        """Return whether a commit is listed."""
        if self.since is not None and commit.creation_date < self.since:
            return False
        if self.until is not None and commit.creation_date > self.until:
            return False
        if self.dataset and self.dataset not in changed_datasets(commit):
            return False
        if self.author and self.author.casefold() not in commit.committer.casefold():
            return False
        if self.run and not any(self.run in text for name, text in commit.metadata.items() if is_run(name)):
            return False
        return not self.text or self.text.casefold() in commit.message.casefold()


def history_page(visit: Visit) -> Page:
    """List commits newest first."""
    ref = visit.get("ref") or "main"
    filters = Filters(
        visit.get("dataset").strip("/"),
        visit.get("author"),
        visit.get("run"),
        visit.get("text"),
        _moment(visit, "since", end=False),
        _moment(visit, "until", end=True),
    )
    first_parent = visit.flag("first_parent")
    count = visit.number("n", _PAGE, 1, 500)
    cursor = visit.get("after")
    slots, heads = _start(visit, ref, cursor)
    starts = dict.fromkeys([*(id for id in slots if id is not None), *heads])
    walk = History(visit.refs, starts, first_parent=first_parent)
    rows, searched, is_stopped = _search(walk, filters, count)
    lanes = Lanes(slots)
    drawn = [entry(visit, commit) for commit in rows]
    if not filters.are_set:
        placed = []
        for commit in rows:
            parents = commit.parents[:1] if first_parent else commit.parents
            placed.append(lanes.add(commit, [id for id in parents if visit.refs.has_commit(id)]))
        widest = max((each.width for each in placed), default=0)
        drawn = [row | {"graph": each.svg(widest)} for row, each in zip(drawn, placed, strict=True)]
    following = "" if is_stopped else _cursor([] if filters.are_set else lanes.slots, walk.rest)
    return Page(
        "history.html",
        {
            "rows": drawn,
            "labels": labels(visit),
            "ref": ref,
            "filters": filters,
            "first_parent": first_parent,
            "searched": searched,
            "most_older": _MOST_OLDER if is_stopped else None,
            "oldest": rows[-1].creation_date if rows else None,
            "following": following,
            "cursor": cursor,
            "names": {name: visit.get(name) for name in ("dataset", "author", "run", "text", "since", "until")},
        },
        [commit_row(commit) for commit in rows],
    )


def entry(visit: Visit, commit: Commit) -> dict[str, Any]:
    """Return what a list shows of a commit."""
    datasets = list(changed_datasets(commit))
    return {
        "commit": commit,
        "run": run_of(commit.metadata),
        "run_url": visit.settings.run_url(commit.metadata),
        "step": commit.metadata.get("dagster/step", ""),
        "session": session_of(visit, commit),
        "datasets": datasets[:3],
        "more": len(datasets) - 3,
        "is_merge": MERGE_FIELD in commit.metadata or len(commit.parents) > 1,
        "graph": None,
    }


def session_of(visit: Visit, commit: Commit) -> str:
    """Return the shared session that a commit published, empty if the lake has no record of one any more."""
    session = commit.metadata.get(SESSION_FIELD, "")
    return session if session and f"session/{session}" in visit.refs.state else ""


def labels(visit: Visit) -> Mapping[str, Sequence[tuple[str, str]]]:
    """Return the branches and tags of commits, each with its kind."""
    named: dict[str, list[tuple[str, str]]] = {}
    for kind, names in (("branch", visit.refs.branches()), ("tag", visit.refs.tags())):
        for name, id in names.items():
            if len(named.setdefault(id, [])) < _MOST_LABELED:
                named[id].append((kind, name))
    return named


def _cursor(slots: Sequence[str | None], rest: Sequence[str]) -> str:
    """Return what says where the next page begins: what the lanes wait for, and heads that no lane waits for yet."""
    heads = [id for id in rest if id not in slots]
    return ",".join(id or "-" for id in slots) + (f"~{','.join(heads)}" if heads else "") if rest else ""


def _start(visit: Visit, ref: str, cursor: str) -> tuple[Sequence[str | None], Sequence[str]]:
    """Return what the lanes wait for, and other commits to start from."""
    if cursor:
        waiting, _, heads = cursor.partition("~")
        slots = [None if id == "-" else visit.refs.commit(id).id for id in waiting.split(",") if id]
        return slots, [visit.refs.commit(id).id for id in heads.split(",") if id]
    if ref == ALL:
        names = [*visit.refs.branches().values(), *visit.refs.tags().values()]
        return (), [id for id in names if visit.refs.has_commit(id)]
    return (), [visit.revision(ref).commit.id]


def _search(walk: History, filters: Filters, count: int) -> tuple[list[Commit], int, bool]:
    """Return the next commits, how many were looked at, and whether the search stopped at older ones."""
    rows: list[Commit] = []
    end = time.monotonic() + _SEARCH_SECONDS
    searched = older = 0
    for commit in walk:
        searched += 1
        if filters.since is not None and commit.creation_date < filters.since:
            older += 1
            if older >= _MOST_OLDER:
                return rows, searched, True
        else:
            older = 0
        if filters.accept(commit):
            rows.append(commit)
        if len(rows) >= count or searched >= _MOST_SEARCHED or (not searched % 256 and time.monotonic() > end):
            break
    return rows, searched, False


def _moment(visit: Visit, name: str, *, end: bool) -> dt.datetime | None:
    """Return a time of the address: ISO 8601, or a day, which is taken from its beginning to its end in UTC."""
    text = visit.get(name)
    if not text:
        return None
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(f"{name}: {text!r} is no date: write it as 2026-01-31 or 2026-01-31T12:00") from None
    if len(text) <= 10 and end:
        moment += dt.timedelta(days=1) - dt.timedelta(microseconds=1)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
