"""Objects in Google Cloud Storage."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC
from typing import TYPE_CHECKING, Any, cast

import obstore

from lake_core.errors import AccessDenied, InvalidUrl, LakeError, NotFound, PreconditionFailed, StoreError

try:
    from obstore.store import GCSStore as Bucket

    from lake_core.store.cloud.store import CloudStore
except ImportError:
    raise LakeError(
        "Google Cloud Storage needs obstore, which is not installed: install it with `pip install 'lake-orch[gcs]'`"
    ) from None

from lake_core.store.cloud.option_values import canonical, line, mapping, of_fsspec, seconds, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import GCSCredential, GCSCredentialProvider

    from lake_core.store.cloud.retry import RetryPolicy

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._\-]{1,220}[a-z0-9]")
_SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
_ALIASES = {
    "google_service_account": "service_account",
    "google_service_account_path": "service_account",
    "google_service_account_key": "service_account_key",
    "google_application_credentials": "application_credentials",
    "service_account_path": "service_account",
    "base_url": "endpoint_url",
    "endpoint": "endpoint_url",
}
"""Other names of options, and the names that are used here."""
_SECRETS = ("private_key", "client_secret", "refresh_token")
"""The secret fields of an account's JSON."""
_FILES = ("service_account", "application_credentials")
_SUPPORTED = {
    "bearer_token",
    "client_options",
    "connect_timeout",
    "endpoint_url",
    "read_timeout",
    "service_account_key",
    "skip_signature",
    "token",
    *_FILES,
}
_OF_FSSPEC = {
    "access",
    "asynchronous",
    "block_size",
    "cache_timeout",
    "cache_type",
    "check_connection",
    "consistency",
    "default_location",
    "loop",
    "project",
    "requester_pays",
    "secure_serialize",
    "session_kwargs",
    "skip_instance_cache",
    "timeout",
    "use_listings_cache",
    "version_aware",
}
"""Options of gcsfs about how it reads files. This store ignores them."""
_OF_OBSTORE = {"bearer_token", "client_options", "connect_timeout", "read_timeout", "service_account_key"} | {
    "skip_signature",
    *_FILES,
}


class GCSStore(CloudStore):
    """An object store below a prefix of a bucket of Google Cloud Storage.

    `storage_options` are those of gcsfs or of obstore. If they name no credentials, google-auth finds them: the
    environment, `gcloud auth application-default login`, workload identity, the metadata server.
    """

    service = "Google Cloud Storage"
    hosts = (".googleapis.com",)

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        storage_options: Mapping[str, object] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not _BUCKET.fullmatch(bucket):
            raise InvalidUrl(
                "a URL of Google Cloud Storage must be gs://bucket/prefix, but the bucket of this one is not valid"
            )
        super().__init__(bucket, prefix, storage_options, retry)
        self._values = canonical("Google Cloud Storage", self._options, _ALIASES, _SUPPORTED, _OF_FSSPEC)
        if "service_account_key" in self._values:
            self._values["service_account_key"] = _parsed(self._values["service_account_key"])
        token = self._values.get("token")
        if token is not None and not isinstance(token, (str, dict)) and not hasattr(token, "refresh"):
            raise StoreError(
                "the storage option token must be a path, a service account, credentials of google-auth, or a method "
                f"of logging in, not a {type(token).__name__}"
            )
        self._timeouts = (
            seconds("connect_timeout", self._values.get("connect_timeout", 10)),
            seconds("read_timeout", self._values.get("read_timeout", 60)),
        )

    def url(self, key: str = "") -> str:
        """Return a `gs://` URL."""
        return f"gs://{self._name}/{self._prefix}{key}".rstrip("/")

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options with which gcsfs reads the same objects. They hold secrets: never log them."""
        options = of_fsspec(self._options, _ALIASES, _OF_OBSTORE)
        if self._values.get("skip_signature"):
            options["token"] = "anon"
        elif key := self._values.get("service_account_key"):
            options["token"] = key
        else:
            options.update(("token", self._values[name]) for name in _FILES if name in self._values)
        return options

    def endpoint(self, *, environment: bool = True) -> str | None:
        """Return the endpoint of the options, or else that of the environment. None means Google's own."""
        endpoint = self._values.get("endpoint_url")
        if endpoint is None and environment and (host := os.environ.get("STORAGE_EMULATOR_HOST")):
            endpoint = host if "://" in host else f"http://{host}"
        if endpoint is None and environment:
            # obstore reads this variable, too.
            endpoint = os.environ.get("GOOGLE_BASE_URL") or None
        return None if endpoint is None else text("endpoint_url", endpoint).rstrip("/")

    def _secrets(self) -> Iterator[str]:
        bearer = self._values.get("bearer_token")
        if isinstance(bearer, str):
            yield bearer
        for option in ("service_account_key", "token"):
            account = self._values.get(option)
            if isinstance(account, dict):
                yield from (str(account[name]) for name in _SECRETS if account.get(name))

    def _limits(self) -> tuple[float, float]:
        return self._timeouts

    def _mode(self, key: str, if_absent: bool, if_match: str | None) -> Any:
        if if_match is None:
            return super()._mode(key, if_absent, if_match)
        # In this service, a put is conditional on an object's generation, not on its tag.
        path = self._path(key)
        try:
            meta = self.answer(key, lambda: obstore.head(self._client(), path))
        except NotFound:
            meta = None
        if meta is None or meta["e_tag"] != if_match:
            raise PreconditionFailed(f"the object at {key!r} is not the one to replace", key=key)
        return {"e_tag": meta["e_tag"], "version": meta["version"]}

    def _other_version(self) -> Any:
        return {"e_tag": '"0"', "version": "1"}

    def _connect(self, client_options: Mapping[str, object], one_by_one: bool) -> Any:
        config: dict[str, object] = {}
        endpoint = self.endpoint()
        if endpoint is not None:
            config["base_url"] = endpoint
        provider = None
        token = self._values.get("token")
        if self._values.get("skip_signature") or token == "anon":
            config["skip_signature"] = True
            # obstore asks the metadata server for a token even so. An emulator accepts any token.
            provider = None if self._is_own_endpoint() else _fixed("anonymous")
        elif bearer := self._values.get("bearer_token"):
            provider = _fixed(line("bearer_token", bearer))
        elif key := self._values.get("service_account_key"):
            provider = self._account(mapping("service_account_key", key))
        elif isinstance(token, dict):
            provider = self._account(token)
        elif token is not None and not isinstance(token, str):
            provider = _renewed(token)
        elif file := self._values.get("service_account") or self._values.get("application_credentials") or _path(token):
            provider = self._account(_read(text("service_account", file)))
        elif endpoint is not None and os.environ.get("STORAGE_EMULATOR_HOST"):
            provider = _fixed("anonymous")
        else:
            provider = self._default()
        client_options = {**client_options, **mapping("client_options", self._values.get("client_options", {}))}
        return self._open(Bucket, config, client_options, provider)

    def _account(self, account: Mapping[str, object]) -> GCSCredentialProvider:
        auth = self._google_auth()
        if account.get("type") == "service_account":
            from google.oauth2.service_account import Credentials

            signed = Credentials.from_service_account_info(dict(account), scopes=[_SCOPE])  # type: ignore[no-untyped-call]
            return _renewed(signed)
        credentials, _ = auth.load_credentials_from_dict(dict(account), scopes=[_SCOPE])
        return _renewed(credentials)

    def _default(self) -> GCSCredentialProvider:
        """Return a function that gives obstore its credentials. Raises AccessDenied if there are none."""
        auth = self._google_auth()
        try:
            credentials, _ = auth.default(scopes=[_SCOPE])
        except auth.exceptions.DefaultCredentialsError:
            credentials = None
        if credentials is None:
            raise AccessDenied(
                f"Google Cloud Storage refused access to {self.url()}: no usable credentials. Run `gcloud auth "
                "application-default login`, set GOOGLE_APPLICATION_CREDENTIALS, or pass token in storage_options",
                key=None,
            )
        return _renewed(credentials)

    def _google_auth(self) -> Any:
        try:
            import google.auth
            import google.auth.exceptions
        except ImportError:
            raise AccessDenied(
                f"Google Cloud Storage refused access to {self.url()}: credentials need google-auth: install it with "
                "`pip install 'lake-orch[gcs]'`",
                key=None,
            ) from None
        return google.auth


def _path(token: object) -> str | None:
    """Return gcsfs's `token` if it is the path of a file with credentials, and not a method of logging in."""
    return token if isinstance(token, str) and token not in ("google_default", "cloud", "cache", "browser") else None


def _parsed(account: object) -> Mapping[str, object]:
    """Return the service account in a JSON text. Raises StoreError, which does not repeat the text."""
    if isinstance(account, str):
        try:
            account = json.loads(account)
        except ValueError:
            account = None
    if isinstance(account, dict):
        return account
    # The error of json would contain the whole text.
    raise StoreError("the storage option service_account_key must be the JSON of a service account")


def _read(path: str) -> Mapping[str, object]:
    """Return the account in a file. Raises AccessDenied if the file cannot be read or holds no account."""
    try:
        with open(path, encoding="utf-8") as file:
            account = json.load(file)
        failure = "" if isinstance(account, dict) else "it is not the JSON of an account"
    except OSError as error:
        failure = error.strerror or type(error).__name__
    except ValueError:
        failure = "it is not JSON"
    if failure:
        raise AccessDenied(f"no usable credentials in the file {path}: {failure}", key=None)
    return cast("Mapping[str, object]", account)


def _fixed(token: str) -> GCSCredentialProvider:
    credential: GCSCredential = {"token": token, "expires_at": None}
    return lambda: credential


def _renewed(credentials: Any) -> GCSCredentialProvider:
    from google.auth.transport.requests import Request

    def current() -> Any:
        if not credentials.valid:
            credentials.refresh(Request())
        expiry = credentials.expiry
        return {"token": credentials.token, "expires_at": expiry and expiry.replace(tzinfo=UTC)}

    return current
