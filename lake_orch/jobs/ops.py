"""Ops that open, publish and abandon sessions in jobs made of ops, and an asset that publishes in a separate step.

The steps between `open_session` and `publish` write into the session, which the run's tags name. So do their IO
managers.
"""

from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import Field

from lake_core.lake.errors import NothingToApply
from lake_orch.dagster.runs.publishing import check_still_runs, publish_session, published_metadata
from lake_orch.dagster.runs.recovery import recover, recover_all
from lake_orch.dagster.runs.run_session import RunSession, gate_named, open_run_session, session_of
from lake_orch.errors import GateFailed, InvalidDefinition
from lake_orch.resources import LakeResource
from lake_orch.tags import EPOCH_TAG, SESSION_TAG
from lake_pipes.metadata import BRANCH, COMMIT

_AFTER = {"after": dg.In(dg.Nothing)}
_NOTHING = dg.Out(dg.Nothing)


class RecoverConfig(dg.Config):
    """The session to publish."""

    session: str | None = Field(default=None, description="The session; without one, all whose steps succeeded.")
    gate: str | None = Field(
        default=None,
        description="With a session: publish it with this gate (blocking, error or none) instead of its run's.",
    )


class MergeConfig(dg.Config):
    """The branches of a merge."""

    source: str = Field(description="The branch, tag or commit to merge.")
    into: str = Field(default="main", description="The branch to merge into.")
    message: str = Field(default="", description="The commit's message.")


@dg.op(
    ins=_AFTER,
    out=_NOTHING,
    description="Open a session of the lake that the rest of the run writes into, or resume the failed run's.",
)
def open_session(context: dg.OpExecutionContext, lake: LakeResource) -> None:
    """Open the run's session. A session that the executor opened is kept."""
    session = session_of(context.instance, context.run_id)
    if session is None:
        branch = lake.branch_of(context.run.tags, context.instance)
        session = open_run_session(
            context.instance,
            context.run,
            lake.open(),
            branch=branch,
            root=lake.root,
            publisher="op",
            gate=lake.gate_of(context.run.tags),
        )
    context.add_output_metadata({SESSION_TAG: session.id, EPOCH_TAG: session.epoch})


@dg.op(
    ins=_AFTER,
    out=_NOTHING,
    description="Publish the run's session: everything that was written into it becomes visible at once.",
)
def publish(context: dg.OpExecutionContext, lake: LakeResource) -> None:
    """Publish the run's session. A repeated call has the same result. Raises the errors of publishing."""
    context.add_output_metadata(_publish(context, lake))


@dg.op(ins=_AFTER, out=_NOTHING, description="Abandon the run's session: nothing of it is published.")
def abandon(context: dg.OpExecutionContext, lake: LakeResource) -> None:
    """Abandon the run's session, so that nothing of it is published. Raises SessionClosed if it is published."""
    lake.open().get_session(_session(context, lake).id).abandon()


@dg.op(ins=_AFTER, out=_NOTHING, description="Merge a branch of the lake into another.")
def merge_branch(context: dg.OpExecutionContext, config: MergeConfig, lake: LakeResource) -> None:
    """Merge a branch. Without new commits the target is unchanged. Raises Conflict, RefNotFound."""
    try:
        merged = lake.open().merge(
            config.source, into=config.into, message=config.message or f"Merge {config.source} into {config.into}"
        )
    except NothingToApply:
        context.log.info(f"{config.into} already has all commits of {config.source}: nothing to merge")
        return
    context.add_output_metadata({COMMIT: merged.commit, BRANCH: config.into, "lake/datasets": len(merged.versions)})


@dg.op(out=_NOTHING, description="Publish sessions whose steps all succeeded and whose publish failed, or was killed.")
def recover_sessions(context: dg.OpExecutionContext, config: RecoverConfig, lake: LakeResource) -> None:
    """Publish the sessions that can be published, then raise the errors of the others.

    A session that its gate refuses is only logged, and so is one that is passed over.
    """
    keep = lake.keep_failed
    lifted = None if config.gate is None else gate_named(config.gate)
    if config.session is not None:
        published = recover(
            context.instance, lake.open(), config.session, gate=lake.gate, keep_failed_for=keep, lift_gate=lifted
        )
        context.add_output_metadata({SESSION_TAG: config.session, COMMIT: published.commit})
        return
    if lifted is not None:
        raise InvalidDefinition("a gate is lifted for one session at a time: name the session")
    outcome = recover_all(
        context.instance,
        lake.open(),
        gate=lake.gate,
        keep_failed_for=keep,
        pass_over=lambda session, obstacle: context.log.info(f"session {session} is passed over: {obstacle}"),
    )
    failed = {session: error for session, error in outcome.items() if isinstance(error, Exception)}
    for session, error in failed.items():
        context.log.error(f"session {session}: {error}")
    context.add_output_metadata({"lake/recovered": len(outcome) - len(failed), "lake/not_recovered": len(failed)})
    unexpected = [error for error in failed.values() if not isinstance(error, GateFailed)]
    if unexpected:
        raise unexpected[0]


def lake_recover(name: str = "lake_recover") -> dg.JobDefinition:
    """Make a job that publishes sessions whose steps all succeeded but whose publish failed.

    Run it from the UI after a failed publish.
    """

    @dg.job(name=name, description="Publish sessions whose steps all succeeded and whose publish did not.")
    def recover_job() -> None:
        recover_sessions()

    return recover_job


def lake_publish_asset(key: str | Sequence[str] | dg.AssetKey, deps: Any, **options: Any) -> dg.AssetsDefinition:
    """Make an asset that publishes the run's session after all of `deps` are materialized.

    Publishing is then a visible step that can be retried on its own. It is for runs with one session (`scope="run"`).
    Select it together with its `deps`. `options` are those of `@dg.asset`.
    """
    asset_key = dg.AssetKey.from_coercible(key)

    def publish_all(context: dg.AssetExecutionContext, lake: LakeResource) -> dg.MaterializeResult[Any]:
        return dg.MaterializeResult(metadata=_publish(context.op_execution_context, lake))

    asset: Any = dg.asset(key=asset_key, deps=deps, description="Publishes the run's session.", **options)
    definition: dg.AssetsDefinition = asset(publish_all)
    return definition


def _publish(context: dg.OpExecutionContext, lake: LakeResource) -> dict[str, Any]:
    session, tags = _session(context, lake), context.run_tags
    check_still_runs(context.instance, context.run_id)
    keep = lake.keep_failed
    published = publish_session(
        context.instance, lake.open(), session, gate=lake.gate_of(tags), keep_failed_for=keep, by=context.run
    )
    branch = lake.open().get_session(session.id).record.branch
    return published_metadata(session, branch, published, resumed=session.resumed)


def _session(context: dg.OpExecutionContext, lake: LakeResource) -> RunSession:
    session = lake.run_session(context.instance, context.run)
    if session is None:
        raise InvalidDefinition(
            f"run {context.run_id} has no session to end: begin the job with open_session, "
            "or let the run be one session (scope='run')"
        )
    return session
