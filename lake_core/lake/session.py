"""Sessions: the one place of a lake that takes writes (Arraylake: sessions, transactions and isolation).

A session sees the commit that it began with and its own changes, and nothing of what others publish meanwhile. `Session` is private to
a process and publishes at its end; `Part` is a process's share of a session that several processes work in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from lake_core import runtime
from lake_core.dataset import KeyClass
from lake_core.errors import InvalidKey
from lake_core.graveler import Record
from lake_core.lake.content import new_item
from lake_core.lake.errors import DatasetExists, ReadOnly, SessionClosed
from lake_core.lake.importing import Imported, convert_dataset, import_dataset, import_objects
from lake_core.lake.paths import claim
from lake_core.lake.refs import MOST_EXPIRY
from lake_core.lake.state_store import Clock, DatasetView, StateStore, WritableState
from lake_core.lake.view import DatasetRecord, View, dataset_above, dataset_path
from lake_core.store import ObjectMeta, ObjectStore
from lake_core.store.folder import renamed
from lake_core.store.object_store import Bytes

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Published:
    """What a session became."""

    commit: str
    """The commit's id; the branch's head where the session changed nothing."""
    versions: Mapping[str, int] = field(default_factory=dict)
    """The final version of each dataset that it changed."""
    session: str = ""
    skipped: Sequence[str] = ()
    """Datasets whose changes were there already, by their markers."""
    resolved: Mapping[str, str] = field(default_factory=dict)
    """The datasets and keys of which a merge's strategy took one side, with the kinds of the conflicts."""
    in_place: bool = True
    """Whether main's objects stand at their natural places. False: `Lake.materialise` completes it, as does the next publish."""


class WriteSession(WritableState):
    """What private sessions and parts of shared ones have in common: a state, with changes on top."""

    def __init__(self, root: ObjectStore, view: View, clock: Clock, *, name: str, base: StateStore, records_reads: bool) -> None:
        super().__init__(root, view, clock, name=name)
        self._base = base
        self._records_reads = records_reads
        self._reads: set[str] = set()
        self._state = "open"
        self.ended_retention: dict[str, datetime] = {}

    @property
    def base(self) -> StateStore:
        """The commit that it began with."""
        return self._base

    @property
    def state(self) -> str:
        """open, published, failed or abandoned."""
        return self._state

    @property
    def reads(self) -> Sequence[str]:
        """What it read, where its isolation asks for that: keys, and prefixes ending in "*"."""
        with self._guard:
            return sorted(self._reads)

    def create(self, path: str, format: str, *args: Any, **options: Any) -> Any:
        """Create a dataset and return its format's handle. Arguments are those of the format's own `create`, `exist_ok` among them.

        Raises DatasetExists, and what the format raises.
        """
        self._check_open()
        path = dataset_path(path)
        exist_ok = bool(options.pop("exist_ok", False))
        with self._guard:
            there = self.datasets().get(path)
            if there is not None and (not exist_ok or there.format != format):
                raise DatasetExists(f"a {there.format} dataset stands at {path!r} in {self.name}: open it, or pass exist_ok=True")
            if there is None:
                self.check_free(path)
                claim(self._root, path, format)
                record = DatasetRecord(path, format, str(runtime.uuid4()))
                view = DatasetView(self, record)
                for key, _ in list(self._view.list(f"{path}/")):
                    self._view.overlay.set(key, None)  # the log of one that was dropped
                self.register(record)
            else:
                view = self.folder_of(there)
        try:
            return view.resolver.create(view, *args, clock=self._clock, exist_ok=exist_ok, **options)
        except BaseException:
            if there is None:
                with self._guard:
                    self._unregister(view.record)
            raise

    def create_delta(self, path: str, schema: Any, **options: Any) -> Any:
        """Create a Delta table: `DeltaTable.create` with its `partition_by`, `properties` and `exist_ok`.

        The table carries a writer feature that other clients do not know: they read it, and refuse to write past the lake. `managed=False`
        leaves that out; what others then commit is adopted before the next publish.
        """
        return self.create(path, "delta", schema, **options)

    def drop(self, path: str) -> None:
        """Take a dataset away. Its history stays, and older commits still show it. Raises DatasetNotFound."""
        self._check_open()
        record = self.dataset(path).record
        with self._guard:
            for key, _ in list(self._view.list(f"{record.path}/")):
                self._view.overlay.set(key, None)
            self._unregister(record)

    def import_delta(self, path: str) -> Any:
        """Bring a Delta table that stands in the lake's folder into the lake, history and all; nothing is copied but its log.

        Other clients may go on writing it: what they commit is adopted before the next publish. Raises DatasetNotFound, DatasetExists.
        """
        self._check_open()
        return self.open(import_dataset(self, path, "delta").path)

    def import_parquet(self, path: str, *, partition_by: Any = None) -> Any:
        """Make a Delta table of a folder of Parquet files in the lake's folder, where they lie; see `DeltaTable.convert`."""
        self._check_open()
        return convert_dataset(self, path, "delta", partition_by=partition_by)

    def import_objects(self, prefix: str, *, to: str | None = None) -> Imported:
        """Name the objects that stand under a prefix of the lake's folder in this session, at the same keys or under `to`, uncopied.

        They must not change from now on.
        """
        self._check_open()
        return import_objects(self, prefix, to)

    def build(self, changes: Iterator[tuple[bytes, Record | None]]) -> None:
        """Take many changes at once, sorted by key: they go into the session's tree, not into memory."""
        with self._guard:
            self._view = replace(self._view, tree=self._view.graveler.build(self._view.tree, changes).tree)

    def base_of(self, path: str) -> ObjectStore | None:
        record = self._base.datasets().get(path)
        return None if record is None else self._base.folder_of(record)

    def end_retention(self, path: str, before: datetime) -> None:
        self.ended_retention[path] = before

    def register(self, record: DatasetRecord) -> None:
        """Let a folder be a dataset from now on."""
        self._view.overlay.set(record.key, record.item(self._clock()))
        self._datasets = None

    def _unregister(self, record: DatasetRecord) -> None:
        self._view.overlay.set(record.key, None)
        self._datasets = None

    def check_free(self, path: str) -> None:
        """Raises DatasetExists, or InvalidKey, unless a dataset can be created at a path."""
        datasets = self.datasets()
        above = dataset_above(f"{path}/x", datasets) or dataset_above(path, datasets)
        below = next((other for other in datasets if other.startswith(f"{path}/")), None)
        if above is not None or below is not None:
            raise DatasetExists(
                f"{path!r} lies in, or around, the dataset {above.path if above is not None else below!r}: datasets do not nest"
            )
        plain = next((meta.key for meta in self._plain(f"{path}/", "", None)), None)
        if plain is not None:
            raise DatasetExists(f"{path!r} holds plain files, such as {plain!r}: choose another path, or delete them first")
        if not path or path.split("/")[0].startswith(("_lake", ".")):
            raise InvalidKey(f"{path!r} cannot be a dataset's path", key=path)

    def _check_open(self) -> None:
        if self._state != "open":
            raise SessionClosed(f"{self.name} is {self._state}: open another one", state=self._state)

    def _put(self, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool) -> ObjectMeta:
        self._check_open()
        owner = self._owner(key)
        if owner is not None:
            return self._put_inside(*owner, key, data, if_absent, if_match, unique)
        if key in self.datasets():
            raise InvalidKey(f"{key!r} is a dataset, not a file", key=key)
        with self._guard:
            self._check_conditions(key, if_absent, if_match)
        # Stored at once: what a session holds in memory does not grow with what it writes.
        item = self._content.store(new_item(data, self._clock()))
        with self._guard:
            self._check_conditions(key, if_absent, if_match)
            self._view.overlay.set(key, item)
        return item.meta(key)

    def _put_inside(
        self, view: DatasetView, inner: str, key: str, data: Bytes, if_absent: bool, if_match: str | None, unique: bool
    ) -> ObjectMeta:
        kind = view.resolver.key_class(inner)
        if kind is KeyClass.UNIQUE:
            with renamed("", key[: -len(inner)]):
                if if_match is not None:
                    raise ReadOnly(f"{key!r} is a data file of {view.record.path}, which never change: write another one")
                # It stands in place at once, for all commits: whoever does not vouch for the name may only take one that is free.
                meta = view.place.put(inner, data, if_absent=if_absent or not unique, unique=unique and not if_absent)
            return ObjectMeta(key, meta.size, meta.etag, meta.last_modified)
        if kind is KeyClass.DERIVED:
            raise ReadOnly(f"{key!r} is derived from what the session does: it is written once that is published")
        with self._guard:
            self._check_conditions(key, if_absent, if_match)
            view.resolver.accept(view, inner, bytes(data))
            item = new_item(data, self._clock())
            self._view.overlay.set(key, item)
        return item.meta(key)

    def _delete(self, keys: Sequence[str]) -> None:
        self._check_open()
        plain: list[str] = []
        for key in keys:
            owner = self._owner(key)
            if owner is None:
                plain.append(key)
            elif not owner[0].in_place(owner[1]):
                raise ReadOnly(f"{key!r} is of the log of {owner[0].record.path}, which only grows: drop the dataset instead")
            # Data files stay: other states may need them, and deleting is left to garbage collection.
        with self._guard:
            for key in plain:
                if self._view.get(key) is not None:
                    self._view.overlay.set(key, None)

    def __getstate__(self) -> dict[str, Any]:
        raise TypeError(
            f"{self.name} lives in the process that writes it, and cannot be pickled: open a shared session with Lake.open_session, "
            f"pass its id and epoch on, and Lake.join it there"
        )

    def _read(self, what: str) -> None:
        if self._records_reads:
            with self._guard:
                self._reads.add(what)


class Session(WriteSession):
    """A private session: it lives in memory, publishes when its `with` block ends, and leaves nothing where that raises."""

    def __init__(
        self,
        root: ObjectStore,
        view: View,
        clock: Clock,
        *,
        id: str,
        branch: str,
        commit: str,
        base: StateStore,
        opened_at: int,
        message: str,
        metadata: Mapping[str, str],
        isolation: str,
        publish: Callable[[Session], Published],
    ) -> None:
        super().__init__(root, view, clock, name=f"session {id}", base=base, records_reads=isolation == "serializable")
        self.id, self.branch, self.commit, self.opened_at = id, branch, commit, opened_at
        self.message, self.metadata, self.isolation = message, dict(metadata), isolation
        self.opened = clock()
        self._publish = publish
        self.result: Published | None = None

    def publish(self) -> Published:
        """Publish now; repeated, the same result. Raises Conflict (then the session is kept, failed, under its id), PublishTimeout."""
        if self.result is None:
            self._check_open()
            if self._clock() - self.opened > MOST_EXPIRY:
                # What it found stored may have been collected since.
                self._state = "expired"
                self._check_open()
            self.result = self._publish(self)
            self._state = "published"
        return self.result

    def abandon(self) -> None:
        """End it without a trace."""
        if self._state == "open":
            self._state = "abandoned"

    def failed(self) -> None:
        """End it: what it holds contradicts what was published meanwhile."""
        self._state = "failed"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None:
            self.abandon()
        elif self._state == "open":
            self.publish()


class Part(WriteSession):
    """A process's share of a shared session: private until `flush`, which brings it into the session as one batch."""

    def __init__(
        self,
        root: ObjectStore,
        view: View,
        clock: Clock,
        *,
        session: str,
        epoch: int,
        base: StateStore,
        records_reads: bool,
        output: str | None,
        attempt: int,
        flush: Callable[[Part], View],
    ) -> None:
        super().__init__(root, view, clock, name=f"session {session}", base=base, records_reads=records_reads)
        self.session, self.epoch, self.output, self.attempt = session, epoch, output, attempt
        self.id = runtime.uuid4().hex
        self.closing = False
        """Whether it flushes for the last time."""
        self.flushed = 0
        """How many batches it has brought in."""
        self._flush = flush

    def show(self, tree: str) -> None:
        """Begin with another tree; for one that has nothing on top of it yet."""
        self._view = replace(self._view, tree=tree)

    def flush(self) -> None:
        """Bring what this part changed since its last flush into the session, as one batch, and see what others brought in.

        Raises StaleEpoch, SessionClosed, StaleAttempt, and Conflict where another part changed the same.
        """
        self._check_open()
        with self._guard:
            self._view = self._flush(self)
            self._datasets = None
            self.flushed += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._state == "open":
            self.closing = True
            self.flush()
        self._state = "closed" if self._state == "open" else self._state


class SessionHandle(StateStore):
    """A shared session, as it stands: what its parts have flushed. Reads only; `Lake.join` writes."""

    def __init__(self, root: ObjectStore, view: View, clock: Clock, *, id: str, epoch: int, branch: str, commit: str, lineage: str) -> None:
        super().__init__(root, view, clock, name=f"session {id}")
        self.id, self.epoch, self.branch, self.commit, self.lineage = id, epoch, branch, commit, lineage
