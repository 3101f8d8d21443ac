"""The tables of docs/internals/merge-table.md are what the code does."""

from __future__ import annotations

import pytest

from tests.docs.merge_table import PAGE, TABLES, WRONG, lines
from tests.examples import exhaustive

_LARGE = ["delta", "array", "pool"]


@pytest.mark.parametrize("name", [*(name for name in TABLES if name not in _LARGE), *exhaustive(_LARGE)])
def test_the_page_says_what_two_operations_come_to(name: str) -> None:
    expected = list(lines(TABLES[name]))
    section = PAGE.read_text().partition(f"## {TABLES[name].title}\n")[2].partition("\n## ")[0]
    assert [line for line in section.splitlines() if line.startswith("|")] == expected, (
        "run `python -m tests.docs.merge_table`"
    )
    assert WRONG not in "".join(expected)
