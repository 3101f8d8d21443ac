"""Loads what tasks of a lake need. Import it in `airflow_local_settings.py`: workers then load it once, not each task.

Airflow's workers are forks of a process that has imported its local settings, and tasks are forks of workers.
"""

import lake_orch.airflow.operators
import lake_orch.airflow.writing
import lake_orch.assets.tables.asset_format  # noqa: F401
