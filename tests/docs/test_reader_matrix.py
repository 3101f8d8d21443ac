"""The table of docs/reference/readers.md is what the readers find."""

from __future__ import annotations

import pytest

from tests.docs.reader_matrix import KINDS, READERS, outcomes, written


@pytest.mark.parametrize("name", KINDS)
def test_the_page_says_what_each_reader_finds(name: str) -> None:
    results = outcomes(name, READERS)
    recorded = written().get(name, {})
    assert {reader: recorded.get(reader) for reader in results} == results, "run `python -m tests.docs.reader_matrix`"


def test_the_page_has_no_other_kinds() -> None:
    assert list(written()) == list(KINDS)
