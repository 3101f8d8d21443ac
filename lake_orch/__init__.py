"""Dagster over a lake, or over plain Delta tables, with exactly-once writes.

Start at `DeltaIOManager` and `LakeResource`. `lake_executor` and `lake_job` make a run one session, which is published
whole or not at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.lazy_exports import lazy_exports
from lake_core.version import __version__

if TYPE_CHECKING:
    from lake_orch.assets.tables.data import TableSlice, TypeHandler
    from lake_orch.automation import LakePublished, LakeUnpublished, lake_eager
    from lake_orch.checks import checks_first
    from lake_orch.dagster.slice_where import slice_where
    from lake_orch.dagster.step.session import StepSession
    from lake_orch.dagster.step.table_handle import LakeTable
    from lake_orch.errors import (
        BatchFailed,
        CheckPending,
        DefinitionMismatch,
        GateFailed,
        InvalidDefinition,
        LakeOrchError,
        NotALake,
        NothingToRecover,
        OutsideRegion,
        PartitionSliceError,
        RegionMismatch,
        SessionLost,
        TableNotEmpty,
        TableOwned,
        UnsupportedData,
    )
    from lake_orch.io_managers.delta import DeltaIOManager
    from lake_orch.io_managers.files import FileIOManager
    from lake_orch.io_managers.icechunk import IcechunkIOManager
    from lake_orch.io_managers.lake import LakeIOManager
    from lake_orch.io_managers.pool import PoolIOManager
    from lake_orch.jobs.backfill import lake_backfill_sensor
    from lake_orch.jobs.executor import lake_executor, with_sessions
    from lake_orch.jobs.job import lake_job
    from lake_orch.jobs.ops import lake_publish_asset, lake_recover
    from lake_orch.jobs.session_sensors import SessionAlert, lake_session_reaper, lake_session_sensors
    from lake_orch.published_checks import lake_freshness_checks, lake_published_checks
    from lake_orch.resources import LakeResource, SparkResource

__all__ = [
    "DeltaIOManager",
    "FileIOManager",
    "IcechunkIOManager",
    "LakeIOManager",
    "LakeResource",
    "LakeTable",
    "LakePublished",
    "LakeUnpublished",
    "PoolIOManager",
    "SessionAlert",
    "SparkResource",
    "StepSession",
    "TableSlice",
    "TypeHandler",
    "checks_first",
    "lake_backfill_sensor",
    "lake_eager",
    "lake_executor",
    "lake_freshness_checks",
    "lake_job",
    "lake_publish_asset",
    "lake_published_checks",
    "lake_recover",
    "lake_session_reaper",
    "lake_session_sensors",
    "slice_where",
    "with_sessions",
    "LakeOrchError",
    "BatchFailed",
    "CheckPending",
    "DefinitionMismatch",
    "GateFailed",
    "InvalidDefinition",
    "NotALake",
    "NothingToRecover",
    "OutsideRegion",
    "PartitionSliceError",
    "RegionMismatch",
    "SessionLost",
    "TableNotEmpty",
    "TableOwned",
    "UnsupportedData",
    "__version__",
]

_export, __dir__ = lazy_exports(
    __name__,
    {
        "BatchFailed": ".errors",
        "CheckPending": ".errors",
        "DefinitionMismatch": ".errors",
        "DeltaIOManager": ".io_managers.delta",
        "FileIOManager": ".io_managers.files",
        "GateFailed": ".errors",
        "InvalidDefinition": ".errors",
        "LakeIOManager": ".io_managers.lake",
        "LakeOrchError": ".errors",
        "LakeResource": ".resources",
        "LakeTable": ".dagster.step.table_handle",
        "LakePublished": ".automation",
        "LakeUnpublished": ".automation",
        "NotALake": ".errors",
        "NothingToRecover": ".errors",
        "OutsideRegion": ".errors",
        "PartitionSliceError": ".errors",
        "PoolIOManager": ".io_managers.pool",
        "RegionMismatch": ".errors",
        "SessionAlert": ".jobs.session_sensors",
        "SessionLost": ".errors",
        "SparkResource": ".resources",
        "StepSession": ".dagster.step.session",
        "TableNotEmpty": ".errors",
        "TableOwned": ".errors",
        "TableSlice": ".assets.tables.data",
        "TypeHandler": ".assets.tables.data",
        "UnsupportedData": ".errors",
        "checks_first": ".checks",
        "lake_backfill_sensor": ".jobs.backfill",
        "lake_eager": ".automation",
        "lake_executor": ".jobs.executor",
        "lake_freshness_checks": ".published_checks",
        "lake_job": ".jobs.job",
        "lake_publish_asset": ".jobs.ops",
        "lake_published_checks": ".published_checks",
        "lake_recover": ".jobs.ops",
        "lake_session_reaper": ".jobs.session_sensors",
        "lake_session_sensors": ".jobs.session_sensors",
        "slice_where": ".dagster.slice_where",
        "with_sessions": ".jobs.executor",
    },
)


def __getattr__(name: str) -> Any:
    if name == "IcechunkIOManager":
        try:
            from lake_orch.io_managers.icechunk import IcechunkIOManager
        except ModuleNotFoundError as error:
            message = (
                f"arrays need the package {error.name}, which is not installed: "
                "install it with `pip install 'lake-orch[arrays]'`"
            )
            raise ModuleNotFoundError(message, name=error.name) from error

        return IcechunkIOManager
    return _export(name)
