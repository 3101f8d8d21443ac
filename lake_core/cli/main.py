"""The command `lake` and its subcommands."""

from __future__ import annotations

from datetime import timedelta

import click

from lake_core.cli.context import FOUND, Context, Span, command, pass_context
from lake_core.cli.doctor import examine
from lake_core.cli.output import plain
from lake_core.cli.table import table
from lake_core.lake import Lake
from lake_core.lake.place import touched
from lake_core.store import open_store


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--lake", "url", envvar="LAKE_URL", default=".", show_default=True, help="Where the lake lies: a folder or URL.")
@click.option("--storage-option", "options", multiple=True, metavar="NAME=VALUE", envvar="LAKE_STORAGE_OPTIONS", help="As fsspec takes it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.version_option(package_name="lake-orch")
@click.pass_context
def main(ctx: click.Context, url: str, options: tuple[str, ...], as_json: bool) -> None:
    """Transactions over a bucket or a folder: look at a lake, publish, merge, and keep it in order."""
    context = ctx.ensure_object(Context)
    context.url = url
    context.output.as_json = as_json
    for option in options:
        name, equals, value = option.partition("=")
        if not equals:
            raise click.BadParameter(f"{name!r}: write NAME=VALUE", param_hint="--storage-option")
        context.storage_options[name] = value


@main.command()
@click.argument("url", metavar="[ROOT]", required=False)
@click.option("--profile", type=click.Choice(["small", "lakefs"]), default="small", show_default=True, help="How large ranges are.")
@click.option("--exist-ok", is_flag=True, help="A lake that stands there is fine.")
@command
def init(context: Context, url: str | None, profile: str, exist_ok: bool) -> None:
    """Make a folder, ROOT or that of --lake, a lake."""
    lake = Lake.create(url or context.url, storage_options=context.storage_options, profile=profile, exist_ok=exist_ok)  # type: ignore[arg-type]
    context.output.show({"url": lake.url, "id": lake.id}, f"A lake at {lake.url}")


@main.command()
@command
def status(context: Context) -> None:
    """The lake at a glance."""
    lake = context.open()
    found = lake.status()
    datasets = lake.datasets()
    lines = [f"lake       {found.url}"]
    lines += [f"branch     {name:20} {commit[:12]}" for name, commit in sorted(found.branches.items())]
    lines += [f"dataset    {record.path:40} {record.format}" for record in datasets]
    lines += [f"sessions   {found.sessions} open"]
    lines += [f"published, not yet in place: {commit[:12]} (run `lake materialise`)" for commit in found.not_in_place]
    context.output.show({"status": found, "datasets": datasets}, "\n".join(lines))


@main.command()
@click.argument("ref", default="main")
@click.option("--dataset", help="Only commits that touched it.")
@click.option("-n", "--limit", type=click.IntRange(1), default=20, show_default=True)
@click.option("--first-parent", is_flag=True, help="Leave out what came in by merges.")
@command
def log(context: Context, ref: str, dataset: str | None, limit: int, first_parent: bool) -> None:
    """A ref's commits, newest first."""
    rows = [
        {
            "commit": commit.id if context.output.as_json else commit.id[:12],
            "date": commit.creation_date,
            "committer": commit.committer,
            "message": commit.message,
            "datasets": touched(commit) if context.output.as_json else ", ".join(f"{p}@{t['version']}" for p, t in touched(commit).items()),
            "parents": commit.parents,
            "metadata": commit.metadata,
        }
        for commit in context.open().log(ref, dataset=dataset, first_parent=first_parent, limit=limit)
    ]
    context.output.rows(rows, ["commit", "date", "committer", "message", "datasets"])


@main.command()
@click.argument("before")
@click.argument("after", default="main")
@click.option("--prefix", default="", help="Only keys that begin with it.")
@command
def diff(context: Context, before: str, after: str, prefix: str) -> None:
    """The keys that differ between two refs."""
    rows = [
        {
            "": {"added": "+", "removed": "-", "changed": "~"}[found.kind],
            "key": found.key,
            "kind": found.kind,
            "dataset": found.dataset,
            "size": found.size,
        }
        for found in context.open().diff(before, after, prefix=prefix)
    ]
    context.output.rows(rows, ["", "key", "size"])


@main.group()
def branch() -> None:
    """List, make, delete and protect branches."""


@branch.command("list")
@command
def branch_list(context: Context) -> None:
    """The branches and their commits."""
    context.output.rows(
        [{"branch": name, "commit": commit} for name, commit in sorted(context.open().branches().items())], ["branch", "commit"]
    )


@branch.command("create")
@click.argument("name")
@click.option("--at", default="main", show_default=True)
@command
def branch_create(context: Context, name: str, at: str) -> None:
    """Make a branch at a ref."""
    context.output.show({"branch": name, "commit": context.open().branch(name, at=at)}, f"branch {name} at {at}")


@branch.command("delete")
@click.argument("name")
@command
def branch_delete(context: Context, name: str) -> None:
    """Take a branch away."""
    context.open().delete_branch(name)
    context.output.show({"deleted": name}, f"branch {name} is deleted")


@branch.command("protect")
@click.argument("pattern")
@click.option("--off", is_flag=True, help="Take the protection back.")
@command
def branch_protect(context: Context, pattern: str, off: bool) -> None:
    """Let branches that match a pattern take merges only."""
    lake = context.open()
    (lake.unprotect if off else lake.protect)(pattern)
    context.output.show({"pattern": pattern, "protected": not off}, f"{pattern}: {'open' if off else 'merges only'}")


@main.group()
def tag() -> None:
    """List, make and delete tags."""


@tag.command("list")
@command
def tag_list(context: Context) -> None:
    """The tags and their commits."""
    context.output.rows([{"tag": name, "commit": commit} for name, commit in sorted(context.open().tags().items())], ["tag", "commit"])


@tag.command("create")
@click.argument("name")
@click.option("--at", default="main", show_default=True)
@command
def tag_create(context: Context, name: str, at: str) -> None:
    """Give a commit a name for good."""
    context.output.show({"tag": name, "commit": context.open().tag(name, at=at)}, f"tag {name} at {at}")


@tag.command("delete")
@click.argument("name")
@command
def tag_delete(context: Context, name: str) -> None:
    """Take a tag away; its name is not used again."""
    context.open().delete_tag(name)
    context.output.show({"deleted": name}, f"tag {name} is deleted")


@main.group()
def session() -> None:
    """List, open, abandon and fork shared sessions."""


@session.command("list")
@click.option("--all", "everything", is_flag=True, help="Those that have ended too.")
@command
def session_list(context: Context, everything: bool) -> None:
    """The sessions on record."""
    rows = [
        plain(found) | {"session": found.id, "opened": found.opened, "expires": found.expires, "batches": len(found.batches)}
        for found in context.open().sessions(all=everything)
    ]
    context.output.rows(rows, ["session", "branch", "state", "epoch", "opened", "expires", "batches", "reason"])


@session.command("open")
@click.argument("branch_name", metavar="BRANCH", default="main")
@click.option("--id", "id_", help="Resume the session of this id, or give a new one this id.")
@click.option("--expires-in", type=Span(), default=timedelta(hours=24), show_default="24h")
@click.option("-m", "--message", default="")
@command
def session_open(context: Context, branch_name: str, id_: str | None, expires_in: timedelta, message: str) -> None:
    """Open a shared session, or resume one: prints its id."""
    opened = context.open().open_session(branch_name, id=id_, expires_in=expires_in, message=message)
    context.output.show({"session": opened.id, "epoch": opened.epoch, "branch": opened.branch, "base": opened.commit}, opened.id)


@session.command("abandon")
@click.argument("id_", metavar="ID")
@command
def session_abandon(context: Context, id_: str) -> None:
    """End a session without publishing."""
    context.open().abandon(id_)
    context.output.show({"abandoned": id_}, f"session {id_} is abandoned")


@session.command("fork")
@click.argument("id_", metavar="ID")
@click.option("--without", multiple=True, help="A dataset or key to leave out; several times if need be.")
@command
def session_fork(context: Context, id_: str, without: tuple[str, ...]) -> None:
    """Carry a session's work on in a new one: prints its id."""
    forked = context.open().fork(id_, without=without)
    context.output.show({"session": forked.id, "lineage": forked.lineage}, forked.id)


@main.command()
@click.argument("session_id", metavar="SESSION")
@command
def publish(context: Context, session_id: str) -> None:
    """Publish a shared session; again if need be."""
    done = context.open().publish(session_id)
    versions = ", ".join(f"{path}@{version}" for path, version in done.versions.items())
    late = "" if done.in_place else " (not yet in place: run `lake materialise`)"
    context.output.show(done, f"commit {done.commit[:12]} {versions}{late}")


@main.command()
@click.argument("ref")
@click.option("--into", default="main", show_default=True)
@click.option("-m", "--message")
@command
def merge(context: Context, ref: str, into: str, message: str | None) -> None:
    """Bring what a ref has and a branch lacks onto the branch."""
    done = context.open().merge(ref, into=into, message=message)
    context.output.show(done, f"commit {done.commit[:12]} on {into}")


@main.command()
@click.argument("commit")
@click.option("--branch", "branch_name", default="main", show_default=True)
@click.option("--parent", type=click.IntRange(1), default=1, show_default=True, help="Which parent of a merge to go back to.")
@click.option("-m", "--message")
@command
def revert(context: Context, commit: str, branch_name: str, parent: int, message: str | None) -> None:
    """Take back what a commit did; what was done since stays."""
    done = context.open().revert(commit, branch=branch_name, parent=parent, message=message)
    context.output.show(done, f"commit {done.commit[:12]} on {branch_name}")


@main.command("cherry-pick")
@click.argument("commit")
@click.option("--onto", required=True)
@click.option("--parent", type=click.IntRange(1), default=1, show_default=True)
@click.option("-m", "--message")
@command
def cherry_pick(context: Context, commit: str, onto: str, parent: int, message: str | None) -> None:
    """Do on a branch what a commit did elsewhere."""
    done = context.open().cherry_pick(commit, onto=onto, parent=parent, message=message)
    context.output.show(done, f"commit {done.commit[:12]} on {onto}")


@main.command()
@click.option("--dry-run", is_flag=True, help="Only tell.")
@click.option("--history", type=Span(), help="How long commits are kept that no ref names, such as 30d.")
@command
def gc(context: Context, dry_run: bool, history: timedelta | None) -> None:
    """Delete what no branch, tag, session or retained commit reaches."""
    with context.output.progress("collecting") as progress:
        done = context.open().gc(dry_run=dry_run, history=history, progress=progress)
    verb = "would go" if dry_run else "are gone"
    context.output.show(done, f"{len(done.keys)} objects ({done.bytes} bytes) and {done.commits} commits {verb}")


@main.command()
@command
def materialise(context: Context) -> None:
    """Put main's datasets in place, as far as they are not."""
    with context.output.progress("putting in place") as progress:
        done = context.open().materialise(progress=lambda number, count: progress("commit", number))
    context.output.show(done, f"{done.objects} objects put in place")


@main.command()
@click.argument("dataset")
@command
def adopt(context: Context, dataset: str) -> None:
    """Bring what another client committed to a dataset, past the lake, into main."""
    done = context.open().adopt(dataset)
    context.output.show(done, f"commit {done.commit[:12]} {dataset}@{done.versions.get(dataset)}")


@main.command()
@click.argument("dataset")
@command
def release(context: Context, dataset: str) -> None:
    """Make a dataset a plain one, of which the lake knows no more."""
    done = context.open().release(dataset)
    context.output.show(done, f"commit {done.commit[:12]}: {dataset} is a plain dataset")


@main.command()
@click.option("--quick", is_flag=True, help="Only look whether objects are there, without reading them.")
@command
def verify(context: Context, quick: bool) -> None:
    """Look whether every reachable object exists and is what its name says."""
    with context.output.progress("verifying") as progress:
        problems = context.open().verify(hashes=not quick, progress=progress)
    context.output.show(problems, "\n".join(f"{found.kind}: {found.key}: {found.detail}" for found in problems) or "all is there")
    if problems:
        raise SystemExit(FOUND)


@main.command()
@pass_context
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def doctor(context: Context, as_json: bool) -> None:
    """Try whether this store's conditional puts really hold, and what else a lake asks of it."""
    context.output.as_json |= as_json
    findings = examine(open_store(context.url, storage_options=context.storage_options))
    context.output.rows(
        [{"check": found.check, "": "ok" if found.ok else "FAILED", "detail": found.detail, "ok": found.ok} for found in findings],
        ["", "check", "detail"],
    )
    if not all(found.ok for found in findings):
        raise SystemExit(FOUND)


main.add_command(table)
