"""MinIO, a server that speaks S3's protocol."""

from __future__ import annotations

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from botocore.session import Session

from tests.clouds.servers import CloudServer, executable, free_port, running

KEY = "lake-tests-key"
SECRET = "never-shown-4c0e"
REGION = "us-east-1"


@contextmanager
def minio(folder: Path) -> Iterator[CloudServer]:
    """Run the server, which checks keys and the region, with an empty bucket `lake`."""
    program, port = executable("MINIO"), free_port()
    command = [program, "server", "--address", f"127.0.0.1:{port}", str(folder / "data")]
    settings = {
        "MINIO_ROOT_USER": KEY,
        "MINIO_ROOT_PASSWORD": SECRET,
        "MINIO_SITE_REGION": REGION,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    log = folder / "minio.log"
    with running(command, port, log, settings):
        endpoint = f"http://127.0.0.1:{port}"
        _wait_until_ready(endpoint, log)
        _create_bucket(endpoint, "lake")
        yield CloudServer(
            "s3",
            {"key": KEY, "secret": SECRET, "endpoint_url": endpoint, "client_kwargs": {"region_name": REGION}},
            {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": endpoint},
        )


def _wait_until_ready(endpoint: str, log: Path) -> None:
    """Wait until the server not only listens but has its disks."""
    deadline = time.monotonic() + 30
    while True:
        try:
            urllib.request.urlopen(f"{endpoint}/minio/health/cluster", timeout=30).close()
        except urllib.error.HTTPError:
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        else:
            return


def _create_bucket(endpoint: str, name: str) -> None:
    client = Session().create_client(
        "s3", region_name=REGION, endpoint_url=endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET
    )
    client.create_bucket(Bucket=name)
