"""`format("lake")`: Delta tables by URL, in a lake at any ref, as a Spark data source for DataFrames, views and SQL.

    register(spark)
    spark.read.format("lake").load("lake://prod/main/tables/orders")
    spark.sql("CREATE TEMPORARY VIEW orders USING lake OPTIONS (path 'lake://prod/v1/tables/orders')")

Python workers on the driver's machine (with Spark Connect, on the server's) plan and commit. They need this package.
Executors do not. Spark does not tell a Python data source which columns a query needs: name them by the option
`columns`, or by `.schema(…)`. Filters are not pushed down, because Spark 4.3 applies the filters of one use of a source
to all its uses, so a union of two filtered halves loses rows. Select files by the option `where` instead.

`read_delta` and `write_delta` are faster and return results. Use this source for SQL, or if you prefer Spark's own
interface.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql import types as T
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from lake_core.delta import DeltaTable
from lake_core.delta.errors import SchemaMismatch, TableNotFound
from lake_core.delta.scan import plan_read
from lake_core.errors import InvalidUrl
from lake_core.lake.errors import ReadOnly
from lake_core.lake.filesystem.paths import Paths, Pins
from lake_core.spark.errors import InvalidOption
from lake_core.spark.executor import by_value
from lake_core.spark.source import file_payloads
from lake_core.spark.write import arrow_schema_of, files_of, target_table, write_partition

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from lake_core.delta.operations.write import Write
    from lake_core.lake.filesystem.files import OpenState
    from lake_core.lake.session.session_writer import SessionWriter

NAME = "lake"
_LAKE = "lake://"
_READ = ("path", "version", "timestamp", "columns", "where")
_WRITE = ("path", "txnAppId", "txnVersion", "replaceWhere", "partitionBy")


def register(
    spark: SparkSession,
    *,
    storage_options: Mapping[str, Any] | None = None,
    lakes: Mapping[str, str] | None = None,
    name: str = NAME,
) -> None:
    """Register `format("lake")` in a session.

    Options of a read are `path` (the argument of `load`), `version` or `timestamp`, `columns` (names separated by
    commas) and `where` (Spark SQL). Options of a write (modes `append` and `overwrite`) are `path`, `txnAppId` with
    `txnVersion` (a version that the table already has is skipped), `replaceWhere`, and `partitionBy` for a table that
    is created.

    The state to read is fixed when the DataFrame is created. Spark Connect plans each action again, so each action
    reads the newest state. If that matters, name a version, a commit or a tag.

    Args:
        spark: The session.
        storage_options: The options to open the tables with. They are sent with the source, and never appear in plans
            or settings.
        lakes: The URLs of lakes by their names: `{"prod": "s3://bucket/lake"}` for `lake://prod/main/…`.
        name: The name of the format. To register the source again with other options, pass another name.
    """
    spark.dataSource.register(_source_class(name, _Access(dict(storage_options or {}), dict(lakes or {}))))


@dataclass(frozen=True, slots=True)
class _Access:
    """The options to reach tables. They may contain secrets."""

    storage_options: dict[str, Any] = field(repr=False)
    lakes: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Pin:
    """The state that a source reads, fixed when it is created."""

    version: int
    lakes: Pins = field(default_factory=dict)


def _source_class(name_: str, access: _Access) -> type[DataSource]:
    """Return the source's class.

    Its instances, readers and writers are sent to executors that may lack this package. So all classes are defined in
    this function and pickled by value. They import this package only on the driver, and hold only plain values and
    bytes.
    """
    import pickle

    access_ = pickle.dumps(access)

    class LakeReader(DataSourceReader):
        def __init__(self, plan: tuple[Any, ...]) -> None:
            self.plan = plan

        def partitions(self) -> Sequence[InputPartition]:
            from lake_core.spark.data_source import _payloads

            return [InputPartition(payload) for payload in _payloads(*self.plan)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import pickle
            import zlib

            # There are no files.
            if partition.value is None:
                return
            names, compressed = partition.value
            files = pickle.loads(zlib.decompress(compressed))
            for index in range(len(files.keys)):
                for rows in files.batches(index):
                    yield from rows.select(names).to_batches()

    class LakeWriter(DataSourceArrowWriter):
        def __init__(self, payload: bytes | None, commit: bytes) -> None:
            self.payload, self.planned = payload, commit

        def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
            import pickle

            from pyspark.sql.datasource import WriterCommitMessage

            message = WriterCommitMessage()
            message.files = []  # type: ignore[attr-defined]
            # The write was committed earlier.
            if self.payload is None:
                for _ in iterator:
                    pass
            else:
                for batch in pickle.loads(self.payload)(iterator):
                    message.files.extend(batch.to_pylist())  # type: ignore[attr-defined]
            return message

        def commit(self, messages: list[Any]) -> None:
            from lake_core.spark.data_source import _commit

            _commit(self.planned, [row for message in messages for row in message.files])

        def abort(self, messages: list[Any]) -> None:
            # Spark also calls this after a commit that failed, but which may have succeeded in the store. So files are
            # not deleted here. Vacuum deletes those that are not referenced.
            pass

    class LakeSource(DataSource):
        def __init__(self, options: Mapping[str, str]) -> None:
            try:
                from lake_core.spark.data_source import _pinned
            except ModuleNotFoundError as error:
                import sys

                raise ModuleNotFoundError(
                    f"lake-orch is not installed for the Python with which Spark plans queries, {sys.executable} on "
                    "the driver's machine (PYSPARK_PYTHON): install it there; "
                    f"the other machines do not need it ({error})"
                ) from None

            self.options = dict(options)
            self.access = access_
            self.pin = _pinned(self.access, self.options)

        @classmethod
        def name(cls) -> str:
            return name_

        def schema(self) -> Any:
            from lake_core.spark.data_source import _schema

            return _schema(self.access, self.options, self.pin)

        def reader(self, schema: Any) -> DataSourceReader:
            return LakeReader((self.access, self.options, self.pin, schema))

        def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
            from lake_core.spark.data_source import _plan

            return LakeWriter(*_plan(self.access, self.options, schema, overwrite))

    _pickle_by_value(LakeReader, LakeWriter, LakeSource)
    return LakeSource


def _pickle_by_value(*classes: type) -> None:
    """Let classes be pickled by value, as those of a program are."""
    for kind in classes:
        kind.__module__ = "__main__"


# The functions below run on the driver's machine.


def _pinned(access: bytes, options: Mapping[str, str]) -> bytes | None:
    """Return the state to read, or None if the table does not exist yet."""
    import pickle

    try:
        table, pins = _open(pickle.loads(access), options)
    except TableNotFound:
        return None
    return pickle.dumps(_Pin(table.version, pins))


def _open(access: _Access, options: Mapping[str, str], pin: _Pin | None = None) -> tuple[DeltaTable, Pins]:
    """Open the table of a read. Return it with the pins of its lake."""
    path = _path(options, (*_READ, *_WRITE[1:]))
    version = _option(options, "version")
    at: dict[str, Any] = {
        "version": None if version is None else _whole(version, "version"),
        "timestamp": _option(options, "timestamp"),
    }
    if pin is not None:
        at = {"version": pin.version}
    if not path.startswith(_LAKE):
        return DeltaTable.open(path, storage_options=access.storage_options or None, **at), {}
    paths = Paths(access.lakes, access.storage_options or None)
    if pin is not None:
        paths.pin(pin.lakes)
    open_state, key = _find(paths, path)
    table = open_state.state.delta(key, **at)
    return table, paths.pins()


def _find(paths: Paths, path: str) -> tuple[OpenState, str]:
    open_state, key, _ = paths.find(path.removeprefix(_LAKE))
    if open_state is None or not key.strip("/"):
        raise InvalidUrl(f"{path!r} does not name a table: use lake://<lake>/<ref>/<path of the table>")
    return open_state, key.strip("/")


def _schema(access: bytes, options: Mapping[str, str], pin: bytes | None) -> T.StructType:
    import pickle

    table, _ = _open(pickle.loads(access), options, None if pin is None else pickle.loads(pin))
    schema = _spark_schema(table)
    columns = _option(options, "columns")
    return schema if columns is None else T.StructType([schema[name] for name in _names(schema, _listed(columns))])


def _payloads(
    access: bytes, options: Mapping[str, str], pin: bytes | None, schema: T.StructType
) -> list[tuple[list[str], bytes]]:
    """Return the input of each task of a read: the columns to return, and its files."""
    import pickle

    for option in _WRITE[1:]:
        if _option(options, option) is not None:
            raise InvalidOption(f"{option} is an option of writing, not of reading")
    table, _ = _open(pickle.loads(access), options, None if pin is None else pickle.loads(pin))
    whole = _spark_schema(table)
    names = _names(whole, schema.names)
    for child in schema:
        column = whole[_names(whole, [child.name])[0]]
        if child.dataType != column.dataType or child.name != column.name:
            raise SchemaMismatch(
                f"the schema has {child.name} {child.dataType.simpleString()}, but the table has {column.name} "
                f"{column.dataType.simpleString()}: a schema can only select columns"
            )
    scan = plan_read(table.snapshot, names, _option(options, "where"))
    return [(names, payload) for payload in file_payloads(scan, scan.predicate)]


def _plan(
    access: bytes, options: Mapping[str, str], schema: T.StructType, overwrite: bool
) -> tuple[bytes | None, bytes]:
    """Return the input of the tasks of a write, and the input of its commit.

    The former is None if the write was committed earlier.
    """
    import pickle

    opened: _Access = pickle.loads(access)
    _path(options, _WRITE)
    txn = _txn(options)
    where = _option(options, "replaceWhere")
    if where is not None and not overwrite:
        raise InvalidOption(
            "replaceWhere selects the rows that an overwrite replaces: use it only with mode('overwrite')"
        )
    arrow = arrow_schema_of(schema)
    target, joined = _target(opened, options, arrow)
    planned = _Planned(opened, dict(options), target.version, arrow, overwrite, None if joined is None else joined.pins)
    if target.recorded(txn) is not None:
        return None, pickle.dumps(planned)
    return by_value(write_partition(planned.write(target).writer, schema.names)), pickle.dumps(planned)


@dataclass(frozen=True, slots=True)
class _Joined:
    """The writer of a shared session, and the pins of its lake."""

    writer: SessionWriter
    pins: Pins


@dataclass(frozen=True, slots=True)
class _Planned:
    """A planned write. It is sent from the worker that plans it to the worker that commits it."""

    access: _Access
    options: dict[str, str]
    version: int
    schema: pa.Schema
    overwrite: bool
    pins: Pins | None

    def write(self, table: DeltaTable) -> Write:
        """Plan the write.

        The same version of a table gives the same plan, because the plan keeps the table's metadata.
        """
        if self.overwrite:
            return table.plan_overwrite(self.schema, where=_option(self.options, "replaceWhere"))
        return table.plan_append(self.schema)


def _commit(payload: bytes, rows: Sequence[Mapping[str, Any]]) -> None:
    import pickle

    planned: _Planned = pickle.loads(payload)
    txn = _txn(planned.options)
    table, joined = _target(planned.access, planned.options, planned.schema, planned.version, planned.pins)
    if table.recorded(txn) is not None:
        return
    write, files = planned.write(table), files_of(rows)
    write.writer.claim(files[0], planned.schema.names)
    table.commit(write.operation(*files), txn)
    if joined is not None:
        joined.writer.flush()


def _target(
    access: _Access, options: Mapping[str, str], schema: pa.Schema, version: int | None = None, pins: Pins | None = None
) -> tuple[DeltaTable, _Joined | None]:
    """Open the table to write, at the version for which the write was planned."""
    path = options["path"]
    storage_options = access.storage_options or None
    if not path.startswith(_LAKE):
        if version is not None:
            return DeltaTable.open(path, version=version, storage_options=storage_options), None
        partition_by = _listed(_option(options, "partitionBy") or "")
        where = _option(options, "replaceWhere")
        return target_table(
            path, schema, partition_by, storage_options, schema_mode=None, where=where, txn=_txn(options)
        ), None
    paths = Paths(access.lakes, storage_options)
    paths.pin(pins or {})
    open_state, key = _find(paths, path)
    if open_state.join is None:
        raise ReadOnly(
            f"{path!r} cannot be written, because branches change only by publishing, and commits and tags "
            f"never change: write to a shared session (lake://<lake>/<session>/{key}), or inside `with "
            f"lake.session() as s:` with write_delta(df, s.delta({key!r}))"
        )
    writer = open_state.join()
    table = writer.delta(key, version=version)
    return table, _Joined(writer, paths.pins())


# Options


def _path(options: Mapping[str, str], option_names: Sequence[str]) -> str:
    names = {name.lower(): name for name in option_names}
    unknown = sorted(name for name in options if name.lower() not in names)
    if unknown:
        raise InvalidOption(
            f"format('lake') has no option {', '.join(unknown)}; its options are {', '.join(option_names)}"
        )
    path = _option(options, "path")
    if not path:
        raise InvalidOption(
            "format('lake') needs a path: .load('lake://<lake>/<ref>/<table>'), or the URL of a Delta table"
        )
    return path


def _option(options: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in options.items() if key.lower() == name.lower()), None)


def _txn(options: Mapping[str, str]) -> tuple[str, int] | None:
    app, version = _option(options, "txnAppId"), _option(options, "txnVersion")
    if (app is None) != (version is None):
        raise InvalidOption(
            "txnAppId and txnVersion must be passed together: "
            "they are the source of the rows and the number of the batch"
        )
    return None if app is None or version is None else (app, _whole(version, "txnVersion"))


def _whole(text: str, name: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InvalidOption(f"{name} must be a whole number, not {text!r}")
    return int(text)


def _listed(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _names(schema: T.StructType, names: Sequence[str]) -> list[str]:
    """Return the table's spelling of these column names, ignoring case. Raises SchemaMismatch."""
    folded = {name.lower(): name for name in reversed(schema.names)}
    chosen = [name if name in schema.names else folded.get(name.lower()) for name in names]
    if None in chosen:
        raise SchemaMismatch(
            f"there is no column {names[chosen.index(None)]!r} in the table; the columns are {', '.join(schema.names)}"
        )
    return [name for name in chosen if name is not None]


def _spark_schema(table: DeltaTable) -> T.StructType:
    schema = T.StructType.fromJson(json.loads(table.metadata.schema_string))
    # Spark treats every column of a source as nullable.
    return T.StructType([T.StructField(child.name, child.dataType, True, child.metadata) for child in schema])


__all__ = ["NAME", "register"]
