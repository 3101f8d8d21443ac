"""The command `lake` and its subcommands."""

from __future__ import annotations

import click

from lake_core.cli import files, lakefs, maintenance, refs, sessions
from lake_core.cli.context import Context, OptionsFirst, command, parse_options, parse_pairs, storage_option
from lake_core.cli.lakefs import import_repository
from lake_core.cli.pool import pool
from lake_core.cli.sql import sql
from lake_core.cli.table import table
from lake_core.lake import Lake
from lake_core.lake.errors import LakeAlreadyExists
from lake_core.readable import count_of

_EPILOG = """
Environment: LAKE_URL and LAKE_STORAGE_OPTIONS (NAME=VALUE, several separated by spaces) set the options;
AWS_ACCESS_KEY_ID and the other AWS_ variables open buckets; LAKE_COMMITTER is the committer's name in commits.

Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 conflict, 4 problems found (verify, doctor).
"""


@click.group(cls=OptionsFirst, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG)
@click.option(
    "--lake",
    "url",
    envvar="LAKE_URL",
    show_envvar=True,
    help="The lake's location, a folder or URL. By default the nearest lake at or above the working directory.",
)
@storage_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.version_option(package_name="lake-orch")
@click.pass_context
def main(ctx: click.Context, url: str | None, options: tuple[str, ...], as_json: bool) -> None:
    """Look at a lake, publish, merge, and maintain it."""
    context = ctx.ensure_object(Context)
    if url is not None and not url.strip():
        raise click.UsageError(
            "--lake is empty: name a folder or URL, "
            "or leave it out to use the nearest lake at or above the working directory"
        )
    context.url = url
    context.output.as_json = as_json
    context.storage_options |= parse_options(options)


@main.command()
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


@main.command()
@command
def status(context: Context) -> None:
    """Show a summary of the lake."""
    lake = context.open()
    glance = lake.status()
    datasets = lake.list_datasets()
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
    context.output.show({"status": glance, "datasets": datasets}, "\n".join(lines))


for each in (
    *(refs.log, refs.show, refs.diff, refs.branch, refs.tag),
    *(files.ls, files.cat, files.head, files.import_, files.drop, sql, table, pool),
    *(sessions.session, sessions.publish, sessions.merge, sessions.revert, sessions.cherry_pick),
    lakefs.export,
    *(maintenance.gc, maintenance.checkout, maintenance.adopt, maintenance.release),
    *(maintenance.verify, maintenance.doctor, maintenance.upgrade),
):
    main.add_command(each)
