"""The store in S3, over real HTTP, passes the tests of every store."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lake_core.store import ObjectStore
from lake_core.store.cloud.s3 import S3Store
from lake_core.testing import SharedObjectStoreSuite
from tests.store.s3.stores import connect
from tests.store.s3_server import PAGE


class TestS3Store(SharedObjectStoreSuite):
    many = PAGE + 3

    @pytest.fixture
    def store(self, s3_url: str, connected: S3Store) -> Iterator[ObjectStore]:
        return connect(s3_url, connected)

    # Thousands of requests to the server take their time.

    @pytest.mark.extended
    def test_lists_in_the_order_of_bytes(self, store: ObjectStore) -> None:
        super().test_lists_in_the_order_of_bytes(store)

    @pytest.mark.extended
    def test_lists_more_than_a_page(self, store: ObjectStore) -> None:
        super().test_lists_more_than_a_page(store)
