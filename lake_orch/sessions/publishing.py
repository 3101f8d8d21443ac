"""Publishing a run's session: the gate, the publish itself, and what the UI is told of it.

One way for all who publish: the executor, `lake_orch.testing`, a recovery, an op.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dagster import AssetKey, AssetMaterialization, AssetObservation, DagsterEventType, MetadataValue

from lake_core.lake.errors import Conflict
from lake_core.lake.refs import PUBLISHED as SESSION_PUBLISHED
from lake_orch.errors import GateFailed
from lake_orch.sessions.gate import FailedCheck, failed_checks, runs_of
from lake_orch.sessions.run_session import Gate, RunSession
from lake_orch.tags import BRANCH, COMMIT, PATH, PUBLISHED, SESSION_TAG, STATE, VERSION

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from lake_core.lake import Lake
    from lake_core.lake.session import Published

_LOG = logging.getLogger(__name__)


def check_gate(instance: DagsterInstance, session: str, gate: Gate) -> None:
    """Raises GateFailed where a check stands against publishing a session."""
    failed = failed_checks(instance, session, gate)
    if failed:
        raise GateFailed(_gate_message(session, failed), checks=[str(check) for check in failed])


def publish_session(instance: DagsterInstance, lake: Lake, session: RunSession, *, gate: Gate, keep_failed_for: timedelta) -> Published:
    """Publish a run's session, unless a check stands against it, and say so of each asset in it. Repeated, the same result.

    A gate that fails, and a conflict, leave the session failed: readable, and to be resumed, for `keep_failed_for`. Raises GateFailed,
    Conflict, StaleEpoch, SessionClosed, PublishTimeout.
    """
    try:
        if lake.session_record(session.id).state != SESSION_PUBLISHED:
            check_gate(instance, session.id, gate)
        done = lake.publish(session.id, epoch=session.epoch)
    except Conflict as error:
        # Trying again would end the same way, and no step is left that a re-execution from failure could run.
        error.args = (f"{error}. Nothing was published: re-execute all steps, which then start from what the branch has now",)
        raise
    except Exception as error:
        lake.fail(session.id, str(error), keep=keep_failed_for, epoch=session.epoch)
        raise
    try:
        _tell_assets(instance, lake, session, done)
    except Exception:
        # It is published: raising now would make the run look as if it were not. The sensors tell it later.
        _LOG.warning("session %s is published, but its assets could not be told so", session.id, exc_info=True)
    return done


def _tell_assets(instance: DagsterInstance, lake: Lake, session: RunSession, done: Published) -> None:
    """Say of each asset in a published session that it is."""
    branch = lake.session_record(session.id).branch
    for key, path in materialized(instance, session.id).items():
        if not _is_observed(instance, key, done.commit):
            instance.report_runless_asset_event(_observation(key, path, session.id, branch, done))


def materialized(instance: DagsterInstance, session: str) -> dict[AssetKey, str | None]:
    """The assets that the runs of a session materialized in it, with where their tables or files lie."""
    found: dict[AssetKey, str | None] = {}
    for run in runs_of(instance, session):
        for entry in instance.all_logs(run.run_id, of_type=DagsterEventType.ASSET_MATERIALIZATION):
            event = entry.asset_materialization
            if event is not None and (value_of(event.metadata, SESSION_TAG) == session or says_nothing(event)):
                path = value_of(event.metadata, PATH)
                found[event.asset_key] = path if isinstance(path, str) else None
    return found


def says_nothing(event: AssetMaterialization) -> bool:
    """Whether a materialization leaves open what became of it: its asset was written by hand. It is as published as its run's session."""
    return STATE not in event.metadata and COMMIT not in event.metadata


def _observation(key: AssetKey, path: str | None, session: str, branch: str, done: Published) -> AssetObservation:
    """What is said of an asset once its session is published. An observation, as it is no new materialization of it."""
    metadata: dict[str, Any] = {STATE: PUBLISHED, SESSION_TAG: session, BRANCH: branch, COMMIT: done.commit}
    if path is not None and path in done.versions:
        metadata[VERSION] = done.versions[path]
    return AssetObservation(key, metadata=metadata)


def _is_observed(instance: DagsterInstance, key: AssetKey, commit: str) -> bool:
    """Whether it is on record already that a commit holds an asset: who does not know that it is published publishes again."""
    records = instance.fetch_observations(key, limit=20).records
    entries = (record.event_log_entry.asset_observation for record in records)
    return any(entry is not None and value_of(entry.metadata, COMMIT) == commit for entry in entries)


def value_of(metadata: Mapping[str, MetadataValue[Any]], name: str) -> object:
    """What an event's metadata says under a name; None for nothing."""
    found = metadata.get(name)
    return None if found is None else found.value


def published_metadata(session: RunSession, branch: str, done: Published, *, resumed: bool) -> dict[str, Any]:
    """What the run's log says of a publish."""
    versions = [f"- `{path}`: version {version}" for path, version in sorted(done.versions.items())]
    metadata: dict[str, Any] = {SESSION_TAG: session.id, BRANCH: branch, COMMIT: done.commit, "lake/datasets": len(done.versions)}
    if versions:
        metadata["lake/versions"] = MetadataValue.md("\n".join(versions))
    if resumed:
        metadata["lake/resumed"] = True
    if not done.in_place:
        metadata["lake/in_place"] = False
    return metadata


def _gate_message(session: str, failed: Sequence[FailedCheck]) -> str:
    names = ", ".join(str(check) for check in failed[:10]) + (f" and {len(failed) - 10} more" if len(failed) > 10 else "")
    return (
        f"session {session} is not published: {names} failed. Its branch is as before, and the session can be read as {session!r}. "
        f"Mend the data and re-execute the run: from failure, or where no step failed the steps of those assets and what follows them. "
        f"Its session is resumed. Or publish it as it is: job lake_recover with the session and another gate"
    )
