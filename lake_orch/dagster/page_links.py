"""Links from the events of assets to the pages of `lake ui`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagster import MetadataValue

from lake_pipes.pages import SESSION_PAGE, page_addresses


def page_links(ui_url: str | None, metadata: Mapping[str, Any]) -> dict[str, MetadataValue[Any]]:
    """Return the links for the metadata of a write: to its dataset, and its commit or session.

    Args:
        ui_url: Where `lake ui` serves the lake. None for no links.
        metadata: The metadata of the write.
    """
    plain = {name: _plain(value) for name, value in metadata.items()}
    return {name: MetadataValue.url(address) for name, address in page_addresses(ui_url, plain).items()}


def ui_url_of(metadata: Mapping[str, MetadataValue[Any]]) -> str | None:
    """Return where `lake ui` serves the lake, by the links of an earlier event of the same write."""
    link = _plain(metadata.get(SESSION_PAGE))
    return link.rpartition("/session/")[0] if isinstance(link, str) and link else None


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, MetadataValue) else value
