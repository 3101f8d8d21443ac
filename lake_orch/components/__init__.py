"""Components for `dg` and `load_from_defs_folder`: a lake, datasets, ingestion, sensors and maintenance from YAML."""

from lake_orch.components.any_format import FormatComponent
from lake_orch.components.change_sensors import BranchSensorComponent, TableChangeSensorComponent
from lake_orch.components.delta_table import DeltaTableComponent
from lake_orch.components.icechunk_repository import IcechunkRepositoryComponent
from lake_orch.components.lake import LakeComponent
from lake_orch.components.lake_datasets import LakeDatasetsComponent
from lake_orch.components.landing_zone import LandingZoneComponent
from lake_orch.components.maintenance import MaintenanceComponent
from lake_orch.components.pool import PoolComponent
from lake_orch.components.published_checks import PublishedChecksComponent

__all__ = [
    "BranchSensorComponent",
    "DeltaTableComponent",
    "FormatComponent",
    "IcechunkRepositoryComponent",
    "LakeComponent",
    "LakeDatasetsComponent",
    "LandingZoneComponent",
    "MaintenanceComponent",
    "PoolComponent",
    "PublishedChecksComponent",
    "TableChangeSensorComponent",
]
