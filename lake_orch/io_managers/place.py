"""The places of a job's outputs. Two outputs with one place replace one another, and are read as one another."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from dagster import GraphDefinition, JobDefinition, OpDefinition, OutputContext, ResourceDefinition

from lake_orch._dagster import NodeHandle, class_of_resource, configured_defaults, nested_resources
from lake_orch.assets.place import Place
from lake_orch.dagster.metadata import plain_metadata
from lake_orch.definition_metadata import OWNER
from lake_orch.errors import InvalidDefinition
from lake_orch.io_managers.output import mapping_keys
from lake_orch.resources import LakeResource


class HasPlaces:
    """An IO manager that stores each output at a place which its definition decides."""

    @classmethod
    @abstractmethod
    def place_of(
        cls, asset_key: Sequence[str] | None, metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Place:
        """Return the place of an output, without its mapping keys.

        Args:
            asset_key: The key of its asset, or None for an output of an op.
            metadata: Its definition metadata.
            options: The configuration of the IO manager.

        Raises:
            InvalidDefinition: It has no place, or the path is invalid.
        """


@dataclass(frozen=True, slots=True)
class _Output:
    """An output of a job, as it is defined."""

    node: str
    name: str
    op: OpDefinition
    asset_key: Sequence[str] | None
    metadata: Mapping[str, Any]
    manager: str
    """The key of its IO manager."""
    is_mapped: bool
    """Whether its place has mapping keys below it."""

    def __str__(self) -> str:
        output = f"output {self.name!r} of op {self.node}"
        return output if self.asset_key is None else f"{output}, asset {'/'.join(self.asset_key)},"

    @property
    def is_shared(self) -> bool:
        """Return whether other outputs may be stored at its place."""
        return self.metadata.get(OWNER) == "shared"

    def is_told_apart_from(self, other: _Output) -> bool:
        """Return whether owners tell them apart, or both are one output."""
        is_same = (self.node, self.name) == (other.node, other.name)
        return is_same or (None not in (self.asset_key, other.asset_key) and self.op is not other.op)


_outputs_by_job: WeakKeyDictionary[JobDefinition, Mapping[tuple[str, str], _Output]] = WeakKeyDictionary()


def check_place(context: OutputContext, manager: type[HasPlaces], options: Mapping[str, Any]) -> None:
    """Check that no other output of the job replaces an output, or is replaced by it.

    Outputs may share a place if none of them replaces what is there, or if the metadata `lake/owner` of one is
    `shared`. Outputs of different assets are told apart by their owners, in all jobs.

    Args:
        context: The output.
        manager: The class of its IO manager.
        options: The configuration of the IO manager.

    Raises:
        InvalidDefinition: One of the outputs would replace the other.
    """
    job = context.step_context.job_def
    while job.op_selection_data is not None:
        job = job.op_selection_data.parent_job_def
    outputs = _outputs_of(job)
    own = outputs.get((str(context.step_context.step.node_handle), context.name))
    if own is None or own.is_shared:
        return
    base = manager.place_of(own.asset_key, own.metadata, options)
    place = base.below(mapping_keys(context))
    for other in outputs.values():
        # A mapped output is compared with one that is not when it is written itself: only then is its key known.
        if own.is_told_apart_from(other) or other.is_shared or (other.is_mapped and not own.is_mapped):
            continue
        found = _place_in_same_lake(other, own, job, manager, options)
        if (
            found is not None
            and found.overlaps(base if other.is_mapped else place)
            and (found.replaces or place.replaces)
        ):
            raise InvalidDefinition(
                f"{own} and {other} would both be stored at {found.path}, where one takes the place of the other: give "
                f'each of them its own lake/path. If both are to write there: metadata={{"{OWNER}": "shared"}}. '
                "Nothing was written"
            )


def _outputs_of(job: JobDefinition) -> Mapping[tuple[str, str], _Output]:
    """Return the outputs of a job by node and name, also those of ops in graphs."""
    outputs = _outputs_by_job.get(job)
    if outputs is None:
        found = [output for handle in job.graph.iterate_node_handles() for output in _outputs_of_node(job, handle)]
        outputs = _outputs_by_job[job] = {(output.node, output.name): output for output in found}
    return outputs


def _outputs_of_node(job: JobDefinition, handle: NodeHandle) -> Iterator[_Output]:
    op = job.get_node(handle).definition
    if not isinstance(op, OpDefinition):
        return
    is_mapped = _is_mapped(job, handle)
    for output in op.output_defs:
        if output.dagster_type.is_nothing:
            continue
        key = job.asset_layer.get_asset_key_for_node_output(handle, output.name)
        of_asset = None if key is None else job.asset_layer.get(key).metadata
        yield _Output(
            node=str(handle),
            name=output.name,
            op=op,
            asset_key=None if key is None else key.path,
            metadata=plain_metadata(of_asset or output.metadata or {}),
            manager=output.io_manager_key,
            is_mapped=is_mapped or output.is_dynamic,
        )


def _is_mapped(job: JobDefinition, handle: NodeHandle) -> bool:
    """Return whether a node, or a graph around it, runs once for each value of a dynamic output."""
    node: NodeHandle | None = handle
    while node is not None:
        graph = job.graph if node.parent is None else job.get_node(node.parent).definition
        if isinstance(graph, GraphDefinition) and graph.dependency_structure.is_dynamic_mapped(node.name):
            return True
        node = node.parent
    return False


def _place_in_same_lake(
    other: _Output, own: _Output, job: JobDefinition, manager: type[HasPlaces], options: Mapping[str, Any]
) -> Place | None:
    """Return the place of an output, or None if it is not stored in the lake of another output, or has no place."""
    if other.manager != own.manager:
        definition = job.resource_defs.get(other.manager)
        manager = class_of_resource(definition)
        lakes = {_lake_of(definition), _lake_of(job.resource_defs.get(own.manager))}
        if not issubclass(manager, HasPlaces) or len(lakes) > 1 or None in lakes:
            return None
        options = configured_defaults(definition)
    try:
        return manager.place_of(other.asset_key, other.metadata, options)
    except InvalidDefinition:
        return None  # its own write reports that


def _lake_of(definition: ResourceDefinition | None) -> tuple[str, str] | None:
    """Return the root and the branch of an IO manager as they are defined, or None if they are given at launch."""
    lake = nested_resources(definition).get("lake")
    return (lake.root, lake.branch) if isinstance(lake, LakeResource) else None
