"""The lake that a run's job is configured with, for code that stands outside of its steps: an executor, a sensor."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from dagster import DagsterInstance, DagsterRun, JobDefinition, ResourceDefinition, build_resources
from dagster._core.execution.context.system import PlanOrchestrationContext

from lake_orch.errors import InvalidDefinition
from lake_orch.resources import LakeResource

DEFAULT_KEY = "lake"
"""The resource that is taken where several are lakes."""


@contextmanager
def lake_of_run(plan_context: PlanOrchestrationContext) -> Iterator[LakeResource]:
    """The lake of a run, for as long as the `with` block lasts. Raises InvalidDefinition where its job has none, or several."""
    job = plan_context.job.get_definition()
    with lake_of_job(job, plan_context.instance, plan_context.dagster_run) as lake:
        yield lake


@contextmanager
def lake_of_job(job: JobDefinition, instance: DagsterInstance, run: DagsterRun) -> Iterator[LakeResource]:
    """The lake that a job's resources name, with a run's configuration. Raises InvalidDefinition where there is none, or several."""
    key = _key(job.name, job.resource_defs)
    config = run.run_config.get("resources")
    own = {key: config[key]} if isinstance(config, Mapping) and key in config else {}
    with build_resources({key: job.resource_defs[key]}, instance, own, run) as built:
        yield lake_in(getattr(built, key))


def lake_in(resource: Any) -> LakeResource:
    """The lake that a resource is, or that an IO manager writes to."""
    found = resource if isinstance(resource, LakeResource) else getattr(resource, "lake", None)
    if not isinstance(found, LakeResource):
        raise InvalidDefinition(f"{type(resource).__name__} holds no LakeResource: give one as its `lake`")
    return found


def _key(job: str, resources: Mapping[str, ResourceDefinition]) -> str:
    """Which of a job's resources names its lake: one called `lake`, the only LakeResource, or the only IO manager with one."""
    lakes = [name for name, definition in resources.items() if issubclass(_class(definition), LakeResource)]
    managers = [name for name, definition in resources.items() if "lake" in getattr(_class(definition), "model_fields", {})]
    for names in (lakes, managers):
        if DEFAULT_KEY in names:
            return DEFAULT_KEY
        if len(names) == 1:
            return names[0]
        if names:
            raise InvalidDefinition(
                f"job {job!r} has several lakes ({', '.join(sorted(names))}), and a run publishes to one: name that one {DEFAULT_KEY!r}"
            )
    raise InvalidDefinition(f"job {job!r} has no LakeResource among its resources: add one, named {DEFAULT_KEY!r}")


def _class(definition: ResourceDefinition) -> type:
    found = getattr(definition, "configurable_resource_cls", None)
    return found if isinstance(found, type) else object
