"""The errors of lakes. All derive from LakeError."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from lake_core.errors import LakeError
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class LakeNotFound(LakeError):
    """No lake exists at the location. Check it, or create a lake with `lake init`."""


class LakeAlreadyExists(LakeError):
    """A lake exists where one was to be created. Open it, or pass `exist_ok=True`."""


class FolderInUse(LakeError):
    """A folder for a new lake or an export holds files of another application. Choose another folder."""


class UnsupportedLake(LakeError):
    """The lake has a format that this version of the package does not know, or its format file is damaged.

    Upgrade the package, or restore the file from a backup.
    """


class DamagedLake(LakeError):
    """A record of the lake is invalid: another application wrote there, or bytes were altered.

    `lake verify` lists all damage.
    """


class InvalidRef(LakeError):
    """A ref expression, or a name for a branch, tag or session, is malformed."""


class RefNotFound(LakeError):
    """No branch, tag, commit or session of the lake has this name."""


class RefExists(LakeError):
    """The name is taken, or a tag had it before: the name of a deleted tag cannot be used again."""


class ProtectedBranch(LakeError):
    """The branch accepts only merges. Publish on another branch, and merge that."""


class UnexpectedHead(LakeError):
    """A branch or a session has changed since the caller looked at it. Look again, and repeat the call."""


class ReadOnly(LakeError):
    """The target of a write is a commit, a branch or a session's handle. Write into a session instead."""


class DatasetNotFound(LakeError):
    """The state has no dataset at this path."""


class DatasetExists(LakeError):
    """The path, or a folder above or below it, is a dataset already, or holds plain files."""


class SessionNotFound(LakeError):
    """The lake has no session with this id, or its record was removed."""


class SessionClosed(LakeError):
    """The session accepts no more writes.

    `state` is failed, published, abandoned or expired, or closed if the writer has ended.
    """

    def __init__(self, message: str, *, state: str) -> None:
        super().__init__(message)
        self.state = state


class StaleEpoch(LakeError):
    """Another process has resumed the session, or has taken over the work of its owner.

    Writes of this process are refused, so that they cannot mix with the other's. Let that process go on.
    """


class StaleAttempt(LakeError):
    """A later attempt at the same task has been applied to the session already. Let that one go on."""


class UnfinishedTasks(LakeError):
    """A session has writes of tasks that did not end, or that are not among those to publish.

    `unfinished` are the tasks whose last attempt did not end, and `others` those that are not to be published.
    """

    def __init__(self, message: str, *, unfinished: Sequence[str] = (), others: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.unfinished = tuple(unfinished)
        self.others = tuple(others)


class AttemptTakenOut(LakeError):
    """An attempt at a task counts that did not in the meantime, and what it wrote was taken out of its session.

    Run the task again.
    """


class BatchesGone(LakeError):
    """What the tasks of a published session wrote can no longer be told apart, as that was too long ago.

    Start a new run, which adds to what is published.
    """


class NothingToApply(LakeError):
    """A merge, revert or cherry-pick would change nothing."""


@dataclass(frozen=True, slots=True)
class OtherCommit:
    """A commit that conflicts with the changes to apply."""

    id: str
    message: str
    committer: str
    date: datetime
    metadata: Mapping[str, str]
    """The metadata of the commit, with its session and the values it was opened with, such as a run's id."""

    def __str__(self) -> str:
        about = [f"by {self.committer}", f"{self.date.astimezone(UTC):%Y-%m-%d %H:%M} UTC"]
        about += [f"{name} {value}" for name, value in self.metadata.items()]
        return f"commit {self.id[:12]} {self.message!r} ({', '.join(about)})"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A dataset or a key that two sides changed incompatibly."""

    path: str
    kind: str
    explanation: str
    commits: Sequence[OtherCommit] = ()
    """The newest commits of the other side that changed it."""

    def __str__(self) -> str:
        return f"{self.path}: {self.explanation}" + (f", last changed by {self.commits[0]}" if self.commits else "")


READ_CHANGED = "ReadChanged"
"""The kind of a conflict where a serializable session read what has changed since."""


class Conflict(LakeError):
    """The changes to apply conflict with another commit. Nothing was published; the session stays readable.

    The message is `explanation` and `remedy`; the explanation is `summary` and the `contradictions`.

    Args:
        summary: One sentence without its period that says what happened.
        datasets: The paths of the datasets in conflict.
        keys: The plain files in conflict.
        kinds: The kind of each conflict, by path or key. `contradictions` describe the first of them in detail.
        commit: The id of the other side's commit.
        remedy: What the user can do next.
        session: The id of the session that holds the changes, if there is one.
    """

    def __init__(
        self,
        summary: str,
        *,
        datasets: Sequence[str] = (),
        keys: Sequence[str] = (),
        kinds: Mapping[str, str] | None = None,
        commit: str = "",
        contradictions: Sequence[Contradiction] = (),
        remedy: str = "",
        session: str | None = None,
    ) -> None:
        self.summary, self.remedy = summary, remedy
        self.contradictions = tuple(contradictions)
        self.datasets = tuple(datasets)
        self.keys = tuple(keys)
        self.kinds = dict(kinds or {})
        self.commit = commit
        self.session = session
        super().__init__(f"{self.explanation}. {remedy}" if remedy else self.explanation)

    @property
    def explanation(self) -> str:
        """Return the message without the remedy."""
        if not self.contradictions:
            return self.summary
        reasons = [str(contradiction) for contradiction in self.contradictions]
        remaining = len(self.kinds) - len(reasons)
        if remaining:
            reasons.append(f"and {count_of(remaining, 'more place')}")
        return f"{self.summary}. {'; '.join(reasons)}"

    @property
    def is_stale(self) -> bool:
        """Return whether something that was read has changed: to write the same values again would not be right."""
        return READ_CHANGED in self.kinds.values()

    def replace(
        self,
        *,
        summary: str | None = None,
        contradictions: Sequence[Contradiction] | None = None,
        remedy: str | None = None,
        session: str | None = None,
    ) -> Conflict:
        """Return the same conflict with some values replaced."""
        return Conflict(
            self.summary if summary is None else summary,
            datasets=self.datasets,
            keys=self.keys,
            kinds=self.kinds,
            commit=self.commit,
            contradictions=self.contradictions if contradictions is None else contradictions,
            remedy=self.remedy if remedy is None else remedy,
            session=self.session if session is None else session,
        )


class Diverged(LakeError):
    """The checked-out log of the dataset `path` differs from main's: another writer changed it.

    `lake adopt` merges the two.
    """

    def __init__(self, message: str, *, path: str) -> None:
        super().__init__(message)
        self.path = path


class Collected(LakeError):
    """The content of a commit was garbage-collected, because the commit is past the lake's retention."""


class ContentGone(LakeError):
    """An operation needs the content of a commit that garbage collection took, because it was past the retention.

    The lake still knows the commit's place in the history, so no other commit is taken in its place.

    Args:
        commit: The commit's id.
        purpose: What the commit is needed for.
        since: When the collection took it, if that is known.
    """

    def __init__(self, commit: str, purpose: str, since: datetime | None) -> None:
        self.commit, self.purpose, self.since = commit, purpose, since
        when = "an earlier" if since is None else f"the {since.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        super().__init__(
            f"commit {commit[:12]} is {purpose}, but its content is gone: {when} garbage collection took it, because "
            "it was past the retention and nothing named it. Merge newer branches, or do the work again in a session. "
            "To keep content in the future, set a tag, or raise the retention: lake.settings.update(history=…)"
        )

    def __reduce__(self) -> tuple[type[ContentGone], tuple[object, ...]]:
        return ContentGone, (self.commit, self.purpose, self.since)


class ContentMissing(LakeError):
    """An object that a commit refers to is missing, or its bytes do not match the hash in its name.

    `lake verify` lists all of them.
    """


class ContentChanged(LakeError):
    """An imported object in the lake's folder was changed after its import. `lake verify` lists all such objects."""


class PublishTimeout(LakeError):
    """Other writers moved the branch first at every try until the deadline. Nothing was published; publish again."""


class ExternalAddress(LakeError):
    """An entry names an object outside of the lake, in a location that the lake's settings do not allow."""


class ForeignRepository(LakeError):
    """A lakeFS repository cannot become a lake as it is. Nothing was written."""


class ServerRefused(LakeError):
    """A lakeFS server refused a request, or its answer was not a lakeFS server's."""


class ServerUnavailable(LakeError):
    """A lakeFS server cannot be reached, or failed repeatedly. The same request may succeed later."""


class ServerDiverged(LakeError):
    """A branch or tag on a lakeFS server names a commit that the lake did not put there. Nothing was moved."""
