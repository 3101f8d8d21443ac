"""What an answer of S3, or the lack of one, means."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit

from botocore.exceptions import (
    BotoCoreError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)
from botocore.parsers import ResponseParserError

_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    NoAuthTokenError,
    TokenRetrievalError,
    SSOError,
    ProfileNotFound,
)
_DENIED = {
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "ExpiredToken",
    "Forbidden",
    "InvalidAccessKeyId",
    "InvalidSecurity",
    "InvalidToken",
    "NotSignedUp",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnauthorizedAccess",
}
# Refused before anything was done, so that another attempt can't meet the traces of this one.
_THROTTLED = {
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "RequestLimitExceeded",
    "TooManyRequests",
    "TooManyRequestsException",
}
_SECRET_NAMES = ("key", "secret", "token", "password", "username", "credential")


class Kind(Enum):
    """What a failure means, whatever the words."""

    ABSENT = auto()
    NO_BUCKET = auto()
    PRECONDITION = auto()
    CONFLICT = auto()
    """Another conditional put of the same key was under way: nothing was done, and nothing is known of the key."""
    RANGE = auto()
    DENIED = auto()
    THROTTLED = auto()
    """Nothing was done."""
    UNKNOWN_OUTCOME = auto()
    """It may have been done or not."""
    UNSUPPORTED = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request, or one key that a batch failed on. Its text holds no secret."""

    kind: Kind
    code: str
    reason: str
    after_unknown_outcome: bool = False
    """Whether an earlier attempt at the same request may have been done."""
    no_connection: bool = False
    """Whether there was no answer at all, so that the endpoint itself may be the mistake."""


def failure_of(error: BaseException, secrets: Iterator[str]) -> Failure:
    """Return the meaning of an error that s3fs raised."""
    cause: BaseException | None = error
    while cause is not None:
        response = getattr(cause, "response", None)
        if isinstance(response, Mapping) and "Error" in response:
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
            details = response["Error"]
            return failure_of_code(str(details.get("Code", status)), str(details.get("Message", "")), status, secrets)
        cause = cause.__cause__
    name = type(error).__name__
    if isinstance(error, _CREDENTIALS):
        return Failure(Kind.DENIED, name, f"no usable credentials ({name})")
    unreachable = (
        HTTPClientError,
        BotoConnectionError,
        IncompleteReadError,
        ResponseParserError,
        TimeoutError,
        OSError,
    )
    # aiohttp's errors come through while a body is read.
    if isinstance(error, unreachable) or type(error).__module__.startswith("aiohttp"):
        return Failure(Kind.UNKNOWN_OUTCOME, name, f"the connection failed ({name})", no_connection=True)
    # Their own words only where they can't hold the request's headers: parameters and options.
    words = redact(str(error), secrets) if isinstance(error, (BotoCoreError, TypeError, ValueError, KeyError)) else ""
    return Failure(Kind.OTHER, name, f"{name}: {words}" if words else name)


def failure_of_code(code: str, message: str, status: int, secrets: Iterator[str]) -> Failure:
    """Return the meaning of an error code of S3. `status` is 0 for a key of a batch."""
    return Failure(_kind(code, status), code, redact(f"{code}: {message}" if message else code, secrets))


def reason_at(failure: Failure, endpoint: str | None) -> str:
    """Give a failure's reason; where there was no answer at all, with the endpoint that was asked (None: AWS)."""
    if not failure.no_connection:
        return failure.reason
    if endpoint is None:
        return (
            f"{failure.reason}, with AWS as the endpoint: check the network, or set another endpoint with endpoint_url"
        )
    parts = urlsplit(endpoint)
    place = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return (
        f"{failure.reason}, at the endpoint {place}: check its host and port (endpoint_url), and that the server runs"
    )


def _kind(code: str, status: int) -> Kind:
    match code:
        case "NoSuchBucket":
            return Kind.NO_BUCKET
        case "NoSuchKey" | "404" | "NotFound":
            return Kind.ABSENT
        case "PreconditionFailed" | "412":
            return Kind.PRECONDITION
        case "ConditionalRequestConflict" | "OperationAborted" | "409":
            return Kind.CONFLICT
        case "InvalidRange" | "416":
            return Kind.RANGE
        case "NotImplemented" | "MethodNotAllowed" | "501" | "405":
            return Kind.UNSUPPORTED
        case "InternalError" | "ServiceUnavailable" | "RequestTimeout":
            return Kind.UNKNOWN_OUTCOME
    if code in _THROTTLED or status == 429:
        return Kind.THROTTLED
    if code in _DENIED or status in (401, 403):
        return Kind.DENIED
    if status == 501:
        return Kind.UNSUPPORTED
    if status >= 500:
        return Kind.UNKNOWN_OUTCOME
    return {404: Kind.ABSENT, 409: Kind.CONFLICT, 412: Kind.PRECONDITION, 416: Kind.RANGE}.get(status, Kind.OTHER)


def secrets_of(options: Mapping[str, object]) -> Iterator[str]:
    """Yield every secret that storage options or the environment hold."""
    for name, value in options.items():
        if isinstance(value, Mapping):
            yield from secrets_of(value)
        elif isinstance(value, str) and value and any(part in name.lower() for part in _SECRET_NAMES):
            yield value
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        if value := os.environ.get(name):
            yield value


def redact(text: str, secrets: Iterator[str]) -> str:
    """Return the text without any of the secrets."""
    for secret in secrets:
        text = text.replace(secret, "…")
    return text
