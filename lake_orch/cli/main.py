"""The command `lake-orch` and its subcommands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from lake_core.cli.context import CONFLICT, FAILED, OptionsFirst, command, parse_options, storage_option
from lake_core.lake.errors import Conflict
from lake_orch.cli.context import OrchContext
from lake_orch.dagster.runs.gate import runs_of
from lake_orch.dagster.runs.recovery import recover, recover_all, recoverable
from lake_orch.dagster.runs.run_session import Gate
from lake_orch.jobs.backfill import merge_backfills
from lake_orch.jobs.session_sensors import reap


@click.group(cls=OptionsFirst, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--root", envvar="LAKE_URL", show_envvar=True, help="The root of the lake: a folder or URL.")
@storage_option
@click.option("-m", "--module", help="The module of a code location, to use the lake among its resources.")
@click.option("--resource", help="The resource to use, if several of the module are lakes.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.version_option(package_name="lake-orch")
@click.pass_context
def main(
    ctx: click.Context,
    root: str | None,
    options: tuple[str, ...],
    module: str | None,
    resource: str | None,
    as_json: bool,
) -> None:
    """Inspect, publish and clean up the sessions of Dagster runs. The Dagster instance is that of DAGSTER_HOME."""
    # A module on the command line overrides a root from the environment.
    source = ctx.get_parameter_source("root")
    if module is not None and source is not None and source.name == "ENVIRONMENT":
        root = None
    context = ctx.obj = OrchContext(root=root, module=module, resource=resource)
    context.output.as_json = as_json
    context.storage_options = parse_options(options)


@main.command()
@click.option("--all", "everything", is_flag=True, help="Include sessions that have ended.")
@command
def sessions(context: OrchContext, everything: bool) -> None:
    """List the sessions, with their runs and ages, and whether `recover` can publish them."""
    with context.opened() as (instance, resource):
        lake = resource.open()
        publishable = set(recoverable(instance, lake))
        now = datetime.now(UTC)
        rows: list[dict[str, Any]] = []
        for record in lake.list_sessions(include_ended=everything):
            runs = runs_of(instance, record.id)
            rows.append(
                {
                    "session": record.id,
                    "run": runs[-1].run_id if runs else None,
                    "job": runs[-1].job_name if runs else None,
                    "run_status": runs[-1].status.value if runs else None,
                    "branch": record.branch,
                    "state": record.state,
                    "epoch": record.epoch,
                    "age": _age(now - record.opened)
                    if not context.output.as_json
                    else (now - record.opened).total_seconds(),
                    "expires": record.expires,
                    "publishable": record.id in publishable,
                    "reason": record.reason,
                }
            )
    columns = ["session", "run", "run_status", "branch", "state", "age", "publishable", "reason"]
    context.output.rows(rows, columns)


@main.command("recover")
@click.argument("session", required=False)
@click.option(
    "--gate",
    type=click.Choice(["blocking", "error", "none"]),
    help="Publish the SESSION with this gate instead of its run's.",
)
@command
def recover_command(context: OrchContext, session: str | None, gate: Gate | None) -> None:
    """Publish the SESSION of a run whose steps all succeeded but whose publish failed.

    Without SESSION, publish all of them.
    """
    if gate is not None and session is None:
        raise click.UsageError("--gate is for one session: give the argument SESSION")
    with context.opened() as (instance, resource):
        lake, keep = resource.open(), resource.keep_failed
        if session is not None:
            published = recover(instance, lake, session, gate=resource.gate, keep_failed_for=keep, lift_gate=gate)
            context.output.show(published, f"session {session} is published as commit {published.commit[:12]}")
            return
        results = recover_all(instance, lake, gate=resource.gate, keep_failed_for=keep)
    rows = [
        {"session": id, "commit": None, "error": str(result)}
        if isinstance(result, Exception)
        else {"session": id, "commit": result.commit, "error": None}
        for id, result in results.items()
    ]
    context.output.rows(rows, ["session", "commit", "error"])
    errors = [result for result in results.values() if isinstance(result, Exception)]
    if errors:
        raise SystemExit(CONFLICT if any(isinstance(error, Conflict) for error in errors) else FAILED)


@main.command("reap")
@command
def reap_command(context: OrchContext) -> None:
    """Settle every open session. Sessions of ended runs fail, and sessions past their time expire."""
    with context.opened() as (instance, resource):
        outcomes = reap(resource, instance)
    _show(context, outcomes, ["session", "run", "outcome", "publishable", "reason"])


@main.command("merge-backfills")
@click.option("--into", help="The branch to merge into; by default the resource's.")
@command
def merge_backfills_command(context: OrchContext, into: str | None) -> None:
    """Merge the branches of backfills whose runs have all succeeded."""
    with context.opened() as (instance, resource):
        merged = merge_backfills(instance, resource.open(), into or resource.branch)
    _show(context, merged, ["backfill", "branch", "outcome", "commit", "message"])
    outcomes = {outcome.outcome for outcome in merged}
    if outcomes & {"conflict", "failed"}:
        raise SystemExit(CONFLICT if "conflict" in outcomes else FAILED)


def _show(context: OrchContext, outcomes: Iterable[object], columns: Sequence[str]) -> None:
    context.output.rows([{name: getattr(outcome, name) for name in columns} for outcome in outcomes], columns)


def _age(span: timedelta) -> str:
    """Return a readable length of time."""
    seconds = int(span.total_seconds())
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"
