"""`lake init, status`: a lake as a whole."""

from __future__ import annotations

import click

from lake_core.cli.context import Context, command, parse_pairs
from lake_core.lake import Lake
from lake_core.lake.errors import LakeAlreadyExists
from lake_core.readable import count_of
from lake_core.report.status import status_report


@click.command()
@click.argument("url", metavar="[ROOT]", required=False)
@click.option(
    "--profile",
    type=click.Choice(["small", "lakefs"]),
    default="small",
    show_default=True,
    help="The size of the ranges of commit trees.",
)
@click.option("--exist-ok", is_flag=True, help="Do not fail if the lake already exists.")
@click.option(
    "--from-lakefs",
    is_flag=True,
    help="Convert the lakeFS repository whose storage namespace is ROOT. Run `lakectl refs-dump` first.",
)
@click.option(
    "--rename", multiple=True, metavar="NAME=NEW", help="A new name for a branch or tag of lakeFS; may be repeated."
)
@click.option(
    "--external", multiple=True, metavar="URL", help="A location of objects that lakeFS imported; may be repeated."
)
@command
def init(
    context: Context,
    url: str | None,
    profile: str,
    exist_ok: bool,
    from_lakefs: bool,
    rename: tuple[str, ...],
    external: tuple[str, ...],
) -> None:
    """Create a lake. It is created in ROOT, else in the folder of --lake, else in the working directory."""
    location = url or context.url or "."
    if from_lakefs:
        from lake_core.cli.lakefs import import_repository

        import_repository(context, location, parse_pairs(rename, "--rename"), external)
        return
    if rename or external:
        raise click.UsageError("--rename and --external are for a lakeFS repository: add --from-lakefs")
    try:
        lake = Lake.create(
            location,
            storage_options=context.storage_options,
            profile=profile,  # type: ignore[arg-type]
            exist_ok=exist_ok,
        )
    except LakeAlreadyExists:
        raise LakeAlreadyExists(f"a lake already exists at {location}: use it as it is, or pass --exist-ok") from None
    context.output.show({"url": lake.url, "id": lake.id}, f"A lake at {lake.url}")


@click.command()
@command
def status(context: Context) -> None:
    """Show a summary of the lake."""
    lake = context.open()
    report = status_report(lake)
    glance, datasets = report["status"], report["datasets"]
    lines = [f"lake       {glance.url}"]
    lines += [f"branch     {name:20} {commit[:12]}" for name, commit in sorted(glance.branches.items())]
    lines += [f"dataset    {record.path:40} {record.format}" for record in datasets]
    failed = len(lake.list_sessions()) - glance.sessions
    kept = f", {failed} failed and kept: see `lake session list`" if failed else ""
    lines += [f"sessions   {glance.sessions} open{kept}"]
    behind = glance.pending_checkout
    if behind:
        lines += [f"{count_of(len(behind), 'commit')} published, not yet checked out (run `lake checkout`):"]
        lines += [f"           {commit[:12]}" for commit in behind]
    context.output.show(report, "\n".join(lines))
