"""The commits of a pool, and the data objects as of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from lake_core.errors import NotFound
from lake_core.pool.action import Action, AddObject, DeleteObject, action_of
from lake_core.pool.commit import Commit
from lake_core.pool.commit_snapshot import CommitSnapshot, decode_snapshot, encode_snapshot
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import DamagedLake, InvalidZng, NoSuchCommit
from lake_core.pool.ksuid import NIL
from lake_core.pool.metadata import read_stream, required_metadata, type_name
from lake_core.pool.read_set import EVERYTHING
from lake_core.pool.zng.writer import encode_values

if TYPE_CHECKING:
    from datetime import datetime

    from lake_core.pool.marker import Markers
    from lake_core.pool.value import Value
    from lake_core.store import ObjectStore

Known: TypeAlias = Callable[[str], Mapping[str, DataObject] | None]
"""Returns the data objects as of a commit by their ids, where a cache has them."""


class Change(NamedTuple):
    """A commit with its actions.

    Attributes:
        commit: The commit.
        actions: Its actions on data objects.
        has_others: Whether it also has actions on vectors or search indexes.
    """

    commit: Commit
    actions: Sequence[Action]
    has_others: bool

    @property
    def added(self) -> list[str]:
        """Return the ids of the data objects that it adds."""
        return [action.object.id for action in self.actions if isinstance(action, AddObject)]

    @property
    def deleted(self) -> list[str]:
        """Return the ids of the data objects that it deletes."""
        return [action.id for action in self.actions if isinstance(action, DeleteObject)]

    @property
    def replaced(self) -> list[str]:
        """Return the ids of the data objects that it deletes, and of those that it absorbed.

        The commits that became this one added and deleted the absorbed ones.
        """
        return [*self.deleted, *self.commit.absorbed]

    @property
    def reads(self) -> Sequence[str]:
        """Return the records that it depended on; all of them if it deletes some and does not say."""
        if self.commit.reads is not None:
            return self.commit.reads
        return [EVERYTHING] if self.replaced else ()


@dataclass(frozen=True, slots=True)
class CommitStore:
    """The folder `commits` of a pool.

    Attributes:
        store: The store of the lake.
        folder: The pool's folder.
    """

    store: ObjectStore
    folder: str

    def key(self, id: str) -> str:
        """Return the key of a commit."""
        return f"{self.folder}/commits/{id}.zng"

    def snapshot_key(self, id: str) -> str:
        """Return the key under which the data objects as of a commit are cached."""
        return f"{self.folder}/commits/{id}.snap.zng"

    def check(self, id: str) -> None:
        """Raise NoSuchCommit unless the pool has such a commit."""
        if id != NIL and not self.store.exists(self.key(id)) and not self.store.exists(self.snapshot_key(id)):
            raise NoSuchCommit(f"the pool has no commit {id}; `log` lists the commits of a branch")

    def read(self, id: str) -> Change:
        """Return a commit that a branch or another commit names, and its actions. Raises DamagedLake."""
        key = self.key(id)
        values = required_metadata(self.store, key, "a branch or a later commit refers to it")
        try:
            if not values or type_name(values[0]) != "commits.Commit":
                raise InvalidZng("it does not begin with a commit")
            commit = Commit.from_value(values[0])
            if commit.id != id:
                raise InvalidZng(f"it contains the commit {commit.id}")
            actions = _actions(values[1:])
            return Change(commit, actions, len(actions) + 1 < len(values))
        except InvalidZng as error:
            raise DamagedLake(f"{key} is not a commit: {error}; restore it from a backup", key) from None

    def write(self, commit: Commit, actions: Sequence[Action]) -> None:
        """Put a commit. It is visible as soon as a branch names it."""
        data = encode_values([commit.to_value(), *(action.to_value(commit.id) for action in actions)])
        self.store.put(self.key(commit.id), data, unique=True)

    def remove(self, id: str) -> None:
        """Delete a commit that no branch names."""
        self.store.delete([self.key(id)])

    def log(self, tip: str) -> Iterator[Commit]:
        """Yield a commit and those before it, the newest first. Raises DamagedLake."""
        for change in self.changes(tip):
            yield change.commit

    def changes(self, tip: str) -> Iterator[Change]:
        """Yield a commit and those before it with their actions, the newest first. Raises DamagedLake."""
        ids: set[str] = set()
        while tip != NIL:
            if tip in ids:
                raise DamagedLake(f"{self.key(tip)} is its own ancestor; restore it from a backup", self.key(tip))
            ids.add(tip)
            change = self.read(tip)
            yield change
            tip = change.commit.parent

    def markers(self, tip: str, since: datetime | None = None) -> Markers:
        """Return the markers of the newest commit that carries any, going back from a commit to a time.

        Raises DamagedLake.

        A commit with markers includes the markers of the commits before it. Commits of other clients carry none.
        """
        for commit in self.log(tip):
            if commit.markers is not None:
                return commit.markers
            if since is not None and commit.date <= since:
                break
        return {}

    def objects(self, tip: str, known: Known = lambda _: None) -> dict[str, DataObject]:
        """Return the data objects as of a commit by their ids.

        Args:
            tip: The id of the commit.
            known: Returns the data objects as of a commit that was read before; None for any other.

        Raises:
            DamagedLake: A commit is missing or cannot be read.
        """
        return self._state(tip, known).objects

    def write_snapshot(self, tip: str) -> None:
        """Cache the data objects as of a commit, so that they are read without the commits before it.

        Raises DamagedLake, StoreError.

        The cache of a pool with vectors or search indexes would have to list these too, so none is written.
        """
        objects, has_others = self._state(tip)
        if objects and not has_others:
            self.store.put(self.snapshot_key(tip), encode_snapshot(objects.values()))

    def _state(self, tip: str, known: Known = lambda _: None) -> CommitSnapshot:
        chain: list[Change] = []
        state = CommitSnapshot({}, False)
        commits = self.changes(tip)
        id = tip
        while id != NIL:
            earlier = known(id)
            snapshot = self._snapshot(id) if earlier is None else CommitSnapshot(dict(earlier), False)
            if snapshot is not None:
                state = snapshot
                break
            change = next(commits)
            chain.append(change)
            id = change.commit.parent
        for change in reversed(chain):
            self._apply(state.objects, change.commit.id, change.actions)
        return CommitSnapshot(state.objects, state.has_others or any(change.has_others for change in chain))

    def objects_since(self, tip: str, oldest: str) -> dict[str, DataObject]:
        """Return the data objects as of each commit from `oldest` to `tip`. Raises DamagedLake."""
        objects = dict(self.objects(oldest))
        for change in self.changes(tip):
            if change.commit.id == oldest:
                break
            objects.update((each.object.id, each.object) for each in change.actions if isinstance(each, AddObject))
        return objects

    def _snapshot(self, id: str) -> CommitSnapshot | None:
        """Return the cached data objects as of a commit; None where there is no valid cache."""
        try:
            return decode_snapshot(read_stream(self.store, self.snapshot_key(id)))
        except (NotFound, DamagedLake, InvalidZng):
            return None

    def _apply(self, objects: dict[str, DataObject], commit: str, actions: Sequence[Action]) -> None:
        key = self.key(commit)
        for action in actions:
            if isinstance(action, AddObject):
                if action.object.id in objects:
                    raise DamagedLake(
                        f"{key} adds the data object {action.object.id}, which the pool already has; "
                        "revert that commit",
                        key,
                    )
                objects[action.object.id] = action.object
            elif objects.pop(action.id, None) is None:
                raise DamagedLake(
                    f"{key} deletes the data object {action.id}, which the pool does not have; read an earlier commit",
                    key,
                )


def _actions(values: Sequence[Value]) -> list[Action]:
    return [action for action in map(action_of, values) if action is not None]
