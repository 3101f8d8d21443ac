"""The setting `lake/since: last run` of an input: which read it stands for, and where that is recorded.

The read is recorded with the output of the step, in the same commit; see `lake_orch.assets.read_position`. It is
reported as an observation of the pool's asset as well, for people to see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dagster import AssetObservation, DagsterEvent, InputContext

from lake_orch._dagster import StepExecutionContext, StepOutputHandle
from lake_orch.assets.pools.settings import LAST_RUN, POOL_COMMIT, SINCE
from lake_orch.assets.read_position import ReadPosition, Reads
from lake_orch.dagster.runs.attempt import Attempt
from lake_orch.errors import InvalidDefinition, NotALake
from lake_orch.io_managers.place import HasPlaces
from lake_orch.io_managers.unrecorded_reads import note_read
from lake_orch.resources import LakeResource

if TYPE_CHECKING:
    from collections.abc import Callable

    from dagster import AssetKey

    from lake_orch.assets.asset_format import AssetInput

_BEGINNING = "the beginning"


def unread(context: InputContext, lake: LakeResource, request: AssetInput, latest: Callable[[], str]) -> ReadPosition:
    """Return what the asset that reads an input has not read yet, and report that it is read.

    Args:
        context: The input.
        lake: The lake, which has the dataset and records the read.
        request: What the input asks for.
        latest: Returns the newest state of the dataset.

    Raises:
        InvalidDefinition: The read could not be recorded in the commit of the asset's output.
        NotALake: The root is a folder of plain datasets.
    """
    step = context.step_context
    if not lake.is_lake():
        raise NotALake(
            f"{SINCE} of {request.subject} is {LAST_RUN!r}: only a lake records what was read together with the rows "
            f"that are made of it. Make the folder one with `lake init {lake.root}`"
        )
    output, reader = _stored_output(step, lake, request.subject)
    reads = Reads(reader.to_user_string(), request.path)
    attempt = Attempt(
        step.instance, step.dagster_run, step.step.key, output, number=step.previous_attempt_count, step=step
    )
    store = lake.read_files((step.instance, step.dagster_run), beside=request.path, step=step)
    position = reads.next(store, lake.assignment(attempt).task_id, latest())
    note_read(step, lake.root, reads, position)
    _report(context, position, reads)
    return position


def _stored_output(step: StepExecutionContext, lake: LakeResource, subject: str) -> tuple[str, AssetKey]:
    """Return the name and the asset of the output that a step stores in a lake. Raises InvalidDefinition."""
    op = step.job_def.get_op(step.node_handle)
    outputs = [(output.name, key) for output in step.step.step_outputs if (key := output.properties.asset_key)]
    if len(outputs) == 1 and not step.has_partition_key:
        ((name, key),) = outputs
        if not op.output_def_named(name).dagster_type.is_nothing:
            manager = step.get_io_manager(StepOutputHandle(step.step.key, name))
            stored_in = getattr(manager, "lake", None) if isinstance(manager, HasPlaces) else None
            if isinstance(stored_in, LakeResource) and stored_in.root == lake.root:
                return name, key
    raise InvalidDefinition(
        f"{SINCE} of {subject} is {LAST_RUN!r}: only an asset with one output and without partitions can read what is "
        f"new since its last run, because the read is recorded in the commit of what it returns. Return a value that "
        f"an IO manager of the lake {lake.root} stores"
    )


def _report(context: InputContext, position: ReadPosition, reads: Reads) -> None:
    """Report a read as an observation of the pool's asset."""
    metadata = {
        "lake/read_by": reads.reader,
        "lake/since_commit": position.since or _BEGINNING,
        POOL_COMMIT: position.until,
    }
    description = f"Read by {reads.reader}"
    if not context.has_asset_partitions:
        context.add_input_metadata(metadata, description=description)
        return
    # Dagster's method works for one partition, and a read of what is new is one of all partitions.
    DagsterEvent.asset_observation(
        context.step_context, AssetObservation(context.asset_key, description=description, metadata=metadata)
    )
