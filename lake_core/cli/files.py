"""`lake ls, cat, head, import`: what lies at a ref, and bringing in what lies in the lake's folder."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import click

from lake_core.cli.context import Context, command
from lake_core.cli.names import Place, PlaceParam, Ref
from lake_core.dataset import resolver
from lake_core.errors import InvalidKey, LakeError, NotFound
from lake_core.lake import Lake
from lake_core.lake.state_store import StateStore
from lake_core.lake.view import dataset_above
from lake_core.readable import count_of, readable_bytes
from lake_core.store import FolderStore, ObjectMeta

_BLOCK = 8 << 20
_LAST = "\U0010ffff"
"""Sorts behind whatever stands in a folder."""


@click.command()
@click.argument("place", metavar="[REF:][PREFIX]", default="", type=PlaceParam())
@click.option("-r", "--recursive", is_flag=True, help="Everything below, too.")
@command
def ls(context: Context, place: Place, recursive: bool) -> None:
    """List folders, tables and plain files of a ref. A table is one entry, whatever its files."""
    state = context.open().at(place.ref)
    rows = list(_entries(state, place, recursive))
    if not rows and place.path:
        raise NotFound(f"nothing lies at {place}: `lake ls {place.ref}:` lists what does", key=place.path)
    context.output.rows(rows, ["kind", "name", "size", "modified"])


def _entries(state: StateStore, place: Place, recursive: bool) -> Iterator[dict[str, Any]]:
    datasets = state.datasets()
    if place.path in datasets:
        yield _dataset_row(place.path, datasets[place.path].format)
        return
    if place.path and state.exists(place.path):
        yield _file_row(state.head(place.path))
        return
    prefix = f"{place.path}/" if place.path else ""
    start_after = ""
    while True:
        for meta in state.list(prefix, start_after=start_after):
            dataset = dataset_above(meta.key, datasets)
            name, slash, _ = meta.key[len(prefix) :].partition("/")
            if dataset is not None and (recursive or dataset.path == prefix + name):
                yield _dataset_row(dataset.path, dataset.format)
                start_after = f"{dataset.path}/{_LAST}"
                break
            if slash and not recursive:
                yield {"kind": "folder", "name": f"{prefix}{name}/"}
                start_after = f"{prefix}{name}/{_LAST}"
                break
            yield _file_row(meta)
        else:
            return


def _dataset_row(path: str, format: str) -> dict[str, Any]:
    return {"kind": format, "name": path}


def _file_row(meta: ObjectMeta) -> dict[str, Any]:
    return {"kind": "file", "name": meta.key, "size": meta.size, "modified": meta.last_modified}


@click.command()
@click.argument("place", metavar="[REF:]PATH", type=PlaceParam())
@command
def cat(context: Context, place: Place) -> None:
    """Print a plain file of a ref as it is."""
    state = context.open().at(place.ref)
    if place.path in state.datasets():
        raise InvalidKey(f"{place} is a table: `lake head {place}` shows its first rows", key=place.path)
    size = state.head(place.path).size
    if context.output.as_json:
        data = bytes(state.get(place.path))
        try:
            content = {"text": data.decode()}
        except UnicodeDecodeError:
            content = {"base64": base64.b64encode(data).decode()}
        context.output.show({"key": place.path, "ref": place.ref, "size": size} | content)
        return
    for start in range(0, size, _BLOCK):
        context.output.write(bytes(state.get(place.path, start, min(size, start + _BLOCK))))


@click.command()
@click.argument("place", metavar="[REF:]TABLE", type=PlaceParam())
@click.option("-n", "--rows", "count", type=click.IntRange(0), default=10, show_default=True, help="How many rows.")
@click.option("--where", help="Only rows for which it is true: Spark SQL.")
@click.option("--columns", help="Only these columns, separated by commas.")
@command
def head(context: Context, place: Place, count: int, where: str | None, columns: str | None) -> None:
    """Show the first rows of a table."""
    names = None if columns is None else [name.strip() for name in columns.split(",")]
    reader = context.open().delta(place.path, ref=place.ref).to_batches(names, where)
    rows = list(islice((row for batch in reader for row in batch.slice(0, count).to_pylist()), count)) if count else []
    context.output.rows(rows, reader.schema.names)


Kind = Literal["delta", "parquet", "files"]


@dataclass(frozen=True, slots=True)
class Import:
    """What is to be brought in, and as what."""

    path: str
    kind: Kind
    objects: int
    bytes: int

    def __str__(self) -> str:
        description = {"delta": "a Delta table", "parquet": "a folder of Parquet files, as a Delta table", "files": "plain files"}[
            self.kind
        ]
        return f"{self.path}: {description} ({count_of(self.objects, 'object')}, {readable_bytes(self.bytes)})"


@click.command("import")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--as", "kind", type=click.Choice(["delta", "parquet", "files"]), help="What it is, instead of by a look at it.")
@click.option("--partition-by", multiple=True, help="Of Parquet files: a partition column in the folders' names; several times if need be.")
@click.option("--to", help="Of plain files: the folder, or for one file the key, that they get in the lake.")
@click.option("--branch", "branch_name", default="main", show_default=True, type=Ref())
@click.option("-m", "--message")
@click.option("--dry-run", is_flag=True, help="Only tell what it would be brought in as.")
@command
def import_(
    context: Context,
    path: Path,
    kind: Kind | None,
    partition_by: tuple[str, ...],
    to: str | None,
    branch_name: str,
    message: str | None,
    dry_run: bool,
) -> None:
    """Bring in what lies in the lake's folder. A Delta table, a folder of Parquet files, or plain files: nothing is copied.

    PATH begins at the lake's root, or at the working directory inside of it.
    """
    lake = context.open()
    source = _look(lake, _path_in_lake(lake, path), kind)
    if to is not None and source.kind != "files":
        raise click.UsageError(f"--to renames plain files, and {source}: leave it out, or say --as files")
    if partition_by and source.kind != "parquet":
        raise click.UsageError(f"--partition-by is for Parquet files, and {source}: leave it out")
    if dry_run:
        context.output.show({"import": source, "dry_run": True}, f"would bring in {source}")
        return
    with lake.session(branch_name, message=message or f"Import {source.path}") as session:
        if source.kind == "delta":
            session.import_delta(source.path)
        elif source.kind == "parquet":
            session.import_parquet(source.path, partition_by=list(partition_by) or None)
        else:
            is_file = lake.repository.root.exists(source.path)
            prefix = source.path if is_file or not source.path else f"{source.path}/"
            session.import_objects(prefix, to=to if to is None or prefix == source.path else f"{to.rstrip('/')}/")
    context.output.show({"import": source, "published": session.result}, f"brought in {source}, commit {_commit(session.result)}")


def _commit(published: Any) -> str:
    return str(published.commit[:12])


def _path_in_lake(lake: Lake, path: Path) -> str:
    """A path as the lake knows it. Raises InvalidKey for one outside of the lake's folder."""
    root = Path(lake.url.removeprefix("file://"))
    if not root.is_dir():
        return str(path).strip("/")
    root = root.resolve()
    there = path.resolve()
    if there.exists() and there.is_relative_to(root):
        return _key(there.relative_to(root))
    if path.is_absolute() or ".." in path.parts or (there.exists() and not (root / path).exists()):
        raise InvalidKey(f"{path} lies outside of the lake's folder {root}: move or copy it there first", key=str(path))
    return _key(path)


def _key(path: Path) -> str:
    return "" if path == Path() else path.as_posix()


def _look(lake: Lake, path: str, kind: Kind | None) -> Import:
    """Tell what lies at a path of the lake's folder. Raises NotFound."""
    root = lake.repository.root
    if path and root.exists(path):
        return Import(path, _checked(path, kind, "files"), 1, root.head(path).size)
    metas = [meta for meta in root.list(f"{path}/" if path else "") if not meta.key.startswith(("_lake/", "_lakefs/"))]
    if not metas:
        raise NotFound(f"nothing lies at {path!r} in the lake's folder {lake.url}: put it there first", key=path)
    folder = FolderStore(root, path) if path else root
    apparent: Kind = "files"
    shown = [name for meta in metas if not (name := meta.key.rpartition("/")[2]).startswith((".", "_"))]
    if path and resolver("delta").stands(folder):
        apparent = "delta"
    elif path and shown and all(name.endswith(".parquet") for name in shown):
        apparent = "parquet"
    return Import(path, _checked(path, kind, apparent), len(metas), sum(meta.size for meta in metas))


def _checked(path: str, wanted: Kind | None, apparent: Kind) -> Kind:
    if wanted == "delta" and apparent != "delta":
        raise LakeError(f"no Delta table lies at {path!r}: leave --as out")
    if apparent == "delta" and wanted not in (None, "delta"):
        raise LakeError(f"{path!r} is a Delta table, and its files alone are not its rows: leave --as out")
    return wanted or apparent
