"""`lake export` and `lake init --from-lakefs`: export a lake to a lakeFS repository, and import one."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import click

from lake_core.cli.context import Context, command, parse_pairs
from lake_core.lake import Lake
from lake_core.readable import count_of, readable_bytes
from lake_core.store import store_at

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from lake_core.graveler import Exported


@click.command()
@click.argument("target")
@click.option("--no-history", is_flag=True, help="Export only the commits of branches and tags, and their merge bases.")
@click.option(
    "--rename",
    multiple=True,
    metavar="NAME=NEW",
    help="The name in lakeFS of a branch or tag whose name lakeFS does not accept; may be repeated.",
)
@click.option(
    "--target-option", "options", multiple=True, metavar="NAME=VALUE", help="An option of the target's store."
)
@click.option(
    "--onto",
    metavar="URL",
    help="Copy what is new to a lakeFS server: https://host/repositories/NAME, whose storage namespace is TARGET.",
)
@command
def export(
    context: Context,
    target: str,
    no_history: bool,
    rename: tuple[str, ...],
    options: tuple[str, ...],
    onto: str | None,
) -> None:
    """Export the lake as a lakeFS repository to the empty folder or bucket TARGET. A later export adds what is new."""
    if onto is not None and no_history:
        raise click.UsageError("--onto needs the history: leave out --no-history")
    maintenance = context.open().maintenance
    renames = parse_pairs(rename, "--rename")
    store = store_at(target, parse_pairs(options, "--target-option") or context.storage_options)
    with context.output.progress("exporting") as progress:
        if onto is None:
            exported = maintenance.export(store, history=not no_history, rename=renames, progress=progress)
            text = "\n".join([_summary(exported), *_next_steps(exported, store.url())])
            context.output.show({"exported": exported}, text)
            return
        mirrored = maintenance.mirror(store, onto, rename=renames, progress=progress)
    moved = f"; moved {', '.join(mirrored.refs)}" if mirrored.refs else ""
    text = f"{_summary(mirrored.exported)}\n{count_of(mirrored.commits, 'new commit')} on {onto}{moved}"
    context.output.show({"mirrored": mirrored}, text)


def import_repository(context: Context, location: str, rename: Mapping[str, str], external: Sequence[str]) -> None:
    """Convert the lakeFS repository at a location to a lake, and print what to do with its tables."""
    with context.output.progress("importing") as progress:
        lake = Lake.import_lakefs(
            location, rename=rename, external=external, storage_options=context.storage_options, progress=progress
        )
    commits = sum(1 for _ in lake.repository.refs().commits())
    text = (
        f"A lake at {lake.url}: {count_of(commits, 'commit')}, branches: {len(lake.list_branches())}, "
        f"tags: {len(lake.list_tags())}; nothing was copied\n"
        "Turn off lakeFS's garbage collection for this repository, and write to it through the lake from now on.\n"
        "Its tables are plain files. `lake import PATH --copy` makes one a table of the lake, and copies its data files"
    )
    context.output.show({"url": lake.url, "id": lake.id, "commits": commits}, text)


def _summary(exported: Exported) -> str:
    copied = f"{count_of(exported.copied, 'object')} ({readable_bytes(exported.copied_bytes)}) copied"
    return f"exported {count_of(len(exported.commits), 'commit')}, {copied}"


def _next_steps(exported: Exported, url: str) -> list[str]:
    is_local = url.startswith("file:")
    namespace = f"local://{url.rstrip('/').rpartition('/')[2]}" if is_local else url
    manifest = shlex.quote(json.dumps(dict(exported.manifest), separators=(",", ":")))
    lines = [
        "",
        "To load it into lakeFS, into a repository of a name that you choose:",
        f"  lakectl repo create-bare lakefs://NAME {shlex.quote(namespace)} --default-branch main",
        f"  echo {manifest} | lakectl refs-restore lakefs://NAME --manifest -",
    ]
    if is_local:
        lines.append("The folder must be in the one that the server's blockstore.local.path names.")
    return lines
