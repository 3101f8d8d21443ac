"""Azurite, Azure Storage's emulator."""

from __future__ import annotations

import base64
import hashlib
import hmac
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import formatdate
from pathlib import Path

from tests.clouds.servers import CloudServer, executable, free_port, running

ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@contextmanager
def azurite(folder: Path) -> Iterator[CloudServer]:
    """Run the emulator with an empty container `lake`."""
    program, port = executable("AZURITE"), free_port()
    command = [program, "--silent", "--inMemoryPersistence", "--skipApiVersionCheck", "--blobPort", str(port)]
    with running(command, port, folder / "azurite.log"):
        endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
        _create_container(endpoint, "lake")
        yield CloudServer(
            "az",
            {"account_name": ACCOUNT, "account_key": KEY, "endpoint": endpoint},
            {
                "AZURE_STORAGE_CONNECTION_STRING": (
                    f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={endpoint}"
                )
            },
        )


def _create_container(endpoint: str, name: str) -> None:
    date, version = formatdate(usegmt=True), "2021-08-06"
    resource = f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
    signed = f"PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{version}\n{resource}"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()).decode()
    request = urllib.request.Request(f"{endpoint}/{name}?restype=container", method="PUT", data=b"")
    for header, value in (
        ("x-ms-date", date),
        ("x-ms-version", version),
        ("Authorization", f"SharedKey {ACCOUNT}:{signature}"),
        ("Content-Type", ""),
    ):
        request.add_header(header, value)
    urllib.request.urlopen(request, timeout=30).close()
