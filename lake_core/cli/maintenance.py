"""`lake gc, upgrade, checkout, adopt, release, verify, doctor`: the maintenance of a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from lake_core.cli.context import FOUND, Context, Span, command
from lake_core.cli.doctor import examine, examine_datasets
from lake_core.cli.names import TablePath
from lake_core.dataset import dataset_format, stored_format
from lake_core.lake import Lake
from lake_core.lake.errors import DatasetNotFound
from lake_core.lake.refs.session_record import MOST_EXPIRY
from lake_core.readable import count_of, readable_bytes
from lake_core.store import FolderStore, open_store

if TYPE_CHECKING:
    from datetime import timedelta


@click.command()
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@click.option(
    "--history", type=Span(), help="How long to keep commits that no ref reaches, such as 30d; at least a week."
)
@command
def gc(context: Context, dry_run: bool, history: timedelta | None) -> None:
    """Delete unreachable objects: those that no branch, tag, session or retained commit reaches."""
    if history is not None and history < MOST_EXPIRY:
        raise click.UsageError(
            f"--history: commits are kept for {MOST_EXPIRY.days} days at least, as long as a session may work on one"
        )
    with context.output.progress("collecting") as progress:
        collected = context.open().maintenance.gc(dry_run=dry_run, history=history, progress=progress)
    verb = "would go" if dry_run else "deleted"
    objects, commits = count_of(len(collected.keys), "object"), count_of(collected.commits, "commit")
    context.output.show(collected, f"{objects} ({readable_bytes(collected.bytes)}) and {commits} {verb}")


@click.command()
@command
def upgrade(context: Context) -> None:
    """Upgrade the lake to the format version of this release. Earlier releases can then no longer open it."""
    lake = context.open()
    before, version = lake.repository.format.version, lake.maintenance.upgrade()
    text = f"format version {version}, as before" if before == version else f"format version {before} -> {version}"
    context.output.show({"version": version, "before": before}, text)


@click.command()
@command
def checkout(context: Context) -> None:
    """Complete the checkout of main. Write its logs to its datasets' folders, if a publisher failed before it did."""
    with context.output.progress("checking out") as progress:
        result = context.open().maintenance.checkout(progress=lambda number, count: progress("commit", number))
    context.output.show(result, f"{count_of(result.objects, 'object')} checked out")


@click.command()
@click.argument("dataset", type=TablePath())
@command
def adopt(context: Context, dataset: str) -> None:
    """Add commits of another client to main. The client made them in a dataset's folder, past the lake."""
    lake = context.open()
    state = lake.at()
    if dataset not in state.registered():
        if (format := stored_format(FolderStore(lake.repository.root, dataset))) is not None:
            raise DatasetNotFound(
                f"{dataset!r} is {dataset_format(format).description} that is not in the lake yet: "
                f"run `lake import {dataset}`"
            )
        state.dataset(dataset)  # Raises, and names those there.
    published = lake.maintenance.adopt(dataset)
    context.output.show(published, f"commit {published.commit[:12]} {dataset}@{published.versions.get(dataset)}")


@click.command()
@click.argument("dataset", type=TablePath())
@command
def release(context: Context, dataset: str) -> None:
    """Remove a dataset from the lake. Its files stay where they are, for other clients."""
    lake = context.open()
    lake.at().dataset(dataset)  # Raises in words of main, where a session would speak of itself.
    published = lake.maintenance.release(dataset)
    context.output.show(published, f"commit {published.commit[:12]}: {dataset} is a plain dataset")


@click.command()
@click.option("--quick", is_flag=True, help="Only check that objects exist and have their sizes, without reading them.")
@click.option(
    "--full", is_flag=True, help="Read all objects: decode the files of datasets, and read again what was read before."
)
@command
def verify(context: Context, quick: bool, full: bool) -> None:
    """Check that all reachable objects exist, with the sizes that the lake and its datasets record.

    Objects that are named by hashes must match them; those that an earlier run has read, and that were not written
    since, are read again only with --full. --full also decodes the files of tables, arrays and pools.
    """
    if quick and full:
        raise click.UsageError("--quick reads nothing and --full reads everything: choose one")
    counts: dict[str, int] = {}
    with context.output.progress("verifying") as progress:

        def tell(phase: str, count: int) -> None:
            counts[phase] = count
            progress(phase, count)

        problems = context.open().maintenance.verify(hashes=not quick, full=full, progress=tell)
    whole = "every object is there, and can be read" if full else "every object is there"
    lines = [f"{each.kind}: {each.key}: {each.detail}" for each in problems] or [whole]
    if unread := counts.get("not read again"):
        objects = count_of(unread, "object")
        lines.append(f"{objects} read before and unchanged since: not read again. `lake verify --full` reads all")
    context.output.show(problems, "\n".join(lines))
    if problems:
        raise SystemExit(FOUND)


@click.command()
@command
def doctor(context: Context) -> None:
    """Check that the store does what a lake requires. For example, it must honor conditional puts.

    If it holds a lake, also name properties of tables on main that have no effect, because their values are invalid.
    """
    store = open_store(context.location, storage_options=context.storage_options)
    findings = examine(store)
    if all(each.ok for each in findings) and Lake.exists(store):
        findings += examine_datasets(context.open())
    rows = [
        {"check": each.check, "result": "ok" if each.ok else "FAILED", "detail": each.detail, "ok": each.ok}
        for each in findings
    ]
    context.output.rows(rows, ["result", "check", "detail"])
    if not all(each.ok for each in findings):
        raise SystemExit(FOUND)
