"""Links from the events of assets to the pages of `lake ui`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote, urlencode

from dagster import MetadataValue

from lake_pipes.metadata import COMMIT, PATH, SESSION

DATASET_PAGE: Final = "lake/page"
"""The dataset as the commit has it, or as the session does that will publish it."""
COMMIT_PAGE: Final = "lake/commit_page"
CHANGES_PAGE: Final = "lake/changes_page"
"""What the commit changed in the dataset, against the version before."""
SESSION_PAGE: Final = "lake/session_page"
"""The session with which a write is published later."""


def page_links(ui_url: str | None, metadata: Mapping[str, Any]) -> dict[str, MetadataValue[Any]]:
    """Return the links for the metadata of a write: to its dataset, and its commit or session.

    Args:
        ui_url: Where `lake ui` serves the lake. None for no links.
        metadata: The metadata of the write.
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
            query = urlencode({"from": f"{commit}~1", "to": commit, "path": path})
            addresses[CHANGES_PAGE] = f"/compare/dataset?{query}"
    elif session is not None:
        addresses[SESSION_PAGE] = f"/session/{quote(session)}"
    return {name: MetadataValue.url(ui_url.rstrip("/") + address) for name, address in addresses.items()}


def ui_url_of(metadata: Mapping[str, MetadataValue[Any]]) -> str | None:
    """Return where `lake ui` serves the lake, by the links of an earlier event of the same write."""
    link = _text(metadata.get(SESSION_PAGE))
    return None if link is None else link.rpartition("/session/")[0]


def _text(value: Any) -> str | None:
    text = value.value if isinstance(value, MetadataValue) else value
    return text if isinstance(text, str) and text else None
