"""Pipes clients for steps that run in another process, which get the session, the epoch and the attempt to write with.

The other side is `lake_pipes`, which needs no Dagster.
"""

# No `from __future__ import annotations` here: Dagster reads the annotations of resources as objects.

import json
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import Any, Literal
from weakref import WeakKeyDictionary

import dagster as dg
from dagster import ConfigurableResource
from pydantic import Field

from lake_orch._dagster import DagsterExecutionInterruptedError, DagsterPipesExecutionError
from lake_orch.dagster.runs.attempt import Attempt, StepContext, partition_keys
from lake_orch.errors import InvalidDefinition
from lake_orch.resources import LakeResource
from lake_pipes import EXTRAS, STORAGE_OPTIONS, UI_URL

_SECRET_SETTING = re.compile(r"(secret|password|passwd|token|access\.key|account\.key|sas)", re.IGNORECASE)
_WAIT_FOR_END = 20
"""Seconds that an interrupted process has to clean up."""

_invocations: WeakKeyDictionary[object, int] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class HandOver:
    """The parameters for another process."""

    extras: Mapping[str, Any]
    """Extras of the Pipes context, without secrets."""
    environment: Mapping[str, str] = field(repr=False)
    """Environment variables, which include the lake's storage options."""


def hand_over(lake: LakeResource, context: StepContext) -> HandOver:
    """Collect the parameters that another process needs to write a step's output exactly once.

    The n-th call in a step is for the same output in every attempt. Raises NotALake, and InvalidDefinition for storage
    options that cannot be written as JSON.
    """
    step = context.get_step_execution_context()
    number = _invocations[step] = _invocations.get(step, 0) + 1
    attempt = Attempt.of_step(context, partition_keys(context), f"pipes {number}")
    # The process may have another working directory.
    root = lake.root if "://" in lake.root else str(Path(lake.root).absolute())
    assignment = replace(lake.assignment(attempt), root=root, reads=lake.reads(step))
    pages = {} if lake.ui_url is None else {UI_URL: lake.ui_url}
    return HandOver({EXTRAS: assignment.to_json(), **pages}, _environment(lake))


def _environment(lake: LakeResource) -> dict[str, str]:
    options = lake.options()
    if not options:
        return {}
    try:
        return {STORAGE_OPTIONS: json.dumps(options)}
    except TypeError as error:
        raise InvalidDefinition(
            f"storage_options of the lake cannot be passed to another process, because they are not JSON: {error}"
        ) from None


class LakePipesSubprocessClient(ConfigurableResource, dg.PipesClient):  # type: ignore[type-arg]
    """`dg.PipesSubprocessClient` for a process that writes into the lake.

    Example:
        .. code-block:: python

            @dg.asset
            def orders(context: dg.AssetExecutionContext, external: LakePipesSubprocessClient) -> dg.MaterializeResult:
                return external.run(context=context, command=[sys.executable, "orders.py"]).get_materialize_result()

            resources = {"external": LakePipesSubprocessClient(lake=lake), "lake": lake}
    """

    lake: LakeResource
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables of the process.", repr=False)
    cwd: str | None = Field(default=None, description="The process's working directory.")

    def run(  # type: ignore[override]  # as Dagster's own client has it
        self,
        *,
        context: StepContext,
        command: str | Sequence[str],
        extras: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
    ) -> dg.PipesClientCompletedInvocation:
        """Run a command, and wait for its end.

        Raises DagsterPipesExecutionError if it fails, and the errors of `hand_over`.
        """
        parameters = hand_over(self.lake, context)
        client = dg.PipesSubprocessClient(env=self.env, cwd=self.cwd)
        return client.run(
            context=context,
            command=command,
            extras={**(extras or {}), **parameters.extras},
            env={**parameters.environment, **(env or {})},
            cwd=cwd,
        )


class LakeSparkSubmitClient(ConfigurableResource, dg.PipesClient):  # type: ignore[type-arg]
    """Runs a PySpark application that writes into the lake, with spark-submit.

    With deploy mode `client`, the driver is a process of this machine. It gets its parameters and the lake's
    credentials from its environment. With `cluster`, the driver runs on another machine. Then pass `run` a context
    injector and a message reader that both sides can reach, open Pipes in the application with
    `PipesCliArgsParamsLoader`, and give the driver the lake's credentials in another way.
    """

    lake: LakeResource
    spark_submit: str = Field(default="spark-submit", description="The command.")
    master: str | None = Field(default=None, description="Spark master, such as yarn, k8s://… or local[4].")
    deploy_mode: Literal["client", "cluster"] = Field(default="client", description="Where the driver runs.")
    conf: dict[str, str] = Field(default_factory=dict, description="Spark settings. No credentials belong here.")
    py_files: list[str] = Field(
        default_factory=list, description="Python files and archives to submit with the application."
    )
    env: dict[str, str] = Field(default_factory=dict, description="Environment variables of spark-submit.", repr=False)

    def command(
        self,
        application: str,
        arguments: Sequence[str] = (),
        *,
        conf: Mapping[str, str] | None = None,
        name: str | None = None,
    ) -> list[str]:
        """Return the command line.

        Raises InvalidDefinition for a setting that looks like a credential: other users could read it.
        """
        settings = {**self.conf, **(conf or {})}
        secret = next((key for key in settings if _SECRET_SETTING.search(key)), None)
        if secret is not None:
            raise InvalidDefinition(
                f"the Spark setting {secret} would be in the command line, which other users can read: "
                "give credentials by the environment"
            )
        words = [self.spark_submit]
        words += ["--master", self.master] if self.master else []
        words += ["--deploy-mode", self.deploy_mode]
        words += ["--name", name] if name else []
        words += [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
        words += ["--py-files", ",".join(self.py_files)] if self.py_files else []
        return [*words, application, *arguments]

    def run(  # type: ignore[override]  # as Dagster's own clients have it
        self,
        *,
        context: StepContext,
        application: str,
        arguments: Sequence[str] = (),
        conf: Mapping[str, str] | None = None,
        extras: Mapping[str, Any] | None = None,
        env: Mapping[str, str] | None = None,
        context_injector: dg.PipesContextInjector | None = None,
        message_reader: dg.PipesMessageReader | None = None,
    ) -> dg.PipesClientCompletedInvocation:
        """Submit an application, and wait for its end.

        Raises InvalidDefinition, and DagsterPipesExecutionError if it fails.
        """
        remote = self.deploy_mode == "cluster"
        if remote and (context_injector is None or message_reader is None):
            raise InvalidDefinition(
                "a driver in the cluster does not reach this machine's files: "
                "give a context_injector and a message_reader on a store"
            )
        parameters = hand_over(self.lake, context)
        with dg.open_pipes_session(
            context=context,
            context_injector=context_injector or dg.PipesTempFileContextInjector(),
            message_reader=message_reader or dg.PipesTempFileMessageReader(),
            extras={**(extras or {}), **parameters.extras},
        ) as session:
            bootstrap = (
                [word for pair in session.get_bootstrap_cli_arguments().items() for word in pair] if remote else []
            )
            words = self.command(
                application, [*arguments, *bootstrap], conf=conf, name=context.get_step_execution_context().step.key
            )
            session_env = {} if remote else {**parameters.environment, **session.get_bootstrap_env_vars()}
            _wait(context, Popen(words, env={**os.environ, **self.env, **(env or {}), **session_env}))
        return dg.PipesClientCompletedInvocation(session)


def _wait(context: StepContext, process: "Popen[bytes]") -> None:
    """Wait for a process, and end it if this process is interrupted."""
    try:
        code = process.wait()
    except DagsterExecutionInterruptedError:
        context.log.info("interrupted: ending spark-submit")
        process.send_signal(signal.SIGINT)
        try:
            process.wait(timeout=_WAIT_FOR_END)
        except TimeoutExpired:
            process.kill()
        raise
    if code != 0:
        raise DagsterPipesExecutionError(f"spark-submit ended with code {code}: see its output for the cause")
