"""Plans that many tests use."""

from __future__ import annotations

from collections.abc import Sequence

from lake_core.journal import Action, Add, State, Update


def count(state: State) -> Sequence[Action]:
    """Count appends."""
    return [Update("n", state["n"] + 1) if "n" in state else Add("n", 1)]
