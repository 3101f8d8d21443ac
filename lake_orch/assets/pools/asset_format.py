"""Pools: records of any shape become pools that are sorted by a key, and back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake_core.pool import DataObject, Pool
from lake_core.pool.added import added_since
from lake_core.pool.errors import NoSuchPool, OutsideRange
from lake_core.pool.key_range import KeyRange
from lake_core.pool.marker import is_recorded
from lake_core.readable import count_of, readable_bytes
from lake_core.workspace import STAGED, Workspace
from lake_orch.assets.asset_format import (
    SINGLE_BATCH,
    AssetFormat,
    AssetInput,
    AssetOutput,
    AssetRead,
    AssetWrite,
    ReadingStep,
    Written,
    check_appends,
)
from lake_orch.assets.pools.data import PoolSlice, holds_records, is_type_of_records, load, write_objects
from lake_orch.assets.pools.key_ranges import ranges_of_partitions
from lake_orch.assets.pools.landing import PoolLanding
from lake_orch.assets.pools.metadata import READING_CODE, PoolResult, pool_metadata
from lake_orch.assets.pools.owner import claim
from lake_orch.assets.pools.settings import NAMES, SINCE, PoolInputSettings, PoolSettings, PoolWriteMode
from lake_orch.assets.report import describe_write
from lake_orch.definition_metadata import MOST_PREVIEW_ROWS, PARTITION_EXPR, missing_partition_expr
from lake_orch.errors import InvalidDefinition, OutsideRegion, TableNotEmpty

if TYPE_CHECKING:
    from lake_core.errors import LakeError
    from lake_orch.assets.spark_source import SparkSource


@dataclass(frozen=True, slots=True)
class PoolFormat(AssetFormat):
    """Pools of records."""

    format = "pool"
    kind = "zed"
    names = NAMES
    takes_partitions = True
    reading_code = READING_CODE

    mode: PoolWriteMode = "overwrite"
    preview_rows: int = 5
    spark: SparkSource | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.preview_rows <= MOST_PREVIEW_ROWS:
            raise InvalidDefinition(f"preview_rows is {self.preview_rows}: use a number from 0 to {MOST_PREVIEW_ROWS}")

    def accepts(self, value: object) -> bool:
        """Return whether a value is an iterable of records, of which no other library knows."""
        return holds_records(value)

    def continues(self, value: object) -> bool:
        """Return whether a value is an iterable of records, or a list without any."""
        return self.accepts(value) or (isinstance(value, list | tuple) and not value)

    def loads(self, annotation: object) -> bool:
        """Return whether a type is one of records."""
        return is_type_of_records(annotation)

    def write(self, value: Any, output: AssetOutput) -> PoolWrite:
        """Prepare the write of records."""
        settings = PoolSettings.parse(output.asset_key, output.metadata, output.producer, mode=self.mode)
        settings = replace(settings, path=output.located(settings.path))
        output.check_mode(settings.mode)
        ranges = None
        if output.partitions is not None:
            if settings.partition_expr is None:
                raise missing_partition_expr(output.producer, "column")
            ranges = ranges_of_partitions(output.partitions, output.keys, output.producer)
        shown = self.preview_rows if settings.preview_rows is None else settings.preview_rows
        return PoolWrite(output, settings, ranges, value, shown)

    def read(self, request: AssetInput) -> PoolRead:
        """Prepare the read of records."""
        return PoolRead(request, PoolInputSettings.parse(request.settings, request.subject), self.spark)

    def landing(self, output: AssetOutput) -> PoolLanding:
        """Prepare to load batches of files."""
        settings = PoolSettings.parse(output.asset_key, output.metadata, output.producer, mode="append")
        check_appends(settings.mode, output.producer)
        shown = self.preview_rows if settings.preview_rows is None else settings.preview_rows
        return PoolLanding(settings.path, settings, output.owner, shown)


@dataclass(frozen=True, slots=True)
class PoolWrite(AssetWrite[PoolResult]):
    """The write of one output to a pool. Its records are stored once, and committed again after a conflict."""

    tries = 20

    output: AssetOutput
    settings: PoolSettings
    ranges: Sequence[KeyRange] | None
    value: Any
    shown: int
    """The number of records to show."""
    stored: dict[str, list[DataObject]] = field(default_factory=dict)
    """The data objects, by the id of the pool."""

    def to(self, workspace: Workspace) -> PoolResult:
        """Write the records to a pool, and commit them with the transaction identifier of the attempt."""
        settings, subject, txn = self.settings, self.output.subject, (workspace.task_id, SINGLE_BATCH)
        path = settings.path
        pool: Pool = workspace.find(path, "pool") or workspace.create(path, "pool", **settings.options)
        self._check_key(pool)
        if pool.has_marker(txn):
            return PoolResult(pool.tip(), None)
        meta = claim(pool, self.output.owner, settings.ownership, replaces=settings.mode == "overwrite") or None
        ranges = self.ranges or [KeyRange()]
        if settings.mode in ("error", "ignore") and _has_records(pool, ranges):
            return self._refuse(pool)
        if pool.config.id not in self.stored:
            self.stored[pool.config.id] = self._store(pool, ranges)
        objects = self.stored[pool.config.id]
        message = subject if objects else f"{subject}, which is empty"
        if settings.mode == "append":
            commit = pool.add_objects(objects, message=message, meta=meta, txn=txn)
        else:
            commit = pool.replace(objects, ranges, message=message, meta=meta, txn=txn)
        return PoolResult(pool.tip() if commit is None else commit.id, objects)

    def written(self, result: PoolResult, workspace: Workspace) -> Written:
        """Describe the write, and the pool after it."""
        settings, receipt = self.settings, workspace.receipt
        pool: Pool = workspace.after(settings.path, "pool")
        if result.skipped or (result.objects and receipt is not None and receipt.state != STAGED):
            result = replace(result, commit=_commit_of(pool, (workspace.task_id, SINGLE_BATCH)) or result.commit)
        url = workspace.url(settings.path)
        size = f"{count_of(result.records, 'record')} ({readable_bytes(result.bytes)})"
        metadata = pool_metadata(
            result,
            pool,
            url=url,
            path=settings.path,
            operation=settings.mode,
            receipt=receipt,
            preview_rows=self.shown,
        )
        # A retry has the same commit as the attempt that it repeats, so it does not make downstream assets stale.
        summary = describe_write(size, url, f"commit {result.commit}", receipt, skipped=result.skipped)
        return Written(summary, metadata, result.commit)

    def _check_key(self, pool: Pool) -> None:
        """Raise InvalidDefinition if the partitions stand for a key other than the pool's."""
        key = ".".join(pool.config.keys[0])
        if self.settings.partition_expr not in (None, key):
            raise InvalidDefinition(
                f"{PARTITION_EXPR} of {self.output.subject} is {self.settings.partition_expr!r}, "
                f"but the pool {self.settings.path} is sorted by {key!r}: partitions must stand for that key"
            )

    def _store(self, pool: Pool, ranges: Sequence[KeyRange]) -> list[DataObject]:
        try:
            return write_objects(self.value, pool, ranges, self.output.subject, self.settings.times)
        except OutsideRange as error:
            raise OutsideRegion(
                f"{error}. Return only records of the run's partitions. For partitions by time, "
                "keys must be datetimes with a zone, or texts of fields that lake/times names"
            ) from None

    def _refuse(self, pool: Pool) -> PoolResult:
        if self.settings.mode == "error":
            part = "" if self.ranges is None else " for the run's partitions"
            raise TableNotEmpty(
                f"mode 'error' writes only the first records, but {self.settings.path} already has some{part}: "
                "use mode 'overwrite' or 'append'"
            )
        return PoolResult(pool.tip())


class PoolRead(AssetRead):
    """The read of an input from a pool."""

    def __init__(self, request: AssetInput, settings: PoolInputSettings, spark: SparkSource | None) -> None:
        self._request, self._settings, self._spark = request, settings, spark
        self._part: PoolSlice | None = None

    def absent(self, message: str) -> LakeError:
        """Return NoSuchPool."""
        return NoSuchPool(message)

    def start(self, dataset: Pool | None, step: ReadingStep | None) -> str:
        """Find the data objects to read. All of the pool counts as read."""
        assert dataset is not None
        dataset.store.note_scan()
        request, settings = self._request, self._settings
        if request.keys is not None and request.metadata.get(PARTITION_EXPR) is None:
            raise missing_partition_expr(request.producer, "column")
        key_range = KeyRange.of(settings.start, settings.stop)
        if not settings.since_last_run:
            objects = dataset.objects(commit=settings.commit)
            self._part = PoolSlice(dataset, objects, [key_range], settings.columns, settings.shape)
            return f"commit {settings.commit or dataset.tip()}"
        if step is None:
            raise InvalidDefinition(
                f"{SINCE} of {request.subject} needs a run: leave it out to load a value outside of runs"
            )
        if step.is_staged():
            raise InvalidDefinition(
                f"{request.subject} reads what is new in {request.path}, and this run has staged changes to it that "
                "are not published yet: materialize the two assets in separate runs"
            )
        since, until = step.unread(dataset.tip)
        added = added_since(dataset, since, until)
        path_of_key = dataset.config.keys[0]
        values = [value for value in added.values if not key_range.is_bounded or key_range.contains(value, path_of_key)]
        self._part = PoolSlice(dataset, added.objects, [key_range], settings.columns, settings.shape, values)
        return f"what was added {'up' if since is None else f'after commit {since}, up'} to commit {until}"

    def load(self, dataset: Pool | None, keys: Sequence[str] | None, annotation: object) -> Any:
        """Return the records of some partitions."""
        assert self._part is not None, "start comes first"
        part = self._part if keys is None else self._of_partitions(self._part, keys)
        return load(part, annotation, self._spark, self._request.subject)

    def _of_partitions(self, part: PoolSlice, keys: Sequence[str]) -> PoolSlice:
        """Return the part of a slice that is in some partitions."""
        (whole,) = part.ranges
        name = f"asset {self._request.producer}"
        if whole.is_bounded:
            raise InvalidDefinition(
                f"{name} is partitioned: its partitions select the keys to load, so leave out lake/start and lake/stop"
            )
        ranges = ranges_of_partitions(self._request.of_partitions(), keys, name)
        path = part.pool.config.keys[0]
        values = [value for value in part.values if any(each.contains(value, path) for each in ranges)]
        return replace(part, ranges=ranges, values=values)


def _has_records(pool: Pool, ranges: Sequence[KeyRange]) -> bool:
    return any(next(pool.scan(start=each.start, stop=each.stop).values(), None) is not None for each in ranges)


def _commit_of(pool: Pool, txn: tuple[str, int]) -> str | None:
    """Return the id of the commit that recorded a transaction identifier, or None."""
    id = None
    for commit in pool.log():
        if commit.markers is None:
            continue
        if not is_recorded(commit.markers, txn):
            break
        id = commit.id
    return id
