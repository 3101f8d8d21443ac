"""The values of plain files by the writes of their branch.

A plain file has the value of the newest write in force that changed it, newest by what each write was made on. It
conflicts if there are two with other values, or if a write in force replaced the value of one that is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.publish.conflict_report import ConflictReport
from lake_core.lake.publish.replay import change_of
from lake_core.lake.publish.write_changes import WriteChanges
from lake_core.lake.state.content import is_same

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from lake_core.graveler import Commit
    from lake_core.lake.refs.reached import WriteSets
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository
    from lake_core.lake.state.content import Item
    from lake_core.lake.state.state_store import StateStore


def file_values(
    repository: Repository,
    refs: RefsState,
    sets: WriteSets,
    head: Commit,
    onto: str,
    without: Collection[str] = (),
) -> Mapping[str, Item | None]:
    """Return the values of the plain files that are changed by writes which come into force or go out of it.

    Those in `without` are left out.

    Raises Conflict, ContentGone.
    """
    changes = WriteChanges(repository, refs, sets, without)
    keys = {key for flip in sets.flips() for key in changes.files(flip.id)}.difference(without)
    is_known = all(sets.links[write].has_content for write in sets.known) and all(
        link.resolved is not None for link in sets.merges
    )
    # Where it is not known what else changed files, or where a merge chose, their values are compared.
    keys = keys.difference(*(link.resolved or () for link in sets.merges)) if is_known else set()
    if not keys:
        return {}
    report = ConflictReport(head.id, onto)
    values: dict[str, Item | None] = {}
    touched = _FileWrites(repository, refs, sets).writes_of(sorted(keys))
    for key in sorted(keys):
        writes = touched[key]
        try:
            values[key] = _value(sets, writes)
        except _TwoValues as error:
            report.add_key(key, "BothChanged", str(error))
    report.check()
    return values


class _TwoValues(Exception):
    """A plain file would have two values, or the value of a write that replaced one which is not in force."""


_Pair = tuple["Item | None", "Item | None"]


def _value(sets: WriteSets, writes: Mapping[str, _Pair]) -> Item | None:
    """Return the value of a file, given the items before and after each write that changed it, oldest first."""
    replaced = {write: sets.in_force(sets.past(write)) & writes.keys() for write in writes}
    in_force = [write for write in writes if write in sets.in_force_after]
    for write in in_force:
        for other in _newest(replaced, replaced[write]):
            if other not in sets.in_force_after:
                raise _TwoValues(f"commit {write[:12]} replaced what commit {other[:12]} wrote, which is not there")
    newest = _newest(replaced, in_force)
    if not newest:
        return next(iter(writes.values()))[0]
    value = writes[newest[0]][1]
    for other in newest:
        if is_same(writes[other][1], value):
            continue
        raise _TwoValues(f"commits {newest[0][:12]} and {other[:12]} changed it on both sides")
    return value


def _newest(replaced: Mapping[str, AbstractSet[str]], writes: Iterable[str]) -> list[str]:
    """Return the writes that no other one of them replaced."""
    chosen = sorted(writes)
    return [write for write in chosen if not any(write in replaced[other] for other in chosen)]


class _FileWrites:
    """Looks up which plain files writes changed."""

    def __init__(self, repository: Repository, refs: RefsState, sets: WriteSets) -> None:
        self._repository, self._refs, self._sets = repository, refs, sets

    def writes_of(self, keys: list[str]) -> dict[str, dict[str, _Pair]]:
        """Return the writes that changed each of some files, oldest first, with its items before and after."""
        touched: dict[str, dict[str, _Pair]] = {key: {} for key in keys}
        for write in self._sets.ordered(self._sets.known - self._sets.undone.keys()):
            items = (state.view.get_many(keys) for state in self._states(write))
            for key, before, after in zip(keys, *items, strict=True):
                if not is_same(before, after):
                    touched[key][write] = before, after
        return touched

    def _states(self, write: str) -> tuple[StateStore, StateStore]:
        before, after = change_of(self._refs, write)
        return self._repository.commit_state(before), self._repository.commit_state(after)
