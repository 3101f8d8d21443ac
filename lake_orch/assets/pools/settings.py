"""The settings of pools in the metadata of assets and inputs, validated before anything is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from lake_orch.assets.metadata_names import OF_OUTPUTS, MetadataNames
from lake_orch.assets.tables.settings import PREVIEW_ROWS
from lake_orch.definition_metadata import (
    COLUMNS,
    MODE,
    PARTITION_EXPR,
    REF,
    Ownership,
    read_choice,
    read_names,
    read_ownership,
    read_text,
    read_whole,
)
from lake_orch.errors import InvalidDefinition
from lake_orch.location import table_path

PoolWriteMode: TypeAlias = Literal["overwrite", "append", "error", "ignore"]
KeyOrder: TypeAlias = Literal["asc", "desc"]

KEY = "lake/key"
ORDER = "lake/order"
THRESHOLD = "lake/threshold"
TIMES = "lake/times"

SHAPE = "lake/shape"
START, STOP = "lake/start", "lake/stop"
SINCE = "lake/since"
LAST_RUN = "last run"
POOL_COMMIT = "lake/pool_commit"


NAMES = MetadataNames(
    "pools",
    output=(MODE, *OF_OUTPUTS, KEY, ORDER, THRESHOLD, TIMES, PREVIEW_ROWS),
    input=(SHAPE, START, STOP, SINCE, REF, POOL_COMMIT),
    without_prefix=(COLUMNS,),
)


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """The settings of one pool and its writes."""

    path: str
    mode: PoolWriteMode = "overwrite"
    ownership: Ownership = "keep"
    partition_expr: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    """The options of `PoolLake.create_pool` for a new pool."""
    times: tuple[str, ...] = ()
    """Fields whose texts are stored as times if they are times."""
    preview_rows: int | None = None

    @classmethod
    def parse(
        cls,
        asset_key: Sequence[str] | None,
        metadata: Mapping[str, Any],
        subject: str,
        *,
        mode: PoolWriteMode = "overwrite",
    ) -> PoolSettings:
        """Read an output's definition metadata. `mode` is the default. Raises InvalidDefinition."""
        partition_expr = metadata.get(PARTITION_EXPR)
        if not isinstance(partition_expr, str | None):
            raise InvalidDefinition(
                f"{PARTITION_EXPR} of {subject} is {partition_expr!r}: name the key that the pool is sorted by"
            )
        key = read_text(metadata, KEY, subject)
        if None not in (key, partition_expr) and key != partition_expr:
            raise InvalidDefinition(
                f"{PARTITION_EXPR} of {subject} is {partition_expr!r}, but {KEY} is {key!r}: "
                "partitions stand for the key that the pool is sorted by"
            )
        options: dict[str, Any] = {"key": key or partition_expr or "ts"}
        if ORDER in metadata:
            options["order"] = read_choice(metadata, ORDER, "desc", get_args(KeyOrder), subject)
        if THRESHOLD in metadata:
            options["threshold"] = read_whole(metadata, THRESHOLD, subject, least=1)
        return cls(
            path=table_path(asset_key, metadata),
            mode=read_choice(metadata, MODE, mode, get_args(PoolWriteMode), subject),
            ownership=read_ownership(metadata, subject),
            partition_expr=partition_expr,
            options=options,
            times=read_names(metadata, TIMES, subject, kind="names of fields", allow_single=True) or (),
            preview_rows=read_whole(metadata, PREVIEW_ROWS, subject, most=50),
        )


@dataclass(frozen=True, slots=True)
class PoolInputSettings:
    """The part of a pool to read, and the state to read it from."""

    columns: tuple[str, ...] | None = None
    shape: str | None = None
    start: Any = None
    stop: Any = None
    since_last_run: bool = False
    commit: str | None = None

    @classmethod
    def parse(cls, metadata: Mapping[str, Any], subject: str) -> PoolInputSettings:
        """Read an input's metadata. Raises InvalidDefinition."""
        since = metadata.get(SINCE)
        if since not in (None, LAST_RUN):
            raise InvalidDefinition(f"{SINCE} of {subject} is {since!r}: use {LAST_RUN!r}")
        others = [name for name in (POOL_COMMIT, REF) if name in metadata]
        if since is not None and others:
            raise InvalidDefinition(f"{subject} has both {SINCE} and {others[0]}: leave one of them out")
        return cls(
            columns=read_names(metadata, COLUMNS, subject, kind="column names"),
            shape=read_text(metadata, SHAPE, subject),
            start=metadata.get(START),
            stop=metadata.get(STOP),
            since_last_run=since is not None,
            commit=read_text(metadata, POOL_COMMIT, subject),
        )
