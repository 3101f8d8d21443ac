"""Shared sessions: a ref that several processes work in, published once (Arraylake: cooperative mode).

Opening one that exists resumes it: its epoch rises, and whatever an older epoch still sends is refused. That a session has expired is an
entry of the journal like every other change of its state; clocks only give the hint to write it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from lake_core import runtime
from lake_core.graveler import Commit
from lake_core.journal import Action, Add, State, Update
from lake_core.lake.advance import Change, HeadMoved, advance, write_tree
from lake_core.lake.apply import apply
from lake_core.lake.condemned import Condemned, collections
from lake_core.lake.errors import Conflict, RefExists, SessionClosed, StaleAttempt, StaleEpoch
from lake_core.lake.place import not_in_place, settle, touched
from lake_core.lake.refs import ABANDONED, EXPIRED, FAILED, MOST_EXPIRY, OPEN, PUBLISHED, Batch, RefsState, SessionRecord, check_name
from lake_core.lake.repository import Repository
from lake_core.lake.session import Part, Published, Session, SessionHandle
from lake_core.lake.view import Overlay, View

DEFAULT_EXPIRY = timedelta(hours=24)
KEEP_FAILED = timedelta(hours=24)
_MOST_TRIES = 50


def open_session(
    repository: Repository,
    branch: str,
    *,
    id: str | None,
    expires_in: timedelta,
    isolation: str,
    message: str,
    metadata: Mapping[str, str],
    lineage: str | None = None,
    tree: str | None = None,
    base: str | None = None,
    resume: bool = True,
) -> SessionHandle:
    """Open a session on a branch, or resume the one of this id: its epoch rises. Without `resume` an open one is left as it is.
    Raises RefNotFound, SessionClosed.
    """
    if not timedelta(0) < expires_in <= MOST_EXPIRY:
        raise ValueError(f"a session lives up to {MOST_EXPIRY.days} days, not {expires_in}")
    if isolation not in ("snapshot", "serializable"):
        raise ValueError(f"isolation is 'snapshot' or 'serializable', not {isolation!r}")
    name = check_name(id, "session") if id is not None else f"s-{runtime.uuid4().hex}"
    opened: list[SessionRecord] = []

    def plan(state: State) -> Sequence[Action]:
        refs, now = RefsState(state), repository.clock()
        opened.clear()
        if any(f"{other}/{name}" in state for other in ("branch", "tag")):
            raise RefExists(f"{name!r} is, or was, the name of a branch or tag: choose another id for the session")
        if f"session/{name}" in state:
            record = refs.session(name)
            if record.state not in (OPEN, FAILED):
                raise closed(record)
            if not resume and record.state == OPEN and now < record.expires:
                opened.append(record)
                return ()
            record = replace(record, epoch=record.epoch + 1, state=OPEN, reason="", expires=_renewed(record, now, expires_in))
            opened.append(record)
            return [Update(record.key, record.to_json())]
        commit = refs.commit(base or refs.branch(branch))
        record = SessionRecord(
            name, branch, commit.id, commit.metarange_id if tree is None else tree, 1, OPEN, now, now + expires_in, refs.number,
            lineage or name, message, isolation, (), dict(metadata),
        )  # fmt: skip
        opened.append(record)
        return [Add(record.key, record.to_json())]

    repository.journal.append(plan)
    return handle(repository, opened[0])


def _renewed(record: SessionRecord, now: datetime, expires_in: timedelta) -> datetime:
    return min(now + expires_in, record.opened + MOST_EXPIRY)


def handle(repository: Repository, record: SessionRecord) -> SessionHandle:
    """A shared session as a store that is only read."""
    view = View(repository.graveler, record.tree, Overlay())
    return SessionHandle(
        repository.root,
        view,
        repository.clock,
        id=record.id,
        epoch=record.epoch,
        branch=record.branch,
        commit=record.base,
        lineage=record.lineage,
    )


def closed(record: SessionRecord) -> SessionClosed:
    """Why a session takes no more."""
    told = {
        PUBLISHED: f"was published as commit {(record.commit or '')[:12]}",
        ABANDONED: "was abandoned",
        EXPIRED: "has expired",
        FAILED: f"failed ({record.reason}): resume it with open_session, or carry on what does not conflict with fork",
    }
    return SessionClosed(f"session {record.id!r} {told.get(record.state, record.state)}", state=record.state)


def expire_if_due(repository: Repository, refs: RefsState, record: SessionRecord) -> SessionRecord:
    """The session; where its time is up, after an entry that says so. Raises SessionClosed for one that has expired."""
    if record.state not in (OPEN, FAILED) or repository.clock() < record.expires:
        return record

    def plan(state: State) -> Sequence[Action]:
        newest = RefsState(state).session(record.id)
        if newest.state not in (OPEN, FAILED) or repository.clock() < newest.expires:
            return ()
        return [Update(newest.key, replace(newest, state=EXPIRED).to_json())]

    repository.journal.append(plan)
    return repository.refs().session(record.id)


def checked(repository: Repository, refs: RefsState, id: str, epoch: int | None) -> SessionRecord:
    """A session that takes writes at this epoch. Raises SessionNotFound, SessionClosed, StaleEpoch."""
    record = expire_if_due(repository, refs, refs.session(id))
    if record.state != OPEN:
        raise closed(record)
    _check_epoch(record, epoch)
    return record


def _check_epoch(record: SessionRecord, epoch: int | None) -> None:
    if epoch is not None and epoch < record.epoch:
        raise StaleEpoch(
            f"session {record.id!r} was resumed (epoch {record.epoch}; this is epoch {epoch}): what is written here is refused. "
            f"If this process is the one to go on, join the session again"
        )


def join(repository: Repository, id: str, epoch: int | None, output: str | None, attempt: int) -> Part:
    """A part of a shared session for this process. Raises SessionNotFound, SessionClosed, StaleEpoch, StaleAttempt, Conflict."""
    refs = repository.refs()
    record = checked(repository, refs, id, epoch)
    base = repository.commit_state(refs.commit(record.base), f"the base of session {id}")
    part = Part(
        repository.root,
        View(repository.graveler, record.tree, Overlay()),
        repository.clock,
        session=id,
        epoch=record.epoch,
        base=base,
        records_reads=record.isolation == "serializable",
        output=output,
        attempt=attempt,
        flush=lambda part: flush(repository, part),
    )
    # A later attempt begins where the earlier one did: it sees nothing of what it is going to replace.
    earlier, _ = _earlier_attempts(record, part)
    part.show(_without(repository, record, earlier, Condemned.of(repository, refs)))
    return part


def flush(repository: Repository, part: Part) -> View:
    """Bring a part's changes into its session as one batch; returns what the part sees then."""
    for _ in range(_MOST_TRIES):
        refs = repository.refs()
        record = checked(repository, refs, part.session, part.epoch)
        done = _flush(repository, refs, record, part)
        if done is not None:
            return View(repository.graveler, done, Overlay())
    raise SessionClosed(f"session {part.session!r} is written by too many at once: flush again", state=OPEN)


def _flush(repository: Repository, refs: RefsState, record: SessionRecord, part: Part) -> str | None:
    """One attempt: the session's new tree, None where another batch was faster."""
    if any(batch.id == _batch_id(part) for batch in record.batches):
        return record.tree  # it was applied, and the answer was lost
    earlier, skip = _earlier_attempts(record, part)
    if skip:
        return record.tree
    now = repository.clock()
    condemned = Condemned.of(repository, refs)
    tree = _without(repository, record, earlier, condemned)
    state = repository.state(tree, f"session {record.id}")
    before = repository.state(part.view.tree, f"session {record.id}")
    applied = apply(before, part, state, now=now, session=record.id, commit=record.base)
    after = write_tree(repository, applied.onto, applied.items, condemned)
    reads = sorted({*record.reads, *part.reads})
    # An attempt that wrote nothing is on record too: an older one that still sends something is to be refused.
    counts = part.output is not None and (part.closing or not any(batch.part == part.id for batch in record.batches))
    if after == record.tree and reads == list(record.reads) and not part.ended_retention and not counts:
        return after
    batch = Batch(_batch_id(part), part.id, tree, after, part.output, part.attempt, part.closing)
    kept = [other for other in record.batches if other not in earlier]
    metadata = dict(record.metadata) | {f"retention:{path}": before.isoformat() for path, before in part.ended_retention.items()}
    expires = _renewed(record, now, record.expires - record.opened)
    newer = replace(record, tree=after, batches=(*kept, batch), reads=reads, metadata=metadata, expires=expires)
    seen = collections(refs)
    lost: list[bool] = []

    def plan(journal_state: State) -> Sequence[Action]:
        newest = RefsState(journal_state)
        found = newest.session(record.id)
        lost.clear()
        if found.state != OPEN or found.epoch != record.epoch or found.tree != record.tree or collections(newest) != seen:
            lost.append(True)
            return ()
        return [Update(record.key, newer.to_json())]

    repository.journal.append(plan)
    return None if lost else after


def _batch_id(part: Part) -> str:
    return f"{part.id}-{part.flushed}"


def _earlier_attempts(record: SessionRecord, part: Part) -> tuple[list[Batch], bool]:
    """The batches of earlier attempts at a part's output, and whether this attempt's own is there already. Raises StaleAttempt."""
    if part.output is None:
        return [], False
    others = [batch for batch in record.batches if batch.output == part.output and batch.part != part.id]
    newest = max((batch.attempt for batch in others), default=-1)
    if newest > part.attempt:
        raise StaleAttempt(
            f"attempt {newest} at {part.output!r} is in session {record.id!r} already: this is attempt {part.attempt}, and too late"
        )
    whole = any(batch.attempt == part.attempt and batch.done for batch in others)
    return ([], True) if whole else (others, False)


def _without(repository: Repository, record: SessionRecord, batches: Sequence[Batch], condemned: Condemned) -> str:
    """A session's tree without what some batches brought."""
    tree = record.tree
    for batch in reversed(batches):
        tree = _reverted(repository, record, batch, tree, condemned)
    return tree


def _reverted(repository: Repository, record: SessionRecord, batch: Batch, tree: str, condemned: Condemned) -> str:
    """A session's tree without what a batch brought. Raises Conflict where others have built on it."""
    name = f"session {record.id}"
    try:
        applied = apply(
            repository.state(batch.after, name),
            repository.state(batch.before, name),
            repository.state(tree, name),
            now=repository.clock(),
            session=record.id,
            commit=record.base,
        )
    except Conflict as error:
        raise Conflict(
            f"attempt {batch.attempt} at {batch.output!r} is to be replaced, but others have built on it in session {record.id!r}: start a "
            f"new run. {error.explanation}",
            datasets=error.datasets,
            keys=error.keys,
            kinds=error.kinds,
            commit=error.commit,
        ) from None
    return write_tree(repository, applied.onto, applied.items, condemned)


def publish(repository: Repository, id: str, epoch: int | None = None) -> Published:
    """Publish a shared session: idempotent by its id. Raises Conflict (the session is failed then, and stays readable), SessionClosed,
    and StaleEpoch where an epoch is given and the session was resumed since.
    """
    first = repository.refs().session(id)
    if first.state == PUBLISHED:
        return published(repository, repository.refs(), first)

    def change(refs: RefsState) -> Change | Published:
        record = expire_if_due(repository, refs, refs.session(id))
        if record.state == PUBLISHED:
            return published(repository, refs, record)
        if record.state not in (OPEN, FAILED):
            raise closed(record)
        _check_epoch(record, epoch)
        return _change(repository, refs, record)

    latest: list[SessionRecord] = []

    def recheck(refs: RefsState) -> Change | Published:
        found = change(refs)
        latest[:] = [refs.session(id)]
        return found

    def record(refs: RefsState, done: Published) -> Sequence[Action]:
        newest = refs.session(id)
        if newest.state not in (OPEN, FAILED):
            raise closed(newest)
        _check_epoch(newest, epoch)
        if newest.tree != latest[0].tree:
            raise HeadMoved
        return [Update(newest.key, replace(newest, state=PUBLISHED, commit=done.commit).to_json())]

    begun = recheck(repository.refs())
    if isinstance(begun, Published):
        return begun
    try:
        return advance(repository, begun, record, recheck)
    except Conflict as error:
        fail(repository, id, error.explanation)
        error.session = id
        raise


def _change(repository: Repository, refs: RefsState, record: SessionRecord) -> Change:
    base = repository.commit_state(refs.commit(record.base), f"the base of session {record.id}")
    theirs = repository.state(record.tree, f"session {record.id}")
    retention = {key[len("retention:") :]: value for key, value in record.metadata.items() if key.startswith("retention:")}
    metadata = {key: value for key, value in record.metadata.items() if not key.startswith("retention:")}
    return Change(
        record.branch,
        base,
        theirs,
        record.message or f"session {record.id}",
        metadata | {"lineage": record.lineage},
        session=record.id,
        reads=record.reads,
        retention=retention,
        remedy=remedy(record.id),
    )


def fail(repository: Repository, id: str, reason: str, keep: timedelta = KEEP_FAILED, epoch: int | None = None) -> None:
    """Mark an open session failed: it takes no writes until it is resumed, stays readable, and expires after `keep`.

    One that has ended, has failed or was resumed since (`epoch`) is left as it is. Raises SessionNotFound.
    """

    def plan(state: State) -> Sequence[Action]:
        record = RefsState(state).session(id)
        if record.state != OPEN or (epoch is not None and epoch < record.epoch):
            return ()
        expires = min(repository.clock() + keep, record.opened + MOST_EXPIRY)
        return [Update(record.key, replace(record, state=FAILED, reason=reason[:1000], expires=expires).to_json())]

    repository.journal.append(plan)


def published(repository: Repository, refs: RefsState, record: SessionRecord) -> Published:
    """The result of a session that is published already; main stands in place afterwards."""
    assert record.commit is not None
    return published_as(repository, refs, record.branch, record.id, refs.commit(record.commit))


def published_as(repository: Repository, refs: RefsState, branch: str, session: str, commit: Commit) -> Published:
    """What a session became that was published by an earlier attempt; main stands in place afterwards."""
    in_place = branch != repository.format.branch or settle(repository, not_in_place(refs, branch))
    mine = commit.metadata.get("session") == session  # else it changed nothing, and is the head that it found
    changed = touched(commit).items() if mine else ()
    versions = {path: version for path, told in changed if isinstance(version := told["version"], int)}
    return Published(commit.id, versions, session, in_place=in_place)


def abandon(repository: Repository, id: str) -> None:
    """End a session without publishing. Raises SessionClosed for one that is published."""

    def plan(state: State) -> Sequence[Action]:
        record = RefsState(state).session(id)
        if record.state in (ABANDONED, EXPIRED):
            return ()
        if record.state == PUBLISHED:
            raise closed(record)
        return [Update(record.key, replace(record, state=ABANDONED).to_json())]

    repository.journal.append(plan)


def fork(repository: Repository, id: str, without: Sequence[str], expires_in: timedelta) -> SessionHandle:
    """A new session with the work of another, under the same lineage, without what it did to some datasets. Raises SessionNotFound."""
    refs = repository.refs()
    record = refs.session(id)
    if record.state not in (OPEN, FAILED):
        raise closed(record)
    base = repository.commit_state(refs.commit(record.base))
    state = repository.state(record.tree, f"session {id}")
    items = {}
    for path in without:
        prefix = path.strip("/")
        for difference in repository.graveler.diff(base.view.tree, record.tree):
            key = difference.key.decode()
            if key == f"_lake/datasets/{prefix}" or key == prefix or key.startswith(f"{prefix}/"):
                items[key] = base.view.get(key)
    condemned = Condemned.of(repository, refs)
    tree = write_tree(repository, state.view.tree, items, condemned)
    return open_session(
        repository,
        record.branch,
        id=None,
        expires_in=expires_in,
        isolation=record.isolation,
        message=record.message,
        metadata=record.metadata,
        lineage=record.lineage,
        tree=tree,
        base=record.base,
    )


def remedy(session: str) -> str:
    """Say what to do about a session that conflicts with what was published meanwhile."""
    return (
        f"Nothing was published: do the work again in a new session. This one stays readable, and lake.fork({session!r}, without=[…]) "
        f"carries on what does not conflict"
    )


def keep_failed(repository: Repository, session: Session, error: Conflict) -> None:
    """Keep a private session that could not be published, so that it can be read and forked."""
    refs = repository.refs()
    condemned = Condemned.of(repository, refs)
    tree = write_tree(repository, session.view.tree, dict(session.view.overlay.items), condemned)

    def plan(state: State) -> Sequence[Action]:
        now = repository.clock()
        record = SessionRecord(
            session.id, session.branch, session.commit, tree, 1, FAILED, now, now + KEEP_FAILED, session.opened_at, session.id,
            session.message, session.isolation, session.reads, session.metadata, (), None, error.explanation[:1000],
        )  # fmt: skip
        return [] if record.key in state else [Add(record.key, record.to_json())]

    repository.journal.append(plan)
    error.session = session.id
