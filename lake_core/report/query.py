"""Queries over the tables of a state, with DuckDB."""

from __future__ import annotations

import logging
import re
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake_core.dataset import dataset_format
from lake_core.errors import LakeError
from lake_core.variant_values import InvalidVariant, decoded, has_variants, json_text, json_values, with_json

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from lake_core.inspection import Inspection
    from lake_core.lake.state.dataset_record import DatasetRecord
    from lake_core.lake.state.state_store import StateStore


class InvalidQuery(LakeError):
    """A query is invalid, or names a table or column that the lake does not have."""


class QueryTimeout(LakeError):
    """A query took longer than its limit. Narrow it down, or run it with `lake sql`, which has none."""


class MissingLibrary(LakeError):
    """An optional library is not installed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a query may use."""

    seconds: float | None = None
    memory: str | None = None
    """As DuckDB writes it: `512MB`."""
    threads: int | None = None
    table_bytes: int | None = None
    """The most bytes of a table that are kept in memory, where a query scans it more than once."""
    result_bytes: int | None = None
    """The most bytes of a result."""


def run_query(state: StateStore, query: str, most_rows: int, limits: Limits | None = None) -> pa.Table:
    """Run a query over the tables of a state, and return its first rows.

    Raises MissingLibrary, InvalidQuery, and QueryTimeout if it takes longer than its limit.

    Tables are read by their logs: only the columns that the query names, and if it compares columns of one table with
    literals, only the files that can match. DuckDB itself opens no file and no connection.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingLibrary("`lake sql` needs DuckDB: install it with `pip install 'lake-orch[sql]'`") from None
    names = _names(state)
    limits = limits or Limits()
    connection = duckdb.connect(config=_settings(limits))
    timer = _Timer(connection.interrupt, limits.seconds)
    tables: list[TableRows] = []
    try:
        parsed = _parsed(query)
        for name in _mentioned(parsed, names):
            tables.append(TableRows(_inspected(state, names[name]), _use(parsed, name), limits.table_bytes))
            connection.register(name, tables[-1])
        if timer.has_rung:
            raise _timeout(limits)
        relation = connection.sql(query)
        if relation is None:
            raise InvalidQuery(
                "the statement returns no rows, and `lake sql` only reads: write in a session, from Python or Spark"
            )
        return _bounded(relation.limit(most_rows).to_arrow_reader(), limits.result_bytes)
    except duckdb.Error as error:
        if timer.has_rung:
            raise _timeout(limits) from None
        if (failure := next((table.failure for table in tables if table.failure is not None), None)) is not None:
            raise failure from None
        known = ", ".join(quoted(path) for path in sorted(set(names.values()))) or "none"
        others = "".join(
            f"\n{dataset_format(record.format).instead_of_sql(record.path)}"
            for record in _others_mentioned(state, parsed)
        )
        raise InvalidQuery(f"{str(error).strip()}{others}\nThe tables of {state.name} are {known}") from None
    finally:
        timer.cancel()
        connection.close()


def _timeout(limits: Limits) -> QueryTimeout:
    return QueryTimeout(f"the query took longer than {limits.seconds:g} seconds, and was stopped")


def _bounded(reader: pa.RecordBatchReader, most_bytes: int | None) -> pa.Table:
    batches, size = [], 0
    for batch in reader:
        batches.append(batch)
        size += batch.nbytes
        if most_bytes is not None and size > most_bytes:
            raise InvalidQuery(f"the result takes more than {most_bytes:,} bytes: select fewer columns or rows")
    return pa.Table.from_batches(batches, reader.schema)


def _settings(limits: Limits) -> dict[str, str | bool | int | float | list[str]]:
    """Return the settings of a connection that reaches no file and no network, and that queries cannot change."""
    settings: dict[str, str | bool | int | float | list[str]] = {
        "enable_external_access": "false",
        "python_enable_replacements": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        "lock_configuration": "true",
    }
    if limits.memory is not None:
        settings |= {"memory_limit": limits.memory, "max_temp_directory_size": "0MB"}
    if limits.threads is not None:
        settings["threads"] = str(limits.threads)
    return settings


class _Timer:
    """Interrupts a query after some seconds, again and again: an interrupt before it runs has no effect."""

    def __init__(self, interrupt: Callable[[], None], seconds: float | None) -> None:
        self.has_rung = False
        self._interrupt = interrupt
        self._is_over = threading.Event()
        self._thread = None if seconds is None else threading.Thread(target=self._run, args=(seconds,), daemon=True)
        if self._thread is not None:
            self._thread.start()

    def _run(self, seconds: float) -> None:
        while not self._is_over.wait(seconds):
            self.has_rung = True
            self._interrupt()
            seconds = _RING_SECONDS

    def cancel(self) -> None:
        """Do not interrupt what comes later."""
        self._is_over.set()
        if self._thread is not None:
            self._thread.join()


_RING_SECONDS = 0.1


def _inspected(state: StateStore, path: str) -> Inspection[Any]:
    view = state.dataset(path)
    return view.format.inspect(view)


def _others_mentioned(state: StateStore, parsed: exp.Expr | None) -> Sequence[DatasetRecord]:
    """Return the datasets that a query names, but that are no tables."""
    named = set() if parsed is None else {table.name.lower() for table in parsed.find_all(exp.Table)}
    records = [record for record in state.datasets().values() if not dataset_format(record.format).is_tabular]
    return [record for record in records if {record.path.lower(), record.path.rpartition("/")[2].lower()} & named]


def quoted(name: str) -> str:
    """Return a name as an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


def _names(state: StateStore) -> Mapping[str, str]:
    """Return the paths of tables by the names that a query may use. Names are in lower case: DuckDB ignores case."""
    paths = [path for path, record in state.datasets().items() if dataset_format(record.format).is_tabular]
    last = [path.rpartition("/")[2].lower() for path in paths]
    short = {name: path for name, path in zip(last, paths, strict=True) if last.count(name) == 1}
    return short | {path.lower(): path for path in paths}


def _mentioned(parsed: exp.Expr | None, names: Collection[str]) -> Collection[str]:
    """Return the names that a query reads; all names if it may read some that cannot be determined here."""
    if not isinstance(parsed, exp.Query):
        return names
    tables = {table.name.lower() for table in parsed.find_all(exp.Table)}
    if tables <= set(names) | {part.alias.lower() for part in parsed.find_all(exp.CTE)}:
        return [name for name in names if name in tables]
    return names


@dataclass(frozen=True, slots=True)
class Use:
    """The columns and rows that a query needs of a table, as far as its text shows."""

    once: bool = False
    """Whether the engine scans the table only once. Then its rows are streamed."""
    columns: frozenset[str] | None = None
    """The names that may be columns of the table, in lower case; None for all."""
    conditions: Sequence[exp.Expr] = ()
    """The comparisons that must be true for all rows that are read."""


def _parsed(query: str) -> exp.Expr | None:
    logger = logging.getLogger("sqlglot")  # It warns of statements that it does not know: DuckDB decides on those.
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        return sqlglot.parse_one(query, dialect="duckdb")
    except (SqlglotError, RecursionError):
        return None
    finally:
        logger.setLevel(level)


def _use(query: exp.Expr | None, name: str) -> Use:
    if not isinstance(query, exp.Query):
        return Use()
    tables = list(query.find_all(exp.Table))
    once = (
        isinstance(query, exp.Select)
        and query.find(exp.With, exp.Pivot) is None
        and sum(table.name.lower() == name.lower() for table in tables) == 1
    )
    names = frozenset(identifier.name.lower() for identifier in query.find_all(exp.Identifier))
    conditions: Sequence[exp.Expr] = ()
    if (
        once
        and len(tables) == 1
        and len(list(query.find_all(exp.Select))) == 1
        and query.find(exp.Join, exp.TableSample) is None
    ):
        where = query.args.get("where")
        conditions = (
            list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this]) if where is not None else []
        )
        conditions = [each for each in conditions if _is_of(tables[0], each)]
    return Use(once, None if _may_take_all(query, tables) else names, conditions)


def _is_of(table: exp.Table, condition: exp.Expr) -> bool:
    """Return whether the left side of a comparison can be a column of the table, given its qualifier."""
    column = condition.this
    if not isinstance(column, exp.Column) or column.args.get("db") is not None:
        return False
    return column.table.lower() in ("", table.alias_or_name.lower())


def _may_take_all(query: exp.Expr, tables: Sequence[exp.Table]) -> bool:
    """Return whether a query may ask for columns that it does not name."""
    if not isinstance(query, exp.Query) or query.find(*_UNNAMED) is not None:
        return True
    # `count(*)` asks for no column.
    if any(not isinstance(star.parent, exp.Count) for star in query.find_all(exp.Star)):
        return True
    if any(join.method for join in query.find_all(exp.Join)):
        return True  # natural, positional
    whole = {table.name.lower() for table in tables} | {alias.name.lower() for alias in query.find_all(exp.TableAlias)}
    return any(column.name.lower() in whole for column in query.find_all(exp.Column))


_UNNAMED = (exp.Columns, exp.Pivot, exp.PositionalColumn, exp.Parameter, exp.Command)
"""The expressions that select columns by a pattern, a rule or a number."""


class TableRows:
    """Rows of a table as an Arrow stream, read only when the engine scans them. Variants are JSON.

    If the engine scans the table once, the rows are streamed. Otherwise the first scan keeps the rows for the others.
    """

    def __init__(self, table: Inspection[Any], use: Use, most_bytes: int | None = None) -> None:
        schema = table.schema()
        if schema is None:
            raise InvalidQuery(f"a dataset of the format {table.format} is not read by SQL")
        names = [name for name in schema.names if use.columns is None or name.lower() in use.columns] or schema.names[
            :1
        ]
        self._table, self._names, self._once = table, names, use.once
        self._schema = _json_schema(pa.schema([schema.field(name) for name in names]))
        self._where = " AND ".join(_as_where(use.conditions, schema)) or None
        self._rows: pa.Table | None = None
        self._most_bytes = most_bytes
        self.failure: InvalidQuery | None = None
        """Why the rows could not be read. The engine would say it with a traceback."""

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        if self._once:
            return self._batches().__arrow_c_stream__(requested_schema)
        if self._rows is None:
            self._rows = self._kept(self._read(None))
        return self._rows.__arrow_c_stream__(requested_schema)

    def _kept(self, reader: pa.RecordBatchReader) -> pa.Table:
        batches, size = [], 0
        for batch in reader:
            batches.append(batch)
            size += batch.nbytes
            if self._most_bytes is not None and size > self._most_bytes:
                raise InvalidQuery(
                    "the query scans a table more than once, and its columns take more than "
                    f"{self._most_bytes:,} bytes of memory: name fewer columns, or scan it once"
                )
        return pa.Table.from_batches(batches, self._schema)

    def _batches(self) -> pa.RecordBatchReader:
        try:
            return self._read(self._where)
        except LakeError:
            if self._where is None:
                raise
            # A condition only saves reading: DuckDB evaluates it again.
            return self._read(None)

    def _read(self, where: str | None) -> pa.RecordBatchReader:
        reader = self._table.batches(self._names, where)
        if not any(has_variants(field.type) for field in reader.schema):
            return reader
        schema = _json_schema(reader.schema)
        return pa.RecordBatchReader.from_batches(schema, self._with_json(reader, schema))

    def _with_json(self, reader: pa.RecordBatchReader, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        for batch in reader:
            try:
                yield _with_json(batch, schema)
            except InvalidVariant as error:
                self.failure = InvalidQuery(
                    f"a value is not a variant ({error}): leave its column out, or restore its file from a backup"
                )
                raise self.failure from None


def _json_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with text in the place of variants."""
    return pa.schema([field.with_type(with_json(field.type)) for field in schema])


def _with_json(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with JSON in the place of variants. Raises InvalidVariant."""
    columns = [
        pa.array([json_values(each, column.type, _json_of) for each in column.to_pylist()], field.type)
        if has_variants(column.type)
        else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _json_of(value: Mapping[str, bytes]) -> str:
    return json_text(decoded(value["metadata"], value["value"]))


_COMPARISONS = (exp.EQ, exp.LT, exp.LTE, exp.GT, exp.GTE)


def _as_where(conditions: Sequence[exp.Expr], schema: pa.Schema) -> Iterator[str]:
    """Yield, as Spark SQL, the conditions that compare a column with a literal of the same kind.

    DuckDB checks all of them again.
    """
    fields = {field.name.lower(): field.type for field in schema}
    for condition in conditions:
        column, literal = condition.this, condition.expression
        if not isinstance(condition, _COMPARISONS) or not isinstance(literal, exp.Literal):
            continue
        if pa.types.is_struct(fields.get(column.table.lower(), pa.null())):
            continue  # `s.id` may be a field of the column s.
        if _means_the_same(literal, fields.get(column.name.lower(), pa.null())):
            comparison = type(condition)(this=exp.column(column.name, quoted=True), expression=literal.copy())
            yield comparison.sql(dialect="spark")


def _means_the_same(literal: exp.Literal, kind: pa.DataType) -> bool:
    """Return whether a literal is certainly the same value of a type in Spark and in DuckDB."""
    if not literal.is_string:
        return bool(pa.types.is_integer(kind)) and literal.name.isdecimal()
    return bool(pa.types.is_string(kind) or (pa.types.is_date(kind) and _DATE.fullmatch(literal.name)))


_DATE = re.compile(r"\d{4}-\d\d-\d\d")
