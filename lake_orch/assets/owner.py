"""The owner of data: the asset that wrote it, with its code location. Other assets cannot replace it by accident."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice

from lake_orch.definition_metadata import Ownership
from lake_orch.errors import TableOwned

_ASSET = "lake.owner.asset"
LOCATION = "lake.owner.codeLocation"
PARTITIONED = "lake.owner.partitioned"

_COMMITS = 100
"""The number of commits to search for an owner. Other writers record none."""


@dataclass(frozen=True, slots=True)
class Owner:
    """An asset, and the code location that defines it."""

    asset: str
    location: str | None = None
    """None if the run was not launched through a code location, as with `materialize`."""
    is_partitioned: bool | None = field(default=None, compare=False)
    """Whether the asset writes partitions; None if its own code decides what it replaces, or if it was not recorded."""

    @classmethod
    def of_properties(cls, properties: Mapping[str, str]) -> Owner | None:
        """Return the owner that properties name, if any."""
        asset = properties.get(_ASSET)
        partitioned = {"true": True, "false": False}.get(properties.get(PARTITIONED, ""))
        return None if asset is None else cls(asset, properties.get(LOCATION), partitioned)

    @property
    def properties(self) -> Mapping[str, str]:
        """Return the properties that name the owner."""
        partitioned = {} if self.is_partitioned is None else {PARTITIONED: str(self.is_partitioned).lower()}
        return {_ASSET: self.asset} | ({} if self.location is None else {LOCATION: self.location}) | partitioned

    def is_other(self, other: Owner) -> bool:
        """Return whether it is another asset. Code locations are compared only if both are known."""
        return self.asset != other.asset or (
            None not in (self.location, other.location) and self.location != other.location
        )

    def __str__(self) -> str:
        return (
            f"asset {self.asset}" if self.location is None else f"asset {self.asset} of code location {self.location!r}"
        )


def check_partitions(subject: str, owner: Owner, writer: Owner) -> None:
    """Raise TableOwned for an asset that had partitions, and would now replace all of them."""
    if owner.is_partitioned and writer.is_partitioned is False:
        raise TableOwned(
            f"{subject} was written by partitions of {owner} until now, and the asset has none any more: this run "
            "would replace all partitions. Give the asset its partitions_def again, or another path by the metadata "
            'lake/path. If all is to be replaced, say so by metadata={"lake/owner": "take"}. Nothing was written'
        )


def owned(subject: str, owner: Owner, writer: Owner, replaced: str) -> TableOwned:
    """Return the error for an asset that would replace another asset's data, with the remedies."""
    return TableOwned(
        f"{subject} was made by {owner}, and {writer} would replace {replaced}. "
        "Give one of the assets another path by the metadata lake/path. "
        'If the asset or its code location was renamed, let it take over: metadata={"lake/owner": "take"}. '
        'If both are to write there: metadata={"lake/owner": "shared"}. Nothing was written'
    )


def claim_by_commits(
    commits: Iterable[Mapping[str, str]],
    writer: Owner | None,
    ownership: Ownership,
    *,
    replaces: bool,
    subject: str,
    replaced: str,
) -> Mapping[str, str]:
    """Check that an asset may write data with these commits, and return the owner for the next commit's metadata.

    Args:
        commits: The metadata of each commit, latest first.
        writer: The asset that writes, or None for an op.
        ownership: How the asset handles data that another asset wrote.
        replaces: The write replaces data.
        subject: The name of the pool or arrays in the error.
        replaced: The name of the replaced data in the error.

    Raises:
        TableOwned: The asset would replace data of another.
    """
    if writer is None or ownership == "shared":
        return {}
    owners = (Owner.of_properties(metadata) for metadata in islice(commits, _COMMITS))
    owner = next((owner for owner in owners if owner is not None), None)
    if owner is None or ownership == "take" or not owner.is_other(writer):
        if owner is not None and ownership != "take" and replaces:
            check_partitions(subject, owner, writer)
        return writer.properties
    if not replaces:
        return {}
    raise owned(subject, owner, writer, replaced)
