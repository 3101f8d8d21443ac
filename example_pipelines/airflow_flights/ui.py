"""`make ui-airflow`: serve the DAGs, with the demo's runs, on this machine alone."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from example_pipelines.airflow_flights import home
from example_pipelines.flights.places import LAKE_ROOT
from lake_core.lake import Lake


def main() -> None:
    """Make the lake and the home where they are missing, and become `airflow standalone`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    port = parser.parse_args().port
    Lake.create(LAKE_ROOT, exist_ok=True)
    os.environ.update(home.settings(port))
    # It starts its parts by the name `airflow`.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    home.make_home(anew=False)
    print(f"Airflow will be at http://127.0.0.1:{port} in half a minute. Stop it with Ctrl-C.", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "airflow", "standalone"])


if __name__ == "__main__":
    main()
