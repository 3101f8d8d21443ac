"""`@task.lake`: a task that returns into a dataset, and loads its arguments from datasets."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk.bases.decorator import DecoratedOperator, TaskDecorator, task_decorator_factory
from airflow.sdk.definitions.asset import AssetAlias

from lake_orch.airflow.dataset import DataInterval, LakeDataset, into_of
from lake_orch.airflow.links import LINKS
from lake_orch.airflow.session_group import session_around

if TYPE_CHECKING:
    from airflow.sdk import Context


class LakeDecoratedOperator(DecoratedOperator, PythonOperator):
    """Writes what a function returns into a dataset of the session of its group, or publishes it by itself."""

    template_fields: Sequence[str] = (*PythonOperator.template_fields, "slice")
    custom_operator_name: ClassVar[str] = "@task.lake"
    operator_extra_links = LINKS
    python_callable: Callable[..., Any]
    op_args: Collection[Any]
    op_kwargs: Mapping[str, Any]

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        into: LakeDataset | None = None,
        slice: str | DataInterval | None = None,
        mode: str | None = None,
        keys: Sequence[str] | None = None,
        **kwargs: Any,
    ) -> None:
        """Make a task of a function.

        Args:
            python_callable: The function.
            op_args: Its arguments.
            op_kwargs: Its arguments by name.
            into: The dataset into which it returns. Without one, its value is an XCom, as of any task.
            slice: The part of the dataset that it replaces: Spark SQL on the columns of a table, or a `DataInterval`.
            mode: How it writes, such as `append`. By default it replaces the dataset, or the slice.
            keys: The columns by which rows match, for the mode `merge` of a table.
            kwargs: Options of the operator.
        """
        super().__init__(
            kwargs_to_upstream={"python_callable": python_callable, "op_args": op_args, "op_kwargs": op_kwargs},
            python_callable=python_callable,
            op_args=op_args,
            op_kwargs=op_kwargs,
            **kwargs,
        )
        self.into, self.slice, self.mode, self.keys = into, slice, mode, keys
        # In a session, `publish` has the events. The graph of assets would show an alias that never has any.
        if into is not None and not isinstance(into, LakeDataset):
            raise TypeError(f"into is a {type(into).__name__}: use a LakeTable, LakeArray, LakePool or LakeFile")
        if into is not None and "outlets" not in kwargs and session_around(self.task_group) is None:
            self.outlets = [AssetAlias(alias_of(into))]
        # A mapped task without any instances gives no references, so what it returns into is taken from the DAG.
        self._returned = {
            name: dataset
            for name, value in self._bound().arguments.items()
            if (dataset := into_of(getattr(value, "operator", None))) is not None
        }

    @property
    def is_async(self) -> bool:
        """Return False: what a coroutine returns is awaited, and written as what any function returns."""
        return False

    def execute(self, context: Context) -> Any:
        """Load the arguments, call the function, and write what it returns."""
        from lake_orch.airflow.errors import without_retry

        with without_retry():
            return super().execute(context)

    def execute_callable(self) -> Any:
        """Call the function with its arguments, and return a reference to what was written."""
        from lake_orch.airflow.writing import LakeWrite

        self.python_callable = _awaited(self.python_callable, yields=self.into is not None)
        if self.into is None:
            self._load()
            return super().execute_callable()
        write = LakeWrite.begin(self.into, self.slice, self.mode, self.keys)

        def call() -> Any:
            self._load()
            return super(LakeDecoratedOperator, self).execute_callable()

        return write.run_with(call)

    def _bound(self) -> inspect.BoundArguments:
        return inspect.signature(self.python_callable).bind_partial(*self.op_args, **self.op_kwargs)

    def _load(self) -> None:
        """Load the datasets among the arguments."""
        from lake_orch.airflow.arguments import loaded_arguments

        bound = self._bound()
        for name, parameter in bound.signature.parameters.items():
            if name not in bound.arguments and isinstance(parameter.default, LakeDataset):
                bound.arguments[name] = parameter.default
        for name, dataset in self._returned.items():
            value = bound.arguments.get(name)
            # Nobody has written: there is no reference, or there are none.
            if value is None or (isinstance(value, Sequence) and not len(value)):
                bound.arguments[name] = dataset
        bound.arguments = loaded_arguments(self.python_callable, bound.arguments)
        self.op_args, self.op_kwargs = bound.args, bound.kwargs


def _awaited(function: Callable[..., Any], *, yields: bool) -> Callable[..., Any]:
    """Return a function that awaits what a coroutine returns.

    With `yields`, it returns the values that a function yields, as batches to write: Airflow would take them for
    messages to the supervisor.
    """
    if not inspect.iscoroutinefunction(function) and not (yields and inspect.isgeneratorfunction(function)):
        return function

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        value = function(*args, **kwargs)
        return asyncio.run(value) if inspect.iscoroutine(value) else value

    return call


def alias_of(dataset: LakeDataset) -> str:
    """Return the name of the alias under which a task that publishes by itself has its event."""
    return f"lake {dataset.connection} {dataset.path}"


def lake_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> TaskDecorator:
    """Make a function a task that returns into a dataset: `@task.lake(into=…, slice=…, mode=…, keys=…)`.

    Its parameters load datasets as they are annotated. What it takes is what `LakeDecoratedOperator` takes.
    """
    if kwargs.pop("multiple_outputs", False):
        raise ValueError("a task returns into one dataset: multiple_outputs has no meaning for @task.lake")
    return task_decorator_factory(
        python_callable=python_callable,
        multiple_outputs=False,
        decorated_operator_class=LakeDecoratedOperator,
        **kwargs,
    )
