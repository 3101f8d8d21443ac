"""`lake pool`: pools of records, in a lake or in a Zed lake of its own."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, cast

import click
import pyarrow.parquet as pq

from lake_core.cli.context import Context, Span, command
from lake_core.cli.names import Ref, TablePath
from lake_core.cli.pool_rows import FORMATS, RowFormat, format_of, named_errors, read_rows
from lake_core.delta import DeltaTable
from lake_core.lake.errors import DatasetExists, DatasetNotFound
from lake_core.pool import Pool, PoolConfig, PoolLake, Scan
from lake_core.pool.errors import InvalidZson
from lake_core.pool.export import to_columns, to_delta_columns
from lake_core.pool.ksuid import NIL
from lake_core.pool.ndjson import format_json
from lake_core.pool.zson.formatter import format_value
from lake_core.pool.zson.reader import parse_value
from lake_core.readable import count_of, readable_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta

    from lake_core.pool.config import Order
    from lake_core.pool.value import Value

zed_option = click.option(
    "--zed",
    "location",
    metavar="LOCATION",
    help="The location of a Zed lake whose pools are used instead of the lake's own.",
)


@click.group()
def pool() -> None:
    """Load records of any shape into pools, and maintain pools.

    POOL is the path of a pool in the lake. With --zed LOCATION it is the name of a pool in the Zed lake at that
    location, and a ref is one of the pool's branches, or the id of a commit.
    """


@dataclass(frozen=True, slots=True)
class _At:
    """A pool, and the branch or commit of it."""

    pool: Pool
    branch: str = "main"
    commit: str | None = None

    def scan(self, **options: Any) -> Scan:
        return self.pool.scan(self.branch, self.commit, **options)


def _at(context: Context, path: str, ref: str, location: str | None) -> _At:
    """Return a pool at a ref."""
    if location is None:
        return _At(context.open().pool(path, ref=ref))
    pool = _zed_lake(context, location).pool(path)
    is_commit = len(ref) == len(NIL) and ref not in {branch.name for branch in pool.list_branches()}
    return _At(pool, commit=ref) if is_commit else _At(pool, ref)


def _zed_lake(context: Context, location: str) -> PoolLake:
    return PoolLake.open(location, storage_options=context.storage_options)


@contextmanager
def _written(
    context: Context, path: str, branch: str, message: str, location: str | None
) -> Iterator[tuple[_At, Callable[[], Any]]]:
    """Yield a pool to write to, and a function that returns afterwards what was published."""
    if location is not None:
        yield _At(_zed_lake(context, location).pool(path), branch), lambda: None
        return
    lake = context.open()
    try:
        lake.at(branch).dataset(path, "pool")  # Raises in words of the branch, where the session would speak of itself.
    except DatasetNotFound as error:
        raise DatasetNotFound(f"{error}. Create a pool with `lake pool create {path}`") from None
    with lake.session(branch, message=message) as session:
        yield _At(session.pool(path)), lambda: session.result


@pool.command("ls")
@click.option("--ref", default="main", show_default=True, type=Ref())
@zed_option
@command
def ls(context: Context, ref: str, location: str | None) -> None:
    """List the pools, their keys and their sizes."""
    if location is None:
        state = context.open().at(ref)
        rows = [
            _row(path, state.pool(path), "main")
            for path, record in sorted(state.datasets().items())
            if record.format == "pool"
        ]
    else:
        zed = _zed_lake(context, location)
        rows = [_row(config.name, zed.pool(config.name), ref) for config in zed.pools()]
    shown = [row | {"size": readable_bytes(row["bytes"])} for row in rows]
    context.output.rows(
        rows if context.output.as_json else shown, ["pool", "key", "order", "records", "objects", "size", "id"]
    )


def _row(name: str, opened: Pool, branch: str) -> dict[str, Any]:
    config: PoolConfig = opened.config
    objects = opened.objects(branch)
    key = ",".join(".".join(path) for path in config.keys)
    size = {
        "records": sum(each.count for each in objects),
        "objects": len(objects),
        "bytes": sum(each.size for each in objects),
    }
    return {"pool": name, "key": key, "order": config.order, **size, "id": config.id}


@pool.command()
@click.argument("path", metavar="POOL", type=TablePath())
@click.option(
    "--key",
    default="ts",
    show_default=True,
    help="The field by which records are sorted; a.b is the field b of the field a.",
)
@click.option(
    "--order",
    type=click.Choice(["asc", "desc"]),
    default="desc",
    show_default=True,
    help="Whether the smallest or the largest keys come first.",
)
@click.option("--branch", default="main", show_default=True, type=Ref(), help="The branch of the lake.")
@click.option("-m", "--message", default="", help="The message of the lake's commit.")
@zed_option
@command
def create(
    context: Context, path: str, key: str, order: Order, branch: str, message: str, location: str | None
) -> None:
    """Create an empty pool.

    In a lake the pool is published in a commit. With --zed it is created in the Zed lake, which must exist.
    """
    published = None
    if location is not None:
        created = _zed_lake(context, location).create_pool(path, key=key, order=order)
    else:
        try:
            with context.open().session(branch, message=message or f"Create {path}") as session:
                created = session.create_pool(path, key=key, order=order)
        except DatasetExists:
            raise DatasetExists(
                f"there is a dataset or a file at {path}, or above or below it, on {branch}: choose another path"
            ) from None
        published = session.result
    text = f"{path} created, sorted by {key}, {'smallest' if order == 'asc' else 'largest'} first"
    context.output.show(
        {"pool": path, "key": key, "order": order, "id": created.config.id, "published": published}, text
    )


@pool.command()
@click.argument("path", metavar="POOL", type=TablePath())
@click.option("--ref", default="main", show_default=True, type=Ref())
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@zed_option
@command
def log(context: Context, path: str, ref: str, limit: int, location: str | None) -> None:
    """List a pool's commits, newest first."""
    at = _at(context, path, ref, location)
    rows = [
        {
            "commit": commit.id,
            "date": commit.date,
            "author": commit.author,
            "message": commit.message if context.output.as_json else commit.message.partition("\n")[0],
            "meta": None if commit.meta.body is None else format_value(commit.meta),
        }
        for commit in islice(at.pool.log(at.branch, at.commit), limit)
    ]
    context.output.rows(rows, ["commit", "date", "author", "message", "meta"])


@pool.command()
@click.argument("path", metavar="POOL", type=TablePath())
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(exists=True, dir_okay=False, allow_dash=True)
)
@click.option("--format", type=click.Choice(FORMATS), help="The format of the files; by default that of their names.")
@click.option("--branch", default="main", show_default=True, type=Ref())
@click.option("--author", default="")
@click.option("-m", "--message", default="")
@zed_option
@command
def load(
    context: Context,
    path: str,
    files: tuple[str, ...],
    format: RowFormat | None,
    branch: str,
    author: str,
    message: str,
    location: str | None,
) -> None:
    """Load files of NDJSON, ZSON, ZNG or Parquet. `-` is standard input.

    Each line of NDJSON holds one object. In a lake all files are published in one commit. With --zed each file is a
    commit.
    """
    formats = [format_of(name, format) for name in files]
    loaded = 0
    with _written(context, path, branch, message or f"Load {path}", location) as (at, published):
        for number, (name, kind) in enumerate(zip(files, formats, strict=True)):
            note = f". {count_of(number, 'file')} before it {'is' if number == 1 else 'are'} loaded"
            with named_errors(name, note if location and number else ""), click.open_file(name, "rb") as file:
                before = {each.id for each in at.pool.objects(at.branch)}
                at.pool.load(read_rows(cast("BinaryIO", file), kind), at.branch, author=author, message=message)
                loaded += sum(each.count for each in at.pool.objects(at.branch) if each.id not in before)
    text = f"{count_of(loaded, 'record')} loaded into {path}"
    context.output.show({"records": loaded, "published": published()}, text)


@pool.command()
@click.argument("path", metavar="POOL", type=TablePath())
@click.option("--ref", default="main", show_default=True, type=Ref())
@click.option(
    "--start",
    metavar="KEY",
    help="Only records whose key is at least this, written as in ZSON: 7, 2026-01-31T00:00:00Z.",
)
@click.option("--stop", metavar="KEY", help="Only records whose key is smaller than this.")
@click.option("--where", help="Only records for which this Spark SQL condition over their fields is true.")
@click.option("--columns", help="Only these fields, separated by commas.")
@click.option("-n", "--limit", type=click.IntRange(0), help="The largest number of records to print.")
@click.option("-f", "--format", type=click.Choice(["zson", "ndjson"]), default="zson", show_default=True)
@zed_option
@command
def scan(
    context: Context,
    path: str,
    ref: str,
    start: str | None,
    stop: str | None,
    where: str | None,
    columns: str | None,
    limit: int | None,
    format: Literal["zson", "ndjson"],
    location: str | None,
) -> None:
    """Print the records of a pool in the order of its key, one per line."""
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    bounds = {"start": _key(start), "stop": _key(stop)}
    values = islice(_at(context, path, ref, location).scan(**bounds, where=where, columns=names).values(), limit)
    if context.output.as_json:
        context.output.rows([{"zson": format_value(value)} for value in values], ())
        return
    text = format_value if format == "zson" else format_json
    for value in values:
        context.output.write(f"{text(value)}\n".encode())


def _key(text: str | None) -> Value | str | None:
    """Return a bound: the value of a ZSON text, or else the text itself.

    Raises UsageError for a text that may be meant as a number or a time.
    """
    if text is None:
        return None
    try:
        return parse_value(text)
    except InvalidZson:
        if text[:1].isdigit():
            quoted = f"'\"{text}\"'"
            raise click.UsageError(
                f"{text!r} is not a key: write a time as 2026-01-31T00:00:00Z, and text as {quoted}"
            ) from None
        return text


@pool.command()
@click.argument("path", metavar="POOL", type=TablePath())
@click.option("--branch", default="main", show_default=True, type=Ref())
@click.option(
    "--cold", type=Span(), default="0s", show_default=True, help="Leave out data objects that are younger than this."
)
@zed_option
@command
def compact(context: Context, path: str, branch: str, cold: timedelta, location: str | None) -> None:
    """Combine small and overlapping data objects of a pool."""
    with _written(context, path, branch, f"Compact {path}", location) as (at, published):
        before = {each.id for each in at.pool.objects(at.branch)}
        at.pool.compact(branch=at.branch, cold_age=cold)
        after = {each.id for each in at.pool.objects(at.branch)}
    counts = {"removed": len(before - after), "added": len(after - before)}
    became = f"{count_of(counts['removed'], 'data object')} became {counts['added']}"
    text = became if counts["removed"] else "no data objects need it, nothing is changed"
    context.output.show(counts | {"published": published()}, text)


@pool.command()
@click.argument("path", metavar="POOL", type=TablePath())
@click.option("--branch", default="main", show_default=True, type=Ref())
@click.option(
    "--retention", type=Span(), help="Keep what was deleted within this time; the pool's own retention by default."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@zed_option
@command
def vacuum(
    context: Context, path: str, branch: str, retention: timedelta | None, dry_run: bool, location: str | None
) -> None:
    """Delete objects that no branch of a pool needs.

    In a lake this only ends the retention of older states; `lake gc` then deletes the objects.
    """
    with _written(context, path, branch, f"Vacuum {path}", location) as (at, published):
        result = at.pool.vacuum(**({} if retention is None else {"retention": retention}), dry_run=dry_run)
    if location is None:
        text = (
            f"older states of {path} {'would be' if dry_run else 'are'} no longer retained: run `lake gc` to "
            "delete their data objects"
        )
    else:
        text = f"{count_of(len(result.keys), 'object')} {'would be ' if dry_run else ''}deleted"
    context.output.show({"deleted": result.keys, "published": published()}, text)


@pool.command()
@click.argument("path", metavar="POOL", type=TablePath())
@click.option("--ref", default="main", show_default=True, type=Ref())
@click.option("--parquet", "file", metavar="FILE", type=click.Path(dir_okay=False), help="Write a Parquet file.")
@click.option(
    "--delta",
    "table",
    metavar="TABLE",
    help="Create a Delta table at this path of the lake or, with --zed, at this location.",
)
@click.option(
    "--branch",
    default="main",
    show_default=True,
    type=Ref(),
    help="The branch of the lake on which the table is created.",
)
@zed_option
@command
def export(
    context: Context, path: str, ref: str, file: str | None, table: str | None, branch: str, location: str | None
) -> None:
    """Write the records of a pool to a Parquet file or a Delta table, as columns.

    Fields that a record does not have are null. Whole numbers and fractions in one field become doubles if no digit is
    lost; other fields of several types become JSON text. The metadata of each column holds its Zed type.
    """
    if (file is None) == (table is None):
        raise click.UsageError("no target is given: pass --parquet FILE or --delta TABLE")
    scanned = _at(context, path, ref, location).scan()
    count = sum(each.count for each in scanned.objects)
    if file is not None:
        reader = to_columns(scanned)
        try:
            with pq.ParquetWriter(file, reader.schema) as writer:
                for batch in reader:
                    writer.write_batch(batch)
        except OSError as error:
            raise click.FileError(file, str(error)) from None
    elif table is not None:
        rows = to_delta_columns(scanned)
        if location is None:
            with context.open().session(branch, message=f"Export {path}") as session:
                session.create_delta(table, rows.schema).append(rows)
        else:
            DeltaTable.create(table, rows.schema, storage_options=context.storage_options).append(rows)
    target = file or table
    context.output.show({"records": count, "to": target}, f"{count_of(count, 'record')} of {path} written to {target}")
