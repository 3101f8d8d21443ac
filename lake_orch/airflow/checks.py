"""Checks of what is staged in a session, before it is published."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import BaseOperator, TriggerRule

if TYPE_CHECKING:
    from airflow.sdk import Context

    from lake_orch.airflow.dataset import LakeDataset


class LakeCheckOperator(BaseOperator):
    """Checks what is staged in a session, before it is published.

    It runs after all tasks that may have written what it checks, those that were skipped left aside.
    """

    shallow_copy_attrs = ("python_callable",)

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        datasets: Sequence[LakeDataset],
        blocking: bool = True,
        trigger_rule: str = TriggerRule.NONE_FAILED,
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.python_callable, self.datasets, self.blocking = python_callable, list(datasets), blocking

    def execute(self, context: Context) -> dict[str, Any]:
        """Call the check, and return whether it passed.

        Raises:
            AirflowSkipException: All tasks that might have made a dataset were skipped, and it does not exist.
            AirflowFailException: A blocking check has failed. Nothing is published.
        """
        if not self.applies(context["ti"]):
            raise AirflowSkipException("there is nothing to check: what would have made it was skipped")
        return self.check()

    def applies(self, ti: Any) -> bool:
        """Return whether there is something to check: not if all tasks were skipped that might have made it."""
        from lake_orch.airflow.reading import exists
        from lake_orch.airflow.task_states import TaskInstanceStates

        states = TaskInstanceStates(ti, self.upstream_task_ids).states()
        return set(states.values()) != {"skipped"} or all(map(exists, self.datasets))

    def check(self) -> dict[str, Any]:
        """Call the check, and return whether it passed.

        Raises:
            AirflowFailException: A blocking check has failed.
        """
        checked = ", ".join(dataset.path for dataset in self.datasets)
        try:
            reason = objection(self._called())
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason is None:
            return {"passed": True}
        if self.blocking:
            raise AirflowFailException(f"{checked} did not pass ({reason}): nothing is published")
        self.log.warning("%s did not pass (%s). The check does not block: the run is published", checked, reason)
        return {"passed": False, "reason": reason}

    def _called(self) -> object:
        from lake_orch.airflow.arguments import loaded_arguments

        names = list(inspect.signature(self.python_callable).parameters)[: len(self.datasets)]
        arguments = loaded_arguments(self.python_callable, dict(zip(names, self.datasets, strict=True)))
        verdict: object = self.python_callable(**arguments)
        return verdict


def objection(verdict: object) -> str | None:
    """Return why what a check returned does not let it pass, or None if it does.

    None passes: such a check raises an error if it fails. So does True, also that of NumPy and Arrow.
    """
    if verdict is None:
        return None
    for method in ("as_py", "item"):
        if callable(getattr(verdict, method, None)) and not isinstance(verdict, type):
            try:
                verdict = getattr(verdict, method)()
            except ValueError:
                break  # more than one value
    if verdict is True:
        return None
    if verdict is False:
        return "it returned False"
    return (
        f"it returned {'null' if verdict is None else type(verdict).__name__}, and a check returns True, False or None"
    )
