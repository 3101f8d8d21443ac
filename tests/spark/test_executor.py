"""Functions that travel to executors by value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lake_core.spark.executor import by_value
from lake_core.store.key import check_key

UNPICKLE = """
import pickle, sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "lake_core":
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
with open(sys.argv[1], "rb") as file:
    print(pickle.load(file)("a/b"))
"""


def test_functions_with_a_cache_travel_without_the_package(tmp_path: Path) -> None:
    payload = tmp_path / "function.pickle"
    payload.write_bytes(by_value(check_key))
    process = subprocess.run([sys.executable, "-c", UNPICKLE, payload], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert process.stdout == "a/b\n", process.stderr
