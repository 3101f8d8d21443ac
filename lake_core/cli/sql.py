"""`lake sql`: a query over the tables of a ref, by DuckDB."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from lake_core.cli.context import Context, command
from lake_core.cli.names import Ref
from lake_core.errors import LakeError
from lake_core.lake.state_store import StateStore


class InvalidQuery(LakeError):
    """A query is wrong, or names what the lake does not have."""


class MissingLibrary(LakeError):
    """An optional library is not installed."""


@click.command()
@click.argument("query")
@click.option("--ref", default="main", show_default=True, type=Ref())
@click.option("-n", "--rows", "count", type=click.IntRange(1), default=1000, show_default=True, help="At most so many rows.")
@command
def sql(context: Context, query: str, ref: str, count: int) -> None:
    """Query the tables of a ref in DuckDB's SQL. For example: lake sql 'select count(*) from "tables/orders"'.

    A table has its path for a name, in double quotes, and where no other path ends alike its last part too: orders. Nothing is written.
    """
    rows = run_query(context.open().at(ref), query, count + 1)
    context.output.rows(rows.slice(0, count).to_pylist(), rows.column_names)
    if len(rows) > count:
        click.echo(f"only the first {count:,} rows are shown: ask for more with -n", err=True)


def run_query(state: StateStore, query: str, most_rows: int) -> pa.Table:
    """Run a query over the Delta tables of a state, and return its first rows. Raises MissingLibrary, InvalidQuery.

    Rows come from the tables' own logs: of the columns that the query names, and where one table is read with plain comparisons, of the
    files that can match. The engine itself opens no file and no connection.
    """
    try:
        import duckdb
    except ImportError:
        raise MissingLibrary("`lake sql` needs DuckDB: install it with `pip install 'lake-orch[sql]'`") from None
    names = _names(state)
    connection = duckdb.connect(config={"enable_external_access": "false", "python_enable_replacements": "false"})
    try:
        parsed = _parsed(query)
        for name in _mentioned(query, parsed, names):
            connection.register(name, _rows(state, names[name], _use(parsed, name)))
        relation = connection.sql(query)
        if relation is None:
            raise InvalidQuery("the statement returns no rows: `lake sql` only reads. Write in a session, from Python or Spark")
        return relation.limit(most_rows).to_arrow_table()
    except duckdb.Error as error:
        known = ", ".join(f'"{path}"' for path in sorted(set(names.values()))) or "none"
        raise InvalidQuery(f"{str(error).strip()}\nThe tables of {state.name} are {known}") from None
    finally:
        connection.close()


def _names(state: StateStore) -> Mapping[str, str]:
    """The paths of the tables by the names that a query may use for them, in lower case: DuckDB's names know no case."""
    paths = [path for path, record in state.datasets().items() if record.format == "delta"]
    last = [path.rpartition("/")[2].lower() for path in paths]
    short = {name: path for name, path in zip(last, paths, strict=True) if last.count(name) == 1}
    return short | {path.lower(): path for path in paths}


def _mentioned(query: str, parsed: exp.Expr | None, names: Iterable[str]) -> Sequence[str]:
    """The names that a query reads; where it cannot be parsed here, all that occur in its text."""
    if parsed is None or isinstance(parsed, exp.Command):
        return [name for name in names if name in query.lower()]
    tables = {table.name.lower() for table in parsed.find_all(exp.Table)}
    return [name for name in names if name in tables]


@dataclass(frozen=True, slots=True)
class Use:
    """What a query asks of a table, as far as it is plain to see."""

    once: bool = False
    """Whether it is read once only: then its rows are streamed."""
    columns: frozenset[str] | None = None
    """Names in lower case that may be its columns; None for all."""
    conditions: Sequence[exp.Expr] = ()
    """Comparisons that all of its rows must meet."""


def _parsed(query: str) -> exp.Expr | None:
    try:
        return sqlglot.parse_one(query, dialect="duckdb")
    except SqlglotError:
        return None


def _use(query: exp.Expr | None, name: str) -> Use:
    if query is None:
        return Use()
    tables = list(query.find_all(exp.Table))
    once = sum(table.name.lower() == name.lower() for table in tables) == 1
    names = frozenset(identifier.name.lower() for identifier in query.find_all(exp.Identifier))
    conditions: Sequence[exp.Expr] = ()
    if len(tables) == 1 and isinstance(query, exp.Select) and len(list(query.find_all(exp.Select))) == 1 and not query.find(exp.Join):
        where = query.args.get("where")
        conditions = list(where.this.flatten() if isinstance(where.this, exp.And) else [where.this]) if where is not None else []
    return Use(once, None if _may_take_all(query, tables) else names, conditions)


def _may_take_all(query: exp.Expr, tables: Sequence[exp.Table]) -> bool:
    """Whether a query may ask for columns that it does not name."""
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
"""What stands for columns by a pattern, a rule or a number."""


def _rows(state: StateStore, path: str, use: Use) -> pa.Table | pa.RecordBatchReader:
    table = state.delta(path)
    schema: pa.Schema = table.schema
    columns = [name for name in schema.names if use.columns is None or name.lower() in use.columns] or schema.names[:1]
    where = " AND ".join(_as_where(use.conditions, schema)) or None
    read: Callable[..., Any] = table.to_batches if use.once else table.to_arrow
    return read(columns, where)


_COMPARISONS: Mapping[type[exp.Expr], str] = {exp.EQ: "=", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">="}


def _as_where(conditions: Sequence[exp.Expr], schema: pa.Schema) -> Iterator[str]:
    """Those of the conditions that compare a column with a literal of its own kind, as Spark SQL. DuckDB asks all of them again."""
    for condition in conditions:
        operator = _COMPARISONS.get(type(condition))
        if operator is None:
            continue
        column, literal = condition.this, condition.expression
        if not (isinstance(column, exp.Column) and isinstance(literal, exp.Literal)):
            continue
        kind = next((child.type for child in schema if child.name.lower() == column.name.lower()), None)
        if kind is None:
            continue
        quoted = f"`{column.name.replace('`', '``')}`"
        if literal.is_string and (pa.types.is_string(kind) or pa.types.is_date(kind)) and "\\" not in literal.name:
            text = literal.name.replace("'", "''")
            yield f"{quoted} {operator} '{text}'"
        elif not literal.is_string and pa.types.is_integer(kind) and literal.name.isdigit():
            yield f"{quoted} {operator} {literal.name}"
