"""The pages that define a code location, saved as files, load as `dg dev -f` loads them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.docs.blocks import DOCS, blocks
from tests.docs.test_deployment_pages import DATABRICKS, EMR

_LOADER = """
import json, sys, traceback
from pathlib import Path
from dagster._core.workspace.autodiscovery import loadable_targets_from_python_file
loaded = {}
for file in sorted(Path.cwd().glob("location_*.py")):
    try:
        (target,) = loadable_targets_from_python_file(str(file), str(file.parent))
        loaded[file.stem] = type(target.target_definition).__name__
    except Exception:
        loaded[file.stem] = traceback.format_exc()
print("LOADED" + json.dumps(loaded))
"""
_DEFINES = re.compile(r"^\w+ = (?:dg\.)?Definitions\b|^@(?:dg\.)?definitions\b", re.MULTILINE)


def _modules() -> dict[str, str]:
    """Return the modules of the pages that define code locations, by a name: the blocks up to each definition.

    A block that imports Dagster begins a module of its own.
    """
    modules: dict[str, str] = {}
    for page in sorted(set((DOCS / "how-to").glob("*.md")) - {DOCS / name for name in (DATABRICKS, EMR)}):
        code = ""
        for number, block in enumerate(blocks(str(page.relative_to(DOCS)))):
            if block.reason is None:
                own = block.code.lstrip("\n")
                code = own if re.search("^import dagster as dg", own, re.MULTILINE) else code + "\n\n" + own
                if _DEFINES.search(own):
                    modules[f"location_{page.stem.replace('-', '_')}_{number}"] = code
    return modules


MODULES = _modules()
"""Without those whose clients are not installed: `test_deployment_pages` runs these with others in their place."""


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Load all modules with Dagster's own loader, and return what each is, or its error."""
    folder = tmp_path_factory.mktemp("locations")
    for name, code in MODULES.items():
        (folder / f"{name}.py").write_text(code)
    environment = {**os.environ, "LAKE_BRANCH": "main", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _LOADER], cwd=folder, capture_output=True, text=True, env=environment
    )
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("LOADED"))
    result: dict[str, str] = json.loads(line.removeprefix("LOADED"))
    return result


def test_the_pages_that_define_code_locations_are_found() -> None:
    pages = {"land_files", "land_any_shape", "maintain_tables", "recover_a_publish"}
    assert all(any(name.startswith(f"location_{page}_") for name in MODULES) for page in pages)


@pytest.mark.parametrize("module", MODULES)
def test_a_how_to_page_is_a_code_location(module: str, loaded: dict[str, str]) -> None:
    assert loaded[module] == "Definitions"


def test_no_module_of_a_page_names_two_definitions() -> None:
    """Count also in the examples that cannot be run here."""
    for page in sorted((DOCS / "how-to").glob("*.md")):
        code = "\n".join(block.code for block in blocks(str(page.relative_to(DOCS))))
        names = set(
            re.findall(r"^(\w+) = (?:dg\.Definitions\b|\w+_definitions\(|lake_maintenance\()", code, re.MULTILINE)
        )
        assert len(names) <= 1, page
