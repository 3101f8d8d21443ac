"""Endpoints, credentials and metadata of the options and the environment."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest

from lake_core.errors import AccessDenied, InvalidUrl, StoreError, UnsafeStore
from lake_core.store import open_store
from lake_core.store.cloud.s3 import S3Store
from tests.store.s3.stores import QUICK, assert_silent
from tests.store.s3_server import SECRET, S3Server


def test_no_credentials(s3_url: str, s3_endpoint: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        monkeypatch.delenv(name, raising=False)
    store = open_store(
        s3_url, storage_options={"endpoint_url": s3_endpoint.url, "client_kwargs": {"region_name": "us-east-1"}}
    )
    with pytest.raises(AccessDenied, match="no usable credentials"):
        store.get("a")


def test_wrong_options_are_named_without_their_values(s3_options: dict[str, object]) -> None:
    for options in (
        {"no_such_option": 1},
        {"config_kwargs": {"no_such_option": 1}},
        {"client_kwargs": {"no_such_option": 1}},
        {"username": "x"},
    ):
        with pytest.raises(StoreError) as caught:
            S3Store("lake", storage_options={**s3_options, **options}, retry=QUICK).get("a")
        assert_silent(caught.value)
        assert "no_such_option" in str(caught.value) or "username" in str(caught.value)


def test_metadata_of_the_options_stays(s3_url: str, s3_options: dict[str, object]) -> None:
    store = open_store(s3_url, storage_options={**s3_options, "s3_additional_kwargs": {"Metadata": {"team": "lake"}}})
    store.put("a", b"", if_absent=True)
    assert isinstance(store, S3Store)
    metadata = obstore.get(store._client(), store._path("a"), options={"head": True}).attributes
    assert {"team", "lake-put"} <= metadata.keys()
    assert metadata["team"] == "lake"


def test_endpoint_of_the_options_outranks_that_of_the_environment(
    s3_url: str, s3_options: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    store = open_store(s3_url, storage_options=s3_options)
    store.put("a", b"")
    assert store.exists("a")


@pytest.mark.parametrize(
    "config",
    ["[default]\nendpoint_url = {}\n", "[default]\nservices = here\n[services here]\ns3 =\n  endpoint_url = {}\n"],
)
def test_endpoint_of_the_profile_is_asked(
    s3_url: str,
    s3_options: dict[str, object],
    s3_endpoint: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    config: str,
) -> None:
    (tmp_path / "config").write_text(config.format(s3_endpoint.url))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    options = {name: value for name, value in s3_options.items() if name != "endpoint_url"}
    s3_endpoint.fault("ignore_conditions", times=100)
    with pytest.raises(UnsafeStore):
        open_store(s3_url, storage_options=options)


@pytest.mark.parametrize("endpoint", ["127.0.0.1:9", "localhost:9000", "http://"])
def test_endpoint_that_is_no_url_is_refused(s3_options: dict[str, object], endpoint: str) -> None:
    with pytest.raises(InvalidUrl, match="endpoint_url must be http"):
        S3Store("lake", storage_options={**s3_options, "endpoint_url": endpoint})


@pytest.mark.parametrize("name", ["key", "secret", "token"])
def test_credential_with_a_line_break_is_refused(s3_options: dict[str, object], name: str) -> None:
    with pytest.raises(StoreError, match=f"{name} must not hold a line break") as caught:
        S3Store("lake", storage_options={**s3_options, name: f"{SECRET}\n"})
    assert_silent(caught.value)


def test_role_of_the_options_needs_no_other_credentials(
    s3_options: dict[str, object], s3_endpoint: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    role = {
        "role_arn": "arn:aws:iam::123456789012:role/lake",
        "web_identity_token_file": str(tmp_path / "token"),
        "sts_endpoint": s3_endpoint.url,
    }
    options = {name: value for name, value in s3_options.items() if name not in ("key", "secret")}
    store = S3Store("lake", storage_options={**options, **role}, retry=QUICK)
    assert "S3Store" in repr(store._client())
    assert role.keys().isdisjoint(store.storage_options)
