"""How the tests of this run ended, for those that hold documents against them."""

from __future__ import annotations

import pytest

_passed: set[str] = set()
_others: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        _passed.add(report.nodeid)
    elif not report.passed:
        _others.add(report.nodeid)


def passed(test: str) -> bool:
    """Whether a test (`file` or `file::name`) passed, in one of its variants at least."""
    return any(_belongs(node, test) for node in _passed)


def failed_or_skipped(test: str) -> list[str]:
    """The variants of a test that were skipped or failed."""
    return sorted(node for node in _others if _belongs(node, test))


def is_whole(config: pytest.Config) -> bool:
    """Whether the run is that of all tests but the long ones, in one process."""
    if hasattr(config, "workerinput"):
        return False
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword and "spark" not in config.option.markexpr


def _belongs(node: str, test: str) -> bool:
    return node.startswith(test) and node[len(test) :][:1] in ("", ":", "[")
