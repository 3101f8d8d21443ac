"""Airflow over a lake: a run of a DAG publishes all that its tasks wrote, once, or nothing.

Start at `lake_session` and `LakeTable`. The names are loaded when they are used, so that a DAG file is parsed without
`lake_core`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake_core.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from lake_orch.airflow.catalog import CatalogOperator
    from lake_orch.airflow.dataset import DataInterval, LakeArray, LakeDataset, LakeFile, LakePool, LakeTable
    from lake_orch.airflow.decorator import lake_task
    from lake_orch.airflow.hook import LakeHook
    from lake_orch.airflow.landing import LandingOperator, landing_asset
    from lake_orch.airflow.maintenance import maintenance_dag
    from lake_orch.airflow.session import LakeSession, lake_session
    from lake_orch.airflow.watcher import lake_watcher

__all__ = [
    "CatalogOperator",
    "DataInterval",
    "LakeArray",
    "LakeDataset",
    "LakeFile",
    "LakeHook",
    "LakePool",
    "LakeSession",
    "LakeTable",
    "LandingOperator",
    "lake_session",
    "lake_task",
    "lake_watcher",
    "landing_asset",
    "maintenance_dag",
]


__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CatalogOperator": ".catalog",
        "DataInterval": ".dataset",
        "LakeArray": ".dataset",
        "LakeDataset": ".dataset",
        "LakeFile": ".dataset",
        "LakeHook": ".hook",
        "LakePool": ".dataset",
        "LakeSession": ".session",
        "LakeTable": ".dataset",
        "LandingOperator": ".landing",
        "landing_asset": ".landing",
        "lake_session": ".session",
        "lake_task": ".decorator",
        "lake_watcher": ".watcher",
        "maintenance_dag": ".maintenance",
    },
)
