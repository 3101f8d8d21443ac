"""`lake catalog`: register the tables of a lake where engines look for tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lake_core.catalog import open_catalog, sync_branch, sync_branches
from lake_core.cli.context import FAILED, Context, command, parse_pairs
from lake_core.cli.names import Ref
from lake_core.readable import count_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lake_core.catalog import Synced


@click.group()
def catalog() -> None:
    """Register the tables of a branch with a catalog.

    AWS Glue, Hive metastores and Unity Catalog are among them.
    """


@catalog.command()
@click.option("--catalog", "kind", required=True, metavar="NAME", help="glue, hive, unity, or one that a package adds.")
@click.option("--schema", required=True, help="The schema or database of the tables. It is created if it is missing.")
@click.option(
    "--option",
    "options",
    multiple=True,
    metavar="NAME=VALUE",
    help="A setting of the catalog; may be repeated. LAKE_<CATALOG>_<NAME> in the environment sets it as well, and "
    "alone sets secrets.",
)
@click.option("--branch", default="main", show_default=True, type=Ref(), help="The branch to register.")
@click.option("--all-branches", is_flag=True, help="Register each branch in a schema of its own, <schema>_<branch>.")
@click.option(
    "--name",
    "names",
    multiple=True,
    metavar="PATH=NAME",
    help="The name in the catalog of the table at a path, instead of the one that follows from it; may be repeated.",
)
@click.option("--location", metavar="URL", help="The lake's URL as the catalog's readers open it: s3a://bucket/lake.")
@click.option(
    "--moved", is_flag=True, help="The lake was moved or restored: update tables that it registered elsewhere, too."
)
@click.option("--dry-run", is_flag=True, help="Only show what would be done.")
@command
def sync(
    context: Context,
    kind: str,
    schema: str,
    options: tuple[str, ...],
    branch: str,
    all_branches: bool,
    names: tuple[str, ...],
    location: str | None,
    moved: bool,
    dry_run: bool,
) -> None:
    """Make a schema of a catalog show the tables of a branch: create, update and drop what differs.

    Tables that others registered are never changed, and no data file is deleted. For the tables of other branches than
    main, logs that engines read are written to _lake/branches. Run it again after an interruption. The exit code is 1
    if a table was refused; the others are registered nevertheless.
    """
    if all_branches and branch != "main":
        raise click.UsageError("--branch names one branch, and --all-branches all: choose one")
    target = open_catalog(kind, parse_pairs(options, "--option"))
    chosen = {path.strip("/"): name for path, name in parse_pairs(names, "--name").items()}
    lake = context.open()
    if all_branches:
        results = sync_branches(lake, target, schema, names=chosen, location=location, moved=moved, dry_run=dry_run)
    else:
        results = [
            sync_branch(
                lake, target, schema, branch=branch, names=chosen, location=location, moved=moved, dry_run=dry_run
            )
        ]
    text = "\n".join(line for synced in results for line in _lines(synced, dry_run=dry_run))
    context.output.show({"dry_run": dry_run, "synced": results}, text)
    if any(synced.refused for synced in results):
        raise SystemExit(FAILED)


def _lines(synced: Synced, *, dry_run: bool) -> Iterator[str]:
    """Yield what a sync did, for people."""
    for table in synced.tables:
        changed = f" ({', '.join(table.changed)})" if table.changed else ""
        verb = f"would {table.action}" if dry_run else table.action
        yield f"{verb} {synced.schema}.{table.name}: {table.path}{changed}"
    for refusal in synced.refused:
        yield f"refused {refusal.name}: {refusal.reason}"
    for name in synced.later:
        yield f"left {synced.schema}.{name}: a sync of a later commit has written it"
    for path in synced.unused_names:
        yield f"no table is at {path}: its --name is not used"
    for path, format in synced.left_out.items():
        yield f"left out {path}: catalogs have tables, and this is of the format {format}"
    if not synced.commit:
        yield f"{synced.schema} {'would show' if dry_run else 'shows'} no table of {synced.branch}, which was deleted"
        return
    unchanged = f"{count_of(synced.unchanged, 'table')} unchanged"
    yield f"{synced.schema} {'would show' if dry_run else 'shows'} {synced.branch} at {synced.commit[:12]}, {unchanged}"
