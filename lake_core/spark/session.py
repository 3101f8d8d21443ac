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
    # The default lists paths with a task each.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": str(2 * _CORES),
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
}
"""Settings of a session that is built here; they can be changed while it runs."""

START_CONF: Mapping[str, str] = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
"""Settings that a JVM started here begins with."""

LOCAL_CONF: Mapping[str, str] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(2 * _CORES),
}
"""Settings for local threads: the executors of a cluster have to reach the driver, and are not counted here."""

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""The environment variable by which spark-submit passes its JVM to a driver."""


def active_session() -> SparkSession | None:
    """Return the session of this thread or, if it has none, of this process."""
    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def start_settings(master: str | None = None, config: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the settings of a JVM that is started here.

    They are `master` (default: local threads, failed tasks tried three times), our own settings, and `config` on top of
    them.
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
    """Return the active Spark session if there is one, else a new one. `config` is set on top.

    A new session has `master` (default: local threads, failed tasks tried three times), UTC, and executors on the
    Python of the setting `spark.pyspark.python` or of PYSPARK_PYTHON, by default the path of this one. With `remote`,
    or if the environment names one (SPARK_REMOTE), the session is one of that Spark Connect server. In a program that
    spark-submit started, the master is the one that it was given.

    Raises NoJava or JavaTooOld if a JVM would have to be started and cannot.
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
        os.environ["PYSPARK_PYTHON"] = python  # PySpark itself knows this setting in spark-submit alone
    # Workers run `python3` from PATH otherwise, which may lack pyarrow.
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
