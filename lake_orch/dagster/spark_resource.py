"""A Spark session as a Dagster resource."""

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from dagster import ConfigurableResource
from dagster_shared.check import CheckError
from pydantic import Field

from lake_orch.errors import InvalidDefinition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER = "lake_spark_connect"
_LOOPBACK_ADDRESS = re.compile(r"sc://(?:127\.[0-9.]+|\[::1\])(?::[0-9]+)?(?:/|$)")
_LOOPBACK = {"spark.connect.grpc.binding.address": "127.0.0.1"}
_LOOPBACK_DRIVER = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
"""These settings are for executors in local threads. The executors of a cluster must reach the driver."""


class SparkResource(ConfigurableResource):  # type: ignore[type-arg]
    """A Spark session: the running one of this process, or one that is created with these settings on first use.

    The session starts only when a step uses it. By default, each process has a JVM of its own, on local threads.
    `master` names a cluster, and `remote` a Spark Connect server. With `shared`, the step processes of a Dagster
    instance share one local Connect server. The first process starts it. It listens only on the loopback interface and
    requires a token. It stops when no process has used it for `idle_timeout` seconds. Processes with other settings,
    other code or another Python have another server.

    Example:
        .. code-block:: python

            spark = SparkResource(shared=True, config={"spark.driver.memory": "4g"})

            @dg.asset
            def orders(spark: SparkResource) -> DataFrame:
                return spark.session.read.csv("orders.csv", header=True)
    """

    master: str | None = Field(default=None, description="Spark master, such as local[4] or spark://host:7077.")
    remote: str | None = Field(
        default=None,
        description="URL of a Spark Connect server, sc://host:port. One with a token is a secret: give it as EnvVar.",
        repr=False,
    )
    shared: bool = Field(
        default=False, description="Share one local Spark Connect server among the processes of the Dagster instance."
    )
    idle_timeout: float = Field(
        default=600, gt=0, description="Seconds without a client after which a shared server stops."
    )
    app_name: str = Field(default="lake", description="The application's name in Spark's own UI.")
    config: dict[str, str] = Field(
        default_factory=dict, description="Spark settings. No credentials belong here.", repr=False
    )

    @property
    def session(self) -> "SparkSession":
        """Return the session.

        Raises InvalidDefinition, and LakeError if Java or PySpark is missing or a shared server does not start.
        """
        self._check()
        if self.shared:
            from lake_core.spark.session import is_local, start_settings
            from lake_orch.spark.connect_server import shared_session

            config = {"spark.app.name": self.app_name, "spark.log.level": "WARN", **self.config, **_LOOPBACK}
            config.setdefault("spark.sql.warehouse.dir", str(Path("spark-warehouse").absolute()))
            settings = start_settings(self.master, config)
            if is_local(settings["spark.master"]):
                settings |= _LOOPBACK_DRIVER
            return shared_session(self.directory(), settings, idle_timeout=self.idle_timeout)
        from lake_core.spark import session

        return session(app_name=self.app_name, master=self.master, remote=self.remote, config=dict(self.config))

    def directory(self) -> Path:
        """Return the folder of shared servers.

        It is below the Dagster instance's storage. Outside of Dagster, it is a folder of this user.
        """
        try:
            context = self.get_resource_context()
        except CheckError:
            # The resource is used outside of a run.
            context = None
        if context is not None and context.instance is not None:
            return Path(context.instance.storage_directory()) / _FOLDER
        runtime = os.environ.get("XDG_RUNTIME_DIR")
        return Path(runtime) / _FOLDER if runtime else Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"

    def _check(self) -> None:
        if self.shared and sys.platform == "win32":
            raise InvalidDefinition(
                "a shared Spark server is started on Linux and macOS; here, start one by hand and name it as `remote`"
            )
        if self.remote is None:
            return
        if self.master is not None or self.shared:
            raise InvalidDefinition(
                "a Spark resource has a remote server, or a master, or a shared local server: choose one"
            )
        if not self.remote.startswith("sc://"):
            raise InvalidDefinition("`remote` of a Spark resource is the URL of a Connect server, sc://host:port")
        secret = ";token=" in self.remote or "SPARK_CONNECT_AUTHENTICATE_TOKEN" in os.environ
        if _LOOPBACK_ADDRESS.match(self.remote) and secret and ";use_ssl=true" not in self.remote:
            # PySpark would use TLS, and silently wait for minutes.
            raise InvalidDefinition(
                "a Connect server on this machine that asks for a token can only be reached by name: sc://localhost:port"
            )
