"""A batch of files, for the run that appends it to a table or pool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any

import pyarrow as pa
from fsspec import AbstractFileSystem

from lake_core.delta.conform import convert_exactly
from lake_core.parquet_rows import is_read_by_arrow, stream_parquet
from lake_core.txn import Txn
from lake_orch.assets.compression import PACKINGS, telling_damage
from lake_orch.assets.landing.json_lines import moments_as_text, read_json
from lake_orch.assets.landing.ledger import BatchRecord, Ledger
from lake_orch.assets.landing.rounded_numbers import check_csv
from lake_orch.assets.landing.zone import FoundFile, LandingZone, file_of, followed
from lake_orch.assets.tables.casting import cast_rows, check_names
from lake_orch.assets.tables.rows.arrow import ArrowRows
from lake_orch.errors import DefinitionMismatch, FilesGone, InvalidDefinition, UnsupportedData

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
_DECLARED_BY = "the schema of the landing zone"


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

        What a run reads of a batch that has landed changes nothing. Raises InvalidDefinition for an unknown number,
        FilesGone.
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
    def name(self) -> str:
        """Return the name of the batch in errors and the log."""
        return f"batch {self.number} of landing zone {self.zone.name!r}"

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

    def open_files(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the name of each file in errors, with its bytes. The extension decides how it is decompressed."""
        for file, path in zip(self.files, self.paths, strict=True):
            with self.filesystem.open(path, "rb", compression="infer") as stream:
                yield f"{file.key} of landing zone {self.zone.name!r}", stream

    def dataset(self, *, format: Any = None, schema: pa.Schema | None = None) -> ds.Dataset:
        """Open the rows lazily. The schema is that of all files together, if none is given.

        Files are read into memory if Arrow's reader would read other rows: Parquet with int96 or dates of the hybrid
        calendar, which Spark writes; JSON, whose columns only the last line tells; and files whose types are not those
        of the schema. Values are cast to it only exactly.

        `format` is parquet, csv, json, ipc, or a format of `pyarrow.dataset`. By default, the extension decides.

        Raises UnsupportedData if a file cannot be read, has a column that the schema lacks, has values that the schema
        does not fit, or, without a schema, if the types of a column or the spelling of its name differ.
        """
        import pyarrow.dataset as ds  # slow to import

        format = format or self._format()
        with self._telling():
            plain, tables = self._opened(format, schema)
            if schema is None:
                # By default Arrow takes the columns of the first file, and leaves out those that only others have.
                schema = self._unified([*(file.physical_schema for file in plain), *(rows.schema for rows in tables)])
            paths = [fragment.path for fragment in plain]
            lazy = [ds.dataset(paths, format=format, schema=schema, filesystem=self.filesystem)] if paths else []
            # Structs may lack fields, which a dataset of rows in memory would refuse.
            read = [ds.dataset(_in_types_of(schema, rows)) for rows in tables]
            return ds.dataset([*lazy, *read], schema=schema) if read else lazy[0]

    def _opened(self, format: Any, schema: pa.Schema | None) -> tuple[list[ds.Fragment], list[pa.Table]]:
        """Return the files that are left to Arrow's reader, and the rows of the others."""
        import pyarrow.dataset as ds

        if format == "json" or isinstance(format, ds.JsonFileFormat):
            return [], [self._json_rows(path, format, schema) for path in self.paths]
        files = ds.dataset(self.paths, format=format, schema=schema, filesystem=self.filesystem)
        plain, tables = [], []
        # A fragment keeps the footer that it has read.
        for file in files.get_fragments():
            is_parquet = isinstance(file, ds.ParquetFileFragment)
            if is_parquet and not is_read_by_arrow(file.metadata):
                rows = stream_parquet(self.filesystem.open(file.path)).read_all()
                tables.append(self._fitted(file.path, rows, schema))
            elif schema is None or self._is_plain(file, schema):
                plain.append(file)
            else:
                tables.append(self._fitted(file.path, file.to_table(file.physical_schema), schema))
        return plain, tables

    def _json_rows(self, path: str, format: Any, schema: pa.Schema | None) -> pa.Table:
        if schema is None:
            return read_json(self.filesystem, path, format, None)
        text = moments_as_text(schema)
        rows = self._fitted(path, read_json(self.filesystem, path, format, text), text)
        return _in_types_of(schema, rows)

    def _is_plain(self, file: ds.Fragment, schema: pa.Schema) -> bool:
        """Return whether a file has only columns of the schema. Raises DefinitionMismatch for a CSV that has others."""
        import pyarrow.dataset as ds

        present = file.physical_schema
        if isinstance(file.format, ds.CsvFileFormat):
            # Its columns have the schema's types, which Arrow reads their text as.
            check_names(present, schema, self._name_of(file.path), _DECLARED_BY)
            return True
        kinds = {child.name: child.type for child in schema}
        return len(set(present.names)) == len(present.names) and all(
            kinds.get(each.name) == each.type for each in present
        )

    def _fitted(self, path: str, rows: pa.Table, schema: pa.Schema | None) -> pa.Table:
        """Return the rows of a file in the types of the schema. Columns may be missing. Raises DefinitionMismatch."""
        if schema is None:
            return rows
        optional = frozenset(name.lower() for name in schema.names)
        fitted: pa.Table = cast_rows(
            ArrowRows(rows), schema, self._name_of(path), optional, declared_by=_DECLARED_BY
        ).data
        return fitted

    def _name_of(self, path: str) -> str:
        return path.removeprefix(self.root).strip("/")

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn errors about the content of files into UnsupportedData."""
        try:
            with telling_damage("a file"):
                yield
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, DefinitionMismatch) as error:
            raise UnsupportedData(
                f"batch {self.number} of landing zone {self.zone.name!r} cannot be read: {error}. Correct the file, "
                "name the types by schema=, or read the batch by a function of your own, read="
            ) from None

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
        """Read the rows.

        Raises what `dataset` raises, and UnsupportedData for whole numbers in CSV that would be rounded as floats.
        """
        import pyarrow.dataset as ds

        dataset = self.dataset(format=format, schema=schema)
        with self._telling():
            rows = dataset.to_table()
            if isinstance(getattr(dataset, "format", None), ds.CsvFileFormat):
                check_csv(dataset, rows)
            return rows

    def _format(self) -> str:
        names = {_format_of(file.key) for file in self.files}
        if len(names) != 1 or None in names:
            raise InvalidDefinition(
                f"the names of the files in batch {self.number} of landing zone {self.zone.name!r} do not all have the "
                "extension of one known format: name the format by format="
            )
        return str(names.pop())


def _in_types_of(schema: pa.Schema, rows: pa.Table) -> pa.Table:
    """Return the columns of rows in the types that a schema has for their names. Raises ArrowInvalid."""
    fields = [schema.field(name) for name in rows.column_names]
    columns = [convert_exactly(column, child.type) for column, child in zip(rows.columns, fields, strict=True)]
    return pa.Table.from_arrays(columns, names=rows.column_names)


def _format_of(key: str) -> str | None:
    for packed in PACKINGS:
        key = key.removesuffix(packed)
    return _FORMATS.get(key.rpartition(".")[2].lower())


def _now(record: BatchRecord, filesystem: AbstractFileSystem, root: str, zone: LandingZone) -> Iterator[FoundFile]:
    gone = []
    for file in record.files:
        try:
            path = f"{root}/{file.key}"
            yield file_of(file.key, followed(filesystem, path, filesystem.info(path)))
        except FileNotFoundError:
            gone.append(file.key)
    if gone:
        raise FilesGone(
            f"batch {record.number} of landing zone {zone.name!r} cannot be read: {', '.join(gone[:10])} "
            f"{'is' if len(gone) == 1 else 'are'} gone. Put them back, and run the batch again"
        )
