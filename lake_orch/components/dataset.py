"""The base of the components of tables, arrays and pools: the asset, its inputs, and the settings of its step."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from lake_orch.components.asset_options import asset_options
from lake_orch.components.partition_mappings import PartitionMappingSettings
from lake_orch.components.references import described

_OF_ARRAYS = ("sel", "chunks", "snapshot")
_OF_POOLS = ("shape", "start", "stop", "since", "pool_commit")


class DatasetInput(dg.Model, dg.Resolvable):
    """The asset that an input name refers to, and the part of its table, arrays or pool to load."""

    asset: Annotated[
        dg.ResolvedAssetKey | None, described("The asset's key, parts joined by /; by default the name.")
    ] = None
    columns: Annotated[list[str] | None, described("The columns, or the variables of arrays, to load.")] = None
    where: Annotated[str | None, described("Spark SQL that selects the rows to load.")] = None
    ref: Annotated[str | None, described("A branch, tag or commit to load from.")] = None
    version: Annotated[int | None, described("A version of the table to load.")] = None
    sel: Annotated[
        dict[str, Any] | None,
        described("The coordinates of arrays to load, by dimension: a value, a list, or a mapping of start and stop."),
    ] = None
    chunks: Annotated[
        dict[str, int] | None, described("The chunks of dask arrays, by dimension; without them arrays need no dask.")
    ] = None
    snapshot: Annotated[str | None, described("A snapshot of the arrays to load.")] = None
    shape: Annotated[str | None, described("The type of the records of a pool to load: its name, or as text.")] = None
    start: Annotated[Any, described("The smallest key of a pool to load.")] = None
    stop: Annotated[Any, described("The end of the keys of a pool to load, which is left out.")] = None
    since: Annotated[
        Literal["last run"] | None, described("Load what was added to a pool since the asset's last run.")
    ] = None
    pool_commit: Annotated[str | None, described("A commit of the pool to load.")] = None

    settings: Annotated[
        dict[str, Any], described("Settings of an input in another format, by name, without the prefix lake/.")
    ] = Field(default_factory=dict)

    partition_mapping: PartitionMappingSettings = None

    def of_other_formats(self) -> Mapping[str, str]:
        """Return the settings that tables do not have, and the formats that have them."""
        formats = dict.fromkeys(_OF_ARRAYS, "arrays") | dict.fromkeys(_OF_POOLS, "pools")
        return {name: format for name, format in formats.items() if getattr(self, name) is not None}

    def asset_in(self, key: dg.AssetKey, kind: Any = None) -> dg.AssetIn:
        """Return the input of an asset."""
        names = ("where", "ref", "version", *_OF_ARRAYS, *_OF_POOLS)
        others = {f"lake/{name}": value for name, value in self.settings.items()}
        values = {"columns": self.columns, **{f"lake/{name}": getattr(self, name) for name in names}, **others}
        metadata = {name: value for name, value in values.items() if value is not None}
        return dg.AssetIn(
            key=self.asset or key,
            metadata=metadata,
            partition_mapping=self.partition_mapping,
            **({} if kind is None else {"dagster_type": kind}),
        )


class DatasetComponent(dg.Component, dg.Model, dg.Resolvable):
    """An asset that is stored in the lake."""

    asset: Annotated[
        dg.ResolvedAssetSpec,
        Field(
            description="The asset: key, description, group_name, kinds, owners, tags, partitions_def, "
            "automation_condition, deps, …"
        ),
    ]
    inputs: Annotated[
        dict[str, DatasetInput],
        described("The assets that the names of tables, or the function's parameters, stand for."),
    ] = Field(default_factory=dict)
    path: Annotated[str | None, described("The path below the root; by default tables/<key>.")] = None
    partition_expr: Annotated[
        str | dict[str, str] | None,
        described(
            "The column, or dimension of arrays, that the partitions stand for, "
            "or one for each dimension of the partitions."
        ),
    ] = None
    io_manager_key: Annotated[str, described("The IO manager that stores it.")] = "io_manager"
    pool: Annotated[str | None, described("The concurrency pool of the step.")] = None
    max_retries: Annotated[int, Field(ge=0), described("The most retries of the step.")] = 0
    backfill: Annotated[
        Literal["run_per_partition", "single_run"] | None,
        described("Whether a backfill is one run, or one for each partition."),
    ] = None

    @property
    def _subject(self) -> str:
        return f"asset {self.asset.key.to_user_string()}"

    @abstractmethod
    def _metadata(self) -> dict[str, Any]:
        """Return the definition metadata for the fields. A field without a value has the value None."""

    @abstractmethod
    def _check(self, metadata: Mapping[str, Any]) -> None:
        """Raise InvalidDefinition for invalid metadata.

        It is called when the definitions load, so that mistakes appear before the first run.
        """

    def _options(self, kinds: Sequence[str]) -> dict[str, Any]:
        """Return the options of `@dg.asset`. `kinds` is the default for an asset without kinds."""
        metadata = {"lake/path": self.path, "partition_expr": self.partition_expr, **self._metadata()}
        options = asset_options(
            self.asset, kinds=kinds, metadata={name: value for name, value in metadata.items() if value is not None}
        )
        self._check(options["metadata"])
        policies = {"single_run": dg.BackfillPolicy.single_run(), "run_per_partition": dg.BackfillPolicy.multi_run()}
        return {
            **options,
            "io_manager_key": self.io_manager_key,
            "pool": self.pool,
            "retry_policy": dg.RetryPolicy(max_retries=self.max_retries) if self.max_retries else None,
            "backfill_policy": None if self.backfill is None else policies[self.backfill],
        }

    def _of_function(self, function: Callable[..., Any], *kinds: str) -> dg.AssetsDefinition:
        """Return the asset that a function makes. Its parameters are the inputs."""
        inputs = {name: each.asset_in(dg.AssetKey(name)) for name, each in self.inputs.items()}
        asset: Any = dg.asset(**{**self._options(kinds), "ins": inputs})
        definition: dg.AssetsDefinition = asset(function)
        return definition
