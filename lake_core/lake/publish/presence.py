"""The presence of objects that a publish brings back.

Retained commits keep their trees and plain files, but not always the objects of their datasets: a vacuum ends the
retention of a dataset, and garbage collection then deletes what only older commits reach. So a revert, a cherry-pick,
and a merge of an older commit look whether these objects exist. The objects that a session wrote are younger than any
that are collected, and a format that restores an earlier version looks itself. Objects that a collection is about to
delete are refused elsewhere, by its list.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lake_core.lake.errors import Collected
from lake_core.lake.refs.values import instant_of
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from datetime import datetime

    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.store import ObjectStore

_FEW = 1000
"""The most objects of a dataset that are asked for one by one. The folder is listed for more."""


def retention_ended(refs: RefsState, paths: Iterable[str], committed: datetime) -> Sequence[str]:
    """Return the datasets of which a commit of that time may lack objects, because their retention ended later."""
    ended = refs.under("retention/")
    return [
        path for path in paths if path in ended and committed < instant_of(f"retention/{path}", ended[path], "before")
    ]


def check_present(root: ObjectStore, references: Sequence[str], paths: Iterable[str], source: str) -> None:
    """Raise Collected if objects that datasets at `paths` would reach again are gone. `source` names their state."""
    for path in paths:
        keys = [key for key in references if key.startswith(f"{path}/")]
        missing = _missing(root, path, keys)
        if missing:
            raise collected(source, f"{count_of(len(missing), 'object')} of {path}, such as {missing[0]}")


def collected(source: str, missing: str) -> Collected:
    """Return the error for objects that are gone. `source` names the state that needs them."""
    return Collected(
        f"{source} would bring back objects that were garbage-collected after a vacuum: {missing}. Nothing was "
        "published: write the data again, restore the objects from a backup, or take a newer commit. The retention "
        "that is passed to a vacuum says how long objects are kept, and a tag keeps those of its commit"
    )


def _missing(root: ObjectStore, path: str, keys: Collection[str]) -> list[str]:
    if len(keys) > _FEW:
        present = {meta.key for meta in root.list(f"{path}/")}
        return [key for key in keys if key not in present]
    exist = root.gather(*(partial(root.exists, key) for key in keys))
    return [key for key, exists in zip(keys, exist, strict=True) if not exists]
