"""Pages of a lake in a bucket: the same as of a folder, and no request but reads."""

from __future__ import annotations

from starlette.testclient import TestClient

from lake_core.cli.context import Context
from lake_core.store import open_store
from lake_core.ui.app import create_app
from lake_core.ui.settings import PageSettings
from tests.store.s3_server import S3Server
from tests.ui.conftest import BASE
from tests.ui.lakes import create_lake

ADDRESSES = (
    *(
        "/",
        "/history?ref=*",
        "/commit/main~2",
        "/data?prefix=tables",
        "/dataset/tables/orders",
        "/dataset/pools/events",
    ),
    *("/dataset/arrays/weather", "/picture/arrays/weather?node=/temperature", "/sessions", "/session/run-of-today"),
    *(
        "/compare/dataset?from=main~5&to=main&path=tables/orders",
        "/merge?ref=dev",
        "/sql?q=select count(*) from orders",
    ),
    *("/upkeep?check=gc", "/upkeep?check=verify"),
)


def test_pages_of_a_bucket_are_only_reads(s3_endpoint: S3Server, s3_url: str, s3_options: dict[str, object]) -> None:
    create_lake(open_store(s3_url, storage_options=s3_options))
    s3_endpoint.clear()
    lake = Context(s3_url, s3_options).open(read_only=True)  # type: ignore[arg-type]
    client = TestClient(create_app(lake, PageSettings()), base_url=BASE)
    for address in ADDRESSES:
        response = client.get(address)
        assert response.status_code == 200, (address, response.text)
    requests = s3_endpoint.requests()
    assert len(requests) > 20
    assert {line.split()[0] for line in requests} <= {"GET", "HEAD"}
    assert "secret" not in client.get("/").text.lower()
