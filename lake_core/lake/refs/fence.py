"""Fences in the refs journal: owners whose private sessions publish nothing any longer.

A private session is known to its own process alone. Where an orchestrator takes that process for dead, and lets another
one do its work, it may yet go on. So it names its owner, and whoever takes the work over fences the owner first. A
publish and a fence are entries of one journal: of the two, one is first.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lake_core.journal import Action, Delete, State
from lake_core.lake.errors import StaleEpoch
from lake_core.lake.refs.refs_state import RefsState, put
from lake_core.lake.refs.values import instant_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from lake_core.journal import Journal

FENCED_FOR = timedelta(days=30)
"""How long a fence stays."""

_FENCES = "fence/"


@dataclass(frozen=True, slots=True)
class NotFenced:
    """The owner of a private session is not fenced."""

    owner: str

    def check(self, refs: RefsState) -> None:
        """Raise StaleEpoch if the owner is fenced."""
        if f"{_FENCES}{self.owner}" in refs.state:
            raise StaleEpoch(
                f"{self.owner!r} is fenced: it counts as failed, and others may have taken its work over. So nothing "
                "of it is published any longer. If nobody has, begin its work again under another owner, as a "
                "re-execution of a run does"
            )


def fence_owners(journal: Journal, owners: Collection[str], now: datetime) -> None:
    """Refuse all later publishes of private sessions of these owners."""

    def plan(state: State) -> Sequence[Action]:
        fence = {"until": (now + FENCED_FOR).isoformat()}
        return [put(RefsState(state), f"{_FENCES}{owner}", fence) for owner in sorted(set(owners))]

    if owners:
        journal.append(plan)


def outdated_fences(refs: RefsState, now: datetime) -> Iterable[Action]:
    """Yield the actions that delete the fences whose time is up. Raises DamagedLake."""
    for owner, value in refs.under(_FENCES).items():
        key = f"{_FENCES}{owner}"
        if now >= instant_of(key, value, "until"):
            yield Delete(key)
