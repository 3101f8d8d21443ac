"""The rules of docs/internals/merge.md that decide whether writes of a branch can stand together.

They ask what each write read, and what the others changed. Whether files, chunks and keys fit is found where the writes
are applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.dataset import DatasetConflict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.lake.publish.conflict_report import ConflictReport
    from lake_core.lake.publish.write_changes import WriteChanges
    from lake_core.lake.refs.reached import WriteSets


def check_writes(
    changes: WriteChanges, sets: WriteSets, report: ConflictReport, onto: str, *, are_told_apart: bool = True
) -> None:
    """Check that the writes in force can stand together.

    `are_told_apart` says whether writes are applied one by one, which a merge with a strategy does not allow.

    Raises Conflict, which names the datasets and the commits; ContentGone.
    """
    checks = _WriteChecks(sets, changes, report, onto)
    if are_told_apart:
        checks.check_separable()
    checks.check_past()
    checks.check_beside()
    checks.check_values()
    checks.check_copies()
    checks.check_dropped()
    checks.check_recreated()
    report.check()


class _WriteChecks:
    """The rules, each of which reports its conflicts. Undos have no reads and no rows of their own."""

    def __init__(self, sets: WriteSets, changes: WriteChanges, report: ConflictReport, onto: str) -> None:
        self._sets, self._changes, self._conflicts, self._onto = sets, changes, report, onto
        self._before = sets.in_force_before - sets.undone.keys()
        self._after = sorted(sets.in_force_after - sets.undone.keys())
        self._coming = [write for write in self._after if write not in self._before]
        self._seen: dict[str, frozenset[str]] = {}
        """What was in force where each write was made."""

    def check_separable(self) -> None:
        """Check that no merge has chosen a side by a strategy: its result is not the union of the two sides."""
        merges = [link for link in self._sets.merges if link.resolved is None or link.resolved]
        if not merges:
            return
        changes = self._changes
        touched = {path for flip in self._sets.flips() for path in (*changes.paths(flip.id), *changes.files(flip.id))}
        for link in merges:
            for path in sorted(touched if link.resolved is None else touched & link.resolved):
                message = f"commit {link.id[:12]} merged it with a strategy: its writes cannot be told apart"
                self._report(path, message, "Resolved")

    def check_past(self) -> None:
        """Check that what a write read is as it saw it."""
        sets, after = self._sets, frozenset(self._after)
        for write in self._after:
            comes = write not in self._before
            if comes and not self._changes.has_read(write):
                continue
            past = sets.past(write)
            saw = sets.in_force(past) if comes else self._before
            for other in sorted((saw ^ after) & past - sets.undone.keys()):
                what = "comes back" if other in after else "is undone" if other in sets.result else "is lacking"
                self._check_read(write, other, f"{what} on {self._onto}", comes=other in after)

    def check_beside(self) -> None:
        """Check that a write which comes has not read what the target changed, unless both stood together before."""
        sets = self._sets
        for write in self._coming:
            if not self._changes.has_read(write):
                continue
            is_new = write not in sets.target
            undoers = [undo for undo in sets.target if write in sets.undone.get(undo, ())]
            for other in self._after:
                stood = is_new and write in sets.in_force_there and other in sets.in_force_there
                saw = sets.saw(write, other) or any(sets.saw(undo, other) for undo in undoers)
                if other in self._before and not stood and not saw:
                    self._check_read(write, other, f"is on {self._onto} beside it", comes=True)

    def check_values(self) -> None:
        """Check that a write which comes, or is undone, does not set a single value that another one has set since.

        What set it before is no conflict, if it was in force then. What has set the same value again is one: if that is
        undone later, the value from before both must be there, and not the one that was undone first.
        """
        sets = self._sets
        for flip in sets.flips():
            for other in self._after:
                stood = flip.comes and flip.id in sets.in_force_there and other in sets.in_force_there
                paths = [] if stood or other == flip.id else self._changes.shared_paths(flip.id, other)
                if not paths or self._is_on(flip.id, other) or (flip.comes and self._is_on(other, flip.id)):
                    continue
                for path in paths:
                    if self._changes.share_values(flip.id, other, path):
                        self._report(path, f"commits {flip.id[:12]} and {other[:12]} set the same in it", "BothChanged")

    def _is_on(self, write: str, other: str) -> bool:
        """Return whether a write was made where another one was in force."""
        if write not in self._seen:
            self._seen[write] = self._sets.in_force(self._sets.past(write))
        return other in self._seen[write]

    def check_copies(self) -> None:
        """Check that copies of one write, by its transaction identifier, are all in force or all undone.

        One that was made again after an undo is another making, of which only one may be in force.
        """
        sets, after = self._sets, frozenset(self._after)
        undone_now = {undone for id in sets.new for undone in sets.undone.get(id, ())}
        for (path, application, version), writes in self._marked().items():
            makings = self._makings(writes)
            for write in writes:
                for other in writes if write in sets.result else ():
                    is_new = not {write, other} <= self._before or write in undone_now
                    is_other_making = makings[other] != makings[write]
                    if other == write or other not in after or not is_new or (write in after) != is_other_making:
                        continue
                    message = f"version {version} of application {application!r} was written by commit {write[:12]}, "
                    message += (
                        f"and again by commit {other[:12]} after an undo: revert one of them"
                        if is_other_making
                        else f"which is undone, and by commit {other[:12]}, which is not: revert that one too, revert "
                        "the undo, or delete the rows in a session"
                    )
                    self._report(path, message, "ConcurrentTransaction")

    def _marked(self) -> Mapping[tuple[str, str, int], Sequence[str]]:
        """Return the writes of each transaction identifier of a dataset that several writes changed."""
        by_path: dict[str, list[str]] = {}
        for write in self._sets.ordered(self._sets.known - self._sets.undone.keys()):
            for path in self._changes.paths(write):
                by_path.setdefault(path, []).append(write)
        marked: dict[tuple[str, str, int], list[str]] = {}
        for path, writes in by_path.items():
            for write in writes if len(writes) > 1 else ():
                for application, version in sorted(self._changes.markers(write, path)):
                    marked.setdefault((path, application, version), []).append(write)
        return {marker: writes for marker, writes in marked.items() if len(writes) > 1}

    def _makings(self, writes: Sequence[str]) -> Mapping[str, int]:
        """Return how often each of the copies of one write, in their order, was made before it, in its own past."""
        makings: dict[str, int] = {}
        for write in writes:
            earlier = self._sets.past(write) & makings.keys()
            makings[write] = max((makings[each] + 1 for each in earlier), default=0)
        return makings

    def check_dropped(self) -> None:
        """Check that a dataset which an undo brings back was not dropped by another write too."""
        for flip in self._sets.flips():
            for other in () if flip.comes else self._after:
                if self._sets.saw(flip.id, other) or self._sets.saw(other, flip.id):
                    continue
                for path in self._changes.shared_paths(flip.id, other):
                    if self._changes.both_drop(flip.id, other, path):
                        self._report(path, f"commit {other[:12]} dropped it too: revert that commit first", "Dropped")

    def check_recreated(self) -> None:
        """Check that what comes does not change a dataset that the target dropped, to create another one there."""
        sets, changes = self._sets, self._changes
        for write in self._coming:
            saw = sets.in_force(sets.past(write))
            for other in self._after:
                stood = write in sets.in_force_there and other in sets.in_force_there
                if other not in self._before or stood or other in saw:
                    continue
                for path in changes.shared_paths(write, other):
                    before, gone = changes.change(write, path)[0], changes.dropped(other, path)
                    if before is not None and before.record.id == gone and not changes.both_drop(write, other, path):
                        self._report(path, f"commit {other[:12]} dropped what these changes are of", "Dropped")

    def _check_read(self, write: str, other: str, what: str, *, comes: bool) -> None:
        for path in self._changes.shared_paths(write, other):
            if comes and self._changes.both_drop(write, other, path):
                continue
            check = self._changes.read_check(write, path)
            if check is not None and check(*self._changes.change(other, path), comes=comes):
                message = f"commit {write[:12]} read what commit {other[:12]} changed, which {what}"
                self._report(path, message, "ReadChanged")

    def _report(self, path: str, message: str, kind: str) -> None:
        self._conflicts.add_dataset(path, DatasetConflict(message, kind=kind))
