"""Commits to a branch: prepare an update, append one conditional entry to the refs journal, check main's logs out.

If other refs changed, the journal appends the same entry again. If this branch moved, the update is prepared again.
Conflicts are found while an update is prepared: by `apply` for plain files, by `apply_dataset` and the formats for
datasets.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from lake_core.lake.errors import Conflict, Diverged, PublishTimeout, UnexpectedHead
from lake_core.lake.publish.adoption import Adoption
from lake_core.lake.publish.branch_update import MOST_TRIES, BranchUpdate, CommitFirst, RefsMoved, Source
from lake_core.lake.publish.checkout import has_moved, try_check_out
from lake_core.lake.publish.prepare import head_of
from lake_core.lake.publish.published import Published
from lake_core.lake.publish.write_derived import write_derived
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.lake.refs.lease import is_leased, lease

if TYPE_CHECKING:
    from lake_core.lake.refs.refs_state import RefsState
    from lake_core.lake.repository import Repository


def commit_to_branch(repository: Repository, source: Source, expected_head: str | None = None) -> Published:
    """Commit the update of a source to its branch, and check main's logs out.

    Raises UnexpectedHead if the branch is not at `expected_head`, Conflict, ProtectedBranch, Diverged, Collected,
    PublishTimeout, and what else the source raises.
    """
    root, branch, undisturbed = repository.root, source.branch, repository.undisturbed
    expected = _ExpectedHead(branch, expected_head)
    with repository.recent_content:
        if branch in undisturbed:
            is_taken, refs = root.gather(partial(is_leased, root, branch), repository.refs)
            if not is_taken and (published := _try(repository, source, refs, expected)) is not None:
                return published
            undisturbed.discard(branch)
        with lease(root, branch, repository.lease_config) as waited:
            for tries in range(MOST_TRIES):
                published = _try(repository, source, repository.refs(), expected)
                if published is not None:
                    if not tries and not waited:
                        undisturbed.add(branch)
                    return published
    raise PublishTimeout(
        f"the branch {branch!r} moved {MOST_TRIES} times while the changes were applied to it, so "
        "nothing was published: publish again"
    )


@dataclass(slots=True)
class _ExpectedHead:
    """The head that the caller expects of a branch."""

    branch: str
    commit: str | None
    """None for any."""

    def check(self, refs: RefsState) -> None:
        """Raise UnexpectedHead if the branch has another head."""
        if self.commit is not None and (head := refs.branch(self.branch)) != self.commit:
            raise UnexpectedHead(f"the branch {self.branch!r} is at {head[:12]}, not at {self.commit[:12]}: look again")

    def move(self, published: Published) -> None:
        """Expect what this call has committed itself, before the update that it was called for."""
        if self.commit is not None:
            self.commit = published.commit


def _try(repository: Repository, source: Source, refs: RefsState, expected: _ExpectedHead) -> Published | None:
    """Try once to commit an update that is prepared by these refs. Return None if it must be prepared again."""
    expected.check(refs)  # the update requires the head that it is prepared by, so this holds for what is written
    try:
        update = source.prepare(refs)
        return update if isinstance(update, Published) else _commit(repository, update)
    except CommitFirst as first:
        with suppress(RefsMoved):
            expected.move(_commit(repository, first.update))
        return None
    except RefsMoved:
        return None
    except (Diverged, Conflict) as error:
        # Checked-out files were compared with these refs, but a faster publisher may have written them since.
        compares = source.compares_checkout or isinstance(error, Diverged)
        if compares and has_moved(repository, refs, source.branch):
            return None
        if isinstance(error, Conflict) or not _adopt(repository, refs, source.branch, error):
            raise
        return None


def _commit(repository: Repository, update: BranchUpdate) -> Published:
    """Commit an update, and check main out. Raises RefsMoved, and what the update's requirements raise."""
    if update.updates:
        repository.journal.append(update.plan)
    if update.commit is None:
        return update.published
    if update.branch != repository.format.branch:
        state = repository.commit_state(update.commit, update.branch)
        repository.root.gather(
            *(
                partial(write_derived, state, path, is_checked_out=False)
                for path in sorted(changed_datasets(update.commit))
            )
        )
        return update.published
    if try_check_out(repository, [update.commit]):
        return update.published
    return replace(update.published, is_checked_out=False)


def _adopt(repository: Repository, refs: RefsState, branch: str, error: Diverged) -> bool:
    """Adopt the commits of other clients to a dataset that they may write.

    Return whether to prepare again. This is False if only the lake may write the dataset, and if there are none.
    """
    state = head_of(repository, refs, branch)
    record = state.registered().get(error.path)
    if record is None or (view := state.folder_of(record)).format.is_managed(view):
        return False
    try:
        adoption = Adoption(repository, error.path).prepare(refs)
        if adoption.commit is None:
            return False
        _commit(repository, adoption)
    except RefsMoved:
        return True
    except (Diverged, Conflict):
        if not has_moved(repository, refs, branch):
            raise
    return True
