"""The values of plain files by the writes of their branch.

A plain file has the value of the newest write in force that changed it, newest by what each write was made on. It
conflicts if there are two with other values, or if a write in force replaced the value of one that is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lake.state.content import is_same

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from collections.abc import Set as AbstractSet

    from lake_core.lake.publish.conflict_report import ConflictReport
    from lake_core.lake.publish.write_changes import ItemChange, WriteChanges
    from lake_core.lake.refs.reached import WriteSets
    from lake_core.lake.state.content import Item


def file_values(changes: WriteChanges, sets: WriteSets, report: ConflictReport) -> Mapping[str, Item | None]:
    """Return the values of the plain files that are changed by writes which come into force or go out of it.

    Raises Conflict, by the report; ContentGone.
    """
    keys = {key for flip in sets.flips() for key in changes.files(flip.id)}
    is_known = all(sets.links[write].has_content for write in sets.known) and all(
        link.resolved is not None for link in sets.merges
    )
    # Where it is not known what else changed files, or where a merge chose, their values are compared.
    keys = keys.difference(*(link.resolved or () for link in sets.merges)) if is_known else set()
    if not keys:
        return {}
    values: dict[str, Item | None] = {}
    touched = changes.writes_of(sorted(keys))
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


def _value(sets: WriteSets, writes: Mapping[str, ItemChange]) -> Item | None:
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
        if not is_same(writes[other][1], value):
            raise _TwoValues(f"commits {newest[0][:12]} and {other[:12]} changed it on both sides")
    return value


def _newest(replaced: Mapping[str, AbstractSet[str]], writes: Iterable[str]) -> list[str]:
    """Return the writes that no other one of them replaced."""
    chosen = sorted(writes)
    return [write for write in chosen if not any(write in replaced[other] for other in chosen)]
