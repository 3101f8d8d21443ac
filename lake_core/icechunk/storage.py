"""The storages of repositories, with the names and arguments of icechunk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core.store import LocalStore, MemoryStore, ObjectStore, open_store

if TYPE_CHECKING:
    import os


def in_memory_storage() -> ObjectStore:
    """Return a new store in the memory of this process."""
    return MemoryStore()


def local_filesystem_storage(path: str | os.PathLike[str]) -> ObjectStore:
    """Return a store in a folder."""
    return LocalStore(path)


def s3_storage(
    *,
    bucket: str,
    prefix: str | None = None,
    region: str | None = None,
    endpoint_url: str | None = None,
    allow_http: bool = False,
    access_key_id: str | None = None,
    secret_access_key: str | None = None,
    session_token: str | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
    force_path_style: bool = False,
    requester_pays: bool = False,
) -> ObjectStore:
    """Return a store in S3, or in a service with its protocol.

    Args:
        bucket: The bucket.
        prefix: The folder in it; the whole bucket by default.
        region: The region of the bucket.
        endpoint_url: The URL of the service; that of AWS by default.
        allow_http: Accepted for compatibility: the URL of the endpoint says it.
        access_key_id: The credentials, together with `secret_access_key`. By default those of the environment.
        secret_access_key: See `access_key_id`.
        session_token: The token of temporary credentials.
        anonymous: Whether to read the bucket without credentials.
        from_env: Accepted for compatibility: the credentials of the environment are the default.
        force_path_style: Whether the bucket is in the path of URLs, not in the name of the host.
        requester_pays: Whether the account of the credentials pays.

    Raises:
        UnsafeStore, NotFound, AccessDenied, StoreUnavailable: As `lake_core.store.open_store` does.
    """
    client: dict[str, Any] = {"region_name": region, "endpoint_url": endpoint_url}
    options: dict[str, Any] = {
        "key": access_key_id,
        "secret": secret_access_key,
        "token": session_token,
        "anon": anonymous,
    }
    options["client_kwargs"] = {name: value for name, value in client.items() if value is not None}
    if force_path_style:
        options["config_kwargs"] = {"s3": {"addressing_style": "path"}}
    if requester_pays:
        options["requester_pays"] = True
    url = f"s3://{bucket}" if prefix is None else f"s3://{bucket}/{prefix.strip('/')}"
    return open_store(url, storage_options={name: value for name, value in options.items() if value})


def gcs_storage(
    *,
    bucket: str,
    prefix: str | None = None,
    service_account_file: str | None = None,
    service_account_key: str | None = None,
    application_credentials: str | None = None,
    bearer_token: str | None = None,
    anonymous: bool | None = None,
    from_env: bool | None = None,
) -> ObjectStore:
    """Return a store in Google Cloud Storage.

    Args:
        bucket: The bucket.
        prefix: The folder in it; the whole bucket by default.
        service_account_file: The path of a service account's JSON. By default the credentials of the environment.
        service_account_key: That JSON itself.
        application_credentials: The path of application default credentials.
        bearer_token: A token of access.
        anonymous: Whether to read the bucket without credentials.
        from_env: Accepted for compatibility: the credentials of the environment are the default.

    Raises:
        UnsafeStore, NotFound, AccessDenied, StoreUnavailable: As `lake_core.store.open_store` does.
    """
    options: dict[str, Any] = {
        "service_account": service_account_file,
        "service_account_key": service_account_key,
        "application_credentials": application_credentials,
        "bearer_token": bearer_token,
        "skip_signature": anonymous,
    }
    url = f"gs://{bucket}" if prefix is None else f"gs://{bucket}/{prefix.strip('/')}"
    return open_store(url, storage_options={name: value for name, value in options.items() if value})


def azure_storage(
    *,
    account: str,
    container: str,
    prefix: str,
    access_key: str | None = None,
    sas_token: str | None = None,
    from_env: bool | None = None,
) -> ObjectStore:
    """Return a store in Azure Storage.

    Args:
        account: The storage account.
        container: The container.
        prefix: The folder in it.
        access_key: The account's key. By default the credentials of the environment.
        sas_token: A shared access signature.
        from_env: Accepted for compatibility: the credentials of the environment are the default.

    Raises:
        UnsafeStore, NotFound, AccessDenied, StoreUnavailable: As `lake_core.store.open_store` does.
    """
    options = {"account_name": account, "account_key": access_key, "sas_token": sas_token}
    url = f"az://{container}/{prefix.strip('/')}"
    return open_store(url, storage_options={name: value for name, value in options.items() if value})
