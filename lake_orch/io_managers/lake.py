"""The IO manager for everything: the type of a value, or the metadata, decides how it is stored."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from pydantic import Field

from lake_core.dataset import UnknownFormat
from lake_core.lake.errors import RefNotFound
from lake_orch.assets.annotation import type_of_each
from lake_orch.assets.asset_format import (
    FORMAT,
    AssetFormat,
    AssetInput,
    AssetOutput,
    asset_format,
    asset_format_class,
    asset_formats,
)
from lake_orch.assets.place import Place
from lake_orch.dagster.runs.attempt import RunOfStep
from lake_orch.dagster.step.type_handlers import HasTypeHandlers
from lake_orch.definition_metadata import REF, read_choice
from lake_orch.errors import InvalidDefinition, UnsupportedData
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

    Definition metadata of an asset, or of an op's output:
        lake/format: the format, such as `pool` for Arrow data that is to be a pool. Without it, the value decides.

    All other metadata is that of the format: see `DeltaIOManager`, `IcechunkIOManager`, `PoolIOManager` and
    `FileIOManager`.
    """

    spark: SparkResource | None = Field(
        default=None, description="The Spark of DataFrames of PySpark. Without it, an active session is used."
    )
    formats: dict[str, dict[str, Any]] = Field(
        default_factory=dict,
        description="Options by format. Those of delta, icechunk, pool and files are those of their IO managers.",
    )

    @classmethod
    def format_class(cls, metadata: Mapping[str, Any]) -> type[AssetFormat]:
        """Return the class that metadata names, or that of most assets."""
        return asset_format_class(_named(metadata, "the output") or _FIRST)

    @classmethod
    def place_of(
        cls, asset_key: Sequence[str] | None, metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Place:
        """Return the places where an output may be stored: that of the named format, or of a dataset and a file."""
        named = _named(metadata, "the output")
        of_formats = options.get("formats") or {}
        first, *others = (
            asset_format_class(name).place(asset_key, metadata, of_formats.get(name, {}))
            for name in ([_FIRST, _LAST] if named is None else [named])
        )
        return replace(first, others=tuple(others))

    def format_of_output(self, output: AssetOutput, value: object, run: RunOfStep) -> AssetFormat:
        """Return the format that metadata names, or of what is stored, or the first that accepts the value.

        Raises UnsupportedData if there is none; InvalidDefinition if something of another format is stored there.
        """
        named, stored = _named(output.metadata, output.producer), self._stored(output, run)
        if named is None and stored is not None and self._format(stored).continues(value):
            return self._format(stored)
        format = self._format(named) if named is not None else self._accepting(output, value)
        if stored is not None and stored != format.format:
            raise InvalidDefinition(
                f"{output.subject} would be stored in the format {format.format!r}, and something of the format "
                f"{stored!r} is stored there, which readers would still get: give it another path by the metadata "
                "lake/path, or delete what is there. Nothing was written"
            )
        return format

    def format_of_input(self, request: AssetInput, run: RunOfStep | None) -> AssetFormat:
        """Return the format that is named, or of what is stored, or before that exists, the first that loads it."""
        named = _named(request.metadata, request.producer) or self._stored_input(request, run)
        if named is not None:
            return self._format(named)
        annotation = type_of_each(request.annotation) or request.annotation
        for format in self._formats():
            if format.loads(annotation):
                return format
        return self._format(_LAST)  # whose extensions decide if nothing is annotated

    def _accepting(self, output: AssetOutput, value: object) -> AssetFormat:
        if not (isinstance(value, list | tuple) and not value):  # which may be records, or JSON
            for format in self._formats():
                if format.accepts(value):
                    return format
        kind = type(value)
        raise UnsupportedData(
            f"{output.subject} is a {kind.__module__}.{kind.__qualname__}{'' if value else ' without elements'}, which "
            f"no format stores by itself: name a format by the metadata {FORMAT!r} (installed are "
            f"{', '.join(asset_formats())})"
        )

    def _stored(self, output: AssetOutput, run: RunOfStep | None, ref: str | None = None) -> str | None:
        """Return the format of what is stored at the place of an output, or None."""
        try:
            dataset = self.lake.format_at(output.path, run, ref=ref)
            if dataset is not None:
                return dataset
            files = self.lake.read_files(run, ref=ref)
        except RefNotFound:
            return None
        return next((each.format for each in self._formats() if each.exists(files, output)), None)

    def _stored_input(self, request: AssetInput, run: RunOfStep | None) -> str | None:
        ref = request.settings.get(REF)
        if request.output is not None:
            return self._stored(request.output, run, ref)
        output = AssetOutput(producer=request.producer, asset_key=request.asset_key, metadata=request.metadata)
        return self._stored(output, run, ref)

    def _formats(self) -> Iterator[AssetFormat]:
        """Yield the formats whose packages are installed, in the order in which they are asked."""
        for name in sorted(asset_formats(), key=lambda name: (name != _FIRST, name == _LAST, name)):
            with suppress(UnknownFormat):
                yield self._format(name)

    def _format(self, name: str) -> AssetFormat:
        unknown = sorted(self.formats.keys() - set(asset_formats()))
        if unknown:
            raise InvalidDefinition(
                f"formats has options for {unknown[0]!r}, which is no format: use one of {', '.join(asset_formats())}"
            )
        shared = {"spark": self.spark, "handlers": self.type_handlers()}
        return asset_format(name, self.formats.get(name, {}), shared)


def _named(metadata: Mapping[str, Any], subject: str) -> str | None:
    """Return the format that metadata names, or None. Raises InvalidDefinition."""
    return read_choice(metadata, FORMAT, "", asset_formats(), subject) if FORMAT in metadata else None
