"""Objects in S3 and in stores that speak its protocol."""

from __future__ import annotations

import os
import re
import urllib.request
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

from lake_core.errors import AccessDenied, InvalidUrl, LakeError

try:
    from botocore.credentials import RefreshableCredentials
    from botocore.exceptions import BotoCoreError
    from botocore.session import Session
    from obstore.store import S3Store as Bucket

    from lake_core.store.cloud.store import CloudStore
except ImportError:
    raise LakeError("S3 needs obstore, which is not installed: install it with `pip install 'lake-orch[s3]'`") from None

from lake_core.store.cloud.s3_options import S3Options

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import S3Credential, S3CredentialProvider

    from lake_core.store.cloud.retry import RetryPolicy

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._\-]{1,254}")
_REGION = re.compile(r"[a-z0-9\-]+")
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_SECRETS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CREDENTIAL_LIFE = timedelta(minutes=5)
"""How long credentials that botocore renews are used before they are requested again."""


class S3Store(CloudStore):
    """An object store below a prefix of an S3 bucket.

    `storage_options` are those of s3fs or of obstore. `lake_core.store.cloud.s3_options` lists them. If they name no
    credentials, botocore finds them: the environment, profiles, single sign-on, web identity, instance roles.
    """

    service = "S3"
    hosts = (".amazonaws.com", ".amazonaws.com.cn", ".amazonaws.eu")

    def __init__(
        self,
        bucket: str,
        prefix: str = "",
        *,
        storage_options: Mapping[str, object] | None = None,
        retry: RetryPolicy | None = None,
    ) -> None:
        if not _BUCKET.fullmatch(bucket):
            # The message does not repeat the name, which may be a part of a URL with credentials.
            raise InvalidUrl("an S3 URL must be s3://bucket/prefix, but the bucket of this one is not valid")
        if bucket.endswith("--x-s3"):
            raise InvalidUrl(
                f"{bucket} is a directory bucket of S3 Express, which does not list in order: "
                "use a general purpose bucket"
            )
        super().__init__(bucket, prefix, storage_options, retry)
        self._parsed = S3Options.parse(self._options)
        self._configured: str | None = None
        self._region_of_bucket: str | None = None
        """The region that the service names. It is "" if the service names none, and None until it is asked."""
        if (endpoint := self.endpoint()) is not None:
            parts = urlsplit(endpoint)
            if parts.username is not None or parts.password is not None:
                raise InvalidUrl("endpoint_url must not hold credentials: pass them as key and secret")
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise InvalidUrl("endpoint_url must be http://host:port or https://host:port")

    def url(self, key: str = "") -> str:
        """Return an `s3://` URL."""
        return f"s3://{self._name}/{self._prefix}{key}".rstrip("/")

    @property
    def storage_options(self) -> dict[str, object]:
        """Return the options with which s3fs reads the same objects. They hold secrets: never log them."""
        return self._parsed.for_fsspec()

    def endpoint(self, *, environment: bool = True) -> str | None:
        """Return the endpoint of the options, or else that of the environment or the profile. None means AWS."""
        candidates = [self._parsed.endpoint]
        if environment:
            candidates += [os.environ.get(name) for name in _ENDPOINTS]
        endpoint = next((endpoint for endpoint in candidates if endpoint), None)
        return self._endpoint_of_profile() if endpoint is None and environment else endpoint

    def _endpoint_of_profile(self) -> str | None:
        """Return the endpoint that AWS's configuration file names."""
        if self._configured is None:
            self._configured = ""
            # The first request raises an error if the profile does not exist.
            with suppress(BotoCoreError):
                session = Session(profile=self._parsed.profile)
                profile = session.get_scoped_config()
                services = session.full_config.get("services", {}).get(profile.get("services"), {})
                self._configured = services.get("s3", {}).get("endpoint_url") or profile.get("endpoint_url") or ""
        return self._configured or None

    def __getstate__(self) -> dict[str, object]:
        # The process that unpickles this store may have another configuration file.
        return {**super().__getstate__(), "_configured": None}

    def _secrets(self) -> Iterator[str]:
        yield from self._parsed.secrets()
        for name in _SECRETS:
            if value := os.environ.get(name):
                yield value

    def _limits(self) -> tuple[float, float]:
        return self._parsed.connect_timeout, self._parsed.read_timeout

    def _metadata(self) -> dict[str, str]:
        return self._parsed.metadata

    def _connect(self, client_options: Mapping[str, object], one_by_one: bool) -> Any:
        options = self._parsed
        session = Session(profile=options.profile)
        config: dict[str, object] = {**options.config, "region": self._region(session)}
        if (address := self._address()) is not None:
            # Under another name, AWS_ENDPOINT_URL_S3 would override this option.
            config["aws_endpoint_url_s3"] = address
        if one_by_one:
            config["disable_bulk_delete"] = True
        provider = None
        if options.anonymous:
            config["skip_signature"] = True
        elif not options.names_identity:
            provider = self._credentials(session)
        return self._open(Bucket, config, {**client_options, **options.client_options}, provider)

    def _address(self) -> str | None:
        """Return the endpoint as obstore takes it. With virtual-hosted style, the host's name contains the bucket."""
        endpoint = self.endpoint()
        if endpoint is None or not self._parsed.virtual_hosted:
            return endpoint
        scheme, _, host = endpoint.partition("://")
        return f"{scheme}://{self._name}.{host}"

    def _region(self, session: Session) -> str:
        """Return the region that requests are signed for. Raises AccessDenied if the profile does not exist."""
        if self._parsed.region:
            return self._parsed.region
        try:
            return session.get_config_variable("region") or os.environ.get("AWS_REGION") or "us-east-1"
        except BotoCoreError as error:
            failure = type(error).__name__
        raise AccessDenied(f"no usable credentials for {self.url()} ({failure})", key=None)

    def _find_region(self, answered: str = "") -> str | None:
        region = answered or self._answered_region()
        return region if region != self._region_asked() else None

    def _answered_region(self) -> str | None:
        """Ask S3 for the bucket's region, once.

        S3 sends the region to every caller, even if it refuses the request. obstore does not pass the header on.
        """
        if self._region_of_bucket is None:
            try:
                request = urllib.request.Request(self._bucket_url(), method="HEAD")
                with urllib.request.urlopen(request, timeout=self._parsed.connect_timeout) as answer:
                    headers = answer.headers
            except HTTPError as refusal:
                headers = refusal.headers
            except (OSError, HTTPException, ValueError):
                return None
            region = headers.get("x-amz-bucket-region") or ""
            self._region_of_bucket = region if _REGION.fullmatch(region) else ""
        return self._region_of_bucket

    def _bucket_url(self) -> str:
        """Return the HTTP URL of the bucket itself."""
        address = self._address()
        if address is None:
            return f"https://s3.{self._region_asked()}.amazonaws.com/{self._name}"
        return address if self._parsed.virtual_hosted else f"{address.rstrip('/')}/{self._name}"

    def _region_asked(self) -> str:
        return self._region(Session(profile=self._parsed.profile))

    def _elsewhere(self, region: str) -> str:
        return (
            f"the bucket {self._name!r} is in the region {region}, but the request went to {self._region_asked()}: "
            f"set {region=} in storage_options, or AWS_DEFAULT_REGION in the environment"
        )

    def _credentials(self, session: Session) -> S3CredentialProvider:
        """Return a function that gives obstore its credentials. Raises AccessDenied if there are none."""
        options = self._parsed
        if options.key is not None:
            fixed: S3Credential = {
                "access_key_id": options.key,
                "secret_access_key": options.secret or "",
                "token": options.token,
                "expires_at": None,
            }
            return lambda: fixed
        failure = "NoCredentialsError"
        credentials = None
        try:
            credentials = session.get_credentials()
        except BotoCoreError as error:
            failure = type(error).__name__
        if credentials is None:
            raise AccessDenied(f"S3 refused access to {self.url()}: no usable credentials ({failure})", key=None)

        def current() -> S3Credential:
            frozen = credentials.get_frozen_credentials()
            renewed = isinstance(credentials, RefreshableCredentials)
            return {
                "access_key_id": frozen.access_key,
                "secret_access_key": frozen.secret_key,
                "token": frozen.token,
                "expires_at": datetime.now(UTC) + _CREDENTIAL_LIFE if renewed else None,
            }

        return current
