"""Maintenance of tables, arrays, pools and the lake itself as assets.

- Tables: compaction, Z-order, checkpoints, vacuum, log cleanup, expiry of transaction identifiers
- Arrays: expiry of snapshots, rewriting of manifests
- Pools: compaction, vacuum
- The lake: garbage collection, stale sessions

`lake_maintenance` makes assets for chosen tables, arrays and pools, with schedules and checks that say what is due.
"""

from lake_core.delta.health import TableHealth, table_health
from lake_orch.assets.arrays.maintenance import ArrayHealth, array_health
from lake_orch.maintenance.checks import HealthLimits, lake_table_checks
from lake_orch.maintenance.definitions import TASKS, MaintenanceConfig, MaintenanceTarget, lake_maintenance

__all__ = [
    "TASKS",
    "ArrayHealth",
    "HealthLimits",
    "MaintenanceConfig",
    "MaintenanceTarget",
    "TableHealth",
    "array_health",
    "lake_maintenance",
    "lake_table_checks",
    "table_health",
]
