"""Evaluation of the checks that ask for the published state of an asset: is it what was materialized, and is it fresh?

In a run with a session these checks run before the publish, and cannot know how it ends. So who publishes the session,
or fails it, evaluates them again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from dagster import AssetCheckEvaluation, AssetCheckKey, AssetCheckSeverity, MetadataValue

from lake_core.lake.errors import SessionNotFound
from lake_core.lake.refs.session_record import FAILED, OPEN
from lake_core.readable import count_of, listed
from lake_orch._dagster import (
    AssetCheckEvaluationTargetMaterializationData,
    get_latest_completed_cron_tick,
    get_next_cron_tick,
    last_evaluation,
)
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.dagster.runs.observations import materialized, value_of
from lake_orch.dagster.runs.unpublished import advice_on, prospects, unpublished_message, unpublished_metadata
from lake_orch.dagster.runs.visibility import LakeBranch, last_shown, unseen
from lake_orch.tags import SESSION_TAG
from lake_pipes.metadata import BRANCH, COMMIT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from dagster import AssetKey, DagsterInstance

    from lake_core.lake import Lake
    from lake_orch.dagster.runs.visibility import Publish, Unseen

_LOG = logging.getLogger(__name__)

PUBLISHED_CHECK = "published"
FRESHNESS_CHECK = "published_freshness"

SETTINGS = "lake/check"
"""The key of the settings of a check in the metadata of its evaluations."""
FRESHNESS_PARAMS = "dagster/freshness_params"
FRESH_UNTIL = "dagster/fresh_until_timestamp"
LAST_UPDATED = "dagster/last_updated_timestamp"


@dataclass(frozen=True, slots=True)
class Freshness:
    """How old the last publish may be."""

    lower_bound_delta: timedelta
    deadline_cron: str | None = None
    timezone: str = "UTC"

    def params(self) -> dict[str, Any]:
        """Return it as Dagster's freshness checks name it in their metadata."""
        params: dict[str, Any] = {
            "timezone": self.timezone,
            "lower_bound_delta_seconds": self.lower_bound_delta.total_seconds(),
        }
        return params if self.deadline_cron is None else {**params, "deadline_cron": self.deadline_cron}

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Freshness:
        """Read what `params` wrote."""
        delta = timedelta(seconds=params["lower_bound_delta_seconds"])
        return cls(delta, params.get("deadline_cron"), params["timezone"])

    def last_deadline(self, now: datetime) -> datetime:
        """Return the last deadline: the last tick of the schedule, or now without one."""
        local = now.astimezone(ZoneInfo(self.timezone))
        if self.deadline_cron is None:
            return local
        tick: datetime = get_latest_completed_cron_tick(self.deadline_cron, local, self.timezone)
        return tick

    def fresh_until(self, published: float, now: datetime) -> float:
        """Return when a publish that is fresh now may be overdue."""
        if self.deadline_cron is None:
            return published + self.lower_bound_delta.total_seconds()
        local = now.astimezone(ZoneInfo(self.timezone))
        tick: datetime = get_next_cron_tick(self.deadline_cron, local, self.timezone)
        return tick.timestamp()


@dataclass(frozen=True, slots=True)
class PublishedCheck:
    """A check of the published state of an asset."""

    instance: DagsterInstance
    key: AssetKey
    branch: LakeBranch
    severity: AssetCheckSeverity = AssetCheckSeverity.WARN
    freshness: Freshness | None = None
    """How old the last publish may be; None for the check whether the last materialization is published."""

    @property
    def name(self) -> str:
        """Return the name of the check."""
        return PUBLISHED_CHECK if self.freshness is None else FRESHNESS_CHECK

    def evaluate(self, own_session: str | None = None) -> AssetCheckEvaluation:
        """Evaluate the check.

        Args:
            own_session: The session of the run that evaluates it. While it holds newer rows, a failure is a warning:
                otherwise the check could prevent the very publish that it waits for.
        """
        waiting = unseen(self.instance, self.key, self.branch)
        last = last_shown(self.instance, self.key, self.branch)
        metadata = {SETTINGS: MetadataValue.json(self._settings()), **_metadata(last)}
        if self.freshness is None:
            passed = last is not None and not waiting
            message = "The last materialization is published." if passed else ""
        else:
            passed, message, times = _judge(self.freshness, last, datetime.now(UTC))
            metadata |= times
        if waiting:
            advice, about = self._about(waiting)
            metadata |= about
            message = f"{message} {advice}".strip()
        elif last is None:
            message = "It was never published: materialize it."
        is_own = own_session is not None and any(each.session == own_session for each in waiting.values())
        return AssetCheckEvaluation(
            self.key,
            self.name,
            passed,
            metadata,
            _target(self.instance, self.key),
            AssetCheckSeverity.WARN if is_own else self.severity,
            message,
        )

    def _settings(self) -> dict[str, Any]:
        settings = {"branch": self.branch.name, "severity": self.severity.value}
        return settings if self.freshness is None else {**settings, "freshness": self.freshness.params()}

    def _about(self, waiting: Mapping[str | None, Unseen]) -> tuple[str, dict[str, Any]]:
        """Say where the rows are that readers do not see, and how to go on."""
        partitions = sorted(partition for partition in waiting if partition is not None)
        subject = f"Newer rows of {listed(partitions)} are" if partitions else "Newer rows are"
        first = next(iter(waiting.values()))
        if first.publish is not None:
            place = f"commit {str(first.publish.commit)[:12]} of branch {first.publish.branch}"
            remedy = f"bring it to {self.branch.name} with lake.merge({first.publish.branch!r})"
            about: dict[str, Any] = {}
            text = f"{subject} published only as {place}: {remedy}."
        else:
            advice, about = self._about_session(str(first.session))
            text = f"{subject} only staged. {advice}"
        others = {(each.session, each.publish) for each in waiting.values()} - {(first.session, first.publish)}
        return f"{text} So are those of {count_of(len(others), 'other session')}." if others else text, about

    def _about_session(self, session: str) -> tuple[str, dict[str, Any]]:
        if self.branch.open is None:
            return f"Session {session} has them.", {SESSION_TAG: session}
        try:
            record = self.branch.open().get_session(session).record
        except SessionNotFound:
            return (
                f"Session {session}, which had them, no longer exists: start a new run of all steps.",
                {SESSION_TAG: session},
            )
        runs = runs_of(self.instance, session)
        last = runs[-1] if runs else None
        if record.is_published:
            text = f"Session {session} is published, but not reported: lake_session_sensors report it."
        elif record.state == OPEN and last is not None and not last.is_finished:
            text = f"Session {session} has them, which run {last.run_id} publishes at its end."
        elif record.state == OPEN:
            text = (
                f"Session {session} was left open: lake_session_sensors or lake_session_reaper settle it. "
                f"Read it with lake.at('{session}')."
            )
        elif record.state == FAILED and last is not None:
            reason = f" It failed: {record.reason}" if record.reason else ""
            advice = advice_on(self.instance, session, *prospects(self.instance, session, last, "blocking"))
            text = f"{unpublished_message(record, advice)}{reason}"
        else:
            text = f"Session {session}, which had them, has ended ({record.state}): start a new run of all steps."
        return text, unpublished_metadata(record)


def evaluate_again(instance: DagsterInstance, lake: Lake, session: str) -> None:
    """Evaluate again the checks of the assets of a session that was published or failed, if they were evaluated before.

    An error is only logged: it does not change how the session ended.
    """
    try:
        for key in dict.fromkeys(each.key for each in materialized(instance, session)):
            for name in (PUBLISHED_CHECK, FRESHNESS_CHECK):
                last = last_evaluation(instance, AssetCheckKey(key, name))
                settings: Any = None if last is None else value_of(last.metadata, SETTINGS)
                if last is not None and isinstance(settings, dict):
                    freshness = settings.get("freshness")
                    check = PublishedCheck(
                        instance,
                        key,
                        LakeBranch(settings["branch"], lambda: lake),
                        AssetCheckSeverity(settings["severity"]),
                        None if freshness is None else Freshness.of(freshness),
                    )
                    evaluation = check.evaluate()
                    if not _says_the_same(last, evaluation):
                        instance.report_runless_asset_event(evaluation)
    except Exception:
        _LOG.warning("checks of what session %s holds were not evaluated again: run them", session, exc_info=True)


def _says_the_same(last: AssetCheckEvaluation, now: AssetCheckEvaluation) -> bool:
    """Return whether two evaluations report the same publish, or fail for the same reason."""
    if last.passed and now.passed:
        return all(value_of(last.metadata, name) == value_of(now.metadata, name) for name in (COMMIT, LAST_UPDATED))
    return last.passed == now.passed and last.description == now.description


def _metadata(last: Publish | None) -> dict[str, Any]:
    if last is None:
        return {}
    named = {BRANCH: last.branch, COMMIT: last.commit}
    return {LAST_UPDATED: MetadataValue.timestamp(last.timestamp)} | {
        name: text for name, text in named.items() if text is not None
    }


def _judge(freshness: Freshness, last: Publish | None, now: datetime) -> tuple[bool, str, dict[str, Any]]:
    """Return whether the last publish is fresh, in words, and with the times of Dagster's freshness checks."""
    deadline = freshness.last_deadline(now)
    bound = deadline - freshness.lower_bound_delta
    times: dict[str, Any] = {
        FRESHNESS_PARAMS: MetadataValue.json(freshness.params()),
        "dagster/freshness_lower_bound_timestamp": MetadataValue.timestamp(bound.timestamp()),
    }
    if freshness.deadline_cron is not None:
        times["dagster/latest_cron_tick_timestamp"] = MetadataValue.timestamp(deadline.timestamp())
    if last is None:
        return False, f"It was never published, and should have been since {bound:%Y-%m-%d %H:%M %Z}.", times
    published = datetime.fromtimestamp(last.timestamp, bound.tzinfo)
    passed = published >= bound
    if passed:
        times[FRESH_UNTIL] = MetadataValue.timestamp(freshness.fresh_until(last.timestamp, now))
    kind = "Fresh" if passed else "Overdue"
    message = f"{kind}: last published {published:%Y-%m-%d %H:%M %Z}, due since {bound:%Y-%m-%d %H:%M %Z}."
    return passed, message, times


def _target(instance: DagsterInstance, key: AssetKey) -> AssetCheckEvaluationTargetMaterializationData | None:
    """Return the pointer of an evaluation to the last materialization."""
    for record in instance.fetch_materializations(key, limit=1).records:
        return AssetCheckEvaluationTargetMaterializationData(
            storage_id=record.storage_id, run_id=record.run_id, timestamp=record.timestamp
        )
    return None
