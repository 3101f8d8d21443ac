"""The verbs of a lake that name commits and move branches: branches, tags, merge, revert, cherry-pick."""

from __future__ import annotations

from collections.abc import Sequence

from lake_core.graveler import Commit
from lake_core.journal import Action, Add, Delete, State, Update
from lake_core.lake import merging
from lake_core.lake.apply import Strategy
from lake_core.lake.errors import InvalidRef, RefExists, RefNotFound
from lake_core.lake.merging import MergePreview
from lake_core.lake.refs import DELETED, RefsState, check_name, text_of
from lake_core.lake.repository import Repository
from lake_core.lake.revision import commit_of
from lake_core.lake.session import Published


class BranchesAndTags:
    """What a `Lake` does with names for commits."""

    _repository: Repository

    def branches(self) -> dict[str, str]:
        """The commit of each branch."""
        return self._repository.refs().branches()

    def branch(self, name: str, *, at: str = "main", exist_ok: bool = False) -> str:
        """Make a branch at a ref; returns the commit. Nothing is copied. Raises RefExists, InvalidRef, RefNotFound."""
        check_name(name, "branch")
        return self._add_ref(f"branch/{name}", at, exist_ok)

    def delete_branch(self, name: str, *, at: str | None = None) -> bool:
        """Take a branch away; its commits stay as long as something else, or the retention, keeps them. Raises RefNotFound, InvalidRef.

        `at`: a commit's id; a branch that has moved on from it stays. Returns whether the branch is gone.
        """
        if name == self._repository.format.branch:
            raise InvalidRef(f"branch {name!r} is the one that stands in place: it cannot be deleted")

        def plan(state: State) -> Sequence[Action]:
            done[:] = [at in (None, RefsState(state).branch(name))]
            return [Delete(f"branch/{name}")] if done[0] else ()

        done: list[bool] = []
        self._repository.journal.append(plan)
        return done[0]

    def tags(self) -> dict[str, str]:
        """The commit of each tag."""
        return self._repository.refs().tags()

    def tag(self, name: str, *, at: str = "main") -> str:
        """Give a commit a name for good; returns the commit. Raises RefExists, also for a tag that was deleted, InvalidRef, RefNotFound."""
        check_name(name, "tag")
        return self._add_ref(f"tag/{name}", at, False)

    def delete_tag(self, name: str) -> None:
        """Take a tag away. Its name is not used again. Raises RefNotFound."""

        def plan(state: State) -> Sequence[Action]:
            if name not in RefsState(state).tags():
                raise RefNotFound(f"no tag {name!r}")
            return [Update(f"tag/{name}", dict(DELETED))]

        self._repository.journal.append(plan)

    def _add_ref(self, key: str, at: str, exist_ok: bool) -> str:
        repository = self._repository
        made: list[str] = []
        name = key.split("/", 1)[1]

        def plan(state: State) -> Sequence[Action]:
            refs = RefsState(state)
            commit = commit_of(refs, repository.journal, at)
            made[:] = [commit.id]
            if key in state and exist_ok:
                made[:] = [text_of(key, state[key], "commit")]
                return ()
            if any(f"{other}/{name}" in state for other in ("branch", "tag", "session")):
                raise RefExists(f"{name!r} is, or was, the name of a branch, tag or session: choose another one")
            return [Add(key, {"commit": commit.id})]

        repository.journal.append(plan)
        return made[0]

    def protect(self, pattern: str) -> None:
        """Let branches whose names match (`release-*`) take merges only."""

        def plan(state: State) -> Sequence[Action]:
            return () if f"protect/{pattern}" in state else [Add(f"protect/{pattern}", {})]

        self._repository.journal.append(plan)

    def unprotect(self, pattern: str) -> None:
        """Take a protection back. Raises RefNotFound."""

        def plan(state: State) -> Sequence[Action]:
            if f"protect/{pattern}" not in state:
                raise RefNotFound(f"no protection {pattern!r}")
            return [Delete(f"protect/{pattern}")]

        self._repository.journal.append(plan)

    def merge(self, ref: str, *, into: str = "main", message: str | None = None, strategy: Strategy | None = None) -> Published:
        """Bring what a ref has and a branch lacks onto the branch. Datasets that both changed are merged by their formats' rules.

        `strategy` decides what conflicts, and nothing else: `"theirs"` takes each such dataset or plain file as the ref has it, `"ours"`
        leaves it as the branch has it. A dataset is taken whole, its markers too; what does not conflict is merged from both sides.
        Under `"theirs"` these stay conflicts: rows taken from an append-only table, a dataset and plain files at one path, a dataset that
        was released. Zarr arrays that one side reshaped or deleted stay conflicts under both.

        Raises Conflict, NothingToApply, RefNotFound.
        """
        refs = self._repository.refs()
        return merging.merge(self._repository, self._commit(ref, refs), ref, into, message, _checked(strategy))

    def preview_merge(self, ref: str, *, into: str = "main", strategy: Strategy | None = None) -> MergePreview:
        """Tell what `merge` would do now, and write nothing. Raises as `merge`."""
        refs = self._repository.refs()
        return merging.preview_merge(self._repository, self._commit(ref, refs), ref, into, _checked(strategy))

    def revert(self, commit: str, *, branch: str = "main", parent: int = 1, message: str | None = None) -> Published:
        """Take back on a branch what a commit did, as a new commit; what was done since stays. Raises Conflict, NothingToApply."""
        refs = self._repository.refs()
        return merging.revert(self._repository, self._commit(commit, refs), branch, parent, message)

    def cherry_pick(self, commit: str, *, onto: str, parent: int = 1, message: str | None = None) -> Published:
        """Do on a branch what a commit did elsewhere. Raises Conflict, NothingToApply."""
        refs = self._repository.refs()
        return merging.cherry_pick(self._repository, self._commit(commit, refs), onto, parent, message)

    def _commit(self, ref: str, refs: RefsState) -> Commit:
        return commit_of(refs, self._repository.journal, ref)


def _checked(strategy: Strategy | None) -> Strategy | None:
    if strategy not in (None, "ours", "theirs"):
        raise ValueError(f"a merge's strategy is 'ours' or 'theirs', not {strategy!r}")
    return strategy
