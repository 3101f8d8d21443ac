"""`lake ls, cat, head, import, drop`: the contents of a ref, imports from the lake's folder, and drops."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lake_core.cli.context import Context, command
from lake_core.cli.names import Location, LocationParam, Ref, TablePath
from lake_core.dataset import dataset_format, format_releases, stored_format
from lake_core.errors import AlreadyExists, InvalidKey, LakeError, NotFound
from lake_core.lake.errors import DatasetExists
from lake_core.lake.state.claims import is_claimed
from lake_core.lake.state.dataset_record import dataset_above
from lake_core.lake.state.view import RESERVED
from lake_core.readable import count_of, readable_bytes
from lake_core.report.entries import entries
from lake_core.store import FolderStore

if TYPE_CHECKING:
    from lake_core.lake import Lake
    from lake_core.lake.session.private_session import Session

_BLOCK = 8 << 20


@click.command()
@click.argument("location", metavar="[REF:][PREFIX]", default="", type=LocationParam())
@click.option("-r", "--recursive", is_flag=True, help="Also list everything below.")
@command
def ls(context: Context, location: Location, recursive: bool) -> None:
    """List folders, tables, pools, arrays and plain files of a ref. A dataset is one entry."""
    state = context.open().at(location.ref)
    rows = list(entries(state, location.path, recursive))
    if not rows and location.path:
        raise NotFound(
            f"there is nothing at {location}: run `lake ls {location.ref}:` to list what there is", key=location.path
        )
    context.output.rows(rows, ["kind", "name", "size", "modified"])


@click.command()
@click.argument("path", type=TablePath())
@click.option("--branch", "branch_name", default="main", show_default=True, type=Ref(), help="Where to drop it.")
@click.option("-m", "--message", help="The message of the commit.")
@command
def drop(context: Context, path: str, branch_name: str, message: str | None) -> None:
    """Drop a table, arrays or a pool. Older commits still have it, until `lake gc` deletes what they alone need.

    `lake revert COMMIT` brings it back.
    """
    lake = context.open()
    with lake.session(branch_name, message=message or f"Drop {path}") as session:
        session.drop(path)
    published = session.result
    assert published is not None  # the session is published when its block ends
    context.output.show(
        published,
        f"commit {published.commit[:12]} on {branch_name} dropped {path}: "
        f"`lake revert {published.commit[:12]}` brings it back",
    )


@click.command()
@click.argument("location", metavar="[REF:]PATH", type=LocationParam())
@command
def cat(context: Context, location: Location) -> None:
    """Print the content of a plain file of a ref."""
    state = context.open().at(location.ref)
    record = state.datasets().get(location.path)
    if record is not None:
        raise InvalidKey(
            f"{location} is a dataset of the format {record.format}: `lake head {location}` shows its first rows",
            key=location.path,
        )
    size = state.head(location.path).size
    if context.output.as_json:
        data = bytes(state.get(location.path))
        try:
            content = {"text": data.decode()}
        except UnicodeDecodeError:
            content = {"base64": base64.b64encode(data).decode()}
        context.output.show({"key": location.path, "ref": location.ref, "size": size} | content)
        return
    for start in range(0, size, _BLOCK):
        context.output.write(bytes(state.get(location.path, start, min(size, start + _BLOCK))))


@click.command()
@click.argument("location", metavar="[REF:]DATASET", type=LocationParam())
@click.option(
    "-n", "--rows", "count", type=click.IntRange(0), default=10, show_default=True, help="The number of rows to show."
)
@click.option("--where", help="Show only the rows for which this Spark SQL condition is true.")
@click.option("--columns", help="Show only these columns, separated by commas.")
@command
def head(context: Context, location: Location, count: int, where: str | None, columns: str | None) -> None:
    """Show the first rows of a table, or the first records of a pool."""
    chosen = None if columns is None else [name.strip() for name in columns.split(",")]
    dataset = context.open().at(location.ref).dataset(location.path)
    names, rows = dataset.format.head(dataset, count, columns=chosen, where=where)
    context.output.rows(rows, names)


_PARQUET, _FILES = "parquet", "files"
_DESCRIPTIONS = {_PARQUET: "a folder of Parquet files, as a Delta table", _FILES: "plain files"}


class Kind(click.ParamType[str]):
    """What files are imported as: a dataset of an installed format, a folder of Parquet files, or plain files."""

    name = "kind"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the kind. Fail for one that no installed format has."""
        kinds = [*format_releases(), *_DESCRIPTIONS]
        if value not in kinds:
            self.fail(f"{value!r} is not one of {', '.join(map(repr, kinds))}.", param, ctx)
        return str(value)


@dataclass(frozen=True, slots=True)
class Import:
    """The files to import, and the kind of dataset they become."""

    path: str
    kind: str
    objects: int
    bytes: int

    @property
    def is_dataset(self) -> bool:
        """Return whether the files are a dataset already."""
        return self.kind not in _DESCRIPTIONS

    def __str__(self) -> str:
        return (
            f"{self.path}: {_described(self.kind)} ({count_of(self.objects, 'object')}, {readable_bytes(self.bytes)})"
        )


@click.command("import")
@click.argument("path")
@click.option(
    "--as",
    "kind",
    type=Kind(),
    help="What the source is: parquet, files, or a format, such as delta; determined from its files by default.",
)
@click.option(
    "--partition-by",
    multiple=True,
    help="A partition column in the folder names of Parquet files; may be repeated.",
)
@click.option("--to", help="The folder, or for a single file the key, that plain files get in the lake.")
@click.option("--branch", "branch_name", default="main", show_default=True, type=Ref())
@click.option("-m", "--message")
@click.option("--dry-run", is_flag=True, help="Only show what would be imported.")
@click.option(
    "--copy",
    is_flag=True,
    help="Import plain files of the branch, such as those from lakeFS; data files are copied.",
)
@command
def import_(
    context: Context,
    path: str,
    kind: str | None,
    partition_by: tuple[str, ...],
    to: str | None,
    branch_name: str,
    message: str | None,
    dry_run: bool,
    copy: bool,
) -> None:
    """Import files that are in the lake's folder.

    They are a dataset, such as a Delta table or a Zed lake with one pool, a folder of Parquet files, or plain files.

    No data file is copied, unless --copy is given.

    PATH is relative to the lake's root, or to the working directory inside of it.
    """
    lake = context.open()
    if copy:
        if to is not None or partition_by or dry_run or kind in _DESCRIPTIONS:
            raise click.UsageError("--copy is for datasets: leave out --to, --partition-by and --dry-run")
        _import_copied(context, lake, path.strip("/"), kind, branch_name, message)
        return
    path_in_lake = _path_in_lake(lake, path)
    with lake.session(branch_name, message=message or f"Import {path_in_lake}") as session:
        _check_free(lake, session, path_in_lake)
        source = _look(lake, path_in_lake, kind)
        if to is not None and source.kind != _FILES:
            raise click.UsageError(f"--to renames plain files, and {source}: leave it out, or pass --as files")
        if partition_by and source.kind != _PARQUET:
            raise click.UsageError(f"--partition-by is for Parquet files, and {source}: leave it out")
        if source.kind != _FILES:
            session.check_free(path_in_lake, source.kind if source.is_dataset else "delta")
        if source.is_dataset:
            dataset_format(source.kind).open(FolderStore(lake.repository.root, path_in_lake), clock=None)
        prefix, target = _prefixes(lake, source, to)
        changed = source.kind != _FILES or _check_files(lake, session, prefix, target)
        if source.kind == _PARQUET:
            session.import_parquet(source.path, partition_by=list(partition_by) or None)
        if dry_run or not changed:
            session.abandon()
        elif source.is_dataset:
            session.import_dataset(source.path, source.kind)
        elif source.kind == _FILES:
            session.import_objects(prefix, to=target)
    if not changed:
        text = f"nothing changed: {branch_name} has {source} already"
        context.output.show({"import": source, "unchanged": True, "dry_run": dry_run}, text)
    elif dry_run:
        context.output.show({"import": source, "dry_run": True}, f"would bring in {source}")
    else:
        context.output.show(
            {"import": source, "published": session.result}, f"brought in {source}, commit {_commit(session.result)}"
        )


def _import_copied(
    context: Context, lake: Lake, path: str, kind: str | None, branch_name: str, message: str | None
) -> None:
    """Import plain files of a branch as a dataset."""
    with lake.session(branch_name, message=message or f"Import {path}") as session:
        files = FolderStore(session, path)
        format = kind or stored_format(files)
        if format is None or not dataset_format(format).exists(files):
            expected = "a dataset of an installed format" if kind is None else _described(kind)
            raise NotFound(f"the plain files at {branch_name}:{path} are not {expected}", key=path)
        record = session.import_dataset(path, format, copy_files=True)
    context.output.show(
        {"import": record, "published": session.result},
        f"{path} is a {record.format} dataset of the lake, commit {_commit(session.result)}",
    )


def _commit(published: Any) -> str:
    return str(published.commit[:12])


def _path_in_lake(lake: Lake, text: str) -> str:
    """Return a path relative to the lake's root.

    Raises InvalidKey for a path outside of the lake's folder, for the whole folder, and for the lake's own files.
    """
    path = Path(text)
    root = Path(lake.url.removeprefix("file://"))
    key = _key(path)
    if root.is_dir():
        root = root.resolve()
        resolved = path.resolve()
        if resolved.exists() and resolved.is_relative_to(root):
            key = _key(resolved.relative_to(root))
        elif text not in ("", ".") and (
            path.is_absolute() or ".." in path.parts or (resolved.exists() and not (root / path).exists())
        ):
            raise InvalidKey(f"{path} is outside the lake's folder {root}: move or copy it there first", key=text)
    if not text or not key:
        raise InvalidKey("the lake's folder as a whole cannot be imported: name a folder or file in it", key=text)
    if f"{key}/".startswith(RESERVED):
        raise InvalidKey(f"{key!r} belongs to the lake itself: name a folder or file beside it", key=key)
    return key


def _key(path: Path) -> str:
    return "" if path == Path() else path.as_posix().strip("/")


def _look(lake: Lake, path: str, kind: str | None) -> Import:
    """Find what is at a path of the lake's folder. Raises NotFound, LakeError."""
    root = lake.repository.root
    if root.exists(path):
        return Import(path, _checked(path, kind, _FILES), 1, root.head(path).size)
    metas = list(root.list(f"{path}/"))
    if not metas:
        raise NotFound(
            f"there is nothing at {path!r} in the lake's folder {lake.url}: put the files there first", key=path
        )
    shown = [name for meta in metas if not (name := meta.key.rpartition("/")[2]).startswith((".", "_"))]
    is_parquet = bool(shown) and all(name.endswith(".parquet") for name in shown)
    apparent = stored_format(FolderStore(root, path)) or (_PARQUET if is_parquet else _FILES)
    tables = {meta.key.partition("/_delta_log/")[0] for meta in metas if "/_delta_log/" in meta.key} - {path}
    if tables:
        names = ", ".join(repr(table) for table in sorted(tables))
        raise LakeError(
            f"{path!r} holds Delta tables: {names}. "
            f"Import each of them separately, such as with `lake import {min(tables)}`"
        )
    return Import(path, _checked(path, kind, apparent), len(metas), sum(meta.size for meta in metas))


def _check_free(lake: Lake, session: Session, path: str) -> None:
    """Check that no dataset of the lake is or was at, in or around a path. Raises DatasetExists."""
    branch, datasets = session.branch, session.datasets()
    around = datasets.get(path) or dataset_above(path, datasets)
    if around is not None:
        raise DatasetExists(f"{around.path!r} is already a dataset of the lake: there is nothing to import at {path!r}")
    inside = sorted(other for other in datasets if other.startswith(f"{path}/"))
    if inside:
        names = ", ".join(map(repr, inside))
        raise DatasetExists(
            f"{path!r} holds datasets of the lake: {names}. Import the files beside them by their own names"
        )
    if is_claimed(lake.repository.root, path):
        commit = next(iter(lake.log(branch, dataset=path, limit=1)), None)
        if commit is None:
            raise DatasetExists(
                f"{path!r} is a folder that the lake wrote, but {branch} never had a dataset there. If the "
                "dataset belongs to another branch, bring it here with `lake merge`; otherwise it is left from "
                "a session that was never published"
            )
        raise DatasetExists(
            f"{path!r} was a dataset of {branch}, and commit {commit.id[:12]} took it away: "
            f"`lake revert {commit.id[:12]}"
            + ("`" if branch == "main" else f" --branch {branch}`")
            + " brings it back with its rows"
        )


def _prefixes(lake: Lake, source: Import, to: str | None) -> tuple[str, str]:
    """Return the prefix of plain files' keys in the lake's folder, and the prefix that they get in the lake."""
    if source.kind != _FILES or lake.repository.root.exists(source.path):
        return source.path, source.path if to is None else to
    return f"{source.path}/", f"{source.path if to is None else to.rstrip('/')}/"


def _check_files(lake: Lake, session: Session, prefix: str, target: str) -> bool:
    """Return whether plain files would change anything.

    Raises AlreadyExists for other files at their keys, InvalidKey.
    """
    from lake_core.lake.session.importing import references

    existing = dict(session.view.list(target))
    changed = False
    for key, item in references(session, prefix, target):
        before = existing.get(key)
        changed |= before is None
        if before is not None and (before.entry.address, before.entry.etag) != (item.entry.address, item.entry.etag):
            raise AlreadyExists(
                f"{session.branch} has another file at {key!r}: bring this one in under another name by --to, or "
                "delete that one first, "
                f"in Python in a session by `session.delete([{key!r}])`",
                key=key,
            )
    return changed


def _checked(path: str, requested: str | None, apparent: str) -> str:
    """Return the kind to import as. Raises LakeError if that would take a dataset for something else."""
    if requested is not None and requested != apparent:
        if apparent not in _DESCRIPTIONS:
            description = _described(apparent)
            raise LakeError(f"{path!r} is {description}, whose files cannot be read on their own: leave out --as")
        if requested not in _DESCRIPTIONS:
            raise LakeError(f"{path!r} is not {_described(requested)}: leave out --as")
    return requested or apparent


def _described(kind: str) -> str:
    return _DESCRIPTIONS.get(kind) or dataset_format(kind).description
