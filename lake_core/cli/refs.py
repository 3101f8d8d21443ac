"""`lake log, show, diff, branch, tag`: commits, their changes, and the names for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lake_core.cli.context import Context, command
from lake_core.cli.differences import comparison_lines
from lake_core.cli.names import Ref, TablePath
from lake_core.lake.errors import InvalidRef
from lake_core.lake.refs.commit_record import changed_datasets
from lake_core.report.commits import OWN_METADATA, against_parent, commit_row
from lake_core.report.comparison import comparison_rows
from lake_core.report.values import date_text

if TYPE_CHECKING:
    from lake_core.graveler import Commit

_sample_option = click.option(
    "--rows",
    "sample",
    is_flag=False,
    flag_value=10,
    default=0,
    type=click.IntRange(0),
    help="Show some of the rows, 10 by default.",
)


class CreatesByDefault(click.Group):
    """A group that lists if it is called without arguments. A first word that is not a command is a name to create."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command `create`, with all words as its arguments, if the first word names no command."""
        if self.get_command(ctx, args[0]) is None:
            return "create", self.get_command(ctx, "create"), args
        return super().resolve_command(ctx, args)


@click.command()
@click.argument("ref", default="main", type=Ref())
@click.option("--dataset", type=TablePath(), help="Only commits that changed this dataset.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--first-parent", is_flag=True, help="Leave out commits that were merged in.")
@click.option("--oneline", is_flag=True, help="Print one line for each commit: its id and its message.")
@click.option(
    "--stat", is_flag=True, help="Also show the rows and files that each commit changed since its first parent."
)
@command
def log(
    context: Context, ref: str, dataset: str | None, limit: int, first_parent: bool, oneline: bool, stat: bool
) -> None:
    """List the commits of a ref, newest first."""
    lake = context.open()
    commits = lake.log(ref, dataset=dataset, first_parent=first_parent, limit=limit)
    if dataset is not None and not commits:
        lake.at(ref).dataset(dataset)  # Raises for a misspelled name.
    rows = [commit_row(commit) if context.output.as_json else _short_row(commit) for commit in commits]
    if not (oneline or stat):
        context.output.rows(rows, ["commit", "date", "committer", "message", "datasets"])
        return
    lines = []
    for row, commit in zip(rows, commits, strict=True):
        lines.append(
            _one_line(commit)
            if oneline
            else f"{_one_line(commit)}  ({commit.committer}, {date_text(commit.creation_date)})"
        )
        if stat:
            comparison = against_parent(lake, commit, most_rows=0)
            row["changes"] = comparison
            lines += [f"  {line}" for line in comparison_lines(comparison)]
    context.output.show(rows, "\n".join(lines))


def _short_row(commit: Commit) -> dict[str, object]:
    """Return a commit as a row of a terminal."""
    datasets = (f"{path}@{each.get('version')}" for path, each in changed_datasets(commit).items())
    return commit_row(commit) | {"commit": commit.id[:12], "datasets": ", ".join(datasets)}


def _one_line(commit: Commit) -> str:
    return f"{commit.id[:12]} {commit.message.splitlines()[0] if commit.message else '(no message)'}"


@click.command()
@click.argument("commit", default="main", type=Ref())
@_sample_option
@command
def show(context: Context, commit: str, sample: int) -> None:
    """Show the metadata and changes of a commit. Changes are those since its first parent."""
    lake = context.open()
    if commit in {session.id for session in lake.list_sessions(include_ended=True)}:
        raise InvalidRef(
            f"{commit!r} is a session, not a commit: "
            f"run `lake diff {commit}~1 {commit}` to see what it has changed so far"
        )
    (record,) = lake.log(commit, limit=1)
    comparison = against_parent(lake, record, sample=sample)
    if context.output.as_json:
        context.output.show(commit_row(record) | {"changes": comparison})
        return
    lines = [f"commit {record.id}", f"date   {date_text(record.creation_date)}", f"by     {record.committer}"]
    lines += [f"parent {parent[:12]}" for parent in record.parents]
    lines += [f"{name:6} {value}" for name, value in record.metadata.items() if name not in OWN_METADATA]
    lines += ["", f"    {record.message or '(no message)'}", ""]
    context.output.show(None, "\n".join([*lines, *comparison_lines(comparison)]))


@click.command()
@click.argument("before", type=Ref())
@click.argument("after", default="main", type=Ref())
@click.option("--prefix", default="", help="Compare only the keys that begin with this prefix.")
@_sample_option
@click.option("--keys", is_flag=True, help="List every key that differs, including those of the tables' logs.")
@command
def diff(context: Context, before: str, after: str, prefix: str, sample: int, keys: bool) -> None:
    """Show the differences between two refs. Tables are compared by version, rows and columns, plain files by key."""
    lake = context.open()
    if not keys:
        comparison = lake.compare(before, after, prefix=prefix, sample=sample)
        lines = "\n".join(comparison_lines(comparison, (before, after)))
        context.output.show(comparison_rows(comparison), lines or "nothing differs")
        return
    signs = {"added": "+", "removed": "-", "changed": "~"}
    rows = [
        {"sign": signs[each.kind], "key": each.key, "kind": each.kind, "dataset": each.dataset, "size": each.size}
        for each in lake.diff(before, after, prefix=prefix)
    ]
    context.output.rows(rows, ["sign", "key", "size"])


@click.group(cls=CreatesByDefault, invoke_without_command=True)
@click.option("-d", "--delete", "deleted", type=Ref(), metavar="NAME", help="Delete this branch.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def branch(ctx: click.Context, deleted: str | None, as_json: bool) -> None:
    """List, create and delete branches.

    `lake branch` lists the branches, `lake branch NAME` creates one, `lake branch -d NAME` deletes one.
    """
    ctx.ensure_object(Context).output.as_json |= as_json
    if deleted is not None:
        ctx.invoke(branch_delete, name=deleted)
    elif ctx.invoked_subcommand is None:
        ctx.invoke(branch_list)


@branch.command("list")
@command
def branch_list(context: Context) -> None:
    """List the branches and their commits."""
    _list_names(context, "branch", context.open().list_branches())


@branch.command("create")
@click.argument("name")
@click.option("--at", default="main", show_default=True, type=Ref())
@command
def branch_create(context: Context, name: str, at: str) -> None:
    """Create a branch at a ref."""
    context.output.show({"branch": name, "commit": context.open().create_branch(name, at=at)}, f"branch {name} at {at}")


@branch.command("delete")
@click.argument("name", type=Ref())
@command
def branch_delete(context: Context, name: str) -> None:
    """Delete a branch."""
    context.open().delete_branch(name)
    context.output.show({"deleted": name}, f"branch {name} is deleted")


@branch.command("protect")
@click.argument("pattern")
@click.option("--off", is_flag=True, help="Remove the protection.")
@command
def branch_protect(context: Context, pattern: str, off: bool) -> None:
    """Protect the branches that match a pattern. They accept only merges."""
    lake = context.open()
    (lake.settings.unprotect if off else lake.settings.protect)(pattern)
    context.output.show({"pattern": pattern, "protected": not off}, f"{pattern}: {'open' if off else 'merges only'}")


@click.group(cls=CreatesByDefault, invoke_without_command=True)
@click.option(
    "-d", "--delete", "deleted", type=Ref(), metavar="NAME", help="Delete this tag; its name cannot be used again."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.pass_context
def tag(ctx: click.Context, deleted: str | None, as_json: bool) -> None:
    """List, create and delete tags.

    `lake tag` lists the tags, `lake tag NAME` creates one, `lake tag -d NAME` deletes one.
    """
    ctx.ensure_object(Context).output.as_json |= as_json
    if deleted is not None:
        ctx.invoke(tag_delete, name=deleted)
    elif ctx.invoked_subcommand is None:
        ctx.invoke(tag_list)


@tag.command("list")
@command
def tag_list(context: Context) -> None:
    """List the tags and their commits."""
    _list_names(context, "tag", context.open().list_tags())


def _list_names(context: Context, kind: str, commits: dict[str, str]) -> None:
    context.output.rows([{kind: name, "commit": commit} for name, commit in sorted(commits.items())], [kind, "commit"])


@tag.command("create")
@click.argument("name")
@click.option("--at", default="main", show_default=True, type=Ref())
@command
def tag_create(context: Context, name: str, at: str) -> None:
    """Give a commit a permanent name."""
    context.output.show({"tag": name, "commit": context.open().create_tag(name, at=at)}, f"tag {name} at {at}")


@tag.command("delete")
@click.argument("name", type=Ref())
@command
def tag_delete(context: Context, name: str) -> None:
    """Delete a tag. Its name cannot be used again."""
    context.open().delete_tag(name)
    context.output.show({"deleted": name}, f"tag {name} is deleted")
