"""Moving a branch: apply, write the tree, one conditional entry of the refs journal, main in place.

Lost the race to an entry about other refs: the entry is put again. Lost it on the same branch: applied again to the new head.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from lake_core.graveler import Commit
from lake_core.journal import Action, Add, State, Update
from lake_core.lake.apply import Applied, Strategy, Touched, apply, sorted_changes
from lake_core.lake.condemned import Condemned, collections
from lake_core.lake.conflict_report import with_commits
from lake_core.lake.content import Item
from lake_core.lake.errors import Collected, Conflict, Diverged, ProtectedBranch, PublishTimeout
from lake_core.lake.lease import turn
from lake_core.lake.place import DATASETS_FIELD, check_free, materialise, moved, not_in_place, settle
from lake_core.lake.refs import RefsState, commit_value, put
from lake_core.lake.repository import Repository
from lake_core.lake.session import Published
from lake_core.lake.state_store import StateStore

_MOST_TRIES = 50
RESOLVED_FIELD = "resolved"
"""The field of a merge's metadata that tells of which datasets and keys its strategy took one side: JSON, path → kind of the conflict."""
_RESOLVED = 100
"""Of them, how many a commit names."""


@dataclass(frozen=True, slots=True)
class Change:
    """What is to be brought onto a branch."""

    branch: str
    base: StateStore
    theirs: StateStore
    message: str
    metadata: Mapping[str, str] = field(default_factory=dict)
    parents: Sequence[str] = ()
    """Commits that the new one has as parents besides the branch's head."""
    session: str | None = None
    reads: Sequence[str] = ()
    retention: Mapping[str, str] = field(default_factory=dict)
    """Datasets whose retention ends before these instants (ISO 8601)."""
    is_merge: bool = False
    """Whether a protected branch takes it."""
    make: Callable[[StateStore], Applied] | None = None
    """What to do to the target instead of applying a difference."""
    adopts: str | None = None
    """The dataset whose log in place it brings in: for that one it need not be main's yet."""
    strategy: Strategy | None = None
    """Whose side is taken of what conflicts."""
    remedy: str = ""
    """What a conflict says to do."""
    makes_commit: bool = False
    """Whether a commit is made even if nothing differs: a merge records what it has seen."""


class HeadMoved(Exception):
    """Another commit was faster on the same branch, or objects were condemned meanwhile: apply again."""


def advance(
    repository: Repository,
    change: Change,
    record: Callable[[RefsState, Published], Sequence[Action]] = lambda refs, published: (),
    recheck: Callable[[RefsState], Change | Published | None] = lambda refs: None,
) -> Published:
    """Bring a change onto its branch, and put main in place.

    `record`: further actions of the same entry; it may raise. `recheck`: asked before each attempt whether it is another change by now,
    or was made already. Raises Conflict, ProtectedBranch, Diverged, Collected, PublishTimeout.
    """
    with turn(repository.root, change.branch, repository.turns):
        for _ in range(_MOST_TRIES):
            refs = repository.refs()
            newer = recheck(refs)
            if isinstance(newer, Published):
                return newer
            change = newer or change
            try:
                return _advance(repository, refs, change, record)
            except HeadMoved:
                continue
            except (Diverged, Conflict) as error:
                # What stood in place was compared with these refs: it may be what a faster publisher has put there since.
                if (change.adopts or isinstance(error, Diverged)) and moved(repository, refs, change.branch):
                    continue
                if isinstance(error, Conflict) or not _adopt(repository, refs, change, error):
                    raise
    raise PublishTimeout(
        f"branch {change.branch!r} moved {_MOST_TRIES} times while this was applied to it: nothing was published. Publish again"
    )


def _adopt(repository: Repository, refs: RefsState, change: Change, error: Diverged) -> bool:
    """Bring in what other clients committed to a dataset that they may write. False for one that is the lake's alone."""
    from lake_core.lake.adopting import adopted

    state = repository.commit_state(refs.commit(refs.branch(change.branch)), change.branch)
    record = state.registered().get(error.path)
    if record is None or (view := state.folder_of(record)).resolver.managed(view):
        return False
    try:
        _advance(repository, refs, adopted(repository, refs, error.path), lambda refs, published: ())
    except HeadMoved:
        return True
    except (Diverged, Conflict):
        if not moved(repository, refs, change.branch):
            raise
    return True


def _advance(
    repository: Repository, refs: RefsState, change: Change, record: Callable[[RefsState, Published], Sequence[Action]]
) -> Published:
    branch, in_place = change.branch, change.branch == repository.format.branch
    head = refs.commit(refs.branch(branch))
    check_protected(refs, change)
    behind = not_in_place(refs, branch) if in_place else []
    target = repository.commit_state(head, branch)
    if change.make is not None:
        applied = change.make(target)
    else:
        applied = apply_change(repository, refs, change, target, head)
    whole = in_place
    if in_place:
        # Whoever died in between is made up for: a log stands in place without gaps.
        whole = not materialise(repository, behind, needed=applied.datasets, without=change.adopts).diverged
        for path, touched in applied.datasets.items():
            if path == change.adopts:
                continue
            standing = target.registered().get(path) or change.theirs.registered()[path]
            check_free(target, standing, touched.version, applied.items)
    if not (applied or change.retention or change.makes_commit):
        return _nothing(repository, refs, change, head, applied, record)
    commit = write_commit(repository, refs, change, head, applied)
    versions = {path: touched.version for path, touched in applied.datasets.items() if touched.version is not None}
    published = Published(commit.id, versions, change.session or "", applied.skipped, applied.resolved)
    checked = collections(refs)

    def plan(state: State) -> Sequence[Action]:
        newest = RefsState(state)
        if newest.branch(branch) != head.id or collections(newest) != checked:
            raise HeadMoved
        check_protected(newest, change)
        actions: list[Action] = [Update(f"branch/{branch}", {"commit": commit.id})]
        if f"commit/{commit.id}" not in newest.state:
            actions.append(Add(f"commit/{commit.id}", commit_value(commit)))
        if in_place and whole:
            actions.append(put(newest, f"place/{branch}", {"commit": head.id}))
        for path, before in change.retention.items():
            actions.append(put(newest, f"retention/{path}", {"before": before}))
        return [*actions, *record(newest, published)]

    repository.journal.append(plan)
    if in_place and not settle(repository, [commit]):
        return replace(published, in_place=False)
    return published


def apply_change(
    repository: Repository, refs: RefsState, change: Change, target: StateStore, head: Commit, *, dry_run: bool = False
) -> Applied:
    """Bring a change onto a branch's head. Raises Conflict, which names the commits that are in the way."""
    try:
        return apply(
            change.base,
            change.theirs,
            target,
            now=repository.clock(),
            session=change.session,
            commit=head.id,
            reads=change.reads,
            strategy=change.strategy,
            dry_run=dry_run,
        )
    except Conflict as error:
        raise with_commits(repository, refs, head, change.base, target, error, change.remedy) from None


def _nothing(
    repository: Repository,
    refs: RefsState,
    change: Change,
    head: Commit,
    applied: Applied,
    record: Callable[[RefsState, Published], Sequence[Action]],
) -> Published:
    """Nothing differs: no commit, but what is to be recorded is."""
    published = Published(head.id, {}, change.session or "", applied.skipped, applied.resolved)

    def plan(state: State) -> Sequence[Action]:
        return list(record(RefsState(state), published))

    if record(refs, published):
        repository.journal.append(plan)
    return published


def write_commit(repository: Repository, refs: RefsState, change: Change, head: Commit, applied: Applied) -> Commit:
    """Write what a commit consists of, but for the entry that makes it one. Raises Collected."""
    condemned = Condemned.of(repository, refs)
    gone = next((key for key in applied.references if condemned(key)), None)
    if gone is not None:
        raise Collected(f"{gone}, which this would bring back, is being collected: its commit is past the retention")
    onto = applied.onto
    if applied.taken and any(condemned.range(name) for name in repository.graveler.names(onto)):
        # What the session built on its own may stand under names that are being collected.
        onto = repository.graveler.build(
            "", ((record.key, record) for record in repository.graveler.scan(onto)), avoid=condemned.range
        ).tree
    tree = write_tree(repository, onto, applied.items, condemned)
    datasets = {path: told(touched) for path, touched in applied.datasets.items()}
    metadata = dict(change.metadata)
    if datasets:
        metadata[DATASETS_FIELD] = json.dumps(datasets, separators=(",", ":"), ensure_ascii=False)
    if applied.resolved:
        metadata[RESOLVED_FIELD] = json.dumps(dict(islice(applied.resolved.items(), _RESOLVED)), ensure_ascii=False)
    if change.session is not None:
        metadata["session"] = change.session
    parents = [head, *(refs.commit(parent) for parent in change.parents)]
    # Ids hold whole seconds: two equal changes within one are told apart.
    metadata["at"] = repository.clock().isoformat(timespec="microseconds")
    return Commit.create(repository.committer, change.message, repository.clock(), tree, metadata=metadata, parents=parents)


def told(touched: Touched) -> dict[str, object]:
    """What a commit's metadata says of a dataset."""
    return {"format": touched.format, "version": touched.version, "operation": touched.operation, "summary": dict(touched.summary)}


def write_tree(repository: Repository, tree: str, items: Mapping[str, Item | None], condemned: Condemned) -> str:
    """Store what is not stored yet, and build the tree."""
    content = repository.content
    stored = {key: None if item is None else content.store(item, condemned) for key, item in items.items()}
    return repository.graveler.build(tree, sorted_changes(stored), avoid=condemned.range).tree


def check_protected(refs: RefsState, change: Change) -> None:
    """Raise ProtectedBranch where the branch takes merges only, and the change is no merge."""
    pattern = refs.protected(change.branch)
    if pattern is not None and not change.is_merge:
        raise ProtectedBranch(f"branch {change.branch!r} is protected (by {pattern!r}): publish on another branch, and merge that")
