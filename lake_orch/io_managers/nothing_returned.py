"""A warning for an output of None, which is often a forgotten `return`."""

from __future__ import annotations

from dagster import OutputContext

from lake_orch.assets.annotation import without_none
from lake_orch.io_managers.output import producer_name
from lake_orch.resources import has_written


def warn_of_nothing(context: OutputContext) -> None:
    """Warn that nothing was written, unless the annotation allows None or the step has written to the lake by hand."""
    annotation, optional = without_none(context.dagster_type.typing_type)
    if optional or annotation is type(None) or has_written(context.step_context):
        return
    context.log.warning(
        f"{producer_name(context)} returned None: nothing was written, and its table or file is as before. "
        "Return the rows, or annotate the function with -> None if it stores nothing"
    )
