"""The handlers that users register with their IO managers, for everything in a step that takes rows."""

from __future__ import annotations

from collections.abc import Sequence

from lake_orch._dagster import class_of_resource
from lake_orch.runs.attempt import StepContext
from lake_orch.tables.data.handler import TypeHandler
from lake_orch.tables.data.registry import HANDLERS


class HasTypeHandlers:
    """An IO manager that stores and loads values by their types."""

    @classmethod
    def type_handlers(cls) -> Sequence[TypeHandler]:
        """List who stores and loads which Python types; the first that knows one does.

        Override it to add types: `return (IbisTables(), *super().type_handlers())`. They serve what assets return and read, what steps of
        the same job write with `LakeResource.table` and `session`, and the checks of `DeltaTableComponent`.
        """
        return HANDLERS


def handlers_of_step(context: StepContext) -> Sequence[TypeHandler]:
    """Return the handlers for what a step's own code writes: those of the IO managers in its job.

    The IO managers of the step's outputs count before the others, so that a value means the same whether the step returns it or writes it
    by itself. A job without such IO managers has the handlers that come with this package.
    """
    resources = context.job_def.resource_defs
    manager_keys = dict.fromkeys(output.io_manager_key for output in context.op_def.output_defs)
    # The class of an IO manager that a function makes is known by the instance alone, which only a step that needs it has.
    classes = [type(getattr(context.resources, key, None)) for key in manager_keys]
    classes += [class_of_resource(resources[key]) for key in (*manager_keys, *resources) if key in resources]
    handlers: dict[int, TypeHandler] = {}  # by identity: a handler need not be hashable
    for manager in classes:
        if issubclass(manager, HasTypeHandlers):
            handlers |= {id(handler): handler for handler in manager.type_handlers()}
    return tuple(handlers.values()) or HANDLERS
