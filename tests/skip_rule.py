"""In CI, a skip outside a short list fails the run: a suite that skips what it cannot do proves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CASES = Path(__file__).parents[2] / "shared" / "cases"
NO_CASES = "the case collection (shared/cases) does not stand beside this checkout"

NO_LAKEFS = "LAKEFS_BIN names no lakeFS server"
"""No package index has the server: who has built it names it."""

NO_UNITY = "UNITY_CATALOG_CLASSPATH names no Unity Catalog server"
"""As of lakeFS."""

# Without the collection, tests that are made from its folders have no parameters.
_NO_SERVER = (NO_CASES, NO_LAKEFS, NO_UNITY)
ALLOWED_SKIPS = _NO_SERVER if CASES.is_dir() else (*_NO_SERVER, "got empty parameter set")
"""How the reasons of allowed skips begin."""

IN_CI = os.environ.get("CI") == "true"

_forbidden: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _judge(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _judge(report)


def reason_of(report: pytest.TestReport | pytest.CollectReport) -> str:
    """Return why a test was skipped."""
    return report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)


def lacks_cases(report: pytest.TestReport) -> bool:
    """Return whether a test was skipped because the case collection is not there."""
    if CASES.is_dir() or not report.skipped:
        return False
    return reason_of(report).removeprefix("Skipped: ").startswith((NO_CASES, "got empty parameter set"))


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    reason = reason_of(report)
    if not reason.removeprefix("Skipped: ").startswith(ALLOWED_SKIPS):
        _forbidden.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # one process of several: what it could not even collect is known here alone
        output["forbidden"] = _forbidden
        return
    if IN_CI and _forbidden and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    for line in getattr(node, "workeroutput", {}).get("forbidden", ()):
        if line not in _forbidden:
            _forbidden.append(line)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IN_CI and _forbidden:
        terminalreporter.section("skips that fail this run", red=True)
        for line in _forbidden:
            terminalreporter.write_line(line)
