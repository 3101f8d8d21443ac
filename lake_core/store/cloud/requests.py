"""Sends requests to a bucket, retries them, and turns their errors into those of this package."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeVar

from lake_core import runtime
from lake_core.errors import AccessDenied, NotFound, StoreError, StoreUnavailable
from lake_core.readable import count_of
from lake_core.store.cloud.failure import Failure, Kind, failure_of, reason_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lake_core.store.cloud.retry import RetryPolicy

Answer = TypeVar("Answer")


class Requests(ABC):
    """Sends requests about one bucket to one service.

    obstore's retries are off, because they would hide that an outcome is unknown.
    """

    service: str
    """The name of the cloud's service in messages."""
    container: str = "bucket"
    """The service's word for a bucket."""
    _name: str
    """The bucket's name."""
    _retry: RetryPolicy

    def ask(self, key: str | None, request: Callable[[], Answer], *, retry_conflicts: bool = True) -> Answer | Failure:
        """Send a request. Return its response, or the failure if a retry does not help.

        Raises StoreUnavailable if the last retry fails.
        """
        policy = self._retry
        deadline = runtime.monotonic() + policy.conflict_seconds
        attempts = conflicts = 0
        unknown = False
        while True:
            # The failure is returned, not raised. Otherwise obstore's error, which may contain a signature, would be
            # the cause of a later error.
            try:
                return request()
            except StoreError:
                raise
            except BaseException as error:
                # The panics of obstore are not subclasses of Exception.
                if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                    raise
                failure = failure_of(error, self._secrets())
            key = self._key_at(failure.path) or key
            if failure.kind is Kind.CONFLICT and retry_conflicts:
                conflicts += 1
                if runtime.monotonic() > deadline:
                    raise StoreUnavailable(
                        f"{self.service} kept answering {failure.code} for {self._shown(key)} for "
                        f"{policy.conflict_seconds:g} s: {failure.reason}",
                        key=key,
                    )
                policy.backoff.wait(conflicts)
                continue
            if failure.kind not in (Kind.THROTTLED, Kind.UNKNOWN_OUTCOME):
                return replace(failure, after_unknown_outcome=unknown)
            unknown |= failure.kind is Kind.UNKNOWN_OUTCOME
            attempts += 1
            if attempts >= policy.attempts:
                raise StoreUnavailable(
                    f"{self.service} gave no final answer for {self._shown(key)} in {count_of(attempts, 'attempt')}: "
                    f"{reason_at(failure, self.service, self.endpoint())}",
                    key=key,
                )
            policy.backoff.wait(attempts)

    def answer(self, key: str | None, request: Callable[[], Answer]) -> Answer:
        """Send a request and return its response.

        Raises NotFound, AccessDenied, StoreUnavailable, StoreError.
        """
        answer = self.ask(key, request)
        if isinstance(answer, Failure):
            self.fail(answer, key)
        return answer

    def fail(self, failure: Failure, key: str | None) -> NoReturn:
        """Raise the error for a failure."""
        shown = self._shown(key)
        match failure.kind:
            case Kind.NO_BUCKET:
                raise NotFound(f"the {self.container} {self._name!r} does not exist", key=key)
            case Kind.ABSENT:
                raise NotFound(f"there is no object at {shown}", key=key)
            case Kind.DENIED:
                hint = (
                    f". {self.service} gives the same answer for missing objects if the caller may not list the "
                    f"{self.container}"
                    if failure.code == "403"
                    else ""
                )
                # A redirect to another host is followed without a signature, and refused there.
                if self._is_own_endpoint() and (region := self._find_region()):
                    hint = f". {self._elsewhere(region)}"
                raise AccessDenied(f"{self.service} refused access to {shown} ({failure.reason}){hint}", key=key)
            case Kind.UNKNOWN_OUTCOME | Kind.THROTTLED | Kind.CONFLICT:
                raise StoreUnavailable(
                    f"{self.service} gave no final answer for {shown}: "
                    f"{reason_at(failure, self.service, self.endpoint())}",
                    key=key,
                )
            case Kind.REGION:
                region = self._find_region(failure.region)
                raise StoreError(
                    self._elsewhere(region)
                    if region
                    else f"{self.service} answered for the {self.container} {self._name!r} with {failure.reason}: it "
                    "may be in another region. Name its region in storage_options, as region",
                    key=key,
                )
            # A response to HEAD has no body, so it cannot name the reason.
            case Kind.OTHER if failure.code == "400" and (region := self._find_region()):
                raise StoreError(self._elsewhere(region), key=key)
            case Kind.NAME:
                raise StoreError(
                    f"{self.url()} holds an object with a name that is not valid here, {failure.path!r}: names with "
                    "empty, '.' or '..' parts or control characters cannot be listed. Rename or delete it",
                    key=key,
                )
            case _:
                raise StoreError(f"{self.service} refused a request for {shown}: {failure.reason}", key=key)

    @abstractmethod
    def url(self, key: str = "") -> str:
        """Return the URL of an object for fsspec."""

    @abstractmethod
    def endpoint(self, *, environment: bool = True) -> str | None:
        """Return the endpoint of the options, or else that of the environment. None means the cloud's own."""

    @abstractmethod
    def _is_own_endpoint(self) -> bool:
        """Return whether requests go to the cloud's own servers."""

    @abstractmethod
    def _secrets(self) -> Iterable[str]:
        """Return every secret of the options and of the environment."""

    @abstractmethod
    def _key_at(self, path: str) -> str | None:
        """Return the key of the object at a path in the bucket, or None if it is outside of this store."""

    def _find_region(self, answered: str = "") -> str | None:
        """Return the region of the bucket if requests go to another one. Return None if the region is not known.

        Args:
            answered: The region that the refusal named, if any. Otherwise the service is asked for it.
        """
        return None

    def _elsewhere(self, region: str) -> str:
        """Return the message for a bucket that is in another region than requests go to."""
        return f"the {self.container} {self._name!r} is in the region {region}: name it in storage_options, as region"

    def _shown(self, key: str | None) -> str:
        return self.url() if key is None else f"{key!r}"
