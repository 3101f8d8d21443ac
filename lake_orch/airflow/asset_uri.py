"""The URIs of datasets as assets of Airflow: `lake://<connection>/<branch>/<path>`. Parsing a DAG file loads this."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from urllib.parse import SplitResult


def asset_uri(connection: str, branch: str, path: str) -> str:
    """Return the URI of a dataset. It names the connection, as the lake's root is not known to a DAG file.

    Airflow takes ASCII alone.
    """
    return f"lake://{connection}/{quote(branch)}/{quote(path)}"


def sanitize_uri(uri: SplitResult) -> SplitResult:
    """Check the URI of an asset. Raises ValueError without a connection, a branch and a path."""
    branch, _, path = uri.path.lstrip("/").partition("/")
    if not uri.netloc or not branch or not path:
        raise ValueError(
            f"the asset {uri.geturl()!r} names no dataset: use lake://<connection>/<branch>/<path>, "
            "such as LakeTable('tables/orders').asset"
        )
    return uri
