"""The read set of a commit: the keys whose records it depended on, recorded with the commit.

A commit does not show, for example, that it replaced a range of keys which held no record. Whoever applies it to
another state of the pool needs to know.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from lake_core.errors import LakeError
from lake_core.pool.filter import implied_range
from lake_core.pool.key_range import KeyRange
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_value

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from lake_core.pool.config import PoolConfig
    from lake_core.pool.data_object import DataObject

EVERYTHING: Final = "{}"
"""The read of all records."""
_MOST: Final = 64
"""The most reads that a commit lists. More are recorded as all records."""


def range_read(keys: KeyRange) -> str:
    """Return the read of the records in a range of keys."""
    bounds = {"start": keys.start, "stop": keys.stop}
    return json.dumps({name: format_value(bound) for name, bound in bounds.items() if bound is not None})


def predicate_read(where: str) -> str:
    """Return the read of the records for which a predicate in Spark SQL is true."""
    return json.dumps({"where": where})


def read_set(reads: Iterable[str]) -> tuple[str, ...]:
    """Return each of some reads once, as they are recorded."""
    texts = tuple(dict.fromkeys(reads))
    return (EVERYTHING,) if EVERYTHING in texts or len(texts) > _MOST else texts


def has_read(reads: Iterable[str], objects: Collection[DataObject], config: PoolConfig) -> bool:
    """Return whether data objects may hold records that are among what was read."""
    if not objects:
        return False
    types = {key.type for each in objects for key in (each.min, each.max)}
    for text in reads:
        read = json.loads(text)
        keys = _keys(read, config, types)
        if any(keys.overlaps(each.min, each.max) for each in objects):
            return True
    return False


def _keys(read: dict[str, Any], config: PoolConfig, types: Collection[Any]) -> KeyRange:
    """Return a range with all keys that were read."""
    if "where" in read:
        try:
            return implied_range(read["where"], config.keys[0], types)
        except LakeError:
            return KeyRange()
    start, stop = (None if name not in read else parse_value(read[name]) for name in ("start", "stop"))
    return KeyRange(start, stop)
