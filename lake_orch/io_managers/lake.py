"""The IO manager for everything: the type of a value, or the metadata, decides how it is stored."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from pydantic import Field

from lake_orch.assets.asset_format import (
    FORMAT,
    AssetFormat,
    AssetInput,
    AssetOutput,
    asset_format,
    asset_format_class,
    asset_formats,
)
from lake_orch.dagster.runs.attempt import RunOfStep
from lake_orch.dagster.step.type_handlers import HasTypeHandlers
from lake_orch.definition_metadata import read_choice
from lake_orch.errors import UnsupportedData
from lake_orch.io_managers.asset import AssetIOManager
from lake_orch.resources import SparkResource

_FIRST = "delta"
"""The format that is asked first, because most assets are tables, and others import more."""
_LAST = "files"
"""The format that is asked last, because it takes what could also be another's: a list of records, a text."""


class LakeIOManager(HasTypeHandlers, AssetIOManager):
    """An IO manager that stores each value in the format that fits it, each write exactly once.

    DataFrames and Arrow data become Delta tables, datasets of xarray and arrays become Icechunk repositories, lists or
    generators of records become pools, and bytes, text and other JSON become files. Formats that other packages install
    are chosen in the same way. An input is loaded from the format in which it is stored, as the type that its parameter
    is annotated with.

    Example:
        .. code-block:: python

            lake = LakeResource(root="s3://bucket/lake")
            manager = LakeIOManager(lake=lake, formats={"delta": {"schema_mode": "merge"}})
            defs = dg.Definitions(
                assets=[orders, temperature, events], resources={"io_manager": manager, "lake": lake}
            )

    The metadata `lake/format` of an asset, or of an op's output, names the format itself, such as `pool` for Arrow data
    that is to be a pool. All other metadata is that of the format: see `DeltaIOManager`, `IcechunkIOManager`,
    `PoolIOManager` and `FileIOManager`.
    """

    spark: SparkResource | None = None
    formats: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Options by format. Those of delta, icechunk, pool and files are those of their IO managers.",
    )

    @classmethod
    def format_class(cls, metadata: Mapping[str, Any]) -> type[AssetFormat]:
        """Return the class that metadata names. Without it, any format has the same place."""
        return asset_format_class(_named(metadata, "the output") or _FIRST)

    def format_of_output(self, output: AssetOutput, value: object) -> AssetFormat:
        """Return the format that metadata names, or the first that accepts the value. Raises UnsupportedData."""
        named = _named(output.metadata, output.producer)
        if named is not None:
            return self._format(named)
        for name in _in_order():
            if (format := self._format(name)).accepts(value):
                return format
        kind = type(value)
        raise UnsupportedData(
            f"{output.subject} is a {kind.__module__}.{kind.__qualname__}, which no format stores by itself: name a "
            f"format by the metadata {FORMAT!r} (installed are {', '.join(asset_formats())})"
        )

    def format_of_input(self, request: AssetInput, run: RunOfStep | None) -> AssetFormat:
        """Return the format of the dataset that is stored. Without one, return what is named, or loads the type."""
        stored = self.lake.format_at(request.path, run, ref=request.settings.get("lake/ref"))
        named = stored or _named(request.metadata, request.producer)
        if named is not None:
            return self._format(named)
        loading = (format for name in _in_order() if (format := self._format(name)).loads(request.annotation))
        return next(loading, self._format(_LAST))  # whose extensions decide if nothing is annotated

    def _format(self, name: str) -> AssetFormat:
        shared = {"spark": self.spark, "handlers": self.type_handlers()}
        known = {each.name for each in fields(asset_format_class(name))}  # type: ignore[arg-type]
        options = {option: value for option, value in shared.items() if option in known}
        return asset_format(name, options | self.formats.get(name, {}))


def _in_order() -> Sequence[str]:
    return sorted(asset_formats(), key=lambda name: (name != _FIRST, name == _LAST, name))


def _named(metadata: Mapping[str, Any], subject: str) -> str | None:
    """Return the format that metadata names, or None. Raises InvalidDefinition."""
    return read_choice(metadata, FORMAT, "", asset_formats(), subject) if FORMAT in metadata else None
