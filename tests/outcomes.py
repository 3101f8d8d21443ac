"""A check of the tests that documents name: in a whole run, each ran and none was skipped but for lack of cases.

`make test` leaves the long ones out: of those it is only seen that they are there. Judged once all is over, where all
reports come together, however many processes ran the tests.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.skip_rule import lacks_cases

DOCS = Path(__file__).parent.parent / "docs"
_ROW = re.compile(r"^\| (?P<section>[^|]+) \|(?: [^|]+ \|)+ (?P<tests>[^|]+) \|$")

EVERYTHING = "not stress and not interop and not clouds"
"""The selection of `make test-all`, and of pytest without arguments."""
USUAL = "not extended and not exhaustive and not stress and not interop and not clouds"
"""The selection of `make test`."""

_unproved: list[str] = []

_passed: set[str] = set()
_others: set[str] = set()
_without_cases: set[str] = set()
"""The tests that were skipped because the case collection is not there. Their summary says so."""
_left_out: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if lacks_cases(report):
        _without_cases.add(report.nodeid)
    elif report.when == "call" and report.passed:
        _passed.add(report.nodeid)
    elif not report.passed:
        _others.add(report.nodeid)


def pytest_deselected(items: Sequence[pytest.Item]) -> None:
    _left_out.update(item.nodeid for item in items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object) -> None:
    _left_out.update(getattr(node, "workeroutput", {}).get("left_out", ()))


def documented() -> dict[str, list[str]]:
    """Return the tests that each row of a document's tables names.

    Such a row has three columns or more, and the last one names tests.
    """
    sections: dict[str, list[str]] = {}
    for document in sorted(DOCS.rglob("*.md")):
        for line in document.read_text().splitlines():
            match = _ROW.match(line)
            if match and re.findall(r"`(tests/[^`]+)`", match["tests"]):
                tests = sections.setdefault(f"{document.name}: {match['section']}", [])
                tests.extend(re.findall(r"`(tests/[^`]+)`", match["tests"]))
    return sections


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # one process of several: only here is it known what was left out
        tests = [test for tests in documented().values() for test in tests]
        output["left_out"] = [node for node in _left_out if any(belongs(node, test) for test in tests)]
        return
    for section, tests in documented().items():
        for test in tests:
            _unproved.extend(f"{section!r}: {node} did not pass" for node in failed_or_skipped(test))
            if is_whole(session.config) and not passed(test) and not is_left_out(session.config, test):
                _unproved.append(f"{section!r}: nothing of {test} ran")
    if _unproved and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unproved:
        terminalreporter.section("claims of the documentation that this run did not prove", red=True)
        for line in _unproved:
            terminalreporter.write_line(line)


def passed(test: str) -> bool:
    """Whether a test (`file` or `file::name`) passed, in one of its variants at least."""
    return any(belongs(node, test) for node in _passed)


def failed_or_skipped(test: str) -> list[str]:
    """The variants of a test that were skipped or failed."""
    return sorted(node for node in _others if belongs(node, test))


def is_whole(config: pytest.Config) -> bool:
    """Return whether a run has all tests but the long ones: each test that a document names must be in it."""
    selects_nothing = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.option.keyword
    return selects_nothing and config.option.markexpr in (USUAL, EVERYTHING)


def is_left_out(config: pytest.Config, test: str) -> bool:
    """Tell whether a test is one of the long ones that `make test` leaves to `make test-all`, or lacks its cases."""
    if any(belongs(node, test) for node in _without_cases):
        return True
    return bool(config.option.markexpr == USUAL) and any(belongs(node, test) for node in _left_out)


def belongs(node: str, test: str) -> bool:
    """Tell whether a node is a documented test (`file` or `file::name`), or a variant of it."""
    # An "@" begins the name of the group that xdist keeps together.
    return node.startswith(test) and node[len(test) :][:1] in ("", ":", "[", "@")
