"""What the pages know of the maintenance of a lake: what was found when somebody looked last."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from lake_core.errors import LakeError, StoreUnavailable
from lake_core.inspection import NotShown
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.refs.history import History

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.state.state_store import StateStore

_MOST_COMMITS = 200
"""Commits since the last look that are asked for what they changed. After more, all datasets are looked at again."""


@dataclass(frozen=True, slots=True)
class Due:
    """A dataset that asks for maintenance, or that cannot be read."""

    path: str
    advice: Sequence[str]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Look:
    """What is known of the datasets of main."""

    commit: str
    """The head of main."""
    when: datetime
    looked_at: int
    total: int
    due: Sequence[Due]


@dataclass(frozen=True, slots=True)
class Found:
    """What a look for garbage or damage found."""

    when: datetime
    count: int
    """Objects that would be deleted, or problems."""
    bytes: int = 0
    commits: int = 0


class UpkeepMemory:
    """What was found last, while the server runs. Shared by threads."""

    def __init__(self) -> None:
        self.garbage: Found | None = None
        self.damage: Found | None = None
        self._lock = threading.Lock()
        self._commit = ""
        self._due: dict[str, Due | None] = {}
        """By the paths of datasets that were looked at as they are in the commit. None for those that need nothing."""

    def look(self, refs: RefsState, head: str, state: StateStore, when: datetime, seconds: float) -> Look:
        """Look at datasets of main that changed since the last look or were never looked at, for some seconds.

        Args:
            refs: The refs.
            head: The commit of main.
            state: Its state.
            when: The time.
            seconds: How long to look.
        """
        paths = sorted(state.datasets())
        end = time.monotonic() + seconds
        with self._lock:
            self._forget(refs, head, paths)
            known = dict(self._due)
        for path in paths:
            if path in known:
                continue
            if time.monotonic() > end:
                break
            known[path] = _due(state, path)
        with self._lock:
            if self._commit == head:
                self._due.update(known)
        due = [each for each in known.values() if each is not None]
        due.sort(key=lambda each: each.path)
        return Look(head, when, len(known), len(paths), due)

    def _forget(self, refs: RefsState, head: str, paths: Sequence[str]) -> None:
        """Forget what is known of datasets that have changed since, or are gone."""
        if head == self._commit:
            return
        changed: set[str] = set()
        present: set[str] = set()
        newer = islice(History(refs, [head], first_parent=True), _MOST_COMMITS) if self._due else ()
        for commit in newer:
            if commit.id == self._commit:
                present = set(paths) - changed
                break
            changed.update(changed_datasets(commit))
        self._due = {path: due for path, due in self._due.items() if path in present}
        self._commit = head


def _due(state: StateStore, path: str) -> Due | None:
    try:
        view = state.dataset(path)
        facts = view.format.inspect(view).summary().facts
    except StoreUnavailable:
        raise
    except NotShown:
        return None
    except LakeError as error:
        return Due(path, (), str(error))
    advice = [f"{fact.advice} ({fact.name}: {fact.value:,})" for fact in facts if fact.advice]
    return Due(path, advice) if advice else None
