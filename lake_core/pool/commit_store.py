"""The commits of a pool, and the data objects that they add up to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lake_core.errors import NotFound
from lake_core.pool.action import Action, AddObject, action_of
from lake_core.pool.commit import Commit
from lake_core.pool.data_object import DataObject
from lake_core.pool.errors import DamagedLake, InvalidZng, NoSuchCommit
from lake_core.pool.ksuid import NIL
from lake_core.pool.metadata import read_metadata, required_metadata, type_name
from lake_core.pool.value import Value
from lake_core.pool.zng.writer import encode_values
from lake_core.store import ObjectStore


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
            raise NoSuchCommit(f"the pool has no commit {id}; `log` lists those of a branch")

    def read(self, id: str) -> tuple[Commit, list[Action]]:
        """Return a commit that a branch or another commit names, and its actions. Raises DamagedLake."""
        key = self.key(id)
        values = required_metadata(self.store, key, "a branch or a later commit names this commit")
        try:
            if not values or type_name(values[0]) != "commits.Commit":
                raise InvalidZng("it does not begin with a commit")
            commit = Commit.from_value(values[0])
            if commit.id != id:
                raise InvalidZng(f"it holds the commit {commit.id}")
            return commit, _actions(values[1:])
        except InvalidZng as error:
            raise DamagedLake(f"{key} is no commit: {error}; restore it from a backup", key) from None

    def write(self, commit: Commit, actions: Sequence[Action]) -> None:
        """Put a commit. It counts as soon as a branch names it."""
        data = encode_values([commit.to_value(), *(action.to_value(commit.id) for action in actions)])
        self.store.put(self.key(commit.id), data, unique=True)

    def log(self, tip: str) -> Iterator[Commit]:
        """Yield a commit and those before it, the newest first. Raises DamagedLake."""
        for commit, _ in self._chain(tip):
            yield commit

    def objects(self, tip: str) -> dict[str, DataObject]:
        """Return the data objects as of a commit by their ids. Raises DamagedLake."""
        chain: list[tuple[str, list[Action]]] = []
        objects: dict[str, DataObject] = {}
        commits = self._chain(tip)
        id = tip
        while id != NIL:
            snapshot = self._snapshot(id)
            if snapshot is not None:
                objects = snapshot
                break
            commit, actions = next(commits)
            chain.append((id, actions))
            id = commit.parent
        for id, actions in reversed(chain):
            self._apply(objects, id, actions)
        return objects

    def objects_since(self, tip: str, oldest: str) -> set[str]:
        """Return the ids of the data objects as of each commit from `oldest` to `tip`. Raises DamagedLake."""
        objects = set(self.objects(oldest))
        for commit, actions in self._chain(tip):
            if commit.id == oldest:
                break
            objects.update(action.object.id for action in actions if isinstance(action, AddObject))
        return objects

    def _chain(self, tip: str) -> Iterator[tuple[Commit, list[Action]]]:
        seen: set[str] = set()
        while tip != NIL:
            if tip in seen:
                raise DamagedLake(f"{self.key(tip)} is among the commits before itself; restore it from a backup", self.key(tip))
            seen.add(tip)
            commit, actions = self.read(tip)
            yield commit, actions
            tip = commit.parent

    def _snapshot(self, id: str) -> dict[str, DataObject] | None:
        """Return the cached data objects as of a commit; None where there is no cache that can be trusted."""
        try:
            actions = _actions(read_metadata(self.store, self.snapshot_key(id)))
        except (NotFound, DamagedLake, InvalidZng):
            return None
        # An empty object may be one whose writer died. Where there is nothing, replaying the commits says so, too.
        if not actions or not all(isinstance(action, AddObject) for action in actions):
            return None
        return {action.object.id: action.object for action in actions if isinstance(action, AddObject)}

    def _apply(self, objects: dict[str, DataObject], commit: str, actions: Sequence[Action]) -> None:
        key = self.key(commit)
        for action in actions:
            if isinstance(action, AddObject):
                if action.object.id in objects:
                    raise DamagedLake(f"{key} adds the data object {action.object.id}, which is there already; revert that commit", key)
                objects[action.object.id] = action.object
            elif objects.pop(action.id, None) is None:
                raise DamagedLake(f"{key} deletes the data object {action.id}, which is not there; read an earlier commit", key)


def _actions(values: Sequence[Value]) -> list[Action]:
    return [action for action in map(action_of, values) if action is not None]
