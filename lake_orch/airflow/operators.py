"""The tasks that a session adds to its group: `open`, `publish` and `close`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException, SkipMixin
from airflow.providers.standard.utils.skipmixin import XCOM_SKIPMIXIN_KEY, XCOM_SKIPMIXIN_SKIPPED
from airflow.sdk import BaseOperator
from airflow.sdk.definitions.asset import Asset

from lake_orch.airflow.asset_uri import asset_uri
from lake_orch.airflow.dataset import into_of
from lake_orch.airflow.links import LINKS, set_links
from lake_orch.airflow.session_group import CLOSE_TASK, PUBLISH_TASK, SessionGroup, session_of

if TYPE_CHECKING:
    from airflow.sdk import Context

    from lake_orch.airflow.task_run import TaskRun
    from lake_orch.runs.run import PublishedRun

PUBLISHED_KEY = "lake_published"
"""The key of the XCom in which `publish` says what it did."""


class SessionOperator(BaseOperator):
    """The base class of the three tasks that a session adds."""

    operator_extra_links = LINKS
    ui_color = "#e8f0fe"

    def link_session(self, run: TaskRun) -> None:
        """Link the task to the session of its run, if there is one by now."""
        record = run.run.session
        set_links(self, run, None if record is None else record.id)


class OpenOperator(SessionOperator, SkipMixin):
    """Opens the session of a run, or resumes it, or opens its next generation after it was published.

    It runs where a task above the group was skipped, too: a task of the group with a trigger rule of its own may write
    nevertheless, and then has to be published. The tasks that follow `open` are skipped then, as without it.
    """

    inherits_from_skipmixin = True  # so that Airflow skips them again when they are cleared

    awaited: frozenset[str] = frozenset()
    """The tasks that only some tasks of the group follow. `open` waits for them, so that its session has what they
    publish, and is not skipped with them."""

    def execute(self, context: Context) -> str:
        """Open the session, and return its id."""
        from lake_orch.airflow.errors import without_retry
        from lake_orch.airflow.task_run import TaskRun
        from lake_orch.airflow.task_states import TaskInstanceStates

        session, ti = _session(context), context["ti"]
        with without_retry():
            run = TaskRun.of_session(session)
            opened = run.run.open(anew=True)
        set_links(self, run, opened.id)
        self.log.info("session %s is open on %s of %s", opened.id, run.branch, run.lake.url)
        if "skipped" in TaskInstanceStates(ti, self.upstream_task_ids - self.awaited).states().values():
            own = (session.own_id(PUBLISH_TASK), session.own_id(CLOSE_TASK))
            self.skip(ti, [task for task in self.get_direct_relatives() if task.task_id not in own])
        return opened.id


class PublishOperator(SessionOperator):
    """Publishes what the tasks of the group have written, in one commit."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Publish, and return the commit.

        Raises:
            AirflowSkipException: Nothing was written.
            AirflowFailException: Tasks of the group have yet to run to their end, or others have published what
                contradicts what they wrote.
        """
        from lake_orch.airflow.errors import without_retry
        from lake_orch.airflow.task_run import TaskRun

        session, ti = _session(context), context["ti"]
        with without_retry():
            run = TaskRun.of_session(session)
            self.link_session(run)
            published = _publish(run, session)
        outcome_of_publish = tell(self, run, published, context)
        ti.xcom_push(key=PUBLISHED_KEY, value=outcome_of_publish)
        if not outcome_of_publish["changed"]:
            raise AirflowSkipException("the tasks have written nothing, so nothing was published")
        return outcome_of_publish


class CloseOperator(SessionOperator):
    """Ends the session of a run. It fails the run if something stays unpublished: a run is green only if it is true.

    It publishes what tasks have written that were cleared alone, without `publish`, after that had published.
    """

    def execute(self, context: Context) -> str:
        """Close the session, and return what became of it.

        Raises:
            AirflowFailException: Something is not published.
        """
        from lake_orch.airflow.errors import without_retry
        from lake_orch.airflow.task_run import TaskRun

        session, ti = _session(context), context["ti"]
        with without_retry():
            run = TaskRun.of_session(session)
            self.link_session(run)
            ending = _Ending.of(ti, session, run)
            if ending.may_publish and session.on_alone == "publish":
                self._publish_alone(run, session, context)
            outcome = run.run.close(ending.reason, keep=session.keep_failed_for)
        if ending.may_publish and outcome != "unpublished":
            return outcome
        if outcome == "published":
            raise AirflowFailException(
                f"what was written is published, but {ending.reason}: clear it to finish the run"
            )
        kept = _kept(run, session) if outcome == "unpublished" else ""
        rest = f"; yet to run: {', '.join(ending.unfinished[:5])}" if ending.unfinished else ""
        raise AirflowFailException(f"the run is not published, as {ending.reason}{rest}{kept}")

    def _publish_alone(self, run: TaskRun, session: SessionGroup, context: Context) -> None:
        """Check and publish what is not published yet. Raises AirflowFailException."""
        if run.run.session is None or run.run.is_published:
            return
        try:
            _check_again(session, context["ti"])
        except AirflowFailException:
            run.run.close("a check did not pass", keep=session.keep_failed_for)
            raise
        published = _publish(run, session)
        if published is not None:
            tell(self, run, published, context)


@dataclass(frozen=True, slots=True)
class _Ending:
    """How the tasks of a session, and its publish, have ended."""

    reason: str
    """How the publish ended, for people."""
    may_publish: bool
    """Whether all tasks have ended so that the run is a success if nothing stays unpublished."""
    unfinished: Sequence[str]
    """The tasks that have yet to be run to their end."""

    @classmethod
    def of(cls, ti: Any, session: SessionGroup, run: TaskRun) -> _Ending:
        """Ask Airflow how they have ended."""
        from lake_orch.airflow.task_states import TaskInstanceStates

        publish_id = session.own_id(PUBLISH_TASK)
        last_publish = ti.xcom_pull(task_ids=[publish_id], key=PUBLISHED_KEY)[0]
        state = TaskInstanceStates(ti, [publish_id]).states().get((publish_id, -1))
        # The XCom of a task that is skipped before it begins is that of an earlier pass.
        did_nothing = last_publish is not None and not last_publish["changed"]
        has_ended = last_publish is not None and (state == "success" or (state == "skipped" and did_nothing))
        skipping = _skipping(ti, session, publish_id) if state == "skipped" and not has_ended else []
        run.run.states.look()
        unfinished = sorted(run.run.states.unfinished())
        may_publish = not unfinished and (has_ended or (bool(skipping) and not run.run.holds_writes))
        reason = f"{publish_id} is {state or 'not run'}"
        if skipping:
            reason = f"{skipping[0]} has skipped all that follows it, {publish_id} too, whatever their trigger rules"
        return cls(reason, may_publish, unfinished)


def _check_again(session: SessionGroup, ti: Any) -> None:
    """Do the checks of a group, as what they checked has been written again. Raises AirflowFailException."""
    from lake_orch.airflow.checks import LakeCheckOperator

    for task in session:
        if isinstance(task, LakeCheckOperator) and task.applies(ti):
            task.check()


def _skipping(ti: Any, session: SessionGroup, task_id: str) -> Sequence[str]:
    """Return the tasks of a group that have skipped a task by themselves, whatever its trigger rule is."""
    ids = sorted(session.work_ids())
    skips = ((id, each) for id in ids for each in ti.xcom_pull(task_ids=[id], key=XCOM_SKIPMIXIN_KEY))
    return [id for id, each in skips if each is not None and task_id in each.get(XCOM_SKIPMIXIN_SKIPPED, ())]


def _publish(run: TaskRun, session: SessionGroup) -> PublishedRun | None:
    """Publish what the tasks of a group have written. Another try would meet the same errors, so there is none.

    Raises AirflowFailException.
    """
    from lake_core.lake.errors import Conflict, SessionClosed, UnfinishedTasks
    from lake_orch.airflow.task_states import readable

    try:
        return run.run.publish(half_written="leave out", check_alive=run.check_alive, keep=session.keep_failed_for)
    except UnfinishedTasks as error:
        raise AirflowFailException(f"{error}. Run them, clear them, or mark them as successful") from error
    except SessionClosed as error:
        raise AirflowFailException(readable(str(error))) from error
    except Conflict as error:
        again = f"Clear the tasks of the group {session.group_id!r}, which then write on top of it"
        raise AirflowFailException(readable(str(error.replace(remedy=again)))) from error


def tell(operator: SessionOperator, run: TaskRun, published: PublishedRun | None, context: Context) -> dict[str, Any]:
    """Say what a publish did: in the log, by links, and by an event for each dataset that it changed."""
    from lake_orch.airflow.events import add_event, changes_of_commit, published_commit
    from lake_orch.airflow.lineage import note_written
    from lake_orch.assets.asset_format import asset_format_class
    from lake_pipes.metadata import ROWS_WRITTEN

    if published is None:
        return {"commit": None, "changed": False, "branch": run.branch, "session": None, "datasets": {}}
    commit = published_commit(run, published)
    set_links(operator, run, published.published.session, commit)
    assert run.session is not None
    returned = (into_of(task) for task in run.session)
    files = {each.path for each in returned if each is not None and not asset_format_class(each.format).is_dataset}
    changes = (
        []
        if commit is None
        else changes_of_commit(run.lake, commit, run.branch, files, other_files=True, ui_url=run.ui_url)
    )
    for change in changes:
        uri = asset_uri(run.connection, run.branch, change.path)
        add_event(Asset(name=uri.removeprefix("lake://"), uri=uri), change, context)
        rows = {ROWS_WRITTEN: change.extra.get("rows")}
        note_written(run.lake, run.connection, run.branch, change.path, change.extra["commit"], rows)
    if commit is not None and changes:
        shown = ", ".join(change.path for change in changes[:10])
        operator.log.info("published commit %s on %s: %s", commit.id[:12], run.branch, shown)
    if published.left_out:
        names = [run.run.states.name(task) for task in published.left_out]
        operator.log.warning("left out, as they did not end or do not count: %s", ", ".join(names))
    if published.replaced:
        names = [run.run.states.name(task) for task in published.replaced]
        operator.log.info("replaced what these tasks had published before: %s", ", ".join(names))
    if published.stayed:
        operator.log.warning("others have rewritten what was replaced, so it stays: %s", ", ".join(published.stayed))
    return {
        "commit": published.published.commit,
        "changed": commit is not None,
        "branch": run.branch,
        "session": published.published.session,
        "datasets": {change.path: change.extra.get("version") for change in changes},
    }


def _session(context: Context) -> SessionGroup:
    session = session_of(context)
    assert session is not None
    return session


def _kept(run: TaskRun, session: SessionGroup) -> str:
    record = run.run.session
    if record is None:
        return ""
    hours = session.keep_failed_for.total_seconds() / 3600
    again = f"the tasks of the group {session.group_id!r}" if record.conflicts else "the failed tasks"
    return (
        f". What was written is kept in the session {record.id} for {hours:.0f} hours: read it with "
        f"`lake ls {record.id}:`, and clear {again} to go on"
    )
