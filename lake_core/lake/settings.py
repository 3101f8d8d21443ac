"""The settings of a whole lake: retention of history, isolation of sessions, protected branches."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Literal

from lake_core.journal import Action, Add, State, Update
from lake_core.lake.gc.retention import HISTORY
from lake_core.lake.refs.branches import protect, unprotect
from lake_core.lake.state.addresses import EXTERNAL, external_location

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lake_core.lake.repository import Repository


@dataclass(frozen=True, slots=True)
class LakeSettings:
    """The settings of a lake. They hold for all processes that use it."""

    _repository: Repository

    @property
    def history(self) -> timedelta:
        """Return how long commits that no branch or tag reaches are kept."""
        days = self._repository.settings.state(refresh=False).get("history_days")
        return HISTORY if days is None else timedelta(days=float(days))

    @property
    def isolation(self) -> Literal["snapshot", "serializable"]:
        """Return the default isolation of sessions; see `Lake.session`."""
        isolation = self._repository.settings.state(refresh=False).get("isolation")
        return "serializable" if isolation == "serializable" else "snapshot"

    @property
    def external(self) -> Sequence[str]:
        """Return the locations outside of the lake from which entries may name objects by their full URLs."""
        return tuple(self._repository.settings.state(refresh=False).get(EXTERNAL) or ())

    def update(
        self,
        *,
        history: timedelta | None = None,
        isolation: Literal["snapshot", "serializable"] | None = None,
        external: Sequence[str] | None = None,
    ) -> None:
        """Set the retention of history, the default isolation, and the locations of external objects.

        Settings that are not passed do not change. `external` lists the URLs of buckets or folders.
        """
        values: dict[str, Any] = {}
        if history is not None:
            values["history_days"] = history / timedelta(days=1)
        if isolation is not None:
            values["isolation"] = isolation
        if external is not None:
            values[EXTERNAL] = [external_location(url) for url in external]

        def plan(state: State) -> Sequence[Action]:
            return [
                Update(key, value) if key in state else Add(key, value)
                for key, value in values.items()
                if state.get(key) != value
            ]

        self._repository.settings.append(plan)

    def protect(self, pattern: str) -> None:
        """Protect the branches whose names match a pattern such as `release-*`: they accept only merges."""
        protect(self._repository.journal, pattern)

    def unprotect(self, pattern: str) -> None:
        """Remove a protection. Raises RefNotFound."""
        unprotect(self._repository.journal, pattern)
