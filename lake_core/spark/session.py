"""The active Spark session, or a new one on local threads."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from lake_core.spark.java import check_java

if TYPE_CHECKING:
    from collections.abc import Mapping

_CORES = max(2, os.cpu_count() or 2)

RUNTIME_CONF: Mapping[str, str] = {
    # By default, Spark starts one task for each path that it lists.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * _CORES),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
"""Settings of a session that is created here. They can be changed while it runs."""

START_CONF: Mapping[str, str] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""Settings of a JVM that is started here. They cannot be changed later."""

LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(2 * _CORES),
}
"""Settings for executors in local threads. The executors of a cluster must reach the driver by the network."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The environment variable in which spark-submit passes the port of its JVM to a driver."""


def active_session() -> SparkSession | None:
    """Return the session of this thread, or else that of this process, or else None."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def start_settings(master: str | None = None, config: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a JVM that is started here.

    They are `master`, the settings of this module, and `config`, which overrides them. The default master is local
    threads, with up to three attempts at a task.
    """
    chosen = (config or {}).get("spark.master") or master or f"local[{_CORES},3]"
    local = LOCAL_CONF if is_local(chosen) else {}
    return {"spark.master": chosen, **START_CONF, **RUNTIME_CONF, **local, **(config or {})}


def is_local(master: str) -> bool:
    """Return whether a master runs executors as threads of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def session(
    *,
    app_name: str = "lake",
    master: str | None = None,
    remote: str | None = None,
    config: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the active Spark session, or a new one. `config` is applied to either.

    The time zone of a new session is UTC. Its executors run the Python of the setting `spark.pyspark.python` or of
    PYSPARK_PYTHON. The default is the Python of this process.

    Args:
        app_name: The name of a new session.
        master: The master of a new session. The default is local threads, with up to three attempts at a task. In a
            program that spark-submit started, the default is the master of spark-submit.
        remote: The URL of a Spark Connect server. The default is SPARK_REMOTE in the environment, unless `master` is
            given.
        config: Settings. Those that cannot be changed in an active session are ignored.

    Raises:
        NoJava: A JVM must be started, but Java is not installed.
        JavaTooOld: A JVM must be started, but Java is too old for Spark.
    """
    if master is not None and remote is not None:
        raise ValueError("a session has either a master or a remote server: pass only one of them")
    active = active_session()
    if active is not None:
        for key, value in (config or {}).items():
            if active.conf.isModifiable(key):
                active.conf.set(key, value)
        return active
    python = (config or {}).get("spark.pyspark.python")
    if python is not None:
        # PySpark itself uses this setting only in spark-submit.
        os.environ["PYSPARK_PYTHON"] = python
    # Otherwise, workers run `python3` from PATH, which may lack pyarrow.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(app_name)
    if remote is not None or ("SPARK_REMOTE" in os.environ and master is None):
        if remote is not None:
            builder = builder.remote(remote)
        settings = {**RUNTIME_CONF, **(config or {})}
    elif master is None and _SUBMITTED in os.environ:
        settings = {**RUNTIME_CONF, **(config or {})}
    else:
        check_java()
        settings = start_settings(master, config)
        if is_local(settings["spark.master"]):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
