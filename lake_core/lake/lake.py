"""`Lake`: transactions over a bucket or a folder, with no server to run."""

from __future__ import annotations

import getpass
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from os import PathLike
from typing import Any, Literal, Self
from urllib.parse import quote

from lake_core import runtime
from lake_core.graveler import Commit, Graveler
from lake_core.graveler.export import Exported
from lake_core.journal import Action, Add, Journal, State, Update
from lake_core.lake import adopting, shared
from lake_core.lake.advance import Change, advance
from lake_core.lake.branches import BranchesAndTags
from lake_core.lake.collect import Collected, collect
from lake_core.lake.comparison import MOST_ROWS, Comparison, compare_states
from lake_core.lake.content import item_of
from lake_core.lake.errors import Conflict, LakeAlreadyExists
from lake_core.lake.exporting import export
from lake_core.lake.format import check_no_repository, create_format, read_format
from lake_core.lake.history import log
from lake_core.lake.live import HISTORY
from lake_core.lake.place import Placed, complete, in_place, not_in_place
from lake_core.lake.refs import OPEN, RefsState, SessionRecord, check_name, commit_value
from lake_core.lake.repository import CONFIG, REFS, Clock, Repository, aware
from lake_core.lake.revision import resolve
from lake_core.lake.session import Part, Published, Session, SessionHandle
from lake_core.lake.state_store import StateStore
from lake_core.lake.verify import Problem, verify
from lake_core.lake.view import RESERVED, DatasetRecord, Overlay, View
from lake_core.store import ObjectStore, open_store

_FIRST_MESSAGE = "Repository created"


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that differs between two states."""

    key: str
    kind: Literal["added", "removed", "changed"]
    dataset: str | None
    """The dataset that the key is part of."""
    size: int
    """Bytes, of what stands there now; of what stood there, for one that is gone."""


@dataclass(frozen=True, slots=True)
class Status:
    """A lake at a glance."""

    url: str
    branches: Mapping[str, str]
    """The commit of each branch."""
    sessions: int
    """Open ones."""
    entries: int
    """Of the refs journal."""
    not_in_place: Sequence[str]
    """Commits of main that are published, and not known to stand in place yet; the next publish, or `materialise`, completes them."""


class Lake(BranchesAndTags):
    """A lake: many datasets and files in one folder or bucket, which publish together, with branches and history.

        lake = Lake.create("s3://bucket/lake", exist_ok=True)
        with lake.session("main", message="nightly") as s:
            s.create_delta("tables/orders", schema, exist_ok=True).append(rows, txn=("orders", 7))
            s.put("reports/today.json", b"{}")
        lake.delta("tables/orders", ref="main").to_arrow()

    A ref is a branch, a tag, a commit, a session, or an expression such as `main~1` or `main@{2026-01-31T12:00:00Z}`.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    @classmethod
    def create(
        cls,
        url: str | PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
        profile: Literal["small", "lakefs"] = "small",
        exist_ok: bool = False,
    ) -> Self:
        """Make a folder or bucket a lake, with an empty branch `main`. `profile`: how large ranges are; fixed from here on.

        Raises LakeAlreadyExists, InvalidUrl, UnsafeStore; FolderInUse where a lakeFS repository, or an export to one, keeps its metadata.
        """
        root = url if isinstance(url, ObjectStore) else open_store(url, storage_options=storage_options)
        try:
            check_no_repository(root)
            create_format(root, profile, aware(clock)())
        except LakeAlreadyExists:
            if not exist_ok:
                raise
        lake = cls._open(root, clock)
        lake._begin()
        return lake

    @classmethod
    def open(
        cls,
        url: str | PathLike[str] | ObjectStore,
        *,
        storage_options: Mapping[str, Any] | None = None,
        clock: Clock | None = None,
    ) -> Self:
        """The lake at a location. `clock` tells the time, with a zone. Raises LakeNotFound, UnsupportedLake, InvalidUrl."""
        root = url if isinstance(url, ObjectStore) else open_store(url, storage_options=storage_options)
        return cls._open(root, clock)

    @classmethod
    def exists(cls, url: str | PathLike[str] | ObjectStore, *, storage_options: Mapping[str, Any] | None = None) -> bool:
        """Whether a lake stands at a location."""
        root = url if isinstance(url, ObjectStore) else open_store(url, storage_options=storage_options, read_only=True)
        return root.exists("_lake/format.json")

    @classmethod
    def _open(cls, root: ObjectStore, clock: Clock | None) -> Self:
        found = read_format(root)
        time = aware(clock)
        graveler = Graveler(root, profile=found.ranges)
        journal = Journal(root, REFS, clock=time)
        return cls(Repository(root, found, graveler, journal, Journal(root, CONFIG, clock=time), time, _committer(), clock is not None))

    def _begin(self) -> None:
        """The first entry: an empty main. Whoever makes it, and however often, there is one."""
        repository = self._repository
        branch = repository.format.branch

        def plan(state: State) -> Sequence[Action]:
            if f"branch/{branch}" in state:
                return ()
            metadata = {"lake": repository.format.id}
            first = Commit.create(repository.committer, _FIRST_MESSAGE, repository.clock(), "", metadata=metadata)
            return [
                Add(f"commit/{first.id}", commit_value(first)),
                Add(f"branch/{branch}", {"commit": first.id}),
                Add(f"place/{branch}", {"commit": first.id}),
            ]

        repository.journal.append(plan)

    @property
    def repository(self) -> Repository:
        """The lake's parts: its root, its refs, its tree."""
        return self._repository

    @property
    def url(self) -> str:
        """Where the lake lies."""
        return self._repository.root.url()

    def uri(self, ref: str = "main", path: str = "") -> str:
        """Where fsspec finds a path of a ref: `lake://<the lake's location, encoded>/<ref>/<path>`. Pass a commit to pin one."""
        return f"lake://{quote(self.url, safe='')}/{ref}/{path.lstrip('/')}".rstrip("/")

    @property
    def id(self) -> str:
        """What tells this lake from others, wherever it is moved."""
        return self._repository.format.id

    # Sessions

    def session(
        self,
        branch: str = "main",
        *,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        isolation: Literal["snapshot", "serializable"] | None = None,
        id: str | None = None,
    ) -> Session:
        """A private session: it publishes when its `with` block ends, and leaves nothing behind where that raises.

        `isolation`: by default the lake's own (`snapshot`: what formats and keys written twice forbid; `serializable`: nothing that the
        session read may have changed). Of several sessions with one `id` that began at the same commit, one publishes, and the others get
        its result. Raises RefNotFound, InvalidRef.
        """
        repository = self._repository
        _check_metadata(message, metadata)
        refs = repository.refs()
        commit = refs.commit(refs.branch(branch))
        return Session(
            repository.root,
            View(repository.graveler, commit.metarange_id, Overlay()),
            repository.clock,
            id=f"s-{runtime.uuid4().hex}" if id is None else check_name(id, "session"),
            branch=branch,
            commit=commit.id,
            base=repository.commit_state(commit),
            opened_at=refs.number,
            message=message,
            metadata=metadata or {},
            isolation=isolation or self.isolation,
            publish=self._publish,
        )

    def _publish(self, session: Session) -> Published:
        retention = {path: before.isoformat() for path, before in session.ended_retention.items()}
        change = Change(
            session.branch,
            session.base,
            session,
            session.message,
            session.metadata,
            session=session.id,
            reads=session.reads,
            retention=retention,
            remedy=shared.remedy(session.id),
        )

        def made(refs: RefsState) -> Published | None:
            """What an earlier attempt published whose answer was lost."""
            commit = refs.commit(refs.branch(session.branch))
            while commit.id != session.commit and commit.parents:
                if commit.metadata.get("session") == session.id:
                    return shared.published_as(self._repository, refs, session.branch, session.id, commit)
                commit = refs.first_parent(commit)
            return None

        try:
            return advance(self._repository, change, recheck=made)
        except Conflict as error:
            session.failed()
            shared.keep_failed(self._repository, session, error)
            raise

    def open_session(
        self,
        branch: str = "main",
        *,
        id: str | None = None,
        expires_in: timedelta = shared.DEFAULT_EXPIRY,
        isolation: Literal["snapshot", "serializable"] | None = None,
        message: str = "",
        metadata: Mapping[str, str] | None = None,
        resume: bool = True,
    ) -> SessionHandle:
        """Open a shared session, or resume the one of this id: its epoch rises, and what older epochs still write is refused.

        With `resume=False` an open one of this id is taken as it stands, its epoch too. The handle only reads; `join` writes. It expires
        after `expires_in` (7 days at most), which each flush renews. Raises RefNotFound, SessionClosed for one that has ended.
        """
        _check_metadata(message, metadata)
        return shared.open_session(
            self._repository,
            branch,
            id=id,
            expires_in=expires_in,
            isolation=isolation or self.isolation,
            message=message,
            metadata=metadata or {},
            resume=resume,
        )

    def join(self, id: str, *, epoch: int | None = None, output: str | None = None, attempt: int = 0) -> Part:
        """This process's part of a shared session: private until `flush`, and flushed when its `with` block ends.

        `epoch`: what the process was started with; an older one than the session's is refused. `output`, `attempt`: what is written, and
        the how-manieth try that is: a later attempt at the same output replaces an earlier one's, the same one is skipped.
        Raises SessionNotFound, SessionClosed, StaleEpoch.
        """
        return shared.join(self._repository, id, epoch, output, attempt)

    def publish(self, id: str, *, epoch: int | None = None) -> Published:
        """Publish a shared session; repeated, the same result. Raises Conflict (the session stays readable), SessionClosed.

        `epoch`: what the publisher was started with; StaleEpoch is raised if the session was resumed since.
        """
        return shared.publish(self._repository, id, epoch)

    def fail(self, id: str, reason: str, *, keep: timedelta = shared.KEEP_FAILED, epoch: int | None = None) -> None:
        """Mark an open shared session failed: it takes no writes, and can be read, resumed and published for as long as `keep`.

        One that has ended, or was resumed since (`epoch`), is left as it is. Raises SessionNotFound.
        """
        shared.fail(self._repository, id, reason, keep, epoch)

    def session_record(self, id: str) -> SessionRecord:
        """What the lake has on record of a shared session. One whose time is up says so. Raises SessionNotFound."""
        refs = self._repository.refs()
        return shared.expire_if_due(self._repository, refs, refs.session(id))

    def abandon(self, id: str) -> None:
        """End a shared session without a trace on its branch. Raises SessionNotFound, SessionClosed for one that is published."""
        shared.abandon(self._repository, id)

    def fork(self, id: str, *, without: Sequence[str] = (), expires_in: timedelta = shared.DEFAULT_EXPIRY) -> SessionHandle:
        """A new shared session with the work of another, less what it did to some datasets or keys. The lineage stays the same."""
        return shared.fork(self._repository, id, without, expires_in)

    def sessions(self, *, all: bool = False) -> list[SessionRecord]:
        """The shared sessions that are open or failed, oldest first; with `all` those on record that have ended too."""
        found = self._repository.refs().sessions()
        return found if all else [record for record in found if record.state in (OPEN, "failed")]

    # Reading

    def at(self, ref: str = "main") -> StateStore:
        """A ref as an object store that is only read. A branch is pinned: what is published later does not show. Raises RefNotFound."""
        repository = self._repository
        found = resolve(repository.refs(), repository.journal, ref)
        if isinstance(found, SessionRecord):
            return shared.handle(repository, found)
        return repository.commit_state(found, ref)

    def delta(self, path: str, *, ref: str = "main", **options: Any) -> Any:
        """A Delta table at a ref, as a `lake_core.delta.DeltaTable`; `options` are those of its `open`. Raises DatasetNotFound."""
        return self.at(ref).delta(path, **options)

    def datasets(self, ref: str = "main") -> list[DatasetRecord]:
        """The datasets at a ref, by path."""
        return [record for _, record in sorted(self.at(ref).datasets().items())]

    def log(
        self,
        ref: str = "main",
        *,
        dataset: str | None = None,
        first_parent: bool = False,
        limit: int | None = None,
        since: datetime | None = None,
    ) -> list[Commit]:
        """A ref's commits, newest first; those that touched a dataset; down to the first from before `since`. Raises RefNotFound."""
        refs = self._repository.refs()
        commits: list[Commit] = []
        for commit in log(refs, self._commit(ref, refs), first_parent=first_parent, dataset=dataset):
            if (limit is not None and len(commits) >= limit) or (since is not None and commit.creation_date < since):
                break
            commits.append(commit)
        return commits

    def diff(self, before: str, after: str, *, prefix: str = "") -> Iterator[Difference]:
        """The keys that differ between two refs, in order. Walks what differs, however large the lake. Raises RefNotFound."""
        old, new = self.at(before), self.at(after)
        datasets = {**old.registered(), **new.registered()}
        paths = sorted(datasets, key=len, reverse=True)
        for found in self._repository.graveler.diff(old.view.tree, new.view.tree, prefix.encode()):
            key = found.key.decode()
            if key.startswith(RESERVED):
                continue
            kind: Literal["added", "removed", "changed"] = (
                "added" if found.before is None else "removed" if found.after is None else "changed"
            )
            record = found.after or found.before
            assert record is not None
            dataset = next((path for path in paths if key.startswith(f"{path}/")), None)
            yield Difference(key, kind, dataset, item_of(record).entry.size)

    def compare(self, before: str, after: str, *, prefix: str = "", sample: int = 0, most_rows: int = MOST_ROWS) -> Comparison:
        """Compare two refs: tables by their versions, rows and columns, plain files by key. Raises RefNotFound.

        Rows are counted exactly where a table's changed files hold at most `most_rows`. `sample`: how many of the rows that each table
        gained and lost are shown.
        """
        return compare_states(self.at(before), self.at(after), self.diff(before, after, prefix=prefix), sample=sample, most_rows=most_rows)

    def status(self) -> Status:
        """The lake at a glance."""
        refs = self._repository.refs()
        waiting = not_in_place(refs, self._repository.format.branch)
        behind = [commit.id for commit in waiting if not in_place(self._repository, commit)]
        return Status(self.url, refs.branches(), sum(found.state == OPEN for found in refs.sessions()), refs.number, behind)

    # Main, in place

    def materialise(self, *, progress: Callable[[int, int], None] | None = None) -> Placed:
        """Put main's datasets in place as far as they are not, whoever died on the way. Idempotent. Raises Diverged."""
        return complete(self._repository, progress)

    def gc(
        self, *, dry_run: bool = False, history: timedelta | None = None, progress: Callable[[str, int], None] | None = None
    ) -> Collected:
        """Delete what no branch, tag, session or commit of the last `history` (30 days, or as configured) reaches. Publishing goes on
        meanwhile; interrupted, the next call goes on. Objects younger than eight days stay. `dry_run` only tells.

        Raises CollectionRefused where a live dataset cannot be read.
        """
        return collect(self._repository, self.history if history is None else history, dry_run=dry_run, progress=progress)

    def verify(self, *, hashes: bool = True, progress: Callable[[str, int], None] | None = None) -> list[Problem]:
        """What is wrong: objects that live states reach and that are gone, or hold other bytes than they are named by; main not in place.

        `hashes`: read all content, instead of only looking whether it is there.
        """
        return list(verify(self._repository, self.history, hashes=hashes, progress=progress))

    # Other writers

    def adopt(self, dataset: str) -> Published:
        """Bring what another client committed to a dataset, past the lake, into main. Raises NothingToApply, DatasetNotFound, Conflict."""
        return adopting.adopt(self._repository, dataset)

    def release(self, dataset: str) -> Published:
        """Make a dataset a plain one, which other clients may write and of which the lake knows no more. Raises DatasetNotFound."""
        return adopting.release(self._repository, self.session(self._repository.format.branch, message=f"Release {dataset}"), dataset)

    def checkpoint(self, dataset: str) -> None:
        """Write what is derived of a dataset of main (a Delta table's checkpoint) in place, due or not. Raises DatasetNotFound."""
        state = self.at(self._repository.format.branch)
        view = state.dataset(dataset)
        view.resolver.derive(view, view.place, self._repository.clock(), due=True)

    def export(
        self, target: str | PathLike[str] | ObjectStore, *, history: bool = True, storage_options: Mapping[str, Any] | None = None
    ) -> Exported:
        """Copy branches and tags, with their data files, into an empty folder or bucket as a lakeFS repository, with the dumps that
        `lakectl refs-restore` loads. Without `history` only the commits that a branch or tag names. Repeated, it copies what is missing.

        Raises FolderInUse for a lake, and for a folder that holds more than an earlier export of this one.
        """
        store = target if isinstance(target, ObjectStore) else open_store(target, storage_options=storage_options)
        refs = self._repository.refs()
        branches, tags = refs.branches(), refs.tags()
        named = [refs.commit(id) for id in {*branches.values(), *tags.values()}]
        commits = {commit.id: commit for start in named for commit in (log(refs, start) if history else [start])}
        return export(self._repository, list(commits.values()), store, branches, tags)

    # Configuration

    @property
    def history(self) -> timedelta:
        """How long commits that no ref names are kept."""
        found = self._repository.settings.state(refresh=False).get("history_days")
        return HISTORY if found is None else timedelta(days=float(found))

    def configure(self, *, history: timedelta | None = None, isolation: Literal["snapshot", "serializable"] | None = None) -> None:
        """Set what holds for the whole lake: how long history is kept, what sessions may rely on."""
        values: dict[str, Any] = {}
        if history is not None:
            values["history_days"] = history / timedelta(days=1)
        if isolation is not None:
            values["isolation"] = isolation

        def plan(state: State) -> Sequence[Action]:
            return [Update(key, value) if key in state else Add(key, value) for key, value in values.items() if state.get(key) != value]

        self._repository.settings.append(plan)

    @property
    def isolation(self) -> Literal["snapshot", "serializable"]:
        """What sessions may rely on by default; see `session`."""
        found = self._repository.settings.state(refresh=False).get("isolation")
        return "serializable" if found == "serializable" else "snapshot"

    def __repr__(self) -> str:
        return f"Lake({self.url!r})"


def _check_metadata(message: str, metadata: Mapping[str, str] | None) -> None:
    if not isinstance(message, str) or not all(isinstance(text, str) for pair in (metadata or {}).items() for text in pair):
        raise ValueError("a commit's message is text, and its metadata text by name")


def _committer() -> str:
    name = os.environ.get("LAKE_COMMITTER")
    if name:
        return name
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"
