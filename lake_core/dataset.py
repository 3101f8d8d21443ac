"""`DatasetFormat`, the interface between a lake and a format, and the registry of the installed formats.

A dataset is a folder of a lake in one format: a Delta table, an Icechunk repository, a pool. Each of its files has a
class (`KeyClass`); the tree holds a dataset's log and pointers, not its UNIQUE files. A `DatasetFormat` defines how to
open a dataset, how to compare two states and apply their difference to a third, and which files a state reaches.
Formats register their classes under the entry point group `lake_core.formats`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias, TypeVar

from lake_core.errors import LakeError
from lake_core.inspection import Fact, Inspection, RowPage, RowRequest, Summary
from lake_core.installed import installed
from lake_core.store import ObjectStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from datetime import datetime

FORMATS = "lake_core.formats"
"""The entry point group in which formats register their classes: name → a class without arguments."""

MOST_ROWS = 1_000_000
"""The most rows of a dataset that are read to compare two states of it, by default."""


class UnknownFormat(LakeError):
    """No class is registered for a dataset's format. Install the package that has it."""


class NoRows(LakeError):
    """The format has no rows to show. Read the dataset with its own handle."""


class NotConvertible(LakeError):
    """The format cannot convert plain files to a dataset.

    Create an empty dataset and write the rows to it instead.
    """


class DatasetConflict(LakeError):
    """The changes of one side to a dataset conflict with those of the other side.

    `kind` names the rule.
    """

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


class AtLeast(int):
    """The size of a file of which only parts are named: it has these bytes at least."""

    __slots__ = ()


NOT_EMPTY = AtLeast(1)
"""The size of a file of which none is recorded, and which is never empty."""

Sizes: TypeAlias = "dict[str, int | None]"
"""Sizes of objects in bytes by their keys, as a dataset's log records them. None if it records none."""


@dataclass(frozen=True, slots=True)
class SizedKeys:
    """Keys with sizes that are found one after the other, so that those before an error are known."""

    pairs: Iterator[tuple[str, int | None]]

    def __iter__(self) -> Iterator[str]:
        return (key for key, _ in self.pairs)


def sized(keys: Iterable[str]) -> Iterable[tuple[str, int | None]]:
    """Yield keys with the sizes that a format gives. A format that records none lists the keys alone."""
    if isinstance(keys, SizedKeys):
        return keys.pairs
    return keys.items() if isinstance(keys, Mapping) else ((key, None) for key in keys)


def sizes_of(keys: Iterable[str]) -> Sizes:
    """Return keys with the sizes that a format gives, as a mapping."""
    return dict(sized(keys))


def add_sizes(sizes: Sizes, others: Iterable[tuple[str, int | None]]) -> None:
    """Add sizes. What is recorded replaces what is not, and of the least sizes of a file the largest counts."""
    for key, size in others:
        known = sizes.get(key)
        sizes[key] = size if known is None else max(known, size) if isinstance(size, AtLeast) else known


class KeyClass(Enum):
    """The class of a dataset's key, by which a lake treats its object."""

    UNIQUE = "unique"
    """Immutable, with a name that is never used twice: written to the dataset's folder at once, on any branch."""
    LOG = "log"
    """A numbered entry of the dataset's log: kept in the tree, put into the folder if absent once main has it."""
    POINTER = "pointer"
    """A fixed name that moves: kept in the tree, replaced in the folder by compare-and-swap."""
    DERIVED = "derived"
    """Rebuilt from the log at will: never in the tree, never merged."""


class WriteBuffer(Protocol):
    """Writes that a format's handles buffer in a session, to write them together.

    All handles on one dataset of a session share one buffer.
    """

    def flush(self) -> object:
        """Write the buffered changes to the store.

        Called before the session is published, or flushed to a shared one.
        """

    def refresh(self) -> None:
        """Continue from the present state of the store, to which a flush has added the writes of others.

        Called when nothing is buffered.
        """


BufferT = TypeVar("BufferT", bound=WriteBuffer)


class DatasetStore(ObjectStore, ABC):
    """A dataset's folder in a commit, a branch or a session of a lake, as the object store that its format runs on."""

    @property
    @abstractmethod
    def provisional(self) -> bool:
        """Return whether a publish replaces the log entries written here, so that derived objects are useless."""

    @property
    def versioned(self) -> bool:
        """Return True, as the lake keeps several states of the dataset."""
        return True

    @property
    @abstractmethod
    def data_root(self) -> ObjectStore:
        """Return the dataset's folder. It has the UNIQUE objects of all states, and other processes use it by URL."""

    @property
    @abstractmethod
    def base(self) -> ObjectStore | None:
        """Return the dataset as the session that writes it found it, or None where it was not there."""

    @abstractmethod
    def write_buffer(self, create: Callable[[], BufferT]) -> BufferT:
        """Return the dataset's buffer in this session: that of an earlier call, or a new one by `create`.

        Raises where the store is not of a session, or the session has ended.
        """

    @abstractmethod
    def check_buffer(self, buffer: WriteBuffer) -> None:
        """Raise if buffered writes would be lost, because the session has ended or the dataset was dropped in it."""

    @abstractmethod
    def note_scan(self) -> None:
        """Record that the caller read rows, on which the commit of a serializable session may depend."""

    @abstractmethod
    def end_retention(self, before: datetime) -> None:
        """Let collection delete what only states older than `before` need.

        What a branch, tag or session needs stays.
        """


NOTHING = "NONE"
"""The operation of an application that changes nothing."""
SKIPPED = "SKIPPED"
"""The operation of an application whose write the target already has, by its transaction identifier.

It changes nothing, and its result says that it was skipped.
"""


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a difference to a dataset."""

    puts: Mapping[str, bytes]
    """The new fixed-name objects, by key within the dataset; empty where the target has it all already."""
    version: int | None
    """The dataset's version then, if it counts versions."""
    operation: str
    """The operation as the format names it (WRITE, MERGE, …); NOTHING or SKIPPED if `puts` is empty."""
    summary: Mapping[str, int] = field(default_factory=dict)
    """Numbers about it: files and rows added and removed, as far as they are known."""
    references: Sequence[str] = ()
    """The UNIQUE keys that the dataset reaches now and did not before."""
    recorded: Sequence[tuple[str, int]] = ()
    """The transaction identifiers of the writes that are there already, and were left out."""
    is_kept: bool = False
    """Whether the dataset stays, though the difference drops it."""

    @classmethod
    def skip(cls, version: int | None, recorded: Sequence[tuple[str, int]]) -> Applied:
        """Return the result for writes that the target already has, by their applications and versions."""
        return cls({}, version, SKIPPED, recorded=tuple(recorded))


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """A column that differs between two states of a dataset."""

    name: str
    kind: Literal["added", "dropped", "changed"]
    before: str | None
    """Its type."""
    after: str | None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """An array or a group that differs between two states of a dataset which holds several."""

    path: str
    kind: Literal["added", "dropped", "changed"]
    node: Literal["array", "group"]
    chunks_written: int = 0
    """Chunks of an array that the later state has, and the earlier one lacks or has otherwise."""
    chunks_erased: int = 0


@dataclass(frozen=True, slots=True)
class DatasetComparison:
    """The differences between two states of a dataset, for a person to read."""

    before: int | None
    """The versions; None for a state in which the dataset does not exist."""
    after: int | None
    rows_added: int | None
    """An updated row counts as one added and one removed. None if it is unknown."""
    rows_removed: int | None
    rows_exact: bool
    """False where rows that were only copied into new files may be counted too."""
    files_added: int
    files_removed: int
    columns: Sequence[ColumnChange] = ()
    sample_added: Sequence[Mapping[str, Any]] = ()
    """Some of the rows."""
    sample_removed: Sequence[Mapping[str, Any]] = ()
    nodes: Sequence[NodeChange] = ()
    """For a dataset that holds arrays instead of rows: those that differ."""


class ReadCheck(Protocol):
    """What a change of a dataset has read."""

    def __call__(self, before: ObjectStore | None, after: ObjectStore | None, *, comes: bool) -> bool:
        """Return whether it depends on another change, given by the states before and after that.

        With `comes`, the other change is there, and this one did not see it. Otherwise this one saw it, and it is gone.
        """
        ...


class DatasetFormat(ABC):
    """The interface between a lake and a dataset format.

    Stores are rooted at the dataset's folder; None stands for a dataset that does not exist.

    Every format implements the abstract methods. The defaults of the others are for a format without a log, pointers
    and derived objects, of which nothing is ever collected. All threads of a process share one object.
    """

    format: str
    """The name by which datasets of the format are registered."""
    derived_prefix: str = ""
    """What the keys of its DERIVED objects begin with. Without it none are looked for."""
    is_tabular: bool = False
    """Whether all its rows have one schema, so that SQL reads them by `Inspection.schema` and `batches`."""

    @property
    def description(self) -> str:
        """Return what a dataset of the format is in a few words, such as `a Delta table`."""
        return f"a dataset of the format {self.format}"

    # Objects

    @abstractmethod
    def key_class(self, key: str) -> KeyClass | None:
        """Return the class of a key within a dataset, or None if the format has no such key."""

    @abstractmethod
    def exists(self, store: ObjectStore) -> bool:
        """Return whether a dataset of this format exists at the root of a store."""

    @abstractmethod
    def open(self, store: ObjectStore, *, clock: Callable[[], datetime] | None, **options: Any) -> Any:
        """Return a handle on the dataset, as the format's users know it."""

    def head(
        self, store: ObjectStore, count: int, *, columns: Sequence[str] | None = None, where: str | None = None
    ) -> tuple[Sequence[str], Sequence[Mapping[str, Any]]]:
        """Return the names of the columns, and the first rows, for a person to look at.

        Args:
            store: The dataset.
            count: The most rows.
            columns: The columns to show. None is all.
            where: Spark SQL that is true for the rows to show.

        Raises:
            NoRows: The format has none, by default.
        """
        raise NoRows(f"a dataset of the format {self.format} has no rows to show: open it from Python")

    def inspect(self, store: ObjectStore) -> Inspection[Any]:
        """Return what a person can look at in a state of the dataset. By default, that is its objects."""
        return ObjectsInspection(self, store)

    def instead_of_sql(self, path: str) -> str:
        """Return what to do instead of a query, for a dataset that SQL does not read."""
        return f"{path} is not a table, but a dataset of the format {self.format}, which SQL does not read"

    def setting_problems(self, store: ObjectStore) -> Sequence[str]:
        """Return what is wrong with settings of the dataset that any writer may set, and what is done instead."""
        return ()

    def find(self, store: ObjectStore, *, clock: Callable[[], datetime] | None, **options: Any) -> Any | None:
        """Return a handle on the dataset of a folder outside of lakes, as `open` does, or None if there is none."""
        return self.open(store, clock=clock, **options) if self.exists(store) else None

    @abstractmethod
    def create(self, store: ObjectStore, *args: Any, clock: Callable[[], datetime] | None, **options: Any) -> Any:
        """Create the dataset and return a handle on it; arguments are those of the format's own `create`.

        The store is a `DatasetStore`, or that of a folder outside of lakes if it is not `versioned`.
        """

    def validate_entry(self, store: DatasetStore, key: str, data: bytes) -> None:
        """Check a log entry before a session takes it. Raises where the session could not be published with it."""
        return

    # Versions

    @abstractmethod
    def version(self, store: ObjectStore) -> int | None:
        """Return the dataset's version; None where it does not exist, or counts none.

        Use the log, not a pointer: if another writer forked the log, a state has only its beginning, and pointers name
        later versions.
        """

    def log_keys(self, store: ObjectStore, version: int) -> Sequence[str]:
        """List the LOG keys that make up one version, in the order in which they are checked out."""
        return ()

    def pointer_keys(self, store: ObjectStore) -> Sequence[str]:
        """List the POINTER keys of a state, in the order in which they are moved once its log is checked out."""
        return ()

    def is_behind(self, pointer: str, store: ObjectStore, other: ObjectStore) -> bool:
        """Return whether the pointer's value in `other` is newer than in `store`, so that moving to it loses nothing.

        Asked only where both have the pointer, with different values.
        """
        return False

    def superseded_pointers(self, state: ObjectStore, folder: ObjectStore) -> Sequence[str]:
        """List the POINTER keys of a state in whose place others stand in the dataset's folder.

        Another client has upgraded the folder. The keys are removed from the lake when it adopts the folder.
        """
        return ()

    def takes_back(self, store: ObjectStore, other: ObjectStore) -> bool:
        """Return whether the writer of `other` knew what `store` has, and took it back, such as by an older pointer.

        Asked only of a folder that main is neither behind nor ahead of. It is then not adopted.
        """
        return False

    @abstractmethod
    def apply(
        self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext
    ) -> Applied:
        """Apply the difference between `base` and `incoming` to `target`, as one new version.

        Only UNIQUE objects are written.

        Raises DatasetConflict if the format's rules forbid it.
        """

    def read_check(self, before: ObjectStore | None, after: ObjectStore | None) -> ReadCheck | None:
        """Return the check of what the change from one state to another has read; None if it read nothing.

        By default, a change is taken to have read the whole dataset.
        """
        return lambda before, after, comes: True

    def shares_values(
        self,
        change: tuple[ObjectStore | None, ObjectStore | None],
        other: tuple[ObjectStore | None, ObjectStore | None],
    ) -> bool:
        """Return whether two changes, each given by the states before and after it, set the same single value.

        That is a chunk, a document or a property: what one write sets in place of another's. Rows and files are none.
        """
        return False

    def rearranges(self, before: ObjectStore | None, after: ObjectStore | None) -> bool:
        """Return whether a change only rearranges what is there, so that it can be undone for the sake of others."""
        return False

    def raised_markers(self, before: ObjectStore | None, after: ObjectStore | None) -> AbstractSet[tuple[str, int]]:
        """Return the transaction identifiers of the writes that a change is: applications and versions.

        The default is for formats without them.
        """
        return frozenset()

    def compare(
        self, before: ObjectStore | None, after: ObjectStore | None, *, sample: int, most_rows: int
    ) -> DatasetComparison:
        """Return the differences between two states.

        At most `most_rows` rows are read for counting. Up to `sample` of each kind are shown.
        """
        old, new = (set() if store is None else set(self.reachable(store, None)) for store in (before, after))
        versions = [None if store is None else self.version(store) for store in (before, after)]
        return DatasetComparison(versions[0], versions[1], None, None, False, len(new - old), len(old - new))

    # Garbage

    @abstractmethod
    def reachable(self, state: ObjectStore, since: int | None) -> Iterable[str]:
        """List the UNIQUE keys that the states from version `since` to this one reach; only of this one for None.

        A format whose log records the sizes of objects returns `Sizes` or `SizedKeys`, and `lake verify` compares them.
        """

    def content_problem(self, store: ObjectStore, key: str) -> str | None:
        """Read a UNIQUE object, and return what is wrong with its content. Return None if it can be decoded.

        By default, nothing is known about the content.
        """
        return None

    def superseded(self, state: ObjectStore, since: int) -> Iterable[str]:
        """List the UNIQUE keys that versions from `since` on reach, but the newest version of this state does not.

        Keys that the newest version reaches may be among them. A format with a long log can answer from the log entries
        after `since` alone.
        """
        newest = set(self.reachable(state, None))
        return {key: size for key, size in sizes_of(self.reachable(state, since)).items() if key not in newest}

    def collectable(self, key: str) -> bool:
        """Return whether a UNIQUE object that nothing reaches is the format's own, and so garbage.

        Other writers may have put other files there.
        """
        return False

    def oldest_version_read(self, store: ObjectStore, now: datetime) -> int | None:
        """Return the oldest version that plain readers may still need now; None for only the newest."""
        return None

    # Derived objects

    def derived_from(self, key: str) -> str | None:
        """Return the log entry that a derived object was made from.

        A derived object in the dataset's folder belongs to a state only if the state has the same log entry.

        Return "" for an object that only another derived object names, such as a sidecar. Return None if the log entry
        is unknown: the object is then never used.
        """
        return None

    def write_derived(self, state: ObjectStore, derived_root: ObjectStore, now: datetime, *, due: bool = False) -> None:
        """Write the derived objects that are due (or with `due`, all) for a state.

        For the branch that is checked out, `derived_root` is the dataset's folder, and has the log. For other states it
        is a folder for this version alone. If this fails, readers only lose time.
        """
        return

    # Other writers

    def is_managed(self, store: ObjectStore) -> bool:
        """Return whether other clients are kept from writing the dataset past the lake."""
        return False

    def incompatibility(self, store: ObjectStore) -> str | None:
        """Return why the lake can no longer follow the dataset's folder, such as an upgrade by another client.

        Such a folder is kept whole, and nothing is written to it. None, the default, if the lake can follow it.
        """
        return None

    def release(self, store: DatasetStore) -> None:
        """Let other clients write the dataset."""
        return

    def convert(self, store: DatasetStore, *, clock: Callable[[], datetime] | None, **options: Any) -> Any:
        """Make a dataset of the plain files that are in its folder, and return a handle on it.

        Raises NotConvertible, the default.
        """
        raise NotConvertible(
            f"the files at {store.url()} cannot become a {self.format} dataset without a copy: create a dataset "
            f"with session.create(path, {self.format!r}) and write their content to it"
        )

    def import_keys(self, store: ObjectStore) -> Sequence[str]:
        """List the keys with fixed names of a dataset that is to be imported. They are copied into the tree."""
        fixed = (KeyClass.LOG, KeyClass.POINTER)
        return [meta.key for meta in store.list() if self.key_class(meta.key) in fixed]


class ObjectsInspection(Inspection["ObjectStore"]):
    """What any dataset shows: the number of its objects, and the rows of `head` if its format has them."""

    def __init__(self, format: DatasetFormat, store: ObjectStore) -> None:
        super().__init__(store)
        self._format, self.format = format, format.format
        self.has_rows = type(format).head is not DatasetFormat.head
        self.unit = "records" if self.has_rows else "objects"

    def summary(self) -> Summary:
        """Count the objects that the state reaches."""
        sizes = sizes_of(self._format.reachable(self.store, None))
        known = [size for size in sizes.values() if size is not None]
        total = sum(known) if len(known) == len(sizes) else None
        facts = [Fact("objects", len(sizes))]
        return Summary(self.format, self._format.version(self.store), None, len(sizes), total, facts=facts)

    def rows(self, request: RowRequest) -> RowPage:
        """Return rows of `head`, which reads those before them as well."""
        last = request.offset + request.count
        names, rows = self._format.head(self.store, last + 1, columns=request.columns, where=request.where)
        return RowPage(names, rows[request.offset : last], len(rows) > last)


@dataclass(frozen=True, slots=True)
class ApplyContext:
    """The arguments of `DatasetFormat.apply` besides the three states."""

    now: datetime
    data_root: ObjectStore
    """The dataset's folder, for UNIQUE objects that the application itself reads or writes."""
    session: str | None = None
    """The session that is published, for the dataset's own history."""
    onto: str = "the target"
    """The target's name in messages."""
    recreated: bool = False
    """Whether the target was dropped. Its log then continues with the new versions."""
    dropped_beside: bool = False
    """Whether the target was created and dropped, or dropped, since the state that both sides come from."""
    replaces: bool = False
    """Whether the target becomes what `incoming` is, data and definition, whatever it has itself."""
    dry_run: bool = False
    """Whether the result is only looked at: no UNIQUE object is written either."""
    in_session: bool = False
    """Whether the target is a session, in which a later attempt may have replaced an earlier one."""
    undoes: bool = False
    """Whether the difference takes back what was written.

    A drop then only takes out what `base` holds, if others have written to the dataset since (`Applied.is_kept`).
    """
    by_writes: bool = False
    """Whether the history has decided that this difference comes, and nothing that it read has changed (`read_check`).

    Then only names conflict: what is removed must be there, and what is there already is not added again.
    """


@cache
def format_releases() -> dict[str, str]:
    """Return the release of each installed format: the name and version of the distribution that provides it."""
    distributions = {name: point.dist for name, point in installed(FORMATS).items()}
    return {name: "" if dist is None else f"{dist.name} {dist.version}" for name, dist in distributions.items()}


@cache
def dataset_format(name: str) -> DatasetFormat:
    """Return a format by its name, one object a process. Raises UnknownFormat."""
    formats = installed(FORMATS)
    if name not in formats:
        raise UnknownFormat(
            f"the format {name!r} is not installed (installed are {', '.join(formats) or 'none'}): "
            "install the package that provides it"
        )
    try:
        return formats[name].load()()  # type: ignore[no-any-return]
    except ModuleNotFoundError as error:
        raise UnknownFormat(
            f"the format {name!r} needs the package {error.name}, which is not installed: "
            "install the format's package with its extras"
        ) from error


def stored_format(folder: ObjectStore) -> str | None:
    """Return the format of the dataset in a folder outside of a lake, or None if no installed format finds one."""
    for name in format_releases():
        with suppress(UnknownFormat):  # its package is not installed, so nothing here has stored it
            if dataset_format(name).exists(folder):
                return name
    return None
