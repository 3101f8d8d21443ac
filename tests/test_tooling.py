"""The promises of the Makefile and of the rule on skips."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.seeds import seed_blocks
from tests.skip_rule import ALLOWED_SKIPS


def make(target: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "JAVA_HOME"))
    }
    return subprocess.run(
        ["make", target], cwd=ROOT, env={**inherited, **environment}, capture_output=True, text=True, timeout=60
    )


def java(folder: Path, said: str) -> str:
    """Create a JAVA_HOME whose java prints this text."""
    path = folder / "bin" / "java"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    path.chmod(0o755)
    return str(folder)


@pytest.mark.parametrize("target", ["demo", "test", "ui"])
def test_without_java_the_commands_stop_at_once(target: str, tmp_path: Path) -> None:
    process = make(target, JAVA_HOME=str(tmp_path))
    assert process.returncode != 0
    assert "Spark needs Java 17 or newer" in process.stderr
    assert "is not a working Java: install one" in process.stderr
    assert process.stdout == ""


@pytest.mark.parametrize(
    "said", ['java version "1.8.0_202"', 'openjdk version "11.0.2" 2019-01-15', 'openjdk version "16-ea" 2021-03-16']
)
def test_with_an_old_java_the_commands_stop_at_once(said: str, tmp_path: Path) -> None:
    process = make("demo", JAVA_HOME=java(tmp_path, said))
    assert process.returncode != 0
    assert "is older" in process.stderr
    assert "install a newer one" in process.stderr


@pytest.mark.parametrize(
    "said", ['openjdk version "17.0.15" 2025-04-15', 'openjdk version "21" 2023-09-19 LTS', 'openjdk version "25-ea"']
)
def test_newer_javas_are_fine(said: str, tmp_path: Path) -> None:
    assert make("java", JAVA_HOME=java(tmp_path, said)).returncode == 0


def test_help_names_every_command() -> None:
    process = make("help")
    tests = ("test", "test-unit", "test-extended", "test-all", "test-clouds", "stress", "histories")
    for command in ("demo", "ui", *tests, "bench", "lint", ".venv"):
        assert f"make {command} " in process.stdout


def test_importing_the_packages_imports_no_spark() -> None:
    """Sensors, the command line and Arrow-only code locations start quickly, and without it being installed."""
    code = "import lake_core.delta, lake_orch, sys; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


SKIPPING = """
import pytest

def test_allowed():
    pytest.skip({allowed!r})

@pytest.mark.skipif(True, reason="no time today")
def test_other():
    pass

@pytest.mark.xfail
def test_expected_failure():
    raise AssertionError
"""


@pytest.mark.parametrize(
    ("ci", "selected", "passes"), [("true", "", False), ("true", "not other", True), ("", "", True)]
)
def test_a_skip_outside_the_list_fails_ci(tmp_path: Path, ci: str, selected: str, passes: bool) -> None:
    shutil.copy(ROOT / "tests" / "skip_rule.py", tmp_path)
    (tmp_path / "test_skips.py").write_text(SKIPPING.format(allowed=ALLOWED_SKIPS[0]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "skip_rule", "-p", "no:cacheprovider", "-k", selected]
    environment = {**os.environ, "CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert (process.returncode == 0) is passes, process.stdout
    assert ("skips that fail this run" in process.stdout) is not passes
    assert process.stdout.splitlines()[-1].startswith(("1 skipped", "2 skipped")), "pytest's own line comes last"


def test_blocks_of_seeds_hold_each_chosen_seed_once() -> None:
    assert [seed for block in seed_blocks("7:1513") for seed in block] == list(range(7, 1513))


@pytest.mark.parametrize("text", ["", "5", "5:", ":5", "a:b", "-1:5", "5:5", "6:5"])
def test_what_holds_no_seeds_is_refused(text: str) -> None:
    with pytest.raises(pytest.UsageError, match="--seeds"):
        seed_blocks(text)


SEEDED = """
import time

time.time = time.time_ns  # No two processes agree on a nanosecond.
pytest_plugins = ["seeds"]
"""


def test_all_processes_of_a_run_collect_the_same_new_seed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests" / "seeds.py", tmp_path)
    (tmp_path / "conftest.py").write_text(SEEDED)
    (tmp_path / "test_seeded.py").write_text("def test_seed(new_seed):\n    pass\n")
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "xdist", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(tmp_path)}
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stdout + process.stderr


def test_workflows_name_actions_by_commits() -> None:
    """A tag can be moved to other code, a commit cannot."""
    for workflow in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        actions = re.findall(r"uses: (.+)", workflow.read_text())
        movable = [name for name in actions if not re.fullmatch(r"\S+@[0-9a-f]{40} # v[\d.]+|\./\S+", name)]
        assert movable == [], workflow.name


def test_workflows_run_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for workflow in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        for target in re.findall(r"run: make (\S+)", workflow.read_text()):
            assert f"\n{target}: " in makefile, f"{workflow.name}: make {target}"
