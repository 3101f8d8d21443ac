"""Moving a branch: apply, write the tree, one conditional entry of the refs journal, main checked out.

Lost the race to an entry about other refs: the entry is put again. Lost it on the same branch: applied again to the new head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lake_core.graveler import Commit
from lake_core.journal import Action, Add, State, Update
from lake_core.lake.errors import Conflict, Diverged, PublishTimeout
from lake_core.lake.publish.adoption import adoption
from lake_core.lake.publish.apply import apply
from lake_core.lake.publish.change import Change, check_protected
from lake_core.lake.publish.checkout import check_free, check_out, has_moved, pending_checkout, try_check_out
from lake_core.lake.publish.commit import write_commit
from lake_core.lake.publish.conflict_commits import with_commits
from lake_core.lake.publish.published import Published
from lake_core.lake.publish.tree_update import TreeUpdate
from lake_core.lake.refs.commit_record import commit_value
from lake_core.lake.refs.lease import lease
from lake_core.lake.refs.pending_deletions import collections
from lake_core.lake.refs.refs_state import RefsState, put
from lake_core.lake.repository import Repository
from lake_core.lake.state.state_store import StateStore

_MOST_TRIES = 50


class HeadMoved(Exception):
    """Another commit was faster on the same branch, or a collection began meanwhile: apply again."""


def commit_to_branch(
    repository: Repository,
    change: Change,
    record: Callable[[RefsState, Published], Sequence[Action]] = lambda refs, published: (),
    recheck: Callable[[RefsState], Change | Published | None] = lambda refs: None,
) -> Published:
    """Bring a change onto its branch, and put main in place.

    `record`: further actions of the same entry; it may raise. `recheck`: asked before each attempt whether it is another change by now,
    or was made already. Raises Conflict, ProtectedBranch, Diverged, Collected, PublishTimeout.
    """
    with lease(repository.root, change.branch, repository.lease_config):
        for _ in range(_MOST_TRIES):
            refs = repository.refs()
            newer = recheck(refs)
            if isinstance(newer, Published):
                return newer
            change = newer or change
            try:
                return _commit(repository, refs, change, record)
            except HeadMoved:
                continue
            except (Diverged, Conflict) as error:
                # What stood in place was compared with these refs: it may be what a faster publisher has put there since.
                if (change.adopts or isinstance(error, Diverged)) and has_moved(repository, refs, change.branch):
                    continue
                if isinstance(error, Conflict) or not _adopt(repository, refs, change, error):
                    raise
    raise PublishTimeout(
        f"branch {change.branch!r} moved {_MOST_TRIES} times while this was applied to it: nothing was published. Publish again"
    )


def _adopt(repository: Repository, refs: RefsState, change: Change, error: Diverged) -> bool:
    """Bring in what other clients committed to a dataset that they may write. False for one that is the lake's alone."""

    state = repository.commit_state(refs.commit(refs.branch(change.branch)), change.branch)
    record = state.registered().get(error.path)
    if record is None or (view := state.folder_of(record)).resolver.managed(view):
        return False
    try:
        _commit(repository, refs, adoption(repository, refs, error.path), lambda refs, published: ())
    except HeadMoved:
        return True
    except (Diverged, Conflict):
        if not has_moved(repository, refs, change.branch):
            raise
    return True


def _commit(
    repository: Repository, refs: RefsState, change: Change, record: Callable[[RefsState, Published], Sequence[Action]]
) -> Published:
    branch, in_place = change.branch, change.branch == repository.format.branch
    head = refs.commit(refs.branch(branch))
    check_protected(refs, change)
    behind = pending_checkout(refs, branch) if in_place else []
    target = repository.commit_state(head, branch)
    if change.make is not None:
        applied = change.make(target)
    else:
        applied = apply_change(repository, refs, change, target, head)
    whole = in_place
    if in_place:
        # Whoever died in between is made up for: a log stands in place without gaps.
        whole = not check_out(repository, behind, needed=applied.datasets, without=change.adopts).diverged
        for path, dataset in applied.datasets.items():
            if path == change.adopts:
                continue
            record_there = target.registered().get(path) or change.theirs.registered()[path]
            check_free(target, record_there, dataset.version, applied.items)
    if not (applied or change.retention or change.makes_commit):
        return _nothing(repository, refs, change, head, applied, record)
    commit = write_commit(repository, refs, change, head, applied)
    versions = {path: dataset.version for path, dataset in applied.datasets.items() if dataset.version is not None}
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
    if in_place and not try_check_out(repository, [commit]):
        return replace(published, is_checked_out=False)
    return published


def apply_change(
    repository: Repository, refs: RefsState, change: Change, target: StateStore, head: Commit, *, dry_run: bool = False
) -> TreeUpdate:
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
    applied: TreeUpdate,
    record: Callable[[RefsState, Published], Sequence[Action]],
) -> Published:
    """Nothing differs: no commit, but what is to be recorded is."""
    published = Published(head.id, {}, change.session or "", applied.skipped, applied.resolved)

    def plan(state: State) -> Sequence[Action]:
        return list(record(RefsState(state), published))

    if record(refs, published):
        repository.journal.append(plan)
    return published
