"""Branches and tags: small objects that name a snapshot each. Specification section: Reference Files."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed, StoreUnavailable
from lake_core.icechunk.errors import DamagedObject, InvalidIdentifier, InvalidRefName, RefAlreadyExists, RefNotFound
from lake_core.icechunk.identifier import decode_id, encode_id

if TYPE_CHECKING:
    from lake_core.store import ObjectStore

MAIN = "main"
"""The branch that every repository has."""

_REF = re.compile(r"refs/(branch|tag)\.([^/]+)/ref\.json(\.deleted)?")
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


def _tombstone_key(name: str) -> str:
    return ref_key(RefKind.TAG, name) + ".deleted"


def check_new_name(kind: RefKind, name: str) -> None:
    """Raise InvalidRefName unless a new branch or tag may have the name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > _LONGEST_NAME:
        raise InvalidRefName(
            f"a {kind.value} cannot be called {str(name)[:80]!r}: "
            f"use up to {_LONGEST_NAME} letters, digits, '.', '_', '-'"
        )


def list_names(store: ObjectStore, kind: RefKind) -> set[str]:
    """Return the names of all branches or tags. Deleted tags, and objects that are not refs, are left out."""
    names: set[str] = set()
    deleted: set[str] = set()
    for meta in store.list(f"refs/{kind.value}."):
        match = _REF.fullmatch(meta.key)
        if match is not None:
            (deleted if match.group(3) else names).add(match.group(2))
    return names - deleted


def list_refs(store: ObjectStore) -> list[Ref]:
    """Return all tags and branches, tags first, each kind by name.

    A ref that was deleted in the meantime is left out. Raises DamagedObject.
    """
    tips = []
    for kind in (RefKind.TAG, RefKind.BRANCH):
        for name in sorted(list_names(store, kind)):
            try:
                tips.append(lookup(store, kind, name))
            except RefNotFound:
                continue
    return tips


def lookup(store: ObjectStore, kind: RefKind, name: str) -> Ref:
    """Return a branch or tag.

    Raises:
        RefNotFound: There is none of the name, or the tag was deleted.
        DamagedObject: Its object does not name a snapshot.
    """
    if not isinstance(name, str) or not name or "/" in name:
        raise no_ref(kind, name)
    key = ref_key(kind, name)
    try:
        data = store.get(key)
    except NotFound:
        raise no_ref(kind, name) from None
    if kind is RefKind.TAG and store.exists(_tombstone_key(name)):
        raise RefNotFound(f"the tag {name!r} was deleted: call list_tags() for the existing tags")
    return Ref(kind, name, decode_ref(data, key), data.etag)


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


def create(store: ObjectStore, kind: RefKind, name: str, snapshot_id: bytes) -> None:
    """Create a branch or tag.

    Raises:
        InvalidRefName: The name is not one for a ref.
        RefAlreadyExists: There is one of the name, or a tag of the name was deleted.
    """
    check_new_name(kind, name)
    if kind is RefKind.TAG and store.exists(_tombstone_key(name)):
        raise RefAlreadyExists(
            f"a tag {name!r} was deleted, and the names of tags cannot be used again: choose another name"
        )
    try:
        store.put(ref_key(kind, name), encode_ref(snapshot_id), if_absent=True)
    except AlreadyExists:
        raise RefAlreadyExists(f"the repository already has a {kind.value} {name!r}: choose another name") from None


def move_branch(store: ObjectStore, branch: Ref, snapshot_id: bytes) -> bool:
    """Move a branch to another snapshot by compare-and-swap. Return False where another process has moved it first.

    If the outcome of the put is unknown, the branch is read: only this call names `snapshot_id`, unless a branch is
    reset to it.
    """
    try:
        store.put(ref_key(branch.kind, branch.name), encode_ref(snapshot_id), if_match=branch.etag)
    except (PreconditionFailed, StoreUnavailable, NotFound) as error:
        try:
            now = lookup(store, branch.kind, branch.name)
        except RefNotFound:
            return False
        if now.snapshot_id == snapshot_id:
            return True
        if isinstance(error, StoreUnavailable) and now.etag == branch.etag:
            raise
        return False
    return True


def delete_branch(store: ObjectStore, name: str) -> None:
    """Delete a branch. Raises RefNotFound; InvalidRefName for the main branch."""
    if name == MAIN:
        raise InvalidRefName(
            "the branch main cannot be deleted, because every repository has it: "
            "use reset_branch to move it to another snapshot"
        )
    lookup_key(store, RefKind.BRANCH, name)
    store.delete([ref_key(RefKind.BRANCH, name)])


def delete_tag(store: ObjectStore, name: str) -> None:
    """Delete a tag by an empty object beside it, so that its name is never used again. Raises RefNotFound."""
    lookup_key(store, RefKind.TAG, name)
    try:
        store.put(_tombstone_key(name), b"", if_absent=True)
    except AlreadyExists:
        raise RefNotFound(f"the tag {name!r} was already deleted") from None


def lookup_key(store: ObjectStore, kind: RefKind, name: str) -> None:
    """Raise RefNotFound unless a ref of the name exists, damaged or not."""
    try:
        lookup(store, kind, name)
    except DamagedObject:
        return


def encode_ref(snapshot_id: bytes) -> bytes:
    """Return the object of a branch or tag that names a snapshot."""
    return json.dumps({"snapshot": encode_id(snapshot_id)}, separators=(",", ":")).encode()
