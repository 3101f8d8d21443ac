"""Dagster over Delta tables with exactly-once writes: resources and an IO manager.

Start at `DeltaIOManager`; `LakeResource.table` is for assets that write by themselves.
"""

from lake_orch.errors import (
    BatchFailed,
    CheckPending,
    GateFailed,
    InvalidDefinition,
    LakeOrchError,
    NotALake,
    PartitionSliceError,
    SessionLost,
    TableNotEmpty,
    UnsupportedData,
)
from lake_orch.executor import lake_executor, with_sessions
from lake_orch.io_manager import DeltaIOManager
from lake_orch.partition_slice import slice_where
from lake_orch.resources import LakeResource, SparkResource
from lake_orch.step_session import StepSession
from lake_orch.table_handle import LakeTable

__all__ = [
    "DeltaIOManager",
    "LakeResource",
    "LakeTable",
    "SparkResource",
    "StepSession",
    "lake_executor",
    "slice_where",
    "with_sessions",
    "LakeOrchError",
    "BatchFailed",
    "CheckPending",
    "GateFailed",
    "InvalidDefinition",
    "NotALake",
    "PartitionSliceError",
    "SessionLost",
    "TableNotEmpty",
    "UnsupportedData",
]
