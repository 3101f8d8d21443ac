"""The names of branches and tags on the way between a lake and lakeFS."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from lake_core.lake.errors import InvalidRef, RefNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping

_BRANCH = re.compile(r"\w[-\w]*", re.ASCII)


def rename_refs(
    branches: Mapping[str, str], tags: Mapping[str, str], rename: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return branches and tags under new names.

    Raises RefNotFound for a rename of what does not exist, InvalidRef for a name that two of them would have.
    """
    unknown = sorted(rename.keys() - branches.keys() - tags.keys())
    if unknown:
        raise RefNotFound(f"{', '.join(map(repr, unknown))} cannot be renamed: there is no such branch or tag")
    names = [rename.get(name, name) for name in (*branches, *tags)]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidRef(
            f"{', '.join(map(repr, repeated))} would be the name of several branches or tags: rename or delete one"
        )
    return (
        {rename.get(name, name): commit for name, commit in branches.items()},
        {rename.get(name, name): commit for name, commit in tags.items()},
    )


def exported_refs(
    branches: Mapping[str, str], tags: Mapping[str, str], rename: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """Return branches and tags under their names in lakeFS.

    Raises InvalidRef where lakeFS does not accept one of the names, and as `rename_refs`.
    """
    renamed = rename_refs(branches, tags, rename)
    refused = [name for name in branches if not _BRANCH.fullmatch(rename.get(name, name))]
    refused += [name for name in tags if not _is_tag(rename.get(name, name))]
    if refused:
        examples = {name: _accepted(rename.get(name, name)) for name in sorted(refused)}
        raise InvalidRef(
            f"lakeFS does not accept {', '.join(map(repr, examples))}: branch names consist of letters, digits, '_' "
            "and '-', and tag names have no '..' and do not end in '.lock'. Rename them in the export, by "
            "`rename` or `--rename`: " + ", ".join(f"{name}={example}" for name, example in examples.items())
        )
    return renamed


def _is_tag(name: str) -> bool:
    return not (".." in name or name.endswith((".", ".lock")) or re.search(r"[^-.\w]", name, re.ASCII) or not name)


def _accepted(name: str) -> str:
    return re.sub(r"[^-\w]+", "-", name, flags=re.ASCII).strip("-") or "renamed"
