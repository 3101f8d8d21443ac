"""The root of every error that this package raises, and the errors of its object stores.

Each class has one meaning. A message names what was wrong and what to do next; it never holds a credential.
"""

from __future__ import annotations


class LakeError(Exception):
    """The base class of all errors of this package."""


class ObjectMissing(LakeError):
    """A dataset needs an object that does not exist. Formats derive their own errors from it."""


class RegisteredTwice(LakeError):
    """Two installed packages register different things by one name. Uninstall one of them."""


class InvalidUrl(LakeError):
    """A location cannot be opened as a store: unknown scheme, missing bucket, or credentials inside the URL."""


class CredentialsInUrl(InvalidUrl):
    """A location holds credentials, which would show wherever it is printed."""


class StoreError(LakeError):
    """An object store refused or failed an operation on one key.

    `key` is the key as the caller gave it, or None when the operation concerned the store as a whole.
    """

    def __init__(self, message: str, *, key: str | None = None) -> None:
        super().__init__(message)
        self.key = key


class InvalidKey(StoreError):
    """A key is malformed or hostile: it was refused before the store was asked."""


class NotFound(StoreError):
    """No object exists at the key."""


class AlreadyExists(StoreError):
    """A put with `if_absent` found an object at the key; nothing was written by this call.

    After a time-out inside the client, the object may be the caller's own. Compare writer ids to find out.
    """


class PreconditionFailed(StoreError):
    """A put with `if_match` found another etag, or no object; nothing was written."""


class AccessDenied(StoreError):
    """The store refuses the request, or cannot authenticate the caller."""


class StoreUnavailable(StoreError):
    """The store gave no final answer (time-out, lost connection, overload) and the retries are used up.

    The operation may or may not have happened. Read back before deciding.
    """


class UnsafeStore(StoreError):
    """Conditional puts are not atomic here, so concurrent writers could lose data.

    Nothing is written to such a store.
    """
