"""Which materializations of an asset the readers of the lake's branch see.

Dagster's newest materialization may be staged in a session that is not published, or published on another branch. The
observations of publishes, and the lake, say where it is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dagster import AssetRecordsFilter

from lake_core.lake.errors import RefNotFound
from lake_core.lake.refs.session_record import ABANDONED, EXPIRED
from lake_core.workspace import PUBLISHED
from lake_orch.dagster.runs.observations import awaited_session, lacks_publish_state, value_of
from lake_orch.dagster.runs.run_session import find_record, session_of
from lake_orch.tags import SESSION_TAG
from lake_pipes.metadata import BRANCH, COMMIT, STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from typing import Any

    from dagster import AssetKey, AssetMaterialization, DagsterInstance, EventLogRecord, MetadataValue

    from lake_core.lake import Lake

_MOST_COMMITS = 10_000
"""The number of a branch's commits that one walk looks at."""
_RECORDS = 1000
"""The number of an asset's last events to read. Earlier ones are already published, or never will be."""


@dataclass(frozen=True, slots=True)
class Publish:
    """The publish of an asset, or of a partition of it."""

    partition: str | None
    timestamp: float
    session: str | None = None
    """The session that was published; None for what was visible at once."""
    branch: str | None = None
    commit: str | None = None
    """The branch and its commit; None for an asset outside of lakes."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The last materialization of an asset, or of a partition of it, that readers do not see."""

    partition: str | None
    session: str | None
    """The session that it is staged in, or was published from; None for what was published at once."""
    publish: Publish | None
    """Its publish on another branch."""


@dataclass(frozen=True, slots=True)
class LakeBranch:
    """The branch of a lake that its readers read."""

    name: str = "main"
    open: Callable[[], Lake] | None = None
    """Opens the lake; None if it is not known."""
    _has: dict[tuple[str, str], bool] = field(default_factory=dict)
    """Whether branches have commits."""
    _lines: dict[str, frozenset[str]] = field(default_factory=dict)
    """The commits that branches were at, as far back as one walk has come."""

    def shows(self, publish: Publish) -> bool:
        """Return whether this branch has what was published: here, or elsewhere and brought here since.

        A branch that was made anew does not have what was published on the earlier one of its name. What cannot be
        found out, since the lake or the commit is not known, is where it was published.
        """
        return publish.branch is None or self._is_on(self.name, publish)

    def awaits(self, publish: Publish) -> bool:
        """Return whether this branch may yet get what was published: it has not, and the other branch still has it."""
        if publish.branch is None or self.shows(publish):
            return False
        return self.open is None or self._is_on(publish.branch, publish)

    def has_discarded(self, session: str | None) -> bool:
        """Return whether the lake is known to have ended a session unpublished: nobody will publish it any more."""
        record = find_record(self.open(), session) if self.open is not None and session is not None else None
        return record is not None and record.state in (ABANDONED, EXPIRED)

    def _is_on(self, branch: str, publish: Publish) -> bool:
        if self.open is None or publish.commit is None:
            return branch == publish.branch
        if (branch, publish.commit) not in self._has:
            self._has[branch, publish.commit] = self._find_out(self.open(), branch, publish.commit, publish.branch)
        return self._has[branch, publish.commit]

    def _find_out(self, lake: Lake, branch: str, commit: str, published_on: str | None) -> bool:
        # This one cannot be deleted, and is the longest.
        if branch == published_on == lake.repository.format.branch:
            return True
        try:
            if branch not in self._lines:
                # One walk finds most of them. Each of the others needs a walk of its own.
                self._lines[branch] = frozenset(
                    each.id for each in lake.log(branch, first_parent=True, limit=_MOST_COMMITS)
                )
            return commit in self._lines[branch] or lake.has_reached(commit, branch)
        except RefNotFound:
            return branch == published_on and branch in lake.list_branches()


def unseen(instance: DagsterInstance, key: AssetKey, branch: LakeBranch) -> dict[str | None, Unseen]:
    """Return the partitions whose last materialization readers of a branch do not see yet. The key is None without any.

    What was published on a branch that was deleted since, and has not reached this one, is not waited for.
    """
    last = _last_materializations(instance, key)
    awaited = {partition: session for partition, session in last.items() if isinstance(session, str)}
    publishes = {(each.partition, each.session): each for each in observed_publishes(instance, key)} if awaited else {}
    result = {}
    for partition, origin in last.items():
        if origin is None:
            continue
        publish = origin if isinstance(origin, Publish) else publishes.get((partition, origin))
        if publish is None and isinstance(origin, str) and partition is not None:
            observed = observed_publishes(instance, AssetRecordsFilter(asset_key=key, asset_partitions=[partition]))
            publish = next((each for each in observed if each.session == origin), None)
        session = origin if isinstance(origin, str) else None
        if publish is None or branch.awaits(publish):
            result[partition] = Unseen(partition, session, publish)
    return result


def awaited(instance: DagsterInstance, key: AssetKey, branch: LakeBranch) -> dict[str | None, Unseen]:
    """Return those that readers may yet see: nobody will publish what a session held that was abandoned or expired."""
    waiting = unseen(instance, key, branch)
    return {
        partition: each
        for partition, each in waiting.items()
        if each.publish is not None or not branch.has_discarded(each.session)
    }


def visible_publish(record: EventLogRecord) -> Publish | None:
    """Return the publish of a materialization that was visible at once in a lake, or None for any other."""
    event = record.event_log_entry.asset_materialization
    if event is None or COMMIT not in event.metadata:
        return None
    return _publish(record, event.partition, event.metadata)


def last_shown(instance: DagsterInstance, key: AssetKey | AssetRecordsFilter, branch: LakeBranch) -> Publish | None:
    """Return the newest publish of an asset, or of any partition of it, that readers of a branch see."""
    newest = (
        next((publish for publish in publishes if branch.shows(publish)), None)
        for publishes in (observed_publishes(instance, key), _visible_at_once(instance, key))
    )
    return max((publish for publish in newest if publish), key=lambda publish: publish.timestamp, default=None)


def last_made(instance: DagsterInstance, key: AssetKey) -> dict[str | None, tuple[str | None, float]]:
    """Return the session of the last materialization of an asset, if it has one, and its time, by partition."""
    newest = _newest_materializations(instance, key)
    return {partition: (staged_in(instance, record), record.timestamp) for partition, (record, _) in newest.items()}


def _last_materializations(instance: DagsterInstance, key: AssetKey) -> dict[str | None, str | Publish | None]:
    """Map each partition to the session that its last materialization was staged in, or to its publish.

    The value is None for what no lake has published.
    """
    return {
        partition: staged_in(instance, record)
        or (_publish(record, partition, event.metadata) if COMMIT in event.metadata else None)
        for partition, (record, event) in _newest_materializations(instance, key).items()
    }


def _newest_materializations(
    instance: DagsterInstance, key: AssetKey
) -> dict[str | None, tuple[EventLogRecord, AssetMaterialization]]:
    """Return the last materialization of each partition of an asset, among its last ones."""
    newest: dict[str | None, tuple[EventLogRecord, AssetMaterialization]] = {}
    for record in instance.fetch_materializations(key, limit=_RECORDS).records:
        event = record.event_log_entry.asset_materialization
        if event is not None:
            newest.setdefault(event.partition, (record, event))
    return newest


def staged_in(instance: DagsterInstance, record: EventLogRecord) -> str | None:
    """Return the session that a materialization is published with, or None if it was visible at once."""
    event = record.event_log_entry.asset_materialization
    if event is None:
        return None
    if lacks_publish_state(event):
        session = session_of(instance, record.run_id)
        return None if session is None else session.id
    return awaited_session(event)


def _visible_at_once(instance: DagsterInstance, key: AssetKey | AssetRecordsFilter) -> Iterator[Publish]:
    """Yield the materializations that no publish came after, newest first."""
    for record in instance.fetch_materializations(key, limit=_RECORDS).records:
        event = record.event_log_entry.asset_materialization
        if event is not None and staged_in(instance, record) is None:
            yield _publish(record, event.partition, event.metadata)


def observed_publishes(instance: DagsterInstance, key: AssetKey | AssetRecordsFilter) -> Iterator[Publish]:
    """Yield the observed publishes of an asset, newest first."""
    for record in instance.fetch_observations(key, limit=_RECORDS).records:
        if (publish := _observed(record)) is not None:
            yield publish


def publishes_after(instance: DagsterInstance, key: AssetKey, event: int | None) -> tuple[list[Publish], int]:
    """Return the observed publishes of an asset after an event, newest first, and the number of the newest event.

    That is 0 without any.
    """
    after = AssetRecordsFilter(asset_key=key, after_storage_id=event)
    records = instance.fetch_observations(after, limit=_RECORDS).records
    publishes = [publish for record in records if (publish := _observed(record)) is not None]
    return publishes, max((record.storage_id for record in records), default=event or 0)


def _observed(record: EventLogRecord) -> Publish | None:
    """Return the publish that an observation is of, if it is of one."""
    event = record.event_log_entry.asset_observation
    if event is None or value_of(event.metadata, STATE) != PUBLISHED:
        return None
    return _publish(record, event.partition, event.metadata)


def _publish(record: EventLogRecord, partition: str | None, metadata: Mapping[str, MetadataValue[Any]]) -> Publish:
    session, branch, commit = (
        value if isinstance(value := value_of(metadata, name), str) else None for name in (SESSION_TAG, BRANCH, COMMIT)
    )
    return Publish(partition, record.timestamp, session, branch, commit)
