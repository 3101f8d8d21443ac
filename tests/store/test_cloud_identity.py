"""Credentials that google-auth and azure-identity find, against token services that answer as the clouds' own do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from lake_core.errors import AccessDenied
from lake_core.store.cloud.azure import AzureBlobStore
from lake_core.store.cloud.gcs import GCSStore
from lake_core.store.cloud.retry import RetryPolicy
from tests.store.cloud_identity import CONTENT, IDENTITY_HEADER, IdentityServer, identity_server

ACCOUNT = "writer@project.iam.gserviceaccount.com"
ONCE = RetryPolicy(attempts=1)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityServer]:
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "STORAGE_EMULATOR_HOST", "AZURE_CLIENT_ID", "AZURE_TENANT_ID"):
        monkeypatch.delenv(name, raising=False)
    with identity_server() as server:
        yield server


@pytest.fixture(scope="module")
def private_key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@pytest.fixture
def account(server: IdentityServer, private_key: rsa.RSAPrivateKey) -> dict[str, str]:
    """A service account whose token service is the server."""
    text = serialization.Encoding.PEM
    server.public_key = private_key.public_key().public_bytes(text, serialization.PublicFormat.SubjectPublicKeyInfo)
    pem = private_key.private_bytes(text, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return {
        "type": "service_account",
        "project_id": "project",
        "private_key_id": "1",
        "private_key": pem.decode(),
        "client_email": ACCOUNT,
        "token_uri": f"{server.url}/token",
    }


def bucket(server: IdentityServer, **options: object) -> GCSStore:
    return GCSStore("lake", storage_options={"endpoint_url": server.url, **options}, retry=ONCE)


def container(server: IdentityServer, **options: object) -> AzureBlobStore:
    options = {"account_name": "account", "endpoint": f"{server.url}/account", **options}
    return AzureBlobStore("lake", storage_options=options, retry=ONCE)


@pytest.mark.parametrize("option", ["token", "service_account_key"])
def test_a_service_account_of_the_options_signs_for_its_token(
    server: IdentityServer, account: dict[str, str], option: str
) -> None:
    assert bucket(server, **{option: account}).get("a") == CONTENT
    assert server.claims["iss"] == ACCOUNT
    assert server.claims["scope"] == "https://www.googleapis.com/auth/devstorage.read_write"


def test_the_file_that_the_environment_names_is_used(
    server: IdentityServer, account: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    assert bucket(server).get("a") == CONTENT
    assert server.asked == ["/token"]


def test_a_machine_of_google_asks_its_metadata_server(server: IdentityServer, tmp_path: Path) -> None:
    host = server.url.removeprefix("http://")
    # google-auth reads where that server is when it is imported.
    environment = {"GCE_METADATA_HOST": host, "GCE_METADATA_IP": host, "CLOUDSDK_CONFIG": str(tmp_path)}
    program = (
        "from lake_core.store.cloud.gcs import GCSStore\n"
        f"print(GCSStore('lake', storage_options={{'endpoint_url': {server.url!r}}}).get('a').decode())"
    )
    process = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, timeout=60
    )
    assert process.stdout.encode().strip() == CONTENT, process.stderr
    assert {path.rpartition("/service-accounts/")[2] for path in server.asked} == {"default/token"}


def test_a_token_of_google_is_used_until_it_expires(server: IdentityServer, account: dict[str, str]) -> None:
    store = bucket(server, token=account)
    for _ in range(3):
        store.get("a")
    assert server.issued == ["token-1"]


def test_a_token_of_google_that_expires_is_renewed(server: IdentityServer, account: dict[str, str]) -> None:
    server.lifetime = 1
    store = bucket(server, token=account)
    store.get("a")
    time.sleep(1.1)
    assert store.get("a") == CONTENT
    assert server.issued == ["token-1", "token-2"]


def test_an_account_that_google_refuses_is_an_error_without_its_key(
    server: IdentityServer, account: dict[str, str]
) -> None:
    server.refuses = True
    with pytest.raises(AccessDenied, match="no usable credentials") as caught:
        bucket(server, token=account).get("a")
    assert account["private_key"][100:150] not in repr(caught.value)


@pytest.fixture
def managed_identity(server: IdentityServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IDENTITY_ENDPOINT", f"{server.url}/msi")
    monkeypatch.setenv("IDENTITY_HEADER", IDENTITY_HEADER)


@pytest.mark.usefixtures("managed_identity")
def test_a_machine_of_azure_uses_its_managed_identity(server: IdentityServer) -> None:
    store = container(server)
    assert [store.get("a") for _ in range(3)] == [CONTENT] * 3
    assert server.asked == ["/msi"]


@pytest.mark.usefixtures("managed_identity")
def test_a_token_of_azure_that_expires_is_renewed(server: IdentityServer) -> None:
    server.lifetime = 1
    store = container(server)
    store.get("a")
    time.sleep(1.1)
    assert store.get("a") == CONTENT
    assert server.issued == ["token-1", "token-2"]


@pytest.mark.usefixtures("managed_identity")
def test_a_machine_without_an_identity_is_refused_with_what_to_do(server: IdentityServer) -> None:
    server.refuses = True
    with pytest.raises(AccessDenied, match="no usable credentials: check those of storage_options") as caught:
        container(server).get("a")
    assert IDENTITY_HEADER not in repr(caught.value)
