"""Pages as tests read them."""

from __future__ import annotations

import re

from starlette.testclient import TestClient


def page_of(client: TestClient, address: str, status: int = 200) -> str:
    """Return a page without the white space of its layout."""
    response = client.get(address)
    assert response.status_code == status, response.text
    return compact(response.text)


def compact(page: str) -> str:
    """Return HTML without the white space between and around its elements."""
    one_line = re.sub(r"\s*\n\s*(?=<)|(?<=>)\s*\n\s*", "", re.sub(r"(?<![>\s])\s*\n\s*(?![<\s])", " ", page))
    return re.sub(r"(?<=>)\s{2,}(?=<)", "", one_line)
