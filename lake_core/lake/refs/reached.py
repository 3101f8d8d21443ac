"""The writes that reached commits, and which of them are in force.

A commit that is no merge is one write, named by the commit's id. The set of writes that reached a commit only grows. A
merge, a squash and a cherry-pick bring writes to a branch and make none. A revert is a write that undoes others. A
write is in force unless a write in force undoes it. See docs/internals/merge.md.

Nothing here reads the content of a commit: parents and metadata suffice.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final

from lake_core.lake.errors import ContentGone, RefNotFound
from lake_core.lake.refs.commit_record import UNDOES_FIELD

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from lake_core.lake.refs.commit_link import CommitLink
    from lake_core.lake.refs.refs_state import RefsState

_HEAD: Final = 1
_INCOMING: Final = 2
_BOTH: Final = _HEAD | _INCOMING


class CommitLinks:
    """The commits of some refs, each looked up once."""

    def __init__(self, refs: RefsState) -> None:
        self._refs = refs
        self._links: dict[str, CommitLink | None] = {}

    def get(self, id: str) -> CommitLink | None:
        """Return a commit, None where the lake does not know it."""
        if id not in self._links:
            self._links[id] = self._refs.link(id)
        return self._links[id]

    def __getitem__(self, id: str) -> CommitLink:
        """Return a commit. Raises RefNotFound."""
        link = self.get(id)
        if link is None:
            raise RefNotFound(f"the commit {id!r} does not exist in this lake")
        return link

    def range_writes(self, last: str, parent: int) -> list[str]:
        """Return the writes that reached a commit and not its `parent`-th parent, those made on others last."""
        link = self[last]
        if not link.is_merge and link.picked is None:
            return [last]
        return list(write_sets(Divergence.between(self, link.parents[parent - 1], last)).new)

    def writes(self, links: Iterable[CommitLink]) -> list[str]:
        """Return the writes that commits made or brought, in their order. The first commit of a lake is none."""
        writes: dict[str, None] = {}
        for link in links:
            if link.picked is not None:
                writes.update(dict.fromkeys(self._named(link, link.picked)))
            brings = link.picked is not None or link.is_merge
            if link.is_undo or (link.parents and not brings):
                writes[link.id] = None
        return list(writes)

    def undone_by(self, link: CommitLink) -> list[str]:
        """Return the writes that a revert names."""
        recorded = link.metadata.get(UNDOES_FIELD)
        return self._named(link, link.reverted or "") if recorded is None else recorded.split()

    def _named(self, link: CommitLink, commit: str) -> list[str]:
        return [commit] if self.get(commit) is None else self.range_writes(commit, link.parent_number)


class _Walk:
    """A walk from several commits to their ancestors, newest first. Each commit knows which of these it reached.

    It ends where all that is left has reached all of them. So a commit that it has not met is older than they are, and
    cannot name them.
    """

    def __init__(self, links: CommitLinks, starts: Sequence[Iterable[str]]) -> None:
        self._links = links
        self._all = (1 << len(starts)) - 1
        self.reached_by: dict[str, int] = {}
        """For each commit, the starts that it reached, as one bit per start."""
        self._queue: list[tuple[int, str]] = []
        self._queued: set[str] = set()
        self._passed: set[str] = set()
        """The commits whose sources were added."""
        self._open: set[str] = set()
        """The queued commits whose sources do not know all yet: they have not reached all starts, or not at first."""
        for number, ids in enumerate(starts):
            for id in ids:
                self._add(id, 1 << number)
        while self._open:
            id = heapq.heappop(self._queue)[1]
            self._queued.discard(id)
            self._open.discard(id)
            self._passed.add(id)
            for source in links[id].sources:
                self._add(source, self.reached_by[id])

    def _add(self, id: str, starts: int) -> None:
        before = self.reached_by.get(id, 0)
        after = before | starts
        if before == after or self._links.get(id) is None:
            return
        self.reached_by[id] = after
        # A squashed commit may have a higher generation than the commit that names it, so it can be met again.
        if after != self._all or id in self._passed:
            self._open.add(id)
        else:
            self._open.discard(id)
        if id in self._queued:
            return
        self._queued.add(id)
        heapq.heappush(self._queue, (-self._links[id].generation, id))

    def met(self) -> list[CommitLink]:
        """Return the commits that did not reach all starts, the oldest first."""
        links = (self._links[id] for id, starts in self.reached_by.items() if starts != self._all)
        return sorted(links, key=lambda link: (link.generation, link.date, link.id))


@dataclass(frozen=True)
class Divergence:
    """How the histories of two commits differ: `head`, and `incoming`, whose writes are to come to it."""

    links: CommitLinks
    head: str
    incoming: str
    missing: Sequence[CommitLink]
    """The commits that reached `incoming` alone, oldest first."""
    beside: Sequence[CommitLink]
    """The commits that reached `head` alone, oldest first."""
    _reached_by: Mapping[str, int]

    @classmethod
    def of(cls, refs: RefsState, head: str, incoming: str) -> Divergence:
        """Compare the histories of two commits."""
        return cls.between(CommitLinks(refs), head, incoming)

    @classmethod
    def between(cls, links: CommitLinks, head: str, incoming: str) -> Divergence:
        """Compare the histories of two commits that are looked up together with others."""
        walk = _Walk(links, [[head], [incoming]])
        met = walk.met()
        missing = [link for link in met if walk.reached_by[link.id] == _INCOMING]
        beside = [link for link in met if walk.reached_by[link.id] == _HEAD]
        return cls(links, head, incoming, missing, beside, walk.reached_by)

    @cached_property
    def forks(self) -> Sequence[str]:
        """Return the common ancestors that others than common ones were made on, or the two commits themselves."""
        ids = [*(source for link in (*self.missing, *self.beside) for source in link.sources)]
        ids += [self.head, self.incoming]
        return [id for id in dict.fromkeys(ids) if self._reached_by.get(id) == _BOTH]

    @cached_property
    def bases(self) -> Sequence[CommitLink]:
        """Return the best common ancestors: those that no other common ancestor has reached."""
        best = [id for id in self.forks if len(self.forks) == 1 or id not in self._older_forks]
        return sorted((self.links[id] for id in best), key=lambda link: (-link.generation, link.id))

    @cached_property
    def _older_forks(self) -> set[str]:
        """Return the forks that other forks have reached."""
        wanted, found, seen = set(self.forks), set[str](), set[str]()
        floor = min((self.links[id].generation for id in wanted), default=0)
        stack = [source for id in wanted for source in self.links[id].sources]
        while stack:
            id = stack.pop()
            link = self.links.get(id)
            if id in seen or link is None or link.generation < floor:
                continue
            seen.add(id)
            found |= {id} & wanted
            stack.extend(link.sources)
        return found

    def check_known(self, purpose: str) -> None:
        """Raise ContentGone if a commit that the lake does not know may be a newer common ancestor."""
        newest = max((link.generation for link in self.bases), default=0)
        for link in (*self.missing, *self.beside):
            for source in link.sources:
                if self.links.get(source) is None and link.generation > newest:
                    raise ContentGone(source, purpose, None)

    @cached_property
    def is_direct(self) -> bool:
        """Return whether the difference from the one best common ancestor is what is missing, and nothing else.

        It may not be if what comes has undone something, or if some of it has arrived by a cherry-pick, unless the head
        has nothing of its own. Nor if the head has undone what comes again, and the difference does not show it.
        """
        if not self.beside:
            return True
        if len(self.bases) != 1 or any(link.is_undo or link.picked for link in self.missing):
            return False
        if self._hides_undone:
            return False
        picks = [link for link in self.beside if link.picked is not None]
        return not picks or not {link.id for link in self.missing}.intersection(self.links.writes(picks))

    @cached_property
    def _line(self) -> Mapping[str, CommitLink]:
        """Return the commits of the head's own line, its first parents, that reached the head alone."""
        own = {link.id: link for link in self.beside}
        line: dict[str, CommitLink] = {}
        id: str | None = self.head
        while id is not None and id in own:
            line[id] = own[id]
            id = next(iter(own[id].parents), None)
        return line

    @property
    def is_on_line(self) -> bool:
        """Return whether `incoming` is a commit of the head's own line, on which it had its effect."""
        return self.incoming == self.head or any(link.parents[:1] == (self.incoming,) for link in self._line.values())

    @property
    def _hides_undone(self) -> bool:
        """Return whether the head has undone a write that may come again, as a copy or as an equal change.

        That is a write of a common ancestor, if some of what comes was made beside that ancestor. Or it is one that a
        merge or a squash brought to the head together with its undo, so that no log of a dataset shows it.
        """
        undos = [link for link in self.beside if link.is_undo]
        if not undos:
            return False
        own = {link.id: link for link in self.beside}
        shown = self._line.keys()
        undone = {id for link in undos for id in self.links.undone_by(link)} - shown
        hidden = [own[id].datasets for id in undone if id in own]
        comes = [link.datasets for link in self.missing]
        if None in hidden or None in comes:
            return bool(undone)
        is_shared = bool(frozenset().union(*filter(None, hidden)) & frozenset().union(*filter(None, comes)))
        return is_shared or (len(self.forks) > 1 and not undone <= own.keys())


@dataclass(frozen=True, slots=True)
class Flip:
    """A write that comes into force, or goes out of it."""

    id: str
    comes: bool


@dataclass(frozen=True)
class WriteSets:
    """The writes that reached a head and what comes to it, and which of them are in force.

    Writes that reached both, and that nothing else here was made before, are left out: they stay in force.
    """

    links: CommitLinks
    target: frozenset[str]
    """The writes that reached the head."""
    incoming: frozenset[str]
    """The writes that reached what comes."""
    new: Sequence[str]
    """The writes that come, those made on others last."""
    undone: Mapping[str, Sequence[str]]
    """The writes that each undo names."""
    commits: Mapping[str, CommitLink]
    """The commits that made or brought these writes."""
    _pasts: dict[str, frozenset[str]] = field(default_factory=dict)

    def in_force(self, reached: AbstractSet[str]) -> frozenset[str]:
        """Return the writes of a set that no write in force of the set undoes."""
        undoers: dict[str, list[str]] = {}
        for id in reached:
            for undone in self.undone.get(id, ()):
                undoers.setdefault(undone, []).append(id)
        known: dict[str, bool] = {}

        def holds(id: str) -> bool:
            if id not in known:
                known[id] = not any(holds(undoer) for undoer in undoers.get(id, ()))
            return known[id]

        return frozenset(id for id in reached if holds(id))

    @cached_property
    def result(self) -> frozenset[str]:
        """Return the writes that reached the result."""
        return self.target.union(self.new)

    @cached_property
    def known(self) -> frozenset[str]:
        """Return all of these writes, without an undo that is not made yet."""
        return frozenset(id for id in self.result | self.incoming if self.links.get(id) is not None)

    @cached_property
    def in_force_before(self) -> frozenset[str]:
        """Return the writes that are in force in the head."""
        return self.in_force(self.target)

    @cached_property
    def in_force_after(self) -> frozenset[str]:
        """Return the writes that are in force in the result."""
        return self.in_force(self.result)

    @cached_property
    def in_force_there(self) -> frozenset[str]:
        """Return the writes that are in force in what comes."""
        return self.in_force(self.incoming)

    @cached_property
    def lacking(self) -> list[str]:
        """Return what undos that come name, and what neither is there nor comes."""
        return [
            undone
            for id in self.new
            if id in self.in_force_after
            for undone in self.undone.get(id, ())
            if undone not in self.result
        ]

    @cached_property
    def merges(self) -> list[CommitLink]:
        """Return the merges among the commits."""
        return [link for link in self.commits.values() if link.is_merge]

    def flips(self) -> list[Flip]:
        """Return the writes that go, newest first, then those that come, oldest first. Undos are none of them."""
        before, after = self.in_force_before, self.in_force_after
        gone = reversed(self.ordered((before - after) - self.undone.keys()))
        comes = self.ordered((after - before) - self.undone.keys())
        return [*(Flip(id, comes=False) for id in gone), *(Flip(id, comes=True) for id in comes)]

    def net(self, since: AbstractSet[str]) -> frozenset[Flip]:
        """Return how some of the writes that reached what comes have changed it, all together."""
        before, after = self.in_force(self.incoming - since), self.in_force(self.incoming)
        return frozenset(Flip(id, comes=id in after) for id in (before ^ after) - self.undone.keys())

    def ordered(self, ids: AbstractSet[str]) -> list[str]:
        """Sort writes, those that others were made on first."""
        order = {id: number for number, id in enumerate(self.new)}

        def key(id: str) -> tuple[int, int, str]:
            link = self.links.get(id)
            return 0 if link is None else link.generation, order.get(id, -1), id

        return sorted(ids, key=key)

    def saw(self, write: str, other: str) -> bool:
        """Return whether a write was made on a state that another one had reached."""
        return other in self.past(write)

    def past(self, write: str) -> frozenset[str]:
        """Return the writes that had reached the state on which a write was made."""
        if write not in self._pasts:
            link = self.links.get(write)
            self._pasts[write] = frozenset(() if link is None else self.links.writes(self._past(link)))
        return self._pasts[write]

    def _past(self, link: CommitLink) -> list[CommitLink]:
        """Return those of the commits that reached the parent of a commit."""
        seen = dict.fromkeys(id for id in link.parents[:1] if id in self.commits)
        stack = list(seen)
        while stack:
            for source in self.commits[stack.pop()].sources:
                if source not in seen and source in self.commits:
                    seen[source] = None
                    stack.append(source)
        return [self.commits[id] for id in seen]


def write_sets(divergence: Divergence, new: Sequence[str] | None = None) -> WriteSets:
    """Return the writes that matter to a change of the head: those that one side lacks, and what undos name.

    `new` are the writes that come, by default all that the head lacks.
    """
    links = divergence.links
    undone: dict[str, Sequence[str]] = {}
    named: dict[str, None] = dict.fromkeys(new or ())
    while True:
        # What matters is not older than a fork, nor than a write that some other commit names.
        older = [[id] for id in divergence.forks]
        older += [list(link.sources) for id in named if (link := links.get(id)) is not None]
        walk = _Walk(links, [[divergence.head], [divergence.incoming], *older])
        met = walk.met()
        brought = [id for link in met if link.picked is not None for id in links.writes([link])]
        candidates = (links.get(id) for id in (*links.writes(met), *named))
        undos = [link for link in candidates if link is not None and link.is_undo]
        undone |= {link.id: links.undone_by(link) for link in undos if link.id not in undone}
        count = len(named)
        named |= dict.fromkeys([*brought, *(id for ids in undone.values() for id in ids)])
        if len(named) == count:
            break
    target, incoming = (
        links.writes(link for link in met if walk.reached_by[link.id] & side) for side in (_HEAD, _INCOMING)
    )
    reached = frozenset(target)
    chosen = [id for id in (incoming if new is None else new) if id not in reached]
    return WriteSets(links, reached, frozenset(incoming), chosen, undone, {link.id: link for link in met})


def has_reached(links: CommitLinks, head: str, commit: str) -> bool:
    """Return whether all writes that came with a commit have reached a head, also if they were undone there."""
    divergence = Divergence.between(links, head, commit)
    return not divergence.missing or not write_sets(divergence, links.range_writes(commit, 1)).new


def undo_of(divergence: Divergence, parent: int, made: str) -> WriteSets:
    """Return the writes of the head with one more, which takes back what reached `incoming` since its parent, net.

    A write and its undo that both came since are named neither. If something would come back into force that an undo
    among them had taken out, it is named too.

    Args:
        divergence: The head, and the commit to revert.
        parent: The number of the parent since which to revert.
        made: The id of the undo.

    Returns:
        The sets, whose only new write is the undo. It names nothing if all is undone already.

    Raises:
        UndoneElsewhere: Another undo of the same writes stands.
    """
    among = divergence.links.range_writes(divergence.incoming, parent)
    sets = write_sets(divergence, among)
    among = [id for id in among if id in sets.target]
    since = frozenset(among)
    beyond = [id for id in among if id not in sets.undone or not since.issuperset(sets.undone[id])]
    named = [id for id in beyond if id in sets.in_force_before]
    while True:
        undone = replace(sets, new=[made], undone={**sets.undone, made: named})
        back = [id for id in beyond if id in undone.in_force_after and id not in named]
        if not back:
            break
        named += back
    then, now = sets.in_force(sets.incoming - since), sets.in_force(sets.incoming)
    for id in (then ^ now) - sets.undone.keys():
        unchanged = (id in now) == (id in sets.in_force_before)
        if named and unchanged and (id in undone.in_force_after) != (id in then):
            raise UndoneElsewhere(next((each for each in sets.target if id in sets.undone.get(each, ())), id))
    return undone


class UndoneElsewhere(Exception):
    """Another undo of the same writes stands, so that an undo would not take effect."""

    def __init__(self, undo: str) -> None:
        super().__init__(undo)
        self.undo = undo
