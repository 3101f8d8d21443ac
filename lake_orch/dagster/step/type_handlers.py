"""The type handlers of a step: those that the IO managers of its job register."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lake_orch._dagster import class_of_resource
from lake_orch.dagster.runs.attempt import StepContext

if TYPE_CHECKING:
    from lake_orch.assets.tables.data.handler import TypeHandler


class HasTypeHandlers:
    """An IO manager that stores and loads values by their types."""

    @classmethod
    def type_handlers(cls) -> Sequence[TypeHandler]:
        """Return the handlers of Python types. The first handler that supports a type serves it.

        Those that packages register as entry points of `lake_orch.type_handlers` are among them. Override it to add
        others: `return (IbisTables(), *super().type_handlers())`. The handlers serve the outputs and
        inputs of assets, the writes of steps in the same job by `LakeResource.table` and `session`, and the checks of
        `DeltaTableComponent`.
        """
        from lake_orch.assets.tables.data.registry import type_handlers  # here, as code locations store nothing

        return type_handlers()


def handlers_of_step(context: StepContext) -> Sequence[TypeHandler]:
    """Return the handlers for the writes in a step's code: those of the IO managers in its job.

    The IO managers of the step's outputs come first, so that a value is stored alike whether the step returns it or
    writes it. A job without such IO managers has this package's handlers.
    """
    resources = context.job_def.resource_defs
    manager_keys = dict.fromkeys(output.io_manager_key for output in context.op_def.output_defs)
    # For an IO manager that a function makes, only the instance tells the class, and only a step that requires it has
    # the instance.
    classes = [type(getattr(context.resources, key, None)) for key in manager_keys]
    classes += [class_of_resource(resources[key]) for key in (*manager_keys, *resources) if key in resources]
    handlers: dict[int, TypeHandler] = {}  # by identity: a handler need not be hashable
    for manager in classes:
        if issubclass(manager, HasTypeHandlers):
            handlers |= {id(handler): handler for handler in manager.type_handlers()}
    return tuple(handlers.values()) or HasTypeHandlers.type_handlers()
