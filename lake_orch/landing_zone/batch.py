"""A batch of files, for the run that appends it to a table or pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from fsspec import AbstractFileSystem

from lake_core.parquet_rows import is_read_by_arrow, stream_parquet
from lake_core.txn import Txn
from lake_orch.errors import FilesGone, InvalidDefinition, UnsupportedData
from lake_orch.landing_zone.ledger import BatchRecord, Ledger
from lake_orch.landing_zone.zone import FoundFile, LandingZone, file_of

if TYPE_CHECKING:
    import pyarrow.dataset as ds

_FORMATS = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "arrow": "ipc",
    "feather": "ipc",
}
_PACKED = (".gz", ".bz2", ".zst", ".lz4")


@dataclass(frozen=True)
class LandedBatch:
    """Files that are committed together, and the transaction identifier to commit them with."""

    zone: LandingZone
    number: int
    files: Sequence[FoundFile]
    """The files at the start of the run."""
    filesystem: AbstractFileSystem = field(repr=False)
    root: str = field(repr=False)

    @classmethod
    def begin(cls, ledger: Ledger, number: int) -> LandedBatch:
        """Start landing a batch with the current state of its files.

        Raises InvalidDefinition for an unknown number, FilesGone.
        """
        record = ledger.batch(number)
        if record is None:
            raise InvalidDefinition(
                f"landing zone {ledger.zone.name!r} has no batch {number}: use the number of a batch that its sensor "
                "made"
            )
        filesystem, root = ledger.zone.filesystem()
        files = list(_now(record, filesystem, root.rstrip("/"), ledger.zone))
        if number > ledger.landed:
            ledger.note_read(files)
        return cls(ledger.zone, number, files, filesystem, root.rstrip("/"))

    @property
    def txn(self) -> Txn:
        """Return the transaction identifier of the batch.

        `table.append(rows, txn=batch.txn)` adds the batch once, even if it is repeated.
        """
        return self.zone.app_id, self.number

    @property
    def paths(self) -> list[str]:
        """Return the paths of the files in `filesystem`."""
        return [f"{self.root}/{file.key}" for file in self.files]

    @property
    def urls(self) -> list[str]:
        """Return the URLs of the files, for engines such as Spark."""
        return [f"{self.zone.url.rstrip('/')}/{file.key}" for file in self.files]

    @property
    def size(self) -> int:
        """Return the size of the files in bytes."""
        return sum(file.size for file in self.files)

    def dataset(self, *, format: Any = None, schema: pa.Schema | None = None) -> ds.Dataset:
        """Open the rows lazily. The schema is that of all files together, if none is given.

        Files of Parquet with int96 or dates of the hybrid calendar, which Spark writes, are read into memory.

        `format` is parquet, csv, json, ipc, or a format of `pyarrow.dataset`. By default, the extension decides.

        Raises UnsupportedData if the types of a column differ, or the spelling of its name.
        """
        import pyarrow.dataset as ds  # slow to import

        format = format or self._format()
        # A fragment keeps the footer that it has read.
        files = ds.dataset(self.paths, format=format, schema=schema, filesystem=self.filesystem)
        fragments = list(files.get_fragments())
        careful = [
            fragment.path
            for fragment in fragments
            if isinstance(fragment, ds.ParquetFileFragment) and not is_read_by_arrow(fragment.metadata)
        ]
        plain = [fragment for fragment in fragments if fragment.path not in careful]
        in_memory = [ds.dataset(stream_parquet(self.filesystem.open(path)).read_all()) for path in careful]
        if schema is None:
            # By default Arrow takes the columns of the first file, and leaves out those that only others have.
            schema = self._unified([*(file.physical_schema for file in plain), *(table.schema for table in in_memory)])
        paths = [fragment.path for fragment in plain]
        lazy = [ds.dataset(paths, format=format, schema=schema, filesystem=self.filesystem)] if paths else []
        return lazy[0] if not in_memory else ds.dataset([*lazy, *in_memory], schema=schema)

    def _unified(self, schemas: Sequence[pa.Schema]) -> pa.Schema:
        name = f"batch {self.number} of landing zone {self.zone.name!r}"
        try:
            unified = pa.unify_schemas(schemas)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UnsupportedData(
                f"the files of {name} do not fit together: {error}. Name the types by schema="
            ) from None
        folded = Counter(column.lower() for column in unified.names)
        twice = next((column for column in unified.names if folded[column.lower()] > 1), None)
        if twice is not None:
            raise UnsupportedData(
                f"the files of {name} spell the column {twice!r} in several ways, which would be several columns: "
                "rename it in the files"
            )
        return unified

    def to_arrow(self, *, format: Any = None, schema: pa.Schema | None = None) -> pa.Table:
        """Read the rows."""
        return self.dataset(format=format, schema=schema).to_table()

    def _format(self) -> str:
        names = {_format_of(file.key) for file in self.files}
        if len(names) != 1 or None in names:
            raise InvalidDefinition(
                f"the names of the files in batch {self.number} of landing zone {self.zone.name!r} do not all have the "
                "extension of one known format: name the format by format="
            )
        return str(names.pop())


def _format_of(key: str) -> str | None:
    for packed in _PACKED:
        key = key.removesuffix(packed)
    return _FORMATS.get(key.rpartition(".")[2].lower())


def _now(record: BatchRecord, filesystem: AbstractFileSystem, root: str, zone: LandingZone) -> Iterator[FoundFile]:
    gone = []
    for file in record.files:
        try:
            yield file_of(file.key, filesystem.info(f"{root}/{file.key}"))
        except FileNotFoundError:
            gone.append(file.key)
    if gone:
        raise FilesGone(
            f"batch {record.number} of landing zone {zone.name!r} cannot be read: {', '.join(gone[:10])} "
            f"{'is' if len(gone) == 1 else 'are'} gone. Put them back, and run the batch again"
        )
