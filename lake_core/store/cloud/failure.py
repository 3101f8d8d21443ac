"""The meaning of a failed request, in any of the clouds."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum, auto
from html import unescape
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from obstore.exceptions import InvalidPathError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([\w.\-]+)</Code>")
_REGION = re.compile(r"<Region>([\w\-]+)</Region>")
_MESSAGE = re.compile(r"<Message>([^<]*)</Message>")
_PATH = re.compile(r'[Pp]ath "((?:[^"\\]|\\.)*)"|<Key>([^<]*)</Key>')
_OF_BATCH = re.compile(r"request failed for key (.*): (.*) \(code: (\w+)\)", re.DOTALL)
"""The part of an error about one object of a batch."""

_RANGE_OF_NOTHING = 'CONTENT_RANGE header: "bytes 0--1/0"'
"""The error of obstore if it reads the last bytes of an empty object, with the response of MinIO."""

_NO_BUCKET = {"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"}
_ABSENT = {"NoSuchKey", "NotFound", "BlobNotFound"}
_PRECONDITION = {"PreconditionFailed", "ConditionNotMet", "TargetConditionNotMet", "BlobAlreadyExists"}
_CONFLICT = {"ConditionalRequestConflict", "OperationAborted"}
_STATE = {
    "BlobArchived",
    "BlobBeingRehydrated",
    "BlobImmutableDueToPolicy",
    "InvalidBlobType",
    "InvalidObjectState",
    "LeaseIdMismatchWithBlobOperation",
    "LeaseIdMissing",
    "SnapshotsPresent",
}
"""The state of the object does not permit the request. Neither a retry nor other credentials help."""
_RANGE = {"InvalidRange"}
_UNSUPPORTED = {"NotImplemented", "MethodNotAllowed", "UnsupportedHeader", "MissingContentMD5"}
_DENIED = {
    "AccessDenied",
    "AccountProblem",
    "AllAccessDisabled",
    "AuthenticationFailed",
    "AuthorizationFailure",
    "AuthorizationPermissionMismatch",
    "ExpiredToken",
    "Forbidden",
    "InsufficientAccountPermissions",
    "InvalidAccessKeyId",
    "InvalidAuthenticationInfo",
    "InvalidSecurity",
    "InvalidToken",
    "NoAuthenticationInformation",
    "NotSignedUp",
    "PublicAccessNotPermitted",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "TokenRefreshRequired",
    "UnauthorizedAccess",
}
# The service refuses these requests before it does anything. So a retry cannot find the result of an earlier attempt.
_THROTTLED = {
    "RequestLimitExceeded",
    "ServerBusy",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "TooManyRequestsException",
}
_UNKNOWN_OUTCOME = {"InternalError", "OperationTimedOut", "RequestTimeout", "ServiceUnavailable"}


class Kind(Enum):
    """The meaning of a failure, independent of the cloud."""

    ABSENT = auto()
    NO_BUCKET = auto()
    PRECONDITION = auto()
    CONFLICT = auto()
    """Another conditional put of the same key was in progress. This one had no effect. The key may have an object."""
    RANGE = auto()
    RANGE_IGNORED = auto()
    """The service answered with the whole object."""
    NAME = auto()
    """A listing contains the name of an object that is not a valid key."""
    REGION = auto()
    """The bucket is in another region."""
    DENIED = auto()
    THROTTLED = auto()
    """The request had no effect."""
    UNKNOWN_OUTCOME = auto()
    """The request may have succeeded or not."""
    UNSUPPORTED = auto()
    OTHER = auto()


_KINDS = {
    **dict.fromkeys(_NO_BUCKET, Kind.NO_BUCKET),
    **dict.fromkeys(_ABSENT, Kind.ABSENT),
    **dict.fromkeys(_PRECONDITION, Kind.PRECONDITION),
    **dict.fromkeys(_CONFLICT, Kind.CONFLICT),
    **dict.fromkeys(_STATE, Kind.OTHER),
    **dict.fromkeys(_RANGE, Kind.RANGE),
    **dict.fromkeys(_UNSUPPORTED, Kind.UNSUPPORTED),
    **dict.fromkeys(_DENIED, Kind.DENIED),
    **dict.fromkeys(_THROTTLED, Kind.THROTTLED),
    **dict.fromkeys(_UNKNOWN_OUTCOME, Kind.UNKNOWN_OUTCOME),
    "PermanentRedirect": Kind.REGION,
    "AuthorizationHeaderMalformed": Kind.REGION,
}
_STATUSES = {
    "301": Kind.REGION,
    "307": Kind.REGION,
    "401": Kind.DENIED,
    "403": Kind.DENIED,
    "404": Kind.ABSENT,
    "405": Kind.UNSUPPORTED,
    "409": Kind.CONFLICT,
    "412": Kind.PRECONDITION,
    "416": Kind.RANGE,
    "429": Kind.THROTTLED,
    "501": Kind.UNSUPPORTED,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed request. Its texts contain no secrets."""

    kind: Kind
    code: str
    reason: str
    path: str = ""
    """The object that the service names in its error, if any."""
    after_unknown_outcome: bool = False
    """True if an earlier attempt at the same request may have succeeded."""
    no_connection: bool = False
    """True if there was no response at all. The endpoint may be wrong."""
    region: str = ""
    """The region of the bucket, if the service names it."""


def failure_of(error: BaseException, secrets: Iterable[str]) -> Failure:
    """Return the meaning of an error of obstore.

    The error's text is not copied, because it contains the URL, which may have a signature.
    """
    text = str(error).partition("\n\nDebug source:")[0]
    name = type(error).__name__
    path = unescape(match[1] or match[2]) if (match := _PATH.search(text)) else ""
    if isinstance(error, InvalidPathError) or "Encountered object with invalid path" in text:
        return Failure(Kind.NAME, name, name, path)
    if of_batch := _OF_BATCH.search(text):
        path, message, code = of_batch.groups()
        return Failure(_kind(code, ""), code, redact(f"{code}: {message}" if message else code, secrets), path)
    status = match[1] if (match := _STATUS.search(text)) else ""
    code = match[1] if (match := _CODE.search(text)) else ""
    if status or code:
        message = unescape(match[1]) if (match := _MESSAGE.search(text)) else ""
        reason = f"{code or status}: {message}" if message else code or status
        region = match[1] if (match := _REGION.search(text)) else ""
        return Failure(_kind(code, status), code or status, redact(reason, secrets), path, region=region)
    if "redirect without LOCATION" in text:
        # obstore does not pass on the rest of the response.
        return Failure(Kind.REGION, name, "a redirect")
    if "Wanted range starting at" in text:
        return Failure(Kind.RANGE, name, "the range begins after the object's end")
    if _RANGE_OF_NOTHING in text:
        return Failure(Kind.RANGE, name, "the object is empty")
    if "non-partial response" in text or (isinstance(error, NotSupportedError) and "range" in text):
        return Failure(Kind.RANGE_IGNORED, name, "the range was ignored")
    if isinstance(error, (UnauthenticatedError, PermissionDeniedError)):
        return Failure(
            Kind.DENIED, name, "no usable credentials: check those of storage_options, or of the environment"
        )
    if isinstance(error, FileNotFoundError):
        # In Data Lake Storage, this may be a folder, which is not an object.
        return Failure(Kind.ABSENT, name, name)
    if isinstance(error, NotSupportedError):
        return Failure(Kind.UNSUPPORTED, name, name)
    if isinstance(error, (OSError, TimeoutError)) or "HTTP error" in text or "error sending request" in text:
        return Failure(Kind.UNKNOWN_OUTCOME, name, "the connection failed", no_connection=True)
    return Failure(Kind.OTHER, name, name)


def reason_at(failure: Failure, service: str, endpoint: str | None) -> str:
    """Return the reason of a failure, with the endpoint if there was no response at all.

    Args:
        failure: The failure.
        service: The name of the cloud's service.
        endpoint: The endpoint of the request. None means the cloud's own.
    """
    if not failure.no_connection:
        return failure.reason
    if endpoint is None:
        return (
            f"{failure.reason}, with {service}'s own endpoint: check the network, or set another endpoint in "
            "storage_options"
        )
    parts = urlsplit(endpoint)
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return (
        f"{failure.reason}, at the endpoint {server}: check its host and port (endpoint_url), and that the server runs"
    )


def redact(text: str, secrets: Iterable[str]) -> str:
    """Return the text without any of the secrets."""
    for secret in secrets:
        text = text.replace(secret, "…")
    return text


def _kind(code: str, status: str) -> Kind:
    kind = _KINDS.get(code)
    if kind is not None:
        return kind
    if (status or code) in _STATUSES:
        return _STATUSES[status or code]
    return Kind.UNKNOWN_OUTCOME if status.startswith("5") else Kind.OTHER
