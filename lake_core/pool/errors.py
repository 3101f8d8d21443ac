"""The errors of Zed pools. All derive from LakeError."""

from __future__ import annotations

from lake_core.errors import LakeError


class PoolError(LakeError):
    """The base class of all errors of pools, and of the formats that they are stored in."""


class InvalidType(PoolError, ValueError):
    """A Zed type cannot exist.

    A field's name occurs twice, a union has no types, or the type nests too deep or is too large.
    """


class InvalidValue(PoolError, ValueError):
    """An object or an Arrow column cannot be stored as a value of the Zed type."""


class InvalidZng(PoolError):
    """Bytes are not ZNG: they are cut short, name an unknown type or break another rule of the format."""


class InvalidZson(PoolError, ValueError):
    """A text is not ZSON.

    Attributes:
        offset: Where in the text the error was found, in characters.
    """

    def __init__(self, why: str, offset: int) -> None:
        super().__init__(f"the text is not ZSON at character {offset}: {why}")
        self.why = why
        self.offset = offset

    def __reduce__(self) -> tuple[type[InvalidZson], tuple[str, int]]:
        return type(self), (self.why, self.offset)


class InvalidJson(PoolError, ValueError):
    """A line is not JSON, or a value cannot be written as JSON."""


class NotALake(PoolError):
    """The location does not hold a Zed lake."""


class UnsupportedLakeVersion(PoolError):
    """A Zed lake has a format version other than 3."""


class LakeExists(PoolError):
    """The location already holds a Zed lake."""


class DamagedLake(PoolError):
    """An object of a Zed lake is missing, cut short or contradicts others.

    Attributes:
        key: The object's key in the store.
    """

    def __init__(self, message: str, key: str) -> None:
        super().__init__(message, key)
        self.key = key

    def __str__(self) -> str:
        return str(self.args[0])


class NoSuchPool(PoolError):
    """The lake has no pool of that name."""


class PoolExists(PoolError):
    """The lake already has a pool of that name."""


class InvalidPoolConfig(PoolError, ValueError):
    """A pool cannot have such a name, key, order, seek stride or threshold."""


class NoSuchBranch(PoolError):
    """The pool has no branch of that name."""


class BranchExists(PoolError):
    """The pool already has a branch of that name."""


class InvalidBranchName(PoolError, ValueError):
    """A branch cannot have such a name."""


class NoSuchCommit(PoolError):
    """The pool has no commit of that id."""


class NoSuchShape(PoolError):
    """No record of the pool has the type that was asked for."""


class OutsideRange(PoolError):
    """Records to write have keys outside of the range that they are to replace. No commit was made."""


class InvalidTransaction(PoolError, ValueError):
    """A txn is not a pair of an application id and a version."""


class WriteConflict(PoolError):
    """Other writers moved the branch before each attempt to commit. The branch is as they left it."""


class NoSuchObject(PoolError):
    """The branch has no data object of that id."""


class ObjectsGone(PoolError):
    """Data objects that a commit needs are gone.

    Attributes:
        ids: The ids of the data objects.
    """

    def __init__(self, message: str, ids: tuple[str, ...]) -> None:
        super().__init__(message, ids)
        self.ids = ids

    def __str__(self) -> str:
        return str(self.args[0])


class DeleteConflict(ObjectsGone):
    """Data objects that a commit would delete were deleted or rewritten by other commits.

    The branch is as the others left it.
    """


class ObjectsVacuumed(ObjectsGone):
    """Data objects or commits that a revert or a new branch would bring back have been deleted from the store."""


class OwnedByLake(PoolError):
    """The pool is a dataset of a lake: only the lake can create branches, or rename or drop the pool."""
