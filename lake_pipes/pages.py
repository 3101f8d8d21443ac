"""The addresses of pages of `lake ui` that show what a write did, for the metadata of orchestrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from lake_pipes.metadata import COMMIT, PATH, SESSION

if TYPE_CHECKING:
    from collections.abc import Mapping

DATASET_PAGE: Final = "lake/page"
"""The dataset as the commit has it, or as the session does that will publish it."""
COMMIT_PAGE: Final = "lake/commit_page"
CHANGES_PAGE: Final = "lake/changes_page"
"""What the commit changed in the dataset, against the version before."""
SESSION_PAGE: Final = "lake/session_page"
"""The session with which a write is published later."""


def is_ui_url(url: object) -> bool:
    """Return whether links can lead to pages at a URL, which holds no password or token."""
    if not isinstance(url, str):
        return False
    parts = urlsplit(url)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and not (parts.query or "@" in parts.netloc)


def page_addresses(ui_url: str | None, metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return the addresses of pages for a write, by the names of metadata.

    Args:
        ui_url: Where `lake ui` serves the lake. None for no pages.
        metadata: The metadata of the write, with plain values: its commit or session, and its path.
    """
    if ui_url is None:
        return {}
    commit, session, path = (_text(metadata.get(name)) for name in (COMMIT, SESSION, PATH))
    state = commit or session
    addresses = {}
    if state is not None and path is not None:
        addresses[DATASET_PAGE] = f"/dataset/{quote(path)}?{urlencode({'at': state})}"
    if commit is not None:
        addresses[COMMIT_PAGE] = f"/commit/{quote(commit)}"
        if path is not None:
            addresses[CHANGES_PAGE] = _changes(commit, path)
    elif session is not None:
        addresses[SESSION_PAGE] = f"/session/{quote(session)}"
    return {name: ui_url.rstrip("/") + address for name, address in addresses.items()}


def comparison_address(ui_url: str, before: str, after: str) -> str:
    """Return the address of the comparison of two commits."""
    return f"{ui_url.rstrip('/')}/compare?{urlencode({'from': before, 'to': after})}"


def _changes(commit: str, path: str) -> str:
    return f"/compare/dataset?{urlencode({'from': f'{commit}~1', 'to': commit, 'path': path})}"


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
