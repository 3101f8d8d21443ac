"""Histories that the model and a real lake do beside one another."""

from __future__ import annotations

import copy
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import pyarrow as pa

from lake_core import Lake
from lake_core.lake.errors import Conflict, NothingToApply
from lake_core.lake.session.private_session import Session
from lake_core.pool.key_range import KeyRange
from lake_core.store import MemoryStore
from lake_core.testing.manual_clock import ManualClock
from tests.lake.lakes import opened
from tests.lake.merging.model import Id, Nothing, Operation, Refused, Row, Version, Write, merge, perform

Step: TypeAlias = "tuple[str, Operation]"
PATH, FILE = "t", "k"
PROPERTY = "lake.test"
PLAIN = ("put0", "put1", "unput")


class Stop(Exception):
    """The history cannot go on: the lake did what the model refuses, and both are right."""


class Unequal(AssertionError):
    """The lake does not say what the model says."""


class Dataset(Protocol):
    """How a format does the operations of the model."""

    operations: Sequence[str]

    def write(self, session: Session, write: Write) -> None:
        """Do the operation of a write."""
        ...

    def rows(self, lake: Lake, ref: str) -> Counter[tuple[int, str]]:
        """Return the rows with their keys, as often as they are there."""
        ...

    def value(self, lake: Lake, ref: str) -> str | None:
        """Return the value of the property."""
        ...


def label(id: Id) -> str:
    """Return what rows of a write have in the lake."""
    return "".join(map(str, id))


SCHEMA = pa.schema([("key", pa.int64()), ("write", pa.string())])


def table_of(rows: Sequence[Row]) -> pa.Table:
    return pa.table({"key": [key for key, _ in rows], "write": [label(id) for _, id in rows]}, schema=SCHEMA)


def _new_rows(write: Write) -> pa.Table:
    return table_of(sorted(write.rows, key=str))


class Table:
    """A Delta table."""

    operations = ("append", "mark", "both", "overwrite", "delete", "upsert", "compact", "create", "drop", "alter")

    def __init__(self, properties: dict[str, str] | None = None) -> None:
        self.properties = properties or {}

    def write(self, session: Session, write: Write) -> None:
        if write.operation == "create":
            session.create_delta(PATH, SCHEMA, properties=self.properties)
            return
        if write.operation == "drop":
            session.drop(PATH)
            return
        table = session.delta(PATH)
        match write.operation:
            case "append":
                table.append(_new_rows(write))
            case "mark":
                table.append(_new_rows(write), txn=("m", 1))
            case "overwrite":
                table.overwrite(_new_rows(write))
            case "delete":
                table.delete("key = 1")
            case "upsert":
                table.overwrite(_new_rows(write), where="key = 1")
            case "compact":
                table.optimize()
            case "alter":
                value = next(value for name, value in write.adds.items())
                table.set_properties({PROPERTY: str(value)})

    def rows(self, lake: Lake, ref: str) -> Counter[tuple[int, str]]:
        if not any(record.path == PATH for record in lake.list_datasets(ref)):
            return Counter()
        data = lake.delta(PATH, ref=ref).to_arrow()
        return Counter(zip(data["key"].to_pylist(), data["write"].to_pylist(), strict=True))

    def value(self, lake: Lake, ref: str) -> str | None:
        if not any(record.path == PATH for record in lake.list_datasets(ref)):
            return None
        return lake.delta(PATH, ref=ref).snapshot.metadata.configuration.get(PROPERTY)


class Pool:
    """A pool."""

    operations = ("append", "mark", "both", "overwrite", "delete", "upsert", "compact", "create", "drop")

    def write(self, session: Session, write: Write) -> None:
        if write.operation == "create":
            session.create_pool(PATH, key="key")
            return
        if write.operation == "drop":
            session.drop(PATH)
            return
        pool = session.pool(PATH)
        match write.operation:
            case "append":
                pool.load(_new_rows(write))
            case "mark":
                pool.load(_new_rows(write), txn=("m", 1))
            case "overwrite":
                pool.replace(pool.write_objects(_new_rows(write)), [KeyRange()])
            case "delete":
                pool.delete("key = 1")
            case "upsert":
                keys = [KeyRange.of(1, 2)]
                pool.replace(pool.write_objects(_new_rows(write), keys), keys)
            case "compact":
                pool.compact()

    def rows(self, lake: Lake, ref: str) -> Counter[tuple[int, str]]:
        if not any(record.path == PATH for record in lake.list_datasets(ref)):
            return Counter()
        data = lake.pool(PATH, ref=ref).scan().to_table()
        if not len(data):
            return Counter()
        return Counter(zip(data["key"].to_pylist(), data["write"].to_pylist(), strict=True))

    def value(self, lake: Lake, ref: str) -> str | None:
        return None


class Array:
    """An array in which each row is a chunk of its own. What was written there is never read or replaced."""

    operations = ("append", "mark", "both", "create", "drop", "alter")

    def __init__(self, spec_version: int = 1) -> None:
        self.spec_version = spec_version
        self.chunks: dict[tuple[int, str], int] = {}
        """The chunk of each row, by its key and its write."""

    def write(self, session: Session, write: Write) -> None:
        if write.operation == "create":
            created = session.create_icechunk(PATH, spec_version=self.spec_version).session
            created.set_metadata("/", _group(None))
            created.set_metadata("/rows", _array())
            return
        if write.operation == "drop":
            session.drop(PATH)
            return
        repository = session.icechunk(PATH)
        if write.operation == "alter":
            repository.session.set_metadata("/", _group(str(next(iter(write.adds.values())))))
            return
        for key, id in sorted(write.rows, key=str):
            chunk = self.chunks.setdefault((key, label(id)), len(self.chunks))
            repository.session.write_chunk("/rows", (chunk,), b"\1")
        if write.operation == "mark":
            repository.session.commit("mark", txn=("m", 1))

    def rows(self, lake: Lake, ref: str) -> Counter[tuple[int, str]]:
        if not any(record.path == PATH for record in lake.list_datasets(ref)):
            return Counter()
        state = lake.icechunk(PATH, ref=ref).readonly_session("main")
        array = state.array("/rows")
        return Counter(row for row, chunk in self.chunks.items() if state.reference(array, (chunk,)) is not None)

    def value(self, lake: Lake, ref: str) -> str | None:
        if not any(record.path == PATH for record in lake.list_datasets(ref)):
            return None
        group = lake.icechunk(PATH, ref=ref).readonly_session("main").node("/")
        assert group is not None
        value: str | None = json.loads(group.user_data)["attributes"].get(PROPERTY)
        return value


def _group(value: str | None) -> bytes:
    attributes = {} if value is None else {PROPERTY: value}
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": attributes}).encode()


def _array() -> bytes:
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [10_000],
        "data_type": "uint8",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [1]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "bytes"}],
    }
    return json.dumps(document).encode()


@dataclass
class Beside:
    """A lake beside the model: each step is done by both, and the outcomes are compared."""

    dataset: Dataset
    names: Sequence[str] = ("a", "b")
    with_table: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    did: list[Step] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    false: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore(clock=self.clock)
        self.lake = Lake.create(self.store, clock=self.clock)
        root: list[Version] = [Version({})]
        versions = {"r": root}
        if self.with_table:
            for operation in ("create", "append"):
                version, writes = perform(versions, "r", operation)
                self._write("main", writes)
                root.append(version)
        first = Version(root[-1].reached)
        self.branches = {name: [first] for name in self.names}
        for name in self.names[1:]:
            self.lake.create_branch(name)

    def copy(self) -> Beside:
        """Return the same lake and model again, which go on independently."""
        twin = copy.copy(self)
        store = MemoryStore(clock=self.clock)
        for meta in self.store.list():
            store.put(meta.key, self.store.get(meta.key))
        twin.store = store
        twin.lake = opened(store, self.clock)
        twin.branches = {name: list(versions) for name, versions in self.branches.items()}
        twin.did = list(self.did)
        return twin

    def ref(self, name: str) -> str:
        """Return the lake's branch: the first one of the model is main."""
        return "main" if name == self.names[0] else name

    def _write(self, ref: str, writes: Sequence[Write]) -> None:
        with self.lake.session(ref) as session:
            for write in writes:
                if write.operation not in PLAIN:
                    self.dataset.write(session, write)
                    continue
                value = next(iter(write.adds.values()))
                if value is None:
                    session.delete([FILE])
                else:
                    session.put(FILE, b"%d" % value)

    def _do(self, name: str, operation: Operation, writes: Sequence[Write]) -> None:
        """Do in the lake what the model did. Raises Conflict, NothingToApply."""
        ref = self.ref(name)
        if isinstance(operation, tuple):
            kind, other = operation[0], self.ref(operation[1])
            if kind == "pick":
                self.lake.cherry_pick(other, onto=ref)
            else:
                self.lake.merge(other, into=ref, squash=kind == "squash")
        elif operation in ("revert", "revert2"):
            commit = f"{ref}~1" if operation == "revert2" else ref
            self.lake.revert(commit, branch=ref)
        else:
            self._write(ref, writes)

    def step(self, name: str, operation: Operation) -> bool:
        """Do one operation in both, and compare. Return whether both did it. Raises Unequal."""
        refused = None
        version: Version | None = None
        writes: Sequence[Write] = ()
        try:
            version, writes = perform(self.branches, name, operation)
        except Nothing as error:
            is_own = not isinstance(operation, tuple) and operation not in ("revert", "revert2")
            if is_own or str(error).startswith("there is no"):
                return False
        except Refused as error:
            refused = str(error)
            if not isinstance(operation, tuple) and operation not in ("revert", "revert2"):
                return False
        kind = operation if isinstance(operation, str) else operation[0]
        before = self.lake.list_branches()[self.ref(name)]
        try:
            self._do(name, operation, writes)
        except (Conflict, NothingToApply) as error:
            if isinstance(error, NothingToApply) and version is not None and not self._equal(name, version):
                raise Unequal(
                    f"nothing to apply, but the model has {self._model(version)}: {self.show(name, operation)}"
                ) from None
            if version is not None and isinstance(error, Conflict):
                self.counts[f"{kind}: false conflict"] += 1
                self.false.append(self.show(name, operation))
                for each in error.contradictions:
                    self.reasons[f"{kind}: {each.kind}: {each.explanation}"] += 1
            elif refused:
                self.counts[f"{kind}: conflict"] += 1
            return False
        except Exception as error:
            raise Unequal(f"{type(error).__name__}: {error}: {self.show(name, operation)}") from error
        if self._brought_copies(name, operation):
            self.counts["pick: brought copies"] += 1
            raise Stop
        if version is None:
            if self.lake.list_branches()[self.ref(name)] == before:
                return False
            if refused is not None and self._is_union(name, operation, refused):
                self.counts[f"{kind}: merged by value"] += 1
                raise Stop
            if refused is None:
                if self._equal(name, self.branches[name][-1]):
                    # a merge whose writes are there: only the parents differ
                    self.branches[name].append(Version(self.branches[name][-1].reached, (self.branches[name][-1],)))
                    self.did.append((name, operation))
                    return True
                raise Unequal(f"the model has nothing to do, but the lake changed: {self.show(name, operation)}")
            raise Unequal(f"no conflict ({refused}): {self.show(name, operation)}")
        self.counts[f"{kind}: done"] += 1
        if not self._equal(name, version):
            raise Unequal(f"{self._lake(name)} instead of {self._model(version)}: {self.show(name, operation)}")
        self.branches[name].append(version)
        self.did.append((name, operation))
        return True

    def _brought_copies(self, name: str, operation: Operation) -> bool:
        """Return whether a pick brought marked writes of which the branch it picked from had copies before.

        To the model, these are no writes of that commit. To a lake, they are: it does not know which ones the commit
        had left out, and a commit that made other writes as well comes as a whole.
        """
        if not isinstance(operation, tuple) or operation[0] != "pick":
            return False
        head, other = self.branches[name][-1], self.branches[operation[1]][-1]
        picked = self.lake.log(self.ref(operation[1]), limit=1)[0]
        is_with_marked = any(id[-1] == "and" for id in other.new())
        if not is_with_marked and picked.metadata.get("lake:left-out", "[]") == "[]":
            return False
        new = {*other.new(), *(id for id in other.reached if id[0] == "marker")}
        for version in (version for versions in self.branches.values() for version in versions):
            copies = Version({**other.reached, **version.reached})
            with suppress(Nothing, Refused):
                if self._equal(name, Version(merge(head, copies, new))):
                    return True
        return False

    def _is_union(self, name: str, operation: Operation, refused: str) -> bool:
        """Return whether what the lake did is right too, where the model refuses because it does not know better.

        A lake compares plain files by what they are: a side that changed a file and took that back did not change it.
        So too a dataset that a side left as it was, or that both sides dropped. It finds the copies of a marked write.
        """
        if isinstance(operation, str):  # an undo of what was dropped since, which changes nothing
            head = self.branches[name][-1]
            return not head.live("table") and self._equal(name, head)
        target, incoming = self.branches[name][-1], self.branches[operation[1]][-1]
        coming = incoming.new() if operation[0] == "pick" else list(incoming.reached)
        union = Version({**{id: incoming.reached[id] for id in coming}, **target.reached})
        rows, file, value = self._lake(name)
        is_back = not incoming.live("table") and any(not before.live("table") for before in common(target, incoming))
        if is_back and (rows, value) == (self._model(target)[0], self._model(target)[2]):
            return True  # the dataset that it created and dropped again counts for nothing
        if "read" in refused and not self._is_unread(target, incoming, coming):
            return False
        if "marker" in refused and "copy" not in refused:
            return False
        files, values = ({str(version.value(kind)) for version in (target, incoming)} for kind in ("key", "property"))
        meant = Counter({(key, label(id)): 1 for key, id in union.meant()})
        return rows == meant and str(file) in files and str(value) in values

    def _is_unread(self, target: Version, incoming: Version, coming: Sequence[Id]) -> bool:
        """Return whether nothing that the writes read differs between the target and a common version, all in all."""
        writes = [incoming.reached[id] for id in coming if id not in target.reached]
        reads = {key for write in writes for key in write.reads}
        dropped = not (target.live("table") or incoming.live("table")) or not incoming.rows()
        return dropped or any(
            incoming.rows() == before.rows()
            or not reads & {key for key, _ in target.rows().keys() ^ before.rows().keys()}
            for before in common(target, incoming)
        )

    def _model(self, version: Version) -> tuple[object, ...]:
        rows = Counter({(key, label(id)): count for (key, id), count in version.rows().items()})
        value = version.value("property")
        return rows, version.value("key"), None if value is None else str(value)

    def _lake(self, name: str) -> tuple[object, ...]:
        ref = self.ref(name)
        state = self.lake.at(ref)
        value = int(state.get(FILE)) if state.exists(FILE) else None
        return self.dataset.rows(self.lake, ref), value, self.dataset.value(self.lake, ref)

    def _equal(self, name: str, version: Version) -> bool:
        return self._lake(name) == self._model(version)

    def show(self, name: str, operation: Operation) -> str:
        """Return the history with one more operation as text."""
        steps = [*self.did, (name, operation)]
        return "; ".join(f"{b}: {op if isinstance(op, str) else ' '.join(op)}" for b, op in steps)


def common(left: Version, right: Version) -> list[Version]:
    """Return the versions that one comes from, and whose writes have all reached the other."""
    ancestors: dict[int, Version] = {}
    stack = [left]
    while stack:
        one = stack.pop()
        if id(one) not in ancestors:
            ancestors[id(one)] = one
            stack.extend(one.parents)
    return [version for version in ancestors.values() if version.reached.keys() <= right.reached.keys()]


def operations(texts: Sequence[str], names: Sequence[str]) -> Iterator[Step]:
    """Yield every operation on every branch."""
    for name in names:
        yield from ((name, text) for text in texts)
        for kind in ("merge", "squash", "pick"):
            yield from ((name, (kind, other)) for other in names if other != name)


def explore(start: Beside, texts: Sequence[str], depth: int) -> None:
    """Do every history up to a depth, those that differ only in what happens at once, one time. Raises Unequal."""
    level = [start]
    for _ in range(depth):
        following = []
        for beside in level:
            for name, operation in operations(texts, beside.names):
                if not beside.did or not _is_earlier(beside.did[-1], (name, operation)):
                    after = beside.copy()
                    with suppress(Stop):
                        if after.step(name, operation):
                            following.append(after)
        level = following


def _is_earlier(last: Step, step: Step) -> bool:
    """Return whether a step could as well come before the last one, and is listed there."""
    (before, one), (name, other) = last, step
    touched = {before, *(one[1:] if isinstance(one, tuple) else ())}
    depends = name in touched or (isinstance(other, tuple) and other[1] == before)
    return not depends and name < before


def walk(start: Callable[[], Beside], steps: Sequence[Step]) -> Beside:
    """Do a history as far as it goes. Raises Unequal, with as few steps as show the same."""
    try:
        return _done(start, steps)
    except Unequal as error:
        raise Unequal(str(_shortest(start, steps, error))) from None


def _done(start: Callable[[], Beside], steps: Sequence[Step]) -> Beside:
    beside = start()
    with suppress(Stop):
        for name, operation in steps:
            beside.step(name, operation)
    return beside


def _shortest(start: Callable[[], Beside], steps: Sequence[Step], error: Unequal) -> Unequal:
    number = 0
    while number < len(steps):
        shorter = [*steps[:number], *steps[number + 1 :]]
        try:
            _done(start, shorter)
            number += 1
        except Unequal as found:
            steps, error, number = shorter, found, 0
    return error


def random_steps(seed: int, texts: Sequence[str], names: Sequence[str], length: int) -> list[Step]:
    """Return a random history."""
    chance = random.Random(seed)
    choices = list(operations(texts, names))
    return [chance.choice(choices) for _ in range(length)]


def read(text: str) -> list[Step]:
    """Read the history that `Beside.show` wrote."""
    parts = [part.split(": ") for part in text.split("; ")]
    steps: list[Step] = []
    for branch, operation in parts:
        kind, space, other = operation.partition(" ")
        steps.append((branch, (kind, other) if space else kind))
    return steps
