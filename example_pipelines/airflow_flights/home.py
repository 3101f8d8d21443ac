"""The home of Airflow for the example, in the clone: its database, its settings and the connection of the lake."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from example_pipelines.flights.folders import MARK
from example_pipelines.flights.places import LAKE_ROOT, REPOSITORY

DAGS = Path(__file__).parent / "dags"

_COMMAND = """\
#!/bin/sh
case "$1" in scheduler|triggerer) set -- "$@" --skip-serve-logs;; esac
exec "{python}" -m airflow "$@"
"""


def settings(port: int = 8080) -> dict[str, str]:
    """Return the environment of all processes of Airflow. Those that a user has set stay as they are."""
    home = os.environ.get("AIRFLOW_HOME") or str(REPOSITORY / ".airflow")
    chosen = {
        "AIRFLOW_HOME": home,
        "AIRFLOW_CONN_LAKE_DEFAULT": json.dumps({"conn_type": "lake", "host": LAKE_ROOT}),
        "AIRFLOW__CORE__DAGS_FOLDER": str(DAGS),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__PARALLELISM": "4",
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"http://127.0.0.1:{port}/execution/",
        # The server answers this machine alone, so it asks nobody who they are.
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__HOST": "127.0.0.1",
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__BASE_URL": f"http://127.0.0.1:{port}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")])),
    }
    return {**chosen, **{name: value for name, value in os.environ.items() if name.startswith("AIRFLOW")}}


def make_home(*, anew: bool) -> Path:
    """Make the home, with a database, and return its folder. Airflow must not be imported before.

    A database that is not known to be the example's is never removed.
    """
    os.environ.update(settings())
    home = Path(os.environ["AIRFLOW_HOME"])
    home.mkdir(parents=True, exist_ok=True)
    database = home / "airflow.db"
    if database.exists() and not (home / MARK).exists():
        sys.exit(f"{home} holds an Airflow that is not known to be the demo's: set AIRFLOW_HOME to another folder.")
    (home / MARK).touch()
    if anew:
        database.unlink(missing_ok=True)
    with (home / "migration.log").open("w") as log:
        subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, stdout=log, stderr=log)
    return home


def write_command(folder: Path) -> Path:
    """Write a command `airflow` whose servers of logs are not started: they would listen to every network."""
    folder.mkdir(parents=True, exist_ok=True)
    command = folder / "airflow"
    command.write_text(_COMMAND.format(python=sys.executable))
    command.chmod(0o755)
    return command
