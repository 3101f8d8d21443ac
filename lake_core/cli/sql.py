"""`lake sql`: query the tables of a ref with DuckDB."""

from __future__ import annotations

import click

from lake_core.cli.context import Context, command
from lake_core.cli.names import Ref
from lake_core.python_rows import python_rows
from lake_core.report.query import run_query


@click.command()
@click.argument("query")
@click.option("--ref", default="main", show_default=True, type=Ref())
@click.option(
    "-n",
    "--rows",
    "count",
    type=click.IntRange(1),
    default=1000,
    show_default=True,
    help="The largest number of rows to show.",
)
@command
def sql(context: Context, query: str, ref: str, count: int) -> None:
    """Query the tables of a ref in DuckDB's SQL. For example: lake sql 'select count(*) from "tables/orders"'.

    The name of a table is its path, in double quotes. The last part of the path, such as orders, is enough if only one
    table has it. Nothing is written.
    """
    rows = run_query(context.open().at(ref), query, count + 1)
    context.output.rows(python_rows(rows.slice(0, count)), rows.column_names)
    if len(rows) > count:
        click.echo(f"only the first {count:,} rows are shown: pass a larger -n to see more", err=True)
