"""`lake_watcher`: commits that others publish, as events of Airflow's assets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from airflow.sdk import AssetWatcher
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from lake_orch.airflow.hook import DEFAULT_BRANCH, LakeHook

_log = logging.getLogger(__name__)
_CURSOR = "lake_head"
"""The key of the last commit that was seen, in the state store of the asset."""


@dataclass(frozen=True, slots=True)
class LakeWatcher:
    """Watches the branch of a dataset for commits that no run of this Airflow has published."""

    poll_seconds: float = 30.0

    def of(self, connection: str, branch: str | None, path: str) -> AssetWatcher:
        """Return the watcher of a dataset."""
        trigger = LakeCommitTrigger(connection=connection, branch=branch, path=path, poll_seconds=self.poll_seconds)
        return AssetWatcher(name=f"commits of {connection}/{branch or ''}/{path}", trigger=trigger)


def lake_watcher(poll_seconds: float = 30.0) -> LakeWatcher:
    """Return a watcher for `LakeTable(…).asset_with(lake_watcher())`.

    Args:
        poll_seconds: The time between two looks at the branch.
    """
    return LakeWatcher(poll_seconds)


class LakeCommitTrigger(BaseEventTrigger):
    """Has an event for each commit that changes a dataset, but for those of runs of this Airflow.

    It begins at the head that the branch has. Where Airflow keeps the state of assets, from 3.3 on, it goes on after a
    restart where it was; before, commits that are published while no triggerer runs have no event.
    """

    def __init__(self, *, connection: str, path: str, branch: str | None = None, poll_seconds: float = 30.0) -> None:
        super().__init__()
        self.connection, self.branch, self.path, self.poll_seconds = connection, branch, path, poll_seconds

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class and the arguments from which the triggerer makes it again."""
        arguments = {
            "connection": self.connection,
            "branch": self.branch,
            "path": self.path,
            "poll_seconds": self.poll_seconds,
        }
        return "lake_orch.airflow.watcher.LakeCommitTrigger", arguments

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each commit, as long as the triggerer runs."""
        seen = await self._cursor()
        while True:
            # Airflow answers a trigger's questions in other threads than that of its events.
            head, found = await asyncio.to_thread(self._look, seen)
            for extra in found:
                yield TriggerEvent(extra)
            await self._keep(head)
            seen = head
            await asyncio.sleep(self.poll_seconds)

    def _look(self, since: str | None) -> tuple[str | None, Sequence[dict[str, Any]]]:
        """Look at the branch.

        Returns:
            Its head, or None if there is no such branch, and what the commits after another one did to the dataset,
            oldest first.
        """
        from itertools import takewhile

        from lake_orch.airflow.events import changes_of_commit

        hook = LakeHook(self.connection)
        place = hook.place()
        lake, branch = place.open(), self.branch or DEFAULT_BRANCH
        head = lake.list_branches().get(branch)
        if since is None or head is None or since == head:
            return head, []
        commits = list(takewhile(lambda commit: commit.id != since, lake.log(branch, first_parent=True)))
        if since not in commits[-1].parents:
            _log.warning("commit %s is no longer on the branch %s: what came after it has no events", since, branch)
            return head, []
        found = []
        for commit in reversed(commits):
            if commit.metadata.get("airflow/instance") == hook.instance():
                continue
            for change in changes_of_commit(lake, commit, branch, [self.path], ui_url=place.ui_url):
                if change.path == self.path:
                    found.append({**change.extra, "committer": commit.committer, "message": commit.message})
        return head, found

    async def _cursor(self) -> str | None:
        """Return the last commit that was seen, or None."""
        return None if self._states is None else await self._states.aget(_CURSOR)

    async def _keep(self, head: str | None) -> None:
        if self._states is not None and head is not None:
            await self._states.aset(_CURSOR, head)

    @property
    def _states(self) -> Any:
        """Return the state store of the asset, or None before Airflow 3.3."""
        return getattr(self, "asset_state_store", None)
