"""Objects in Azure Storage: Blob Storage and Data Lake Storage."""

from __future__ import annotations

import os
import re
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from lake_core.errors import AccessDenied, InvalidKey, InvalidUrl, LakeError, StoreError

try:
    from obstore.store import AzureStore as Container

    from lake_core.store.cloud.store import CloudStore
except ImportError:
    raise LakeError(
        "Azure Storage needs obstore, which is not installed: install it with `pip install 'lake-orch[azure]'`"
    ) from None

from lake_core.store.cloud.option_values import canonical, flag, line, mapping, of_fsspec, seconds, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from obstore.store import AzureCredentialProvider

    from lake_core.store.cloud.retry import RetryPolicy
    from lake_core.store.object_store import ObjectMeta

_HOSTS = (".core.windows.net", ".core.chinacloudapi.cn", ".core.usgovcloudapi.net", ".fabric.microsoft.com")
_CONTAINER = re.compile(r"\$root|\$web|[a-z0-9](?:-?[a-z0-9]){2,62}")
_EMULATOR = "http://127.0.0.1:10000/devstoreaccount1"
_EMULATED = (
    "devstoreaccount1",
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
)
"""The account of every emulator and its key, which are public."""
_SCOPE = "https://storage.azure.com/.default"

_ALIASES = {
    "azure_storage_account_name": "account_name",
    "azure_storage_account_key": "account_key",
    "azure_storage_sas_key": "sas_token",
    "sas_key": "sas_token",
    "access_key": "account_key",
    "skip_signature": "anon",
}
"""Other names of options, and the names that are used here."""
_CREDENTIALS = {
    "authority_host",
    "client_id",
    "client_secret",
    "federated_token_file",
    "msi_endpoint",
    "msi_resource_id",
    "object_id",
    "tenant_id",
    "use_azure_cli",
}
"""Options of obstore that identify the caller."""
_CONFIG = {"disable_tagging", "encryption_key", "use_fabric_endpoint"} | _CREDENTIALS
_SUPPORTED = {
    "account_host",
    "account_key",
    "account_name",
    "anon",
    "client_options",
    "connect_timeout",
    "connection_string",
    "endpoint",
    "read_timeout",
    "sas_token",
    "use_emulator",
} | _CONFIG
_OF_FSSPEC = {
    "asynchronous",
    "blocksize",
    "cache_type",
    "credential",
    "default_cache_type",
    "default_fill_cache",
    "location_mode",
    "loop",
    "max_concurrency",
    "request_session",
    "skip_instance_cache",
    "socket_timeout",
    "use_listings_cache",
    "version_aware",
}
"""Options of adlfs about how it reads files. This store ignores them."""
_OF_OBSTORE = {"client_options", "connect_timeout", "endpoint", "read_timeout", "use_emulator"} | (
    _CONFIG - {"client_id", "client_secret", "tenant_id"}
)
_ENVIRONMENT = {
    "account_name": ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT"),
    "account_key": ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCESS_KEY"),
    "sas_token": ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY"),
    "endpoint": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
_SECRETS = ("account_key", "sas_token", "client_secret", "encryption_key")


class AzureBlobStore(CloudStore):
    """An object store below a prefix of a container of Azure Storage.

    `storage_options` are those of adlfs or of obstore. The environment is read, too. If neither has credentials,
    azure-identity finds them: a service principal, workload identity, managed identity, `az login`.
    """

    service = "Azure Storage"
    hosts = _HOSTS
    container = "container"
    # The name must be a valid identifier in C#.
    put_id = "lakeput"
    suffix_ranges = False

    def __init__(
        self,
        container: str,
        prefix: str = "",
        *,
        storage_options: Mapping[str, object] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not _CONTAINER.fullmatch(container):
            raise InvalidUrl("an Azure URL must be az://container/prefix, but the container of this one is not valid")
        super().__init__(container, prefix, storage_options, retry)
        values = canonical("Azure Storage", self._options, _ALIASES, _SUPPORTED, _OF_FSSPEC)
        if "connection_string" in values:
            values = {**values, **_connection(text("connection_string", values.pop("connection_string")))}
        if "account_host" in values:
            values["endpoint"] = f"https://{text('account_host', values.pop('account_host'))}"
        if flag("use_emulator", values.get("use_emulator", False)):
            values = {"account_name": _EMULATED[0], "account_key": _EMULATED[1], **values}
        self._values = values
        self._timeouts = (
            seconds("connect_timeout", values.get("connect_timeout", 10)),
            seconds("read_timeout", values.get("read_timeout", 60)),
        )

    def url(self, key: str = "") -> str:
        """Return an `az://` URL."""
        return f"az://{self._name}/{self._prefix}{key}".rstrip("/")

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options with which adlfs reads the same objects. They hold secrets: never log them."""
        options = of_fsspec(self._options, _ALIASES, _OF_OBSTORE)
        endpoint, account = self.endpoint(), self._value("account_name")
        name, credential = self._credential()
        if endpoint is not None and account and credential and "connection_string" not in options:
            # adlfs takes another endpoint only from a connection string.
            for replaced in ("account_name", "account_key", "account_host", "sas_token"):
                options.pop(replaced, None)
            scheme = endpoint.partition("://")[0]
            signed = "AccountKey" if name == "account_key" else "SharedAccessSignature"
            options["connection_string"] = (
                f"DefaultEndpointsProtocol={scheme};AccountName={account};{signed}={credential.removeprefix('?')};"
                f"BlobEndpoint={endpoint}"
            )
        # Without this, adlfs would send anonymous requests where this store uses azure-identity.
        options.setdefault("anon", False)
        return options

    def endpoint(self, *, environment: bool = True) -> str | None:
        """Return the endpoint of the options, or else that of the environment. None means Azure's own."""
        if self._values.get("use_emulator"):
            return os.environ.get("AZURITE_BLOB_STORAGE_URL") or _EMULATOR
        return self._value("endpoint", environment=environment)

    def _value(self, name: str, *, environment: bool = True) -> str | None:
        value = self._values.get(name)
        if value is not None:
            return line(name, value)
        if not environment:
            return None
        variable = next((variable for variable in _ENVIRONMENT.get(name, ()) if os.environ.get(variable)), None)
        if variable is not None:
            return os.environ[variable]
        if connection := os.environ.get("AZURE_STORAGE_CONNECTION_STRING"):
            value = _connection(connection).get(name)
            return None if value is None else line(name, value)
        return None

    def _credential(self) -> tuple[str, str | None]:
        """Return the name and the value of the key or token to sign with, from the options or the environment."""
        names = ("account_key", "sas_token")
        for environment in (False, True):
            for name in names:
                if value := self._value(name, environment=environment):
                    return name, value
            if _CREDENTIALS & self._values.keys():
                break
        return names[0], None

    def _secrets(self) -> Iterator[str]:
        for name in _SECRETS:
            if value := self._value(name):
                yield value.removeprefix("?")

    def _limits(self) -> tuple[float, float]:
        return self._timeouts

    def _path(self, key: str) -> str:
        if "\\" in key or any(part.endswith(".") for part in key.split("/")):
            raise InvalidKey(
                f"key {key[:80]!r} has a backslash or a part that ends in a dot, which Azure Storage changes", key=key
            )
        return super()._path(key)

    def _meta(self, key: str, item: Any) -> ObjectMeta:
        # Listings return tags without their quotes.
        tag: str = item["e_tag"]
        return super()._meta(key, item if tag.endswith('"') else {**item, "e_tag": f'"{tag}"'})

    def _sorted(self, pages: Iterator[Sequence[Any]]) -> Iterator[Sequence[Any]]:
        """Sort each run of keys with characters from U+E000 on.

        The service may sort by UTF-16, which differs from UTF-8 between such keys only.
        """
        run: list[Any] = []
        for page in pages:
            ordered: list[Any] = []
            for item in page:
                if max(item["path"]) >= "\ue000":
                    run.append(item)
                    continue
                ordered += sorted(run, key=itemgetter("path"))
                run = []
                ordered.append(item)
            yield ordered
        yield sorted(run, key=itemgetter("path"))

    def _connect(self, client_options: Mapping[str, object], one_by_one: bool) -> Any:
        config: dict[str, object] = {name: self._values[name] for name in _CONFIG if name in self._values}
        config["account_name"] = self._value("account_name")
        if config["account_name"] is None:
            raise StoreError(
                f"{self.url()} needs the name of a storage account: pass account_name in storage_options, or set "
                "AZURE_STORAGE_ACCOUNT_NAME"
            )
        endpoint = self.endpoint()
        if endpoint is not None:
            config["endpoint"] = endpoint
        # Without this, AZURE_STORAGE_USE_EMULATOR would override `endpoint`.
        config["use_emulator"] = False
        provider = None
        if flag("anon", self._values.get("anon", False)):
            config["skip_signature"] = True
        else:
            name, credential = self._credential()
            if credential is None:
                provider = None if _CREDENTIALS & config.keys() else self._identity()
            else:
                # A key in the environment would override a token that is passed as an option.
                provider = _fixed(name, credential.removeprefix("?"))
        client_options = {**client_options, **mapping("client_options", self._values.get("client_options", {}))}
        return self._open(Container, config, client_options, provider)

    def _identity(self) -> AzureCredentialProvider:
        """Return a function that gives obstore its credentials. Raises AccessDenied if azure-identity is missing."""
        try:
            from azure.identity import DefaultAzureCredential
        except ImportError:
            raise AccessDenied(
                f"Azure Storage refused access to {self.url()}: no usable credentials. Pass account_key or sas_token "
                "in storage_options, or install azure-identity: `pip install 'lake-orch[azure]'`",
                key=None,
            ) from None
        credential = DefaultAzureCredential()

        def current() -> Any:
            token = credential.get_token(_SCOPE)
            return {"token": token.token, "expires_at": datetime.fromtimestamp(token.expires_on, UTC)}

        return current


def _fixed(name: str, value: str) -> AzureCredentialProvider:
    credential: Any = {"access_key" if name == "account_key" else name: value, "expires_at": None}
    return lambda: credential


def _connection(connection: str) -> dict[str, object]:
    """Return the options that a connection string contains."""
    parts = dict(part.split("=", 1) for part in connection.split(";") if "=" in part)
    if parts.get("UseDevelopmentStorage") == "true":
        return {"use_emulator": True}
    account = parts.get("AccountName")
    suffix = parts.get("EndpointSuffix", "core.windows.net")
    scheme = parts.get("DefaultEndpointsProtocol", "https")
    endpoint = parts.get("BlobEndpoint") or (f"{scheme}://{account}.blob.{suffix}" if account else "")
    host = urlsplit(endpoint).hostname or ""
    if account is None and host.endswith(_HOSTS):
        # If the string has a shared access signature, only the host names the account.
        account = host.partition(".")[0]
    values = {
        "account_name": account,
        "account_key": parts.get("AccountKey"),
        "sas_token": parts.get("SharedAccessSignature"),
        "endpoint": endpoint.rstrip("/"),
    }
    return {name: value for name, value in values.items() if value}
