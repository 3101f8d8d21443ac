"""Lookup of the lake in the resources of a run's job, for code outside its steps: executors and sensors."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dagster import DagsterInstance, DagsterRun, build_resources

from lake_orch._dagster import PlanOrchestrationContext, class_of_resource
from lake_orch.errors import InvalidDefinition
from lake_orch.resources import LakeResource

DEFAULT_KEY = "lake"
"""The key of the resource to use if several are lakes."""


@contextmanager
def lake_of_run(plan_context: PlanOrchestrationContext) -> Iterator[LakeResource]:
    """Open the lake of a run for the `with` block. Raises InvalidDefinition if its job has none, or several."""
    job, run = plan_context.job.get_definition(), plan_context.dagster_run
    with find_lake(job.resource_defs, job.name, plan_context.instance, run.run_config, run) as lake:
        yield lake


@contextmanager
def find_lake(
    resources: Mapping[str, object],
    name: str,
    instance: DagsterInstance,
    run_config: Any = None,
    run: DagsterRun | None = None,
) -> Iterator[LakeResource]:
    """Yield the initialized lake among resources.

    `name` is their owner in errors. Raises InvalidDefinition for none, or several.
    """
    key = key_of_lake(name, resources)
    config = run_config.get("resources") if isinstance(run_config, Mapping) else None
    resource_config = {key: config[key]} if isinstance(config, Mapping) and key in config else {}
    with build_resources({key: resources[key]}, instance, resource_config, run) as built:
        yield lake_in(getattr(built, key))


def lake_in(resource: Any) -> LakeResource:
    """Return the resource itself if it is a lake, or the lake that an IO manager writes to."""
    lake = resource if isinstance(resource, LakeResource) else getattr(resource, "lake", None)
    if not isinstance(lake, LakeResource):
        raise InvalidDefinition(f"{type(resource).__name__} does not have a LakeResource: pass one as its `lake`")
    return lake


def key_of_lake(owner: str, resources: Mapping[str, object]) -> str:
    """Return the key of the lake: the resource `lake`, the only LakeResource, or the only IO manager with one.

    Raises InvalidDefinition for none, or several.
    """
    lakes = [name for name, resource in resources.items() if issubclass(class_of_resource(resource), LakeResource)]
    managers = [
        name
        for name, resource in resources.items()
        if "lake" in getattr(class_of_resource(resource), "model_fields", {})
    ]
    for names in (lakes, managers):
        if DEFAULT_KEY in names:
            return DEFAULT_KEY
        if len(names) == 1:
            return names[0]
        if names:
            raise InvalidDefinition(
                f"{owner!r} has several lakes ({', '.join(sorted(names))}), and a run publishes to one: "
                f"name that one {DEFAULT_KEY!r}"
            )
    raise InvalidDefinition(f"{owner!r} has no LakeResource among its resources: add one, named {DEFAULT_KEY!r}")
