"""What every `import airflow` loads of this package: a dictionary, and next to nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import entry_points
from importlib.resources import files

import pytest

from lake_orch.airflow.provider import get_provider_info

pytestmark = pytest.mark.airflow

_LOADED = """
import sys
before = set(sys.modules)
import lake_orch.airflow.provider
print(*sorted(set(sys.modules) - before - sys.stdlib_module_names))
"""


def test_it_loads_nothing_but_itself() -> None:
    ended = subprocess.run([sys.executable, "-c", _LOADED], capture_output=True, text=True, check=True)
    loaded = {name for name in ended.stdout.split() if name.partition(".")[0] not in sys.stdlib_module_names}
    assert loaded == {
        *("lake_core", "lake_core.lazy_exports", "lake_core.version"),
        *("lake_orch", "lake_orch.airflow", "lake_orch.airflow.provider"),
    }


def test_it_is_valid_by_the_schema_of_this_airflow() -> None:
    """An error here would stop every process of Airflow."""
    import jsonschema

    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_airflow_finds_the_connection_the_decorator_and_the_uris(airflow_home: object) -> None:
    (found,) = entry_points(group="apache_airflow_provider", name="provider_info").select(
        value="lake_orch.airflow.provider:get_provider_info"
    )
    assert found.dist is not None
    assert found.dist.name == get_provider_info()["package-name"]
    from airflow.providers_manager import ProvidersManager
    from airflow.sdk import Asset, task

    hook = ProvidersManager().hooks["lake"]
    assert hook is not None
    assert hook.hook_class_name == "lake_orch.airflow.hook.LakeHook"
    assert callable(task.lake)
    with pytest.raises(ValueError, match="names no dataset"):
        Asset(uri="lake://lake_default/main")


def test_errors_name_tasks_as_people_know_them() -> None:
    from lake_orch.airflow.task_states import readable, task_name

    names = task_name("session.lines", 3), task_name("session.day", -1, replaces=True)
    assert readable(f"what {names[0]!r} and {names[1]!r} wrote") == "what 'session.lines[3]' and 'session.day' wrote"
