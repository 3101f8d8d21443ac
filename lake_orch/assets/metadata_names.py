"""The names of definition metadata that have an effect. All others that begin with `lake/` are refused."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from lake_core.installed import installed
from lake_orch.definition_metadata import OWNER, REF
from lake_orch.errors import InvalidDefinition

ASSET_FORMATS: Final = "lake_orch.asset_formats"
"""The entry point group in which formats register an `AssetFormat`: name → a class whose arguments are its options."""
Use: TypeAlias = Literal["output", "input"]

OF_OUTPUTS = (OWNER, "lake/path", "lake/format")
"""The names that outputs of all formats of this package have."""
_REPORTED = ("lake/session", "lake/commit", "lake/state", "lake/operation", "lake/read_with")
"""Names that events have, which a definition may repeat. None of them looks like a setting."""
_CUTOFF = 0.85
"""The similarity, from 0 to 1, from which a name is reported as a misspelling."""


@dataclass(frozen=True, slots=True)
class MetadataNames:
    """The names that have an effect on what an asset or input is stored as."""

    datasets: str = "datasets"
    """The word for what is stored: `tables`."""
    output: Sequence[str] = OF_OUTPUTS[1:]
    input: Sequence[str] = (REF,)
    without_prefix: Sequence[str] = ()
    """Other names that inputs have."""

    def check(self, metadata: Mapping[str, Any], use: Use, subject: str) -> None:
        """Raise InvalidDefinition for a `lake/…` name that has no effect.

        Without the setting, the data would be other than the definition says.

        Args:
            metadata: The metadata, by name.
            use: Whether the metadata is that of an output or of an input.
            subject: The name of the asset or input in the error.
        """
        own = self.output if use == "output" else self.input
        for name in metadata:
            if not name.startswith("lake/") or name in own or name in _REPORTED:
                continue
            similar = difflib.get_close_matches(name, own, 1, _CUTOFF)
            if similar:
                remedy = f"use {similar[0]!r}"
            elif use == "input":
                remedy = f"the settings of this input are {', '.join((*self.without_prefix, *own))}"
            elif others := _others(name):
                remedy = f"it is a setting of {', '.join(others)}. Those of this output are {', '.join(own)}"
            else:
                remedy = (
                    f"the settings of this output are {', '.join(own)}. Names of your own go without the prefix lake/"
                )
            raise InvalidDefinition(f"{subject} has the metadata {name!r}, which has no effect: {remedy}")


def _others(name: str) -> Sequence[str]:
    """Return what a name is a setting of: `pools (output)`."""
    owners = set()
    for point in installed(ASSET_FORMATS).values():
        with suppress(ModuleNotFoundError):  # the extra of a format is not installed
            names: MetadataNames = point.load().names
            owners |= {f"{names.datasets} ({use})" for use in ("output", "input") if name in getattr(names, use)}
    return sorted(owners)
