"""Publishing of a run's session: the gate, the publish, and the reports in the UI.

The executor, `lake_orch.testing`, recoveries and ops all publish through this module.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from dagster import MetadataValue

from lake_core.lake.errors import Conflict
from lake_orch.errors import GateFailed
from lake_orch.runs.gate import FailedCheck, failed_checks
from lake_orch.runs.observations import report_published
from lake_orch.runs.run_session import Gate, RunSession
from lake_orch.tags import SESSION_TAG
from lake_pipes.metadata import BRANCH, COMMIT

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from lake_core.lake import Lake
    from lake_core.lake.publish.published import Published

_LOG = logging.getLogger(__name__)


def check_gate(instance: DagsterInstance, session: str, gate: Gate) -> None:
    """Raise GateFailed if a check prevents publishing a session."""
    failed = failed_checks(instance, session, gate)
    if failed:
        raise GateFailed(_gate_message(session, failed), checks=[str(check) for check in failed])


def publish_session(
    instance: DagsterInstance, lake: Lake, session: RunSession, *, gate: Gate, keep_failed_for: timedelta
) -> Published:
    """Publish a run's session unless a check prevents it, and report each of its assets.

    A repeated call has the same result.

    After a failed gate or a conflict the session is failed. It can be read and resumed for `keep_failed_for`. Raises
    GateFailed, Conflict, StaleEpoch, SessionClosed, PublishTimeout.
    """
    try:
        if not lake.get_session(session.id).record.is_published:
            check_gate(instance, session.id, gate)
        published = lake.get_session(session.id, epoch=session.epoch).publish()
    except Conflict as error:
        # Another try would fail in the same way, and a re-execution from failure has no step to run.
        remedy = "Nothing was published: re-execute all steps, which then start from what the branch has now"
        raise error.replace(remedy=remedy) from error.__cause__
    except Exception as error:
        lake.get_session(session.id, epoch=session.epoch).fail(str(error), keep=keep_failed_for)
        raise
    try:
        report_published(instance, lake, session, published)
    except Exception:
        # It is published: an error now would make the run look unpublished. The sensors report the assets later.
        _LOG.warning("session %s is published, but reporting its assets failed", session.id, exc_info=True)
    return published


def published_metadata(session: RunSession, branch: str, published: Published, *, resumed: bool) -> dict[str, Any]:
    """Describe a publish for the run's log."""
    versions = [f"- `{path}`: version {version}" for path, version in sorted(published.versions.items())]
    metadata: dict[str, Any] = {
        SESSION_TAG: session.id,
        BRANCH: branch,
        COMMIT: published.commit,
        "lake/datasets": len(published.versions),
    }
    if versions:
        metadata["lake/versions"] = MetadataValue.md("\n".join(versions))
    if resumed:
        metadata["lake/resumed"] = True
    if not published.is_checked_out:
        metadata["lake/checked_out"] = False
    return metadata


def _gate_message(session: str, failed: Sequence[FailedCheck]) -> str:
    names = ", ".join(str(check) for check in failed[:10]) + (
        f" and {len(failed) - 10} more" if len(failed) > 10 else ""
    )
    return (
        f"session {session} is not published: {names} failed. Its branch is as before, and the session "
        f"can be read as {session!r}. Correct the data and re-execute the steps of those assets and what follows them. "
        "Or publish it as it is: job lake_recover with the session and another gate"
    )
