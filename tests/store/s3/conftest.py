"""A store in S3 for the tests of this folder."""

from __future__ import annotations

import pytest

from lake_core.store.cloud.s3 import S3Store
from tests.store.s3.stores import QUICK, connect
from tests.store.s3_server import S3Server


@pytest.fixture(scope="module")
def connected(s3_endpoint: S3Server) -> S3Store:
    store = S3Store("lake", "connected", storage_options=s3_endpoint.storage_options(), retry=QUICK)
    store.check_conditional_puts()
    return store


@pytest.fixture
def store(s3_url: str, s3_endpoint: S3Server, connected: S3Store) -> S3Store:
    """Open a store with quick retries that is already checked, and clear the server's record."""
    store = connect(s3_url, connected, QUICK)
    store.put("a", b"first")
    s3_endpoint.clear()
    return store
