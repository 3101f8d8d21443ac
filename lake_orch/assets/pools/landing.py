"""Landing of batches in a pool: the lines of their files become records of any shape."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pyarrow import ArrowInvalid

from lake_core.pool import Pool
from lake_core.pool.errors import InvalidJson
from lake_core.pool.marker import TXN_RETENTION
from lake_core.pool.ndjson import lines_of_objects, read_ndjson
from lake_core.pool.value import Value
from lake_core.readable import count_of
from lake_core.workspace import Workspace
from lake_orch.assets.asset_format import AssetLanding, AssetWrite, Batch, Written
from lake_orch.assets.compression import telling_damage
from lake_orch.assets.owner import Owner
from lake_orch.assets.pools.data import named_errors, rows_of
from lake_orch.assets.pools.metadata import PoolResult, pool_metadata
from lake_orch.assets.pools.owner import claim
from lake_orch.assets.pools.settings import PoolSettings
from lake_orch.assets.pools.times import with_times
from lake_orch.errors import UnsupportedData


@dataclass(frozen=True, slots=True)
class PoolLanding(AssetLanding[PoolResult]):
    """The pool in which a landing zone lands."""

    path: str
    settings: PoolSettings
    owner: Owner | None
    """The asset that lands the batches."""
    shown: int
    """The number of records to show."""

    def last_batch(self, dataset: Pool, application: str) -> int | None:
        """Return the number of the last batch, which is the version of a marker."""
        markers = dataset.markers()
        return markers[application].version if application in markers else None

    def identity(self, dataset: Pool) -> str:
        """Return the id of the pool."""
        return str(dataset.config.id)

    def retention(self, dataset: Pool) -> timedelta | None:
        """Return how long the pool's markers live."""
        return TXN_RETENTION

    def write(self, batch: Batch, value: Any | None) -> BatchWrite:
        """Prepare the load of a batch, whose records are read while they are stored."""
        return BatchWrite(self, batch, value)

    def row_count(self, result: PoolResult) -> int:
        """Return the number of records that were loaded."""
        return result.records


@dataclass(frozen=True, slots=True)
class BatchWrite(AssetWrite[PoolResult]):
    """The load of one batch."""

    landing: PoolLanding
    batch: Batch
    value: Any | None
    """What the zone's own function read, or None to read the files as lines of JSON."""

    def to(self, workspace: Workspace) -> PoolResult:
        """Load the records once, with the transaction identifier of the batch.

        Raises:
            UnsupportedData: A line is not a JSON object, or a record cannot be stored in a pool. Nothing was written.
        """
        settings, name, txn = self.landing.settings, self.batch.name, self.batch.txn
        path = settings.path
        pool: Pool = workspace.find(path, "pool") or workspace.create(path, "pool", **settings.options)
        if pool.has_marker(txn):
            return PoolResult(pool.tip(), None)
        meta = claim(pool, self.landing.owner, settings.ownership, replaces=False) or None
        with named_errors(name):
            values = (
                with_times(_lines(self.batch), settings.times)
                if self.value is None
                else rows_of(self.value, name, settings.times)
            )
            objects = pool.write_objects(values, name=name)
        commit = pool.add_objects(objects, message=name, meta=meta, txn=txn)
        return PoolResult(pool.tip() if commit is None else commit.id, objects)

    def written(self, result: PoolResult, workspace: Workspace) -> Written:
        """Describe the load, and the pool after it."""
        path, receipt, shown = self.landing.path, workspace.receipt, self.landing.shown
        pool, url = workspace.after(path, "pool"), workspace.url(path)
        metadata = pool_metadata(
            result, pool, url=url, path=path, operation="append", receipt=receipt, preview_rows=shown
        )
        summary = (
            f"it is already in {url}: nothing was written"
            if result.skipped
            else f"{count_of(result.records, 'record')} in {url}"
        )
        return Written(summary, metadata, result.commit)


def _lines(batch: Batch) -> Iterator[Value]:
    """Yield the records of a batch's files. Raises UnsupportedData for a line that is not a JSON object."""
    for name, stream in batch.open_files():
        with io.TextIOWrapper(stream, encoding="utf-8-sig") as lines:
            try:
                with telling_damage(name):
                    yield from read_ndjson(lines_of_objects(lines))
            except (InvalidJson, UnicodeDecodeError, ArrowInvalid) as error:
                raise UnsupportedData(
                    f"{name} does not have one JSON object in each line: {error}. Correct the file, or let read= of "
                    f"the landing zone name a function that reads it. Nothing of {batch.name} was written"
                ) from None
