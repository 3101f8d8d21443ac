"""Branches and tags: small objects that name a snapshot each. Specification section: Reference Files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum

from lake_core.icechunk.errors import DamagedObject, InvalidIdentifier, InvalidRefName, RefNotFound
from lake_core.icechunk.identifier import decode_id, encode_id

MAIN = "main"
"""The branch that every repository has."""

_NAME = re.compile(r"[A-Za-z0-9._-]+(?: +[A-Za-z0-9._-]+)*")
_LONGEST_NAME = 200


class RefKind(Enum):
    """The kind of a ref, as its key spells it."""

    BRANCH = "branch"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class Ref:
    """A branch or tag in the state in which it was read."""

    kind: RefKind
    name: str
    snapshot_id: bytes
    etag: str


def ref_key(kind: RefKind, name: str) -> str:
    """Return the key of a ref's object."""
    return f"refs/{kind.value}.{name}/ref.json"


def tombstone_key(name: str) -> str:
    """Return the key of the empty object that says that a tag was deleted."""
    return ref_key(RefKind.TAG, name) + ".deleted"


def check_new_name(kind: RefKind, name: str) -> None:
    """Raise InvalidRefName unless a new branch or tag may have the name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InvalidRefName(
            f"a {kind.value} cannot be called {str(name)[:80]!r}: "
            f"use up to {_LONGEST_NAME} letters, digits, '.', '_', '-'"
        )


def decode_ref(data: bytes, key: str) -> bytes:
    """Return the snapshot that the object of a branch or tag names. Raises DamagedObject."""
    try:
        return decode_id(json.loads(data)["snapshot"])
    except (ValueError, KeyError, TypeError, InvalidIdentifier, RecursionError):
        raise DamagedObject(key, "it does not name a snapshot") from None


def no_ref(kind: RefKind, name: str) -> RefNotFound:
    """Return the error for a branch or tag that there is not."""
    return RefNotFound(
        f"the repository has no {kind.value} {str(name)[:80]!r}: "
        f"list_{kind.value}{'es' if kind is RefKind.BRANCH else 's'}() lists them"
    )


def no_main_deletion() -> InvalidRefName:
    """Return the error for the deletion of the branch main."""
    return InvalidRefName(
        "the branch main cannot be deleted, because every repository has it: "
        "use reset_branch to move it to another snapshot"
    )


def encode_ref(snapshot_id: bytes) -> bytes:
    """Return the object of a branch or tag that names a snapshot."""
    return json.dumps({"snapshot": encode_id(snapshot_id)}, separators=(",", ":")).encode()
