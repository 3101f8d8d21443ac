"""`lake table`: one Delta table's history, shape and upkeep."""

from __future__ import annotations

from datetime import timedelta

import click

from lake_core.cli.context import Context, Span, command


@click.group()
def table() -> None:
    """A Delta table of the lake: history, detail, optimize, vacuum, checkpoint."""


@table.command()
@click.argument("path")
@click.option("--ref", default="main", show_default=True)
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@command
def history(context: Context, path: str, ref: str, limit: int) -> None:
    """A table's versions, newest first."""
    rows = context.open().delta(path, ref=ref).history(limit)
    context.output.rows(rows, ["version", "timestamp", "operation", "operationParameters"])


@table.command()
@click.argument("path")
@click.option("--ref", default="main", show_default=True)
@command
def detail(context: Context, path: str, ref: str) -> None:
    """What a table is, and how large."""
    found = context.open().delta(path, ref=ref).detail()
    lines = [f"{name:20} {getattr(found, name)}" for name in found.__dataclass_fields__]
    context.output.show(found, "\n".join(lines))


@table.command()
@click.argument("path")
@click.option("--branch", default="main", show_default=True)
@click.option("--where", help="Only these partitions: Spark SQL.")
@click.option("--zorder-by", multiple=True, help="Sort by this column; several times if need be.")
@command
def optimize(context: Context, path: str, branch: str, where: str | None, zorder_by: tuple[str, ...]) -> None:
    """Put a table's small files together."""
    with context.open().session(branch, message=f"Optimize {path}") as session:
        done = session.delta(path).optimize(where, zorder_by=zorder_by)
    metrics = done.metrics
    text = f"{metrics.get('numRemovedFiles', 0)} files became {metrics.get('numAddedFiles', 0)}"
    context.output.show({"metrics": metrics, "published": session.result}, text)


@table.command()
@click.argument("path")
@click.option("--branch", default="main", show_default=True)
@click.option("--retention", type=Span(), help="The table's own by default.")
@command
def vacuum(context: Context, path: str, branch: str, retention: timedelta | None) -> None:
    """End the retention of a table's older versions; `lake gc` then deletes what nothing else reaches."""
    with context.open().session(branch, message=f"Vacuum {path}") as session:
        session.delta(path).vacuum(retention)
    context.output.show({"published": session.result}, f"older versions of {path} are let go: `lake gc` deletes their files")


@table.command()
@click.argument("path")
@command
def checkpoint(context: Context, path: str) -> None:
    """Write a checkpoint of a table of main, in place."""
    context.open().checkpoint(path)
    context.output.show({"checkpoint": path}, f"{path} has a checkpoint of its latest version")
