"""What the documents say of tests: each one named exists. That they ran is judged at the end of the run, see `tests.outcomes`."""

from __future__ import annotations

from tests.conftest import ROOT
from tests.outcomes import documented


def test_every_section_names_tests_that_exist() -> None:
    sections = documented()
    assert len(sections) >= 32
    for section, tests in sections.items():
        for test in tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).is_file(), f"{section}: {test}"
            assert not name or f"def {name}(" in (ROOT / path).read_text(), f"{section}: {test}"
