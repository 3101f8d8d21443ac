"""What docs/permissions.md says: which requests readers, publishers and collection make."""

# No `from __future__ import annotations` here: Dagster reads the annotations of assets as objects.

import json
import re
from datetime import timedelta
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
import s3fs

from lake_core import Lake
from lake_core.delta import DeltaTable
from lake_core.errors import AccessDenied
from lake_core.pool import PoolLake
from lake_orch import DeltaIOManager, LakeResource, testing
from tests.docs.blocks import DOCS, run_blocks
from tests.store.s3_server import S3Server

pytestmark = pytest.mark.timeout(120)


@dg.asset
def orders() -> pa.Table:
    return pa.table({"id": [1, 2]})


def publish(url: str, options: dict[str, object], *, whole_run: bool = False) -> None:
    lake = LakeResource(root=url, storage_options=options)
    resources = {"io_manager": DeltaIOManager(lake=lake), "lake": lake}
    assert (testing.materialize if whole_run else dg.materialize)([orders], resources=resources).success


def deny(server: S3Server, *methods: str) -> None:
    for method in methods:
        server.fault("answer", method=method, code="403 AccessDenied", times=100_000)


def requested_keys(server: S3Server) -> dict[str, set[str]]:
    """Return the keys of each kind of request since the last `clear`.

    Requests that end in a server error are left out.
    """
    keys: dict[str, set[str]] = {}
    for request in server.requests():
        method, path, status = request.split()
        if status.startswith(("2", "4")):
            kind = "LIST" if "list-type=2" in path else "POST" if "?delete" in path else method
            keys.setdefault(kind, set()).add(path.partition("?")[0])
    return keys


@pytest.mark.extended
def test_readers_get_and_list(s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server) -> None:
    Lake.create(s3_url, storage_options=s3_options)
    publish(s3_url, s3_options)
    deny(s3_endpoint, "PUT", "DELETE", "POST")
    assert len(Lake.open(s3_url, storage_options=s3_options).delta("tables/orders").to_arrow()) == 2
    assert len(DeltaTable.open(f"{s3_url}/tables/orders", storage_options=s3_options).to_arrow()) == 2
    with pytest.raises(AccessDenied):
        publish(s3_url, s3_options)


@pytest.mark.extended
def test_publishers_need_not_delete(s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server) -> None:
    lake = Lake.create(s3_url, storage_options=s3_options)
    publish(s3_url, s3_options)
    deny(s3_endpoint, "DELETE", "POST")
    publish(s3_url, s3_options)
    publish(s3_url, s3_options, whole_run=True)
    assert len(lake.log()) == 4
    assert lake.list_sessions() == []


def test_publishers_delete_their_turns_alone(s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server) -> None:
    Lake.create(s3_url, storage_options=s3_options)
    s3_endpoint.clear()
    publish(s3_url, s3_options)
    publish(s3_url, s3_options, whole_run=True)
    requested = requested_keys(s3_endpoint)
    assert set(requested) == {"GET", "HEAD", "LIST", "PUT", "DELETE"}
    below = s3_url.removeprefix("s3:/")
    others = {key for key in requested["DELETE"] if not key.startswith(f"{below}/_lake/")}
    assert requested["DELETE"] > others
    assert all(".lake-tmp-probe-" in key for key in others)


@pytest.mark.extended
def test_a_zed_lake_pins_what_it_uses_and_lists_what_it_deletes(
    s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server
) -> None:
    pool = PoolLake.create(s3_url, storage_options=s3_options).create_pool("raw", key="k", order="asc")
    folder = f"{s3_url.removeprefix('s3:/')}/{pool.config.id}"

    def folders(method: str) -> set[str]:
        keys = requested_keys(s3_endpoint).get(method, set())
        return {key.removeprefix(f"{folder}/").partition("/")[0] for key in keys if key.startswith(folder)}

    s3_endpoint.clear()
    commit = pool.load([{"k": 1}])
    assert commit is not None
    pool.load([{"k": 2}])
    assert (folders("DELETE"), folders("PUT") & {"pins", "deletions"}) == (set(), set())
    pool.revert(commit.id)
    pool.create_branch("before", at=commit.id)
    assert (folders("DELETE"), folders("PUT") & {"pins", "deletions"}) == ({"pins"}, {"pins"})
    pool.delete_branch("before")
    deny(s3_endpoint, "DELETE", "POST")
    pool.create_branch("again", at=commit.id)
    s3_endpoint.clear()
    assert any("/pins/" in key for key in pool.vacuum(timedelta(0)).keys)
    assert folders("PUT") == {"deletions"}


def test_collection_deletes(s3_url: str, s3_options: dict[str, object], s3_endpoint: S3Server) -> None:
    table = DeltaTable.create(f"{s3_url}/plain", pa.schema([("id", pa.int64())]), storage_options=s3_options)
    table.set_properties({"delta.deletedFileRetentionDuration": "interval 0 seconds"})
    for number in range(2):
        table.append(pa.table({"id": [number]}))
    table.optimize()
    s3_endpoint.clear()
    gone = table.vacuum(timedelta(0))
    assert len(gone.files) == 2
    assert requested_keys(s3_endpoint).keys() & {"DELETE", "POST"}


def test_encryption_is_asked_for(s3_url: str, s3_options: dict[str, object]) -> None:
    encryption = run_blocks("permissions.md")["encrypted"].storage_options
    options = {**s3_options, **encryption}
    table = DeltaTable.create(s3_url, pa.schema([("id", pa.int64())]), storage_options=options)
    table.append(pa.table({"id": [1]}))
    bucket, _, prefix = s3_url.removeprefix("s3://").partition("/")
    files: Any = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    paths = files.find(s3_url)
    assert len(paths) >= 3
    for path in paths:
        head = files.call_s3("head_object", Bucket=bucket, Key=path.removeprefix(f"{bucket}/"))
        assert head["ServerSideEncryption"] == "aws:kms"
        assert prefix in path


def test_the_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("S3_KEY", "S3_SECRET", "S3_ENDPOINT"):
        monkeypatch.setenv(name, f"the {name}")
    names = run_blocks("permissions.md")
    assert names["lake"].options()["endpoint_url"] == "the S3_ENDPOINT"
    assert "the S3_SECRET" not in repr(names["lake"])
    (policy,) = re.findall(r"^```json\n(.*?)^```", (DOCS / "permissions.md").read_text(), re.MULTILINE | re.DOTALL)
    statements = json.loads(policy)["Statement"]
    assert [statement["Action"] for statement in statements] == [
        "s3:ListBucket",
        "s3:GetObject",
        "s3:PutObject",
        "s3:DeleteObject",
    ]
