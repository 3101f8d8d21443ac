"""What was added to a pool between two commits."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake_core.pool.errors import NoSuchCommit
from lake_core.pool.key_range import KeyRange
from lake_core.pool.ksuid import NIL
from lake_core.pool.scan import Scan

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from lake_core.pool.data_object import DataObject
    from lake_core.pool.pool import Pool
    from lake_core.pool.value import Value


@dataclass(frozen=True, slots=True)
class AddedValues:
    """Values that a later commit of a pool has and an earlier one does not.

    Attributes:
        objects: Data objects all of whose values were added.
        values: Further values, of data objects that replaced others.
    """

    objects: tuple[DataObject, ...]
    values: tuple[Value, ...] = ()


def added_since(pool: Pool, commit: str | None, until: str) -> AddedValues:
    """Return the values that were added after a commit, up to another one.

    Where commits also deleted data objects, as compactions do, values are compared one by one.

    Args:
        pool: The pool.
        commit: The id of the earlier commit; None for a state before the first one.
        until: The id of the later one; `NIL` for a state before the first one.

    Raises:
        NoSuchCommit: The later commit does not follow the earlier one, or either is gone.
        DamagedLake: A commit or a data object cannot be read, such as one that was vacuumed.
    """
    after = {} if until == NIL else {each.id: each for each in pool.objects(commit=until)}
    if commit in (None, NIL):
        return AddedValues(tuple(after.values()))
    if until != commit and all(each.id != commit for each in pool.log(commit=until)):
        raise NoSuchCommit(
            f"the commit {until} of the pool {pool.config.name!r} does not follow the commit {commit}; "
            "read the whole pool instead"
        )
    before = {each.id: each for each in pool.objects(commit=commit)}
    added = [each for id, each in after.items() if id not in before]
    removed = [each for id, each in before.items() if id not in after]
    if not removed:
        return AddedValues(tuple(added))
    return AddedValues((), tuple(_difference(_values(pool, added), _values(pool, removed))))


def _values(pool: Pool, objects: Iterable[DataObject]) -> Iterator[Value]:
    return Scan(pool.store, pool.config, objects, KeyRange()).values()


def _difference(values: Iterable[Value], others: Iterable[Value]) -> Iterator[Value]:
    """Yield the values that occur more often here than among the others, each as many times as the difference."""
    known = Counter(map(_digest, others))
    for value in values:
        digest = _digest(value)
        if known[digest]:
            known[digest] -= 1
        else:
            yield value


def _digest(value: Value) -> bytes:
    digest = hashlib.blake2b(repr(value.type).encode(), digest_size=16)
    digest.update(b"\0" if value.body is None else b"\1" + value.body)
    return digest.digest()
