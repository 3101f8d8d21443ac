"""The options of S3, under the names of s3fs or of obstore."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from lake_core.errors import StoreError
from lake_core.store.cloud.option_values import by_meaning, flag, line, mapping, seconds

_OF_FSSPEC = {
    "asynchronous",
    "cache_regions",
    "default_block_size",
    "default_cache_type",
    "default_fill_cache",
    "fixed_upload_size",
    "listings_expiry_time",
    "loop",
    "max_concurrency",
    "max_paths",
    "skip_instance_cache",
    "use_listings_cache",
    "version_aware",
}
"""Options of s3fs about how it reads files. This store ignores them."""
_OF_BOTOCORE = {
    "max_pool_connections",
    "request_checksum_calculation",
    "response_checksum_validation",
    "retries",
    "tcp_keepalive",
    "user_agent_extra",
}
"""Options of botocore that this store ignores."""
_IDENTITY = {
    "container_authorization_token_file",
    "container_credentials_full_uri",
    "container_credentials_relative_uri",
    "endpoint_url_sts",
    "imdsv1_fallback",
    "metadata_endpoint",
    "role_arn",
    "role_session_name",
    "web_identity_token_file",
}
"""Options with which obstore itself finds credentials."""
_CONFIG = {
    "checksum_algorithm",
    "disable_bulk_delete",
    "disable_tagging",
    "request_payer",
    "server_side_encryption",
    "sse_bucket_key_enabled",
    "sse_customer_key_base64",
    "sse_kms_key_id",
    "unsigned_payload",
} | _IDENTITY
"""Options of obstore that are passed on as they are."""
_ENCRYPTION = {
    "BucketKeyEnabled": "sse_bucket_key_enabled",
    "RequestPayer": "request_payer",
    "SSEKMSKeyId": "sse_kms_key_id",
    "ServerSideEncryption": "server_side_encryption",
}
"""Arguments of requests in `s3_additional_kwargs`, and their names in obstore."""
_ALIASES = {
    "access_key_id": "key",
    "secret_access_key": "secret",
    "session_token": "token",
    "username": "key",
    "password": "secret",
    "endpoint": "endpoint_url",
    "endpoint_url_s3": "endpoint_url",
    "skip_signature": "anon",
    "sts_endpoint": "endpoint_url_sts",
    "default_region": "region",
    "region_name": "region",
}
"""Other names of options, and the names that are used here."""


def _meaning(name: str) -> str:
    plain = name.removeprefix("aws_")
    return _ALIASES.get(plain, plain)


@dataclass(slots=True, repr=False)
class S3Options:
    """The options of a bucket, each under one name. The repr does not show them, because they hold secrets."""

    passed: dict[str, object]
    key: str | None = None
    secret: str | None = None
    token: str | None = None
    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    anonymous: bool = False
    virtual_hosted: bool = False
    connect_timeout: float = 10.0
    """The most seconds to connect."""
    read_timeout: float = 60.0
    """The most seconds until a response begins."""
    config: dict[str, object] = field(default_factory=dict)
    """Options of obstore that have no field of their own."""
    client_options: dict[str, object] = field(default_factory=dict)
    """obstore's options of the HTTP client."""
    metadata: dict[str, str] = field(default_factory=dict)
    """Metadata that every object gets."""

    @classmethod
    def parse(cls, passed: Mapping[str, object]) -> S3Options:
        """Read storage options. Raises StoreError for an unknown option. The message contains no value."""
        options = cls(dict(passed))
        for meaning, (name, value) in by_meaning(passed, _meaning).items():
            if value is not None:
                options._set(name, meaning, value)
        if (options.key is None) != (options.secret is None):
            raise StoreError("the storage_options name half of a credential: pass key and secret, or neither")
        return options

    def _set(self, name: str, meaning: str, value: Any) -> None:
        match meaning:
            case "key" | "secret" | "token" | "region" | "profile":
                setattr(self, meaning, line(name, value))
            case "endpoint_url":
                self.endpoint = line(name, value)
            case "anon":
                self.anonymous = flag(name, value)
            case "requester_pays":
                if flag(name, value):
                    self.config["request_payer"] = True
            case "virtual_hosted_style_request":
                self.virtual_hosted = flag(name, value)
                self.config[meaning] = self.virtual_hosted
            case "use_ssl":
                # The scheme of the endpoint decides.
                pass
            case "client_kwargs":
                self._set_client(name, mapping(name, value))
            case "config_kwargs":
                self._set_config(name, mapping(name, value))
            case "s3_additional_kwargs":
                self._set_arguments(name, mapping(name, value))
            case "client_options":
                self.client_options.update(mapping(name, value))
            case _ if meaning in _CONFIG:
                self.config[meaning] = value
            case _ if name not in _OF_FSSPEC:
                raise StoreError(f"{name!r} is not an option of S3: remove it from storage_options")

    def _set_client(self, name: str, values: Mapping[str, object]) -> None:
        for inner, value in values.items():
            match inner:
                case "region_name" if self.region is None:
                    self.region = line(f"{name}.{inner}", value)
                case "endpoint_url" if self.endpoint is None:
                    self.endpoint = line(f"{name}.{inner}", value)
                case "aws_access_key_id" | "aws_secret_access_key" | "aws_session_token":
                    setattr(self, _meaning(inner), line(f"{name}.{inner}", value))
                case "verify":
                    self._set_verify(value)
                case "region_name" | "endpoint_url" | "use_ssl" | "api_version":
                    pass
                case _:
                    raise StoreError(f"{name!r} holds {inner!r}, which is not supported: remove it")

    def _set_verify(self, value: object) -> None:
        if value is False:
            self.client_options["allow_invalid_certificates"] = True
        elif isinstance(value, str):
            with open(value, "rb") as file:
                self.client_options["root_certificate"] = file.read()

    def _set_config(self, name: str, values: Mapping[str, object]) -> None:
        for inner, value in values.items():
            match inner:
                case "connect_timeout" | "read_timeout":
                    setattr(self, inner, seconds(f"{name}.{inner}", value))
                case "region_name":
                    self.region = self.region or line(f"{name}.{inner}", value)
                case "s3":
                    style = mapping(f"{name}.{inner}", value).get("addressing_style")
                    self.virtual_hosted = style == "virtual"
                    self.config["virtual_hosted_style_request"] = self.virtual_hosted
                case "signature_version":
                    # botocore.UNSIGNED is not a text.
                    self.anonymous |= not isinstance(value, str)
                case "proxies":
                    proxies = mapping(f"{name}.{inner}", value)
                    self.client_options["proxy_url"] = next(iter(proxies.values()))
                case _ if inner not in _OF_BOTOCORE:
                    raise StoreError(f"{name!r} holds {inner!r}, which is not supported: remove it")

    def _set_arguments(self, name: str, values: Mapping[str, object]) -> None:
        for inner, value in values.items():
            if inner == "Metadata":
                self.metadata = {str(key): str(value) for key, value in mapping(f"{name}.{inner}", value).items()}
            elif inner in _ENCRYPTION:
                self.config[_ENCRYPTION[inner]] = value
            elif inner == "StorageClass":
                self.metadata["Storage-Class"] = str(value)
            else:
                raise StoreError(f"{name!r} holds {inner!r}, which is not supported: remove it")

    @property
    def names_identity(self) -> bool:
        """Return whether the options let obstore itself find credentials."""
        return self.key is None and not _IDENTITY.isdisjoint(self.config)

    def for_fsspec(self) -> dict[str, object]:
        """Return the options as s3fs takes them. They hold secrets: never log them."""
        options: dict[str, object] = {}
        client: dict[str, object] = {}
        arguments: dict[str, object] = {}
        config: dict[str, object] = {}
        for name, value in self.passed.items():
            meaning = _meaning(name)
            if meaning == "region":
                client["region_name"] = value
            elif meaning == "virtual_hosted_style_request":
                config["s3"] = {"addressing_style": "virtual" if value else "path"}
            elif meaning == "request_payer":
                options["requester_pays"] = bool(value)
            elif meaning in _ENCRYPTION.values():
                arguments[next(key for key, same in _ENCRYPTION.items() if same == meaning)] = value
            elif meaning not in _CONFIG and meaning != "client_options":
                options[meaning] = value
        for name, values in (("client_kwargs", client), ("config_kwargs", config), ("s3_additional_kwargs", arguments)):
            if values:
                inner = options.get(name)
                options[name] = {**(inner if isinstance(inner, Mapping) else {}), **values}
        return options

    def secrets(self) -> Iterator[str]:
        """Yield every secret that the options hold."""
        yield from (value for value in (self.key, self.secret, self.token) if value)
        for name in ("sse_customer_key_base64",):
            value = self.config.get(name)
            if isinstance(value, str):
                yield value
