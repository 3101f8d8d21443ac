"""File systems that take names for one that differ only in the case of letters."""

from __future__ import annotations

import os
import uuid

from lake_core.errors import InvalidKey
from lake_core.store.key import TEMPORARY_PREFIX


def ignores_case(root: str) -> bool:
    """Return whether names that differ only in case are one, tried with a file that is deleted again."""
    name = f"{TEMPORARY_PREFIX}{uuid.uuid4().hex}-case"
    path = os.path.join(root, name)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666))
    try:
        return os.path.exists(os.path.join(root, name.upper()))
    finally:
        os.unlink(path)


def check_case(key: str, root: str) -> None:
    """Raise InvalidKey if a name on the key's path exists with other letter case."""
    path = root
    for component in key.split("/"):
        try:
            names = os.listdir(path)
        except (FileNotFoundError, NotADirectoryError):
            return
        if component not in names:
            for name in names:
                if name.casefold() == component.casefold():
                    raise InvalidKey(
                        f"{key!r} differs only in case from the existing {name!r}, "
                        "and this file system treats both as one file",
                        key=key,
                    )
        path = os.path.join(path, component)
