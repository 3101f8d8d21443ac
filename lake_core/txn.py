"""Transaction identifiers: the (application id, version) pair by which formats recognize a repeated write."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lake_core.errors import LakeError

Txn: TypeAlias = tuple[str, int]
"""(application id, version): a write that finds this version or a later one recorded does nothing."""


def check_txn(txn: Txn | None, error: type[LakeError]) -> None:
    """Raise an error unless `txn` is None or a pair of an application id and a version.

    Args:
        txn: The pair.
        error: The class to raise. Each format has its own.
    """
    if txn is None:
        return
    if not isinstance(txn, tuple | list) or len(txn) != 2:
        raise error(f"txn must be a pair (application id, version), not {txn!r}")
    app_id, version = txn
    if not isinstance(app_id, str) or not app_id or not _is_unicode(app_id):
        raise error(f"the application id of a txn must be text that is not empty, not {app_id!r}")
    if not isinstance(version, int) or isinstance(version, bool) or not 0 <= version < 1 << 63:
        raise error(f"the version of a txn must be a whole number that is not negative, not {version!r}")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True
