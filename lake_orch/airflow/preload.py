"""Loads what tasks of a lake need. Import it in `airflow_local_settings.py`: workers then load it once, not each task.

Airflow's workers are forks of a process that has imported its local settings, and tasks are forks of workers.
"""

from importlib import import_module

for _name in (
    "lake_core.delta.dataset_format",
    "lake_core.delta.table",
    "lake_core.lake.session.publish_session",
    "lake_core.lake.session.shared_session",
    "lake_orch.airflow.operators",
    "lake_orch.airflow.writing",
    "lake_orch.assets.tables.asset_format",
):
    import_module(_name)
