"""`lake doctor` where a policy denies something: it names the permission as the cloud does."""

from __future__ import annotations

import pytest

from lake_core.cli.doctor import examine
from lake_core.cli.permissions import permission
from lake_core.store import open_store
from tests.store.s3_server import S3Server


@pytest.mark.parametrize(
    ("method", "verb", "name"),
    [("PUT", "put", "s3:PutObject"), ("GET", "get", "s3:GetObject"), ("DELETE", "delete", "s3:DeleteObject")],
)
def test_what_is_denied_is_named(
    method: str, verb: str, name: str, s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server
) -> None:
    store = open_store(f"{s3_url}/lake", storage_options=s3_options)
    store.put("a", b"")  # the endpoint is trusted from then on
    s3_endpoint.fault("answer", method=method, code="403 AccessDenied", times=1000)
    denied = {finding.check: finding.detail for finding in examine(store) if not finding.ok}
    assert f"must allow {name} on arn:aws:s3:::{s3_url.removeprefix('s3://')}" in denied[verb]
    assert denied["conditional puts"] == "not tried, because of the above"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("gs://bucket/lake", "storage.objects.list on the bucket bucket"),
        ("abfss://container@account.dfs.core.windows.net/lake", "blobs/read on the container container"),
        ("file:///data/lake", "permission to read the folder"),
    ],
)
def test_each_cloud_has_its_own_names(url: str, name: str) -> None:
    assert name in permission(url, "list")
