"""`lake_session`: a group of tasks that publishes all that they wrote, once, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from lake_orch.airflow.checks import LakeCheckOperator
from lake_orch.airflow.handover import HandedOver
from lake_orch.airflow.hook import DEFAULT_CONNECTION
from lake_orch.airflow.session_group import OnAlone, SessionGroup
from lake_orch.airflow.wiring import check_place, wire
from lake_orch.airflow.work import SessionWork

if TYPE_CHECKING:
    from lake_orch.airflow.dataset import LakeDataset


class LakeSession(SessionGroup):
    """A group of tasks, and the session of a lake into which they write.

    Its first task `open` opens the session, `publish` publishes it after all others, and the teardown `close` closes
    it: it fails the run if something stays unpublished.
    """

    @property
    def writer(self) -> SessionWork:
        """Return what opens a writer in a task, for all that one value cannot say: `with work() as w: …`."""
        return SessionWork(self)

    def handover(self) -> dict[str, Any]:
        """Return environment variables for a process elsewhere, which writes in place of a task of this group.

        Give them to an operator whose environment is templated, such as `SparkSubmitOperator(env_vars=…)` or
        `KubernetesPodOperator(env_vars=…)`. The process writes with `lake_pipes.open_workspace()`.
        """
        from lake_pipes import ASSIGNMENT, STORAGE_OPTIONS

        return {
            ASSIGNMENT: HandedOver(self, secret=False),
            STORAGE_OPTIONS: HandedOver(self, secret=True),
        }

    def check(
        self, *datasets: LakeDataset, blocking: bool = True, **options: Any
    ) -> Callable[[Callable[..., Any]], Any]:
        """Make a function a check of what is staged, before it is published.

        It gets each dataset as its parameters are annotated. It fails if it raises, or returns False. A check that is
        not blocking writes a warning into its log, and the run is published nevertheless.
        """
        self.check_open()

        def decorate(function: Callable[..., Any]) -> Any:
            return LakeCheckOperator(
                python_callable=function,
                datasets=datasets,
                blocking=blocking,
                task_group=self,
                **{"task_id": function.__name__, **options},
            )

        return decorate

    def __enter__(self) -> Self:
        check_place(self)
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if kind is None:
            wire(self)
            self.is_wired = True
        super().__exit__(kind, error, trace)


def lake_session(
    group_id: str = "session",
    *,
    connection: str = DEFAULT_CONNECTION,
    branch: str | None = None,
    on_alone: OnAlone = "publish",
    keep_failed_for: timedelta = timedelta(hours=24),
    **options: Any,
) -> LakeSession:
    """Return a group whose tasks write into one session, which is published whole or not at all: `with` makes them.

    Args:
        group_id: The id of the group of tasks.
        connection: The id of a connection of the type `lake`.
        branch: The branch to publish on, by default `main`. It may be a template.
        on_alone: What to do when a task is cleared alone, without `publish`, in a run that was published: publish what
            it writes, or fail the run.
        keep_failed_for: How long a session stays readable that was not published.
        options: Further options of the `TaskGroup`.
    """
    return LakeSession(
        group_id, connection=connection, branch=branch, on_alone=on_alone, keep_failed_for=keep_failed_for, **options
    )
