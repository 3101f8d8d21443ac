"""The private names of Dagster that this package uses. An upgrade that moves one of them breaks only this module."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dagster import AssetCheckEvaluation, AssetCheckKey, AssetKey, DagsterInstance
from dagster._core.asset_graph_view.asset_graph_view import AssetGraphView
from dagster._core.asset_graph_view.entity_subset import EntitySubset
from dagster._core.definitions.asset_checks.asset_check_evaluation import AssetCheckEvaluationTargetMaterializationData
from dagster._core.definitions.dependency import NodeHandle
from dagster._core.definitions.events import AssetKeyPartitionKey
from dagster._core.errors import DagsterExecutionInterruptedError, DagsterHomeNotSetError, DagsterPipesExecutionError
from dagster._core.events import AssetObservationData, DagsterEventBatchMetadata, EngineEventData
from dagster._core.execution.context.system import PlanOrchestrationContext, StepExecutionContext
from dagster._core.execution.plan.handle import ResolvedFromDynamicStepHandle
from dagster._core.execution.plan.outputs import StepOutputHandle
from dagster._core.execution.plan.plan import ExecutionPlan
from dagster._core.execution.retries import RetryMode
from dagster._core.execution.stats import StepEventStatus
from dagster._core.execution.step_dependency_config import StepDependencyConfig
from dagster._core.snap import ExecutionPlanSnapshot
from dagster._core.snap.execution_plan_snapshot import ExecutionStepOutputSnap, ExecutionStepSnap
from dagster._utils.schedules import get_latest_completed_cron_tick, get_next_cron_tick, is_valid_cron_string

from lake_core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from dagster._core.execution.backfill import BulkActionStatus, PartitionBackfill

__all__ = [
    "AssetCheckEvaluationTargetMaterializationData",
    "AssetGraphView",
    "AssetKeyPartitionKey",
    "AssetObservationData",
    "BulkActionStatus",
    "DagsterEventBatchMetadata",
    "DagsterExecutionInterruptedError",
    "DagsterHomeNotSetError",
    "DagsterPipesExecutionError",
    "EngineEventData",
    "EntitySubset",
    "ExecutionPlan",
    "ExecutionPlanSnapshot",
    "ExecutionStepOutputSnap",
    "ExecutionStepSnap",
    "NodeHandle",
    "PartitionBackfill",
    "PlanOrchestrationContext",
    "ResolvedFromDynamicStepHandle",
    "RetryMode",
    "StepDependencyConfig",
    "StepEventStatus",
    "StepExecutionContext",
    "StepOutputHandle",
    "class_of_resource",
    "configured_defaults",
    "nested_resources",
    "get_latest_completed_cron_tick",
    "get_next_cron_tick",
    "is_valid_cron_string",
    "last_evaluation",
    "resources_of_asset",
]

# Dagster itself imports the other modules at once, and this one where backfills run.
__getattr__, __dir__ = lazy_exports(
    __name__,
    dict.fromkeys(("BulkActionStatus", "PartitionBackfill"), "dagster._core.execution.backfill"),
)


def class_of_resource(definition: object) -> type:
    """Return the class of the resource that a definition makes, such as `LakeResource`.

    For any other object return its class.
    """
    configured = getattr(definition, "configurable_resource_cls", None)
    return configured if isinstance(configured, type) else type(definition)


def nested_resources(definition: object) -> Mapping[str, Any]:
    """Return the resources that are fields of a definition's resource, as they are defined."""
    nested = getattr(definition, "nested_resources", None)
    return nested if isinstance(nested, Mapping) else {}


def configured_defaults(definition: object) -> Mapping[str, Any]:
    """Return the configuration that a definition gives its resource, as far as it is not given at launch."""
    schema = getattr(definition, "config_schema", None)
    defaults = schema.default_value if schema is not None and schema.default_provided else None
    return defaults if isinstance(defaults, Mapping) else {}


def resources_of_asset(view: AssetGraphView, key: AssetKey) -> Mapping[str, object]:
    """Return the resources that an asset is defined with. Where the code is not, as in the daemon, there are none."""
    definition = getattr(view.asset_graph.get(key), "assets_def", None) if view.asset_graph.has(key) else None
    resources: Mapping[str, object] = getattr(definition, "resource_defs", {})
    return resources


def last_evaluation(instance: DagsterInstance, check: AssetCheckKey) -> AssetCheckEvaluation | None:
    """Return the last evaluation of a check that came to a result, or None if there is none yet."""
    summary = instance.event_log_storage.get_asset_check_summary_records([check])[check]
    record = summary.last_completed_check_execution_record
    return None if record is None or record.event is None else record.event.asset_check_evaluation
