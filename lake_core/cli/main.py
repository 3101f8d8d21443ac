"""The command `lake` and its subcommands."""

from __future__ import annotations

import click

from lake_core.cli.context import Context, parse_options, storage_option
from lake_core.cli.lazy_commands import LazyCommand, LazyCommands

_EPILOG = """
Environment: LAKE_URL and LAKE_STORAGE_OPTIONS (NAME=VALUE, several separated by spaces) set the options;
AWS_ACCESS_KEY_ID and the other AWS_ variables open buckets; LAKE_COMMITTER is the committer's name in commits.

Exit codes: 0 success, 1 refused or failed, 2 wrong usage, 3 conflict, 4 problems found (verify, doctor).
"""


_COMMANDS = {
    "adopt": LazyCommand("lake_core.cli.maintenance", "adopt", "Add commits of another client to main."),
    "branch": LazyCommand("lake_core.cli.refs", "branch", "List, create and delete branches."),
    "catalog": LazyCommand("lake_core.cli.catalog", "catalog", "Register the tables of a branch with a catalog."),
    "cat": LazyCommand("lake_core.cli.files", "cat", "Print the content of a plain file of a ref."),
    "checkout": LazyCommand("lake_core.cli.maintenance", "checkout", "Complete the checkout of main."),
    "cherry-pick": LazyCommand(
        "lake_core.cli.sessions", "cherry_pick", "Apply the changes of a commit to another branch."
    ),
    "diff": LazyCommand("lake_core.cli.refs", "diff", "Show the differences between two refs."),
    "doctor": LazyCommand("lake_core.cli.maintenance", "doctor", "Check that the store does what a lake requires."),
    "drop": LazyCommand("lake_core.cli.files", "drop", "Drop a table, arrays or a pool."),
    "export": LazyCommand(
        "lake_core.cli.lakefs", "export", "Export the lake as a lakeFS repository to the empty folder or bucket TARGET."
    ),
    "gc": LazyCommand(
        "lake_core.cli.maintenance",
        "gc",
        "Delete unreachable objects: those that no branch, tag, session or retained commit reaches.",
    ),
    "head": LazyCommand(
        "lake_core.cli.files", "head", "Show the first rows of a table, or the first records of a pool."
    ),
    "import": LazyCommand("lake_core.cli.files", "import_", "Import files that are in the lake's folder."),
    "init": LazyCommand("lake_core.cli.lakes", "init", "Create a lake."),
    "log": LazyCommand("lake_core.cli.refs", "log", "List the commits of a ref, newest first."),
    "ls": LazyCommand("lake_core.cli.files", "ls", "List folders, tables, pools, arrays and plain files of a ref."),
    "merge": LazyCommand("lake_core.cli.sessions", "merge", "Merge a ref into a branch."),
    "pool": LazyCommand("lake_core.cli.pool", "pool", "Load records of any shape into pools, and maintain pools."),
    "publish": LazyCommand("lake_core.cli.sessions", "publish", "Publish a shared session."),
    "release": LazyCommand("lake_core.cli.maintenance", "release", "Remove a dataset from the lake."),
    "revert": LazyCommand("lake_core.cli.sessions", "revert", "Undo the changes of a commit."),
    "session": LazyCommand("lake_core.cli.sessions", "session", "List, open, abandon and fork shared sessions."),
    "show": LazyCommand("lake_core.cli.refs", "show", "Show the metadata and changes of a commit."),
    "sql": LazyCommand("lake_core.cli.sql", "sql", "Query the tables of a ref in DuckDB's SQL."),
    "status": LazyCommand("lake_core.cli.lakes", "status", "Show a summary of the lake."),
    "table": LazyCommand("lake_core.cli.table", "table", "Look at a Delta table, and maintain it."),
    "tag": LazyCommand("lake_core.cli.refs", "tag", "List, create and delete tags."),
    "ui": LazyCommand("lake_core.cli.ui", "ui", "Serve pages of the lake: branches, commits, differences and rows."),
    "upgrade": LazyCommand(
        "lake_core.cli.maintenance", "upgrade", "Upgrade the lake to the format version of this release."
    ),
    "verify": LazyCommand(
        "lake_core.cli.maintenance",
        "verify",
        "Check that all reachable objects exist, with the sizes that the lake and its datasets record.",
    ),
}


@click.group(
    cls=LazyCommands, commands=_COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}, epilog=_EPILOG
)
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
