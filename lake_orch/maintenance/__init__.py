"""Maintenance as assets: compaction, Z-order, checkpoints, vacuum, log clean-up, expiry of markers, garbage collection, stale sessions.

`lake_maintenance` makes assets for chosen tables, with schedules and checks that say what needs doing.
"""

from lake_orch.maintenance.checks import HealthLimits, lake_table_checks
from lake_orch.maintenance.definitions import TASKS, MaintenanceConfig, MaintenanceTarget, lake_maintenance
from lake_orch.maintenance.health import TableHealth, table_health

__all__ = [
    "TASKS",
    "HealthLimits",
    "MaintenanceConfig",
    "MaintenanceTarget",
    "TableHealth",
    "lake_maintenance",
    "lake_table_checks",
    "table_health",
]
