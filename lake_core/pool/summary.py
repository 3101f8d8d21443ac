"""Messages of commits whose authors give none, as `zed` words them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.pool.action import Action, AddObject, DeleteObject

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_summary(actions: Sequence[Action]) -> str:
    """Return the message of a load."""
    objects = [action.object for action in actions if isinstance(action, AddObject)]
    lines = [
        f"  {each.id} {each.count} record{'s' * (each.count != 1)} in {each.size} data bytes\n" for each in objects
    ]
    return f"loaded {_counted(len(objects))}\n\n{''.join(lines)}"


def delete_summary(actions: Sequence[Action]) -> str:
    """Return the message of a deletion."""
    return f"deleted {_deleted(actions)}"


def compact_summary(actions: Sequence[Action]) -> str:
    """Return the message of a compaction."""
    return f"compacted {_deleted(actions)}"


def _deleted(actions: Sequence[Action]) -> str:
    ids = [action.id for action in actions if isinstance(action, DeleteObject)]
    lines = [f"  {id}\n" for id in ids]
    return f"{_counted(len(ids))}\n\n{''.join(lines)}"


def _counted(number: int) -> str:
    return f"{number} data object{'s' * (number != 1)}"
