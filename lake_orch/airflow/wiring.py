"""The order of the tasks of a session: `open` before all others, checks after what they check, `publish`, `close`."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from airflow.providers.common.compat.sdk import SkipMixin
from airflow.sdk import TriggerRule
from airflow.sdk.definitions.asset import AssetAlias

from lake_orch.airflow.checks import LakeCheckOperator
from lake_orch.airflow.dataset import into_of
from lake_orch.airflow.operators import CloseOperator, OpenOperator, PublishOperator
from lake_orch.airflow.session_group import CLOSE_TASK, OPEN_TASK, PUBLISH_TASK, SessionGroup, session_around
from lake_orch.airflow.task_states import tell_try

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_AGAIN: Final[dict[str, Any]] = {"retries": 3, "retry_delay": timedelta(seconds=10)}
"""How often the tasks of a session that end it are tried again."""


def check_place(session: SessionGroup) -> None:
    """Raise ValueError if a group cannot be a session where it is."""
    around = session_around(session.parent_group)
    if around is not None:
        raise ValueError(
            f"the session {session.group_id!r} is in the session {around.group_id!r}: a task writes into one, so put "
            "them beside one another"
        )
    mapped = next(session.iter_mapped_task_groups(), None)
    if mapped is not None:
        raise ValueError(
            f"the session {session.group_id!r} is in the mapped task group {mapped.group_id!r}: a session is one for "
            "all indexes, so put the mapped group into the session"
        )


def wire(session: SessionGroup) -> None:
    """Add the three tasks to a group, around its others."""
    work = list(session)
    if not work:
        raise ValueError(f"the session {session.group_id!r} has no tasks: make them in its block")
    ids = {task.task_id for task in work}
    for check in (task for task in work if isinstance(task, LakeCheckOperator)):
        _follow_writers(check, work)
        if not check.upstream_task_ids & ids:
            check.trigger_rule = TriggerRule.ALL_SUCCESS  # as of all that `open` is to precede
    alias = AssetAlias(f"{session.dag.dag_id}.{session.group_id}")
    # It runs where all above it was skipped: a task with a rule of its own may write nevertheless.
    open_task = OpenOperator(task_id=OPEN_TASK, trigger_rule=TriggerRule.NONE_FAILED)
    _await_others(open_task, session, work)
    # Their own errors are final. They are tried again if their processes die, perhaps after the commit: without that, a
    # run whose rows are published would be red.
    chosen = {**(session.dag.default_args or {}), **(session.default_args or {})}
    publish = PublishOperator(
        task_id=PUBLISH_TASK,
        trigger_rule=TriggerRule.NONE_FAILED,
        outlets=[alias],
        **({} if "retries" in chosen else _AGAIN),
    )
    close = CloseOperator(task_id=CLOSE_TASK, outlets=[alias], **_AGAIN)
    for task in work:
        _let_tell_try(task)
        # Airflow lets nothing but `all_success` follow a setup. Tasks with another rule open the session themselves.
        if not task.upstream_task_ids & ids and task.trigger_rule == TriggerRule.ALL_SUCCESS:
            open_task.set_downstream(task)
        if _must_precede_publish(task, ids):
            task.set_downstream(publish)
            # `publish` ends at once when a task fails. Those that still write need their session until they have ended.
            task.set_downstream(close)
    publish.set_downstream(close)
    close.as_teardown(setups=[open_task], on_failure_fail_dagrun=True)


def _await_others(open_task: OpenOperator, session: SessionGroup, work: Sequence[Any]) -> None:
    """Let `open` follow the tasks outside of the group that tasks in it follow, so that they read what these publish.

    Those that follow tasks of the group themselves cannot come before it.
    """
    ids = {task.task_id for task in work}
    others = {id for task in work for id in task.upstream_task_ids - ids}
    tasks = [session.dag.get_task(id) for id in sorted(others)]
    awaited = [task for task in tasks if not task.get_flat_relative_ids(upstream=True) & ids]
    for task in awaited:
        task.set_downstream(open_task)
    open_task.awaited = frozenset(task.task_id for task in awaited)


def _let_tell_try(task: Any) -> None:
    """Let a task tell its try when it begins, before what the user lets it do then."""
    if hasattr(task, "partial_kwargs"):
        then = task.partial_kwargs.get("pre_execute")
        task.partial_kwargs["pre_execute"] = _telling(then)
    else:
        task._pre_execute_hook = _telling(task._pre_execute_hook)


def _telling(then: Callable[[Any], None] | None) -> Callable[[Any], None]:
    def tell(context: Any) -> None:
        tell_try(context["ti"])
        if then is not None:
            then(context)

    return tell


def _follow_writers(check: LakeCheckOperator, work: Sequence[Any]) -> None:
    """Let a check run after all tasks that may write what it checks, but for those that follow it.

    A task that returns into no dataset may write anything.
    """
    places = {(dataset.connection, dataset.branch, dataset.path) for dataset in check.datasets}
    for task in work:
        if isinstance(task, LakeCheckOperator) or task.is_setup or task.is_teardown or _skips(task):
            continue
        into = into_of(task)
        may_write = into is None or (into.connection, into.branch, into.path) in places
        if may_write and check.task_id not in task.get_flat_relative_ids(upstream=True):
            task.set_downstream(check)


def _must_precede_publish(task: Any, ids: set[str]) -> bool:
    """Return whether `publish` is to wait for a task itself: for all, as each may end after those that follow it.

    Those are skipped at once if one of several above them is skipped. A branch would skip `publish` as well, so only
    what follows it precedes `publish`.
    """
    return not task.downstream_task_ids & ids or not (task.is_setup or _skips(task))


def _skips(task: Any) -> bool:
    """Return whether a task may skip those that follow it directly: a branch, or a short circuit. It writes nothing."""
    operator = getattr(task, "operator_class", type(task))
    return isinstance(operator, type) and issubclass(operator, SkipMixin)
