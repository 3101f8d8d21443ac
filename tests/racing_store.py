"""A store in which something else happens at a chosen moment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lake_core.store import ObjectStore
from lake_core.testing import FaultStore


class RacingStore(FaultStore):
    """A store that lets something happen before one of its operations."""

    def __init__(self, inner: ObjectStore, at: int, event: Callable[[], object]) -> None:
        super().__init__(inner, 0)
        self._chosen, self._event = at, event

    def _run(self, what: str, operation: Callable[[], Any]) -> Any:
        if self.operations + 1 == self._chosen:
            self._event()
        return super()._run(what, operation)
