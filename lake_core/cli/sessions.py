"""`lake session, publish, merge, revert, cherry-pick`: the commands that create commits."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import click

from lake_core.cli.context import Context, Span, command
from lake_core.cli.names import Ref
from lake_core.readable import count_of
from lake_core.report.sessions import session_rows

if TYPE_CHECKING:
    from lake_core.lake.publish.preview import ChangePreview
    from lake_core.lake.publish.published import Published
    from lake_core.lake.publish.tree_update import MergeStrategy


@click.group()
def session() -> None:
    """List, open, abandon and fork shared sessions."""


@session.command("list")
@click.option("--all", "everything", is_flag=True, help="Also list sessions that have ended.")
@command
def session_list(context: Context, everything: bool) -> None:
    """List the shared sessions."""
    rows = session_rows(context.open().list_sessions(include_ended=everything))
    columns = ["session", "owner", "branch", "state", "epoch", "opened", "expires", "batches", "reason"]
    context.output.rows(rows, columns)


@session.command("open")
@click.argument("branch_name", metavar="BRANCH", default="main", type=Ref())
@click.option("--id", "session_id", help="Resume the session of this id, or give a new one this id.")
@click.option("--expires-in", type=Span(), default=timedelta(hours=24), show_default="24h")
@click.option("-m", "--message", default="")
@command
def session_open(
    context: Context, branch_name: str, session_id: str | None, expires_in: timedelta, message: str
) -> None:
    """Open or resume a shared session, and print its id."""
    opened = context.open().open_session(branch_name, id=session_id, expires_in=expires_in, message=message)
    context.output.show(
        {"session": opened.id, "epoch": opened.epoch, "branch": opened.branch, "base": opened.commit}, opened.id
    )


@session.command("abandon")
@click.argument("session_id", metavar="ID", type=Ref())
@command
def session_abandon(context: Context, session_id: str) -> None:
    """End a session without publishing it."""
    context.open().get_session(session_id).abandon()
    context.output.show({"abandoned": session_id}, f"session {session_id} is abandoned")


@session.command("fork")
@click.argument("session_id", metavar="ID", type=Ref())
@click.option("--without", multiple=True, help="A dataset or key to leave out; may be repeated.")
@command
def session_fork(context: Context, session_id: str, without: tuple[str, ...]) -> None:
    """Copy the changes of a session to a new one, and print its id."""
    forked = context.open().get_session(session_id).fork(without=without)
    context.output.show({"session": forked.id, "lineage": forked.lineage}, forked.id)


@click.command()
@click.argument("session_id", metavar="SESSION", type=Ref())
@click.option("--dry-run", is_flag=True, help="Only show what would be published, or what conflicts.")
@command
def publish(context: Context, session_id: str, dry_run: bool) -> None:
    """Publish a shared session. The command can be repeated safely."""
    context.remedy = (
        f"Nothing was published, and the session is kept: run `lake session fork {session_id} --without "
        "PATH` to carry on with what does not conflict, and do the rest again in a new session"
    )
    session = context.open().get_session(session_id)
    if dry_run:
        _show_preview(context, session.preview_publish(), f"publish session {session_id}", session.branch)
        return
    published = session.publish()
    versions = ", ".join(f"{path}@{version}" for path, version in published.versions.items())
    late = "" if published.is_checked_out else " (not yet checked out: run `lake checkout`)"
    context.output.show(published, f"commit {published.commit[:12]} {versions}{late}")


@click.command()
@click.argument("ref", type=Ref())
@click.option("--into", default="main", show_default=True, type=Ref())
@click.option("-m", "--message")
@click.option(
    "--strategy",
    type=click.Choice(["ours", "theirs", "dest-wins", "source-wins"]),
    help="Resolve conflicts by keeping the branch's side (ours, dest-wins) or taking the ref's (theirs, source-wins).",
)
@click.option("--squash", is_flag=True, help="Make one commit that does not have the ref's commits in its history.")
@click.option("--dry-run", is_flag=True, help="Only show what would be merged, or what conflicts.")
@command
def merge(
    context: Context,
    ref: str,
    into: str,
    message: str | None,
    strategy: MergeStrategy | None,
    squash: bool,
    dry_run: bool,
) -> None:
    """Merge a ref into a branch."""
    again = f"lake merge {ref}" + ("" if into == "main" else f" --into {into}")
    context.remedy = (
        f"Nothing was merged. Run `{again} --strategy theirs` to take what {ref} has of these, or "
        f"`{again} --strategy ours` to keep what {into} has of them; or do the work again on a new "
        f"branch: `lake branch NAME --at {into}`"
    )
    lake = context.open()
    if dry_run:
        preview = lake.preview_merge(ref, into=into, strategy=strategy)
        _show_preview(context, preview, f"merge {ref} (commit {preview.incoming[:12]})", into, strategy, "into")
        return
    published = lake.merge(ref, into=into, message=message, strategy=strategy, squash=squash)
    decided = f", {strategy} of {count_of(len(published.resolved), 'place')} in conflict" if published.resolved else ""
    lines = [f"commit {published.commit[:12]} on {into}{decided}", *_left_lines(published, into)]
    context.output.show(published, "\n".join(lines))


def _show_preview(
    context: Context, preview: ChangePreview, what: str, branch: str, strategy: str | None = None, where: str = "on"
) -> None:
    lines = [f"would {what} {where} {branch} (commit {preview.commit[:12]}); nothing is written"]
    lines += [f"~ {path}  version {each.version}  {each.operation}" for path, each in sorted(preview.datasets.items())]
    lines += [f"{'-' if change == 'deleted' else '+'} {key}" for key, change in preview.keys.items()]
    lines += [f"! {path}  conflicts, {strategy} is taken" for path in sorted(preview.resolved)]
    context.output.show(preview, "\n".join([*lines, *_left_lines(preview, branch)]))


def _left_lines(result: Published | ChangePreview, into: str) -> list[str]:
    """Return the lines about writes that a merge skips, and about compactions that it undoes."""
    lines = [
        f"= {write.path}  skipped: {into} has version {write.version} of the application {write.application!r}, or a "
        "later one"
        for write in result.skipped
    ]
    return lines + [f"= commit {id[:12]}  undone: a compaction that conflicts" for id in result.undone]


@click.command()
@click.argument("commit", type=Ref())
@click.option("--branch", "branch_name", default="main", show_default=True, type=Ref())
@click.option(
    "--parent", type=click.IntRange(1), default=1, show_default=True, help="The parent of a merge to go back to."
)
@click.option("-m", "--message")
@click.option("--dry-run", is_flag=True, help="Only show what would be undone, or what conflicts.")
@command
def revert(context: Context, commit: str, branch_name: str, parent: int, message: str | None, dry_run: bool) -> None:
    """Undo the changes of a commit. Later changes stay."""
    context.remedy = (
        "Nothing was reverted: revert the later commits that conflict first, newest first, or change the rows by hand"
    )
    lake = context.open()
    if dry_run:
        preview = lake.preview_revert(commit, branch=branch_name, parent=parent)
        _show_preview(context, preview, f"revert commit {preview.base[:12]}", branch_name)
        return
    published = lake.revert(commit, branch=branch_name, parent=parent, message=message)
    context.output.show(published, f"commit {published.commit[:12]} on {branch_name}")


@click.command("cherry-pick")
@click.argument("commit", type=Ref())
@click.option("--onto", required=True, type=Ref())
@click.option("--parent", type=click.IntRange(1), default=1, show_default=True)
@click.option("-m", "--message")
@click.option("--dry-run", is_flag=True, help="Only show what would be applied, or what conflicts.")
@command
def cherry_pick(context: Context, commit: str, onto: str, parent: int, message: str | None, dry_run: bool) -> None:
    """Apply the changes of a commit to another branch."""
    context.remedy = (
        f"Nothing was cherry-picked: merge the branches with `lake merge` first, or do the work again on {onto}"
    )
    lake = context.open()
    if dry_run:
        preview = lake.preview_cherry_pick(commit, onto=onto, parent=parent)
        _show_preview(context, preview, f"cherry-pick commit {preview.incoming[:12]}", onto)
        return
    published = lake.cherry_pick(commit, onto=onto, parent=parent, message=message)
    context.output.show(published, f"commit {published.commit[:12]} on {onto}")
