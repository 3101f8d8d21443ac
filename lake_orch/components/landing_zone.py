"""The component of a landing zone: the asset that appends its files, and the sensor that runs it."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from datetime import timedelta
from typing import Annotated, Any

import dagster as dg
import pyarrow as pa
from pydantic import Field

from lake_orch.assets.asset_format import asset_format_class
from lake_orch.components.asset_options import asset_options
from lake_orch.components.references import SensorStatus, StorageOptions, described, load_function
from lake_orch.components.scaffolding import scaffolds
from lake_orch.errors import InvalidDefinition
from lake_orch.landing_zone import LandingZone, landing_zone_definitions
from lake_orch.landing_zone.definitions import format_of
from lake_orch.spark.type_name import arrow_type_of


@dg.scaffold_with(
    scaffolds(
        """
        name: NAME            # names the source permanently
        url: landing/NAME     # a folder, or a prefix on any store that fsspec knows
        pattern: "*.parquet"
        settle_seconds: 0     # more for writers that are not atomic
        """
    )
)
class LandingZoneComponent(dg.Component, dg.Model, dg.Resolvable):
    """Ingestion of files from a folder or prefix.

    A sensor groups new files into batches. An asset appends each batch to its table exactly once.
    """

    name: Annotated[
        str, described("The permanent name of the source. The application id of its batches is landing/<name>.")
    ]
    url: Annotated[str, described("The folder or prefix, on any store that fsspec knows.")]
    pattern: Annotated[str, described("The files to land: a glob on the path below the zone, or on its last part.")] = (
        "*"
    )
    storage_options: StorageOptions = Field(default_factory=dict)
    settle_seconds: Annotated[
        float, Field(ge=0), described("Seconds for which a file must not have changed before it lands.")
    ] = 0
    max_files: Annotated[int, described("The most files in one batch.")] = 1000
    max_bytes: Annotated[int, described("The most bytes in one batch.")] = 64 << 30
    asset: Annotated[
        dg.ResolvedAssetSpec | None,
        described("The asset that appends the files; by default one whose key is the zone's name."),
    ] = None
    into: Annotated[
        str,
        described(
            "Where the files land: table, pool for lines of JSON of any shape, or the format of another package."
        ),
    ] = "table"
    path: Annotated[str | None, described("The table's path below the root; by default tables/<key>.")] = None
    partition_by: Annotated[list[str], described("The table's partition columns.")] = Field(default_factory=list)
    columns: Annotated[
        dict[str, str],
        described("The columns to read, with their types as Spark SQL spells them; by default those of the files."),
    ] = Field(default_factory=dict)
    read: Annotated[
        str | None,
        described("module:function that reads the rows of a LandedBatch; by default the extension chooses the reader."),
    ] = None
    max_retries: Annotated[
        int, Field(ge=0), described("The most times that the sensor requests another run for a failed batch.")
    ] = 3
    interval_seconds: Annotated[int, Field(ge=1), described("Seconds between two evaluations of the sensor.")] = 30
    sensor: SensorStatus = "RUNNING"

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions. Raises InvalidDefinition for an invalid name, type or function."""
        zone = LandingZone(
            self.name,
            self.url,
            self.pattern,
            self.storage_options,
            timedelta(seconds=self.settle_seconds),
            self.max_files,
            self.max_bytes,
        )
        format = asset_format_class(format_of(self.into))
        spec = self.asset or dg.AssetSpec(self.name)
        options = asset_options(
            spec,
            kinds=(format.kind or format.format,),
            metadata={} if self.path is None else {"lake/path": self.path},
        )
        return landing_zone_definitions(
            zone,
            read=None if self.read is None else load_function(self.read, context),
            schema=self._schema(),
            partition_by=self.partition_by,
            into=self.into,
            sensor={
                "max_retries": self.max_retries,
                "minimum_interval_seconds": self.interval_seconds,
                "default_status": dg.DefaultSensorStatus(self.sensor),
            },
            **options,
        )

    def _schema(self) -> pa.Schema | None:
        fields: list[Any] = []
        for name, text in self.columns.items():
            try:
                fields.append(pa.field(name, arrow_type_of(text)))
            except ValueError as error:
                raise InvalidDefinition(f"column {name!r} of landing zone {self.name!r}: {error}") from None
        return pa.schema(fields) if fields else None
