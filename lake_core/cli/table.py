"""`lake table`: the history, properties and maintenance of a Delta table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from lake_core.cli.context import Context, Span, command
from lake_core.cli.names import Ref, TablePath
from lake_core.delta.row_counts import version_rows
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.readable import count_of
from lake_core.report.values import cell_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake_core.graveler import Commit
    from lake_core.lake import Lake


@click.group()
def table() -> None:
    """Look at a Delta table, and maintain it."""


@table.command()
@click.argument("path", type=TablePath())
@click.option("--ref", default="main", show_default=True, type=Ref())
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@command
def history(context: Context, path: str, ref: str, limit: int) -> None:
    """List the versions of a table, newest first.

    Each has its time, committer and commit, and the number of rows that it added and removed.
    """
    lake = context.open()
    table = lake.delta(path, ref=ref)
    versions = table.history(limit)
    changes = version_rows(table.snapshot, [each["version"] for each in versions])
    commits = (
        {} if _is_session(lake, ref) else _commits_by_version(lake.log(ref, dataset=path, first_parent=True), path)
    )
    rows = []
    for each in versions:
        change, commit = changes[each["version"]], commits.get(each["version"])
        row = each | {"date": datetime.fromtimestamp(each["timestamp"] / 1000, UTC), "rows_added": change.added}
        row |= {"rows_removed": change.removed, "rows_exact": change.exact}
        if commit is not None:
            metadata = {name: value for name, value in commit.metadata.items() if name not in ("datasets", "at")}
            row |= {"commit": commit.id, "committer": commit.committer, "message": commit.message, "metadata": metadata}
        rows.append(row)
    if context.output.as_json:
        context.output.rows(rows, ())
        return
    shown = [
        row
        | {"commit": row.get("commit", "")[:12], "rows": _rows_text(row), "parameters": row.get("operationParameters")}
        | {"by": row.get("committer", row.get("userName"))}
        for row in rows
    ]
    context.output.rows(
        shown, ["version", "date", "operation", "rows", "parameters", "by", "commit", "message", "metadata"]
    )


def _is_session(lake: Lake, ref: str) -> bool:
    return ref.split("~")[0] in {record.id for record in lake.list_sessions(include_ended=True)}


def _commits_by_version(commits: Iterable[Commit], path: str) -> dict[int, Commit]:
    versions: dict[int, Commit] = {}
    for commit in commits:
        version = changed_datasets(commit)[path].get("version")
        if isinstance(version, int):
            versions.setdefault(version, commit)
    return versions


def _rows_text(row: Mapping[str, Any]) -> str:
    about = "" if row["rows_exact"] else "about "
    added, removed = ("?" if row[name] is None else f"{row[name]:,}" for name in ("rows_added", "rows_removed"))
    return f"{about}+{added} -{removed}"


@table.command()
@click.argument("path", type=TablePath())
@click.option("--ref", default="main", show_default=True, type=Ref())
@command
def detail(context: Context, path: str, ref: str) -> None:
    """Show the properties and the size of a table."""
    table_detail = context.open().delta(path, ref=ref).detail()
    values = {name: getattr(table_detail, name) for name in table_detail.__dataclass_fields__ if name != "columns"}
    lines = [f"{name:20} {cell_text(value)}" for name, value in values.items()]
    lines += ["columns"] + [f"  {name:18} {kind}" for name, kind in table_detail.columns.items()]
    context.output.show(table_detail, "\n".join(lines))


@table.command()
@click.argument("path", type=TablePath())
@click.option("--branch", default="main", show_default=True, type=Ref())
@click.option("--where", help="Only the partitions that match this Spark SQL condition.")
@click.option("--zorder-by", multiple=True, help="Sort by this column; may be repeated.")
@click.option("--full", is_flag=True, help="Sort all files of a clustered table, not only new ones.")
@click.option("--purge", is_flag=True, help="Rewrite the files with deletion vectors, and no others.")
@command
def optimize(
    context: Context, path: str, branch: str, where: str | None, zorder_by: tuple[str, ...], full: bool, purge: bool
) -> None:
    """Compact the small files of a table."""
    lake = context.open()
    lake.at(branch).dataset(path, "delta")  # Raises in words of the branch, where the session would speak of itself.
    with lake.session(branch, message=f"Optimize {path}") as session:
        metrics = session.delta(path).optimize(where, zorder_by=zorder_by, full=full, purge=purge).metrics
    removed, added = metrics.get("numRemovedFiles", 0), metrics.get("numAddedFiles", 0)
    text = f"{count_of(removed, 'file')} became {added}" if removed else "no files need it, nothing is changed"
    context.output.show({"metrics": metrics, "published": session.result}, text)


@table.command()
@click.argument("path", type=TablePath())
@click.option("--branch", default="main", show_default=True, type=Ref())
@click.option(
    "--retention", type=Span(), help="How long older versions are kept; the table's own retention by default."
)
@command
def vacuum(context: Context, path: str, branch: str, retention: timedelta | None) -> None:
    """End the retention of older versions of a table. `lake gc` then deletes the files that nothing else reaches."""
    lake = context.open()
    lake.at(branch).dataset(path, "delta")  # Raises in words of the branch, where the session would speak of itself.
    with lake.session(branch, message=f"Vacuum {path}") as session:
        session.delta(path).vacuum(retention)
    context.output.show(
        {"published": session.result},
        f"older versions of {path} are no longer retained: run `lake gc` to delete their files",
    )


@table.command()
@click.argument("path", type=TablePath())
@click.option("--branch", default="main", show_default=True, type=Ref())
@command
def checkpoint(context: Context, path: str, branch: str) -> None:
    """Write a checkpoint of a table. That of a branch other than main is only for readers of the lake."""
    context.open().maintenance.checkpoint(path, branch)
    context.output.show({"checkpoint": path}, f"{path} has a checkpoint of its latest version")
