"""A real S3 server for tests, in a process of its own, with faults on demand.

Fixtures: `s3_endpoint`, `s3_options`, `s3_url`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.store.s3_server import S3Server


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[S3Server]:
    """The server: `.url`, `.fault(…)`, `.requests()`. Reachable from other processes."""
    with S3Server() as server:
        server.create_bucket("lake")
        yield server


@pytest.fixture
def s3_options(s3_endpoint: S3Server) -> Iterator[dict[str, object]]:
    """fsspec storage options for the server. Faults left over are cleared behind the test."""
    yield s3_endpoint.storage_options()
    s3_endpoint.clear()


@pytest.fixture
def s3_url(s3_options: dict[str, object]) -> str:
    """A location of its own for each test."""
    return f"s3://lake/{uuid.uuid4().hex}"
