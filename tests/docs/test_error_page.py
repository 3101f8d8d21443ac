"""The page of errors has those that the code has."""

from __future__ import annotations

import pytest

from lake_core.errors import LakeError
from tests.docs.error_page import BEGIN, END, PAGE, error_classes, meaning, sections


def test_the_page_has_the_errors_of_the_code() -> None:
    written = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    assert written.strip() == sections().strip(), "run `python -m tests.docs.error_page`"


@pytest.mark.parametrize("error", error_classes(), ids=lambda error: error.__name__)
def test_each_error_says_what_it_means(error: type[LakeError]) -> None:
    assert vars(error)["__doc__"], "an inherited docstring is that of another error"
    assert len(meaning(error).split()) >= 4
