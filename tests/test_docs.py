"""What the documents say of tests: each one named exists, and in a whole run each ran, without a skip."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT
from tests.outcomes import failed_or_skipped, is_whole, passed

TABLE_ROW = re.compile(r"^\| (?P<section>[^|]+) \| (?P<done>[^|]+) \| (?P<tests>[^|]+) \|$")


def _sections() -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    for line in (ROOT / "docs" / "delta.md").read_text().splitlines():
        match = TABLE_ROW.match(line)
        if match and match["section"] != "Section":
            sections[match["section"]] = re.findall(r"`(tests/[^`]+)`", match["tests"])
    return sections


def test_every_section_names_tests_that_exist() -> None:
    sections = _sections()
    assert len(sections) >= 32
    for section, tests in sections.items():
        assert tests, section
        for test in tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).is_file(), f"{section}: {test}"
            assert not name or f"def {name}(" in (ROOT / path).read_text(), f"{section}: {test}"


@pytest.mark.last
def test_every_named_test_ran(request: pytest.FixtureRequest) -> None:
    for section, tests in _sections().items():
        for test in tests:
            assert not failed_or_skipped(test), f"{section}: {failed_or_skipped(test)}"
            if is_whole(request.config):
                assert passed(test), f"{section}: nothing of {test} ran"
