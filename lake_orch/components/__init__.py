"""Components: a lake, tables, arrays, ingestion, sensors and maintenance from YAML, for the `dg` command and `load_from_defs_folder`."""

from lake_orch.components.change_sensors import BranchSensorComponent, TableChangeSensorComponent
from lake_orch.components.delta_table import DeltaTableComponent
from lake_orch.components.icechunk_repository import IcechunkRepositoryComponent
from lake_orch.components.lake import LakeComponent
from lake_orch.components.landing_zone import LandingZoneComponent
from lake_orch.components.maintenance import MaintenanceComponent

__all__ = [
    "BranchSensorComponent",
    "DeltaTableComponent",
    "IcechunkRepositoryComponent",
    "LakeComponent",
    "LandingZoneComponent",
    "MaintenanceComponent",
    "TableChangeSensorComponent",
]
