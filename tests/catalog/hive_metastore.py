"""A Hive metastore of the jars that come with PySpark, on a database in memory."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from importlib.util import find_spec
from pathlib import Path

_SECONDS = 120


class HiveMetastore:
    """The server, a context manager."""

    def __init__(self, folder: Path, jars: Path | None = None) -> None:
        self._folder = folder
        if jars is None:
            spec = find_spec("pyspark")
            assert spec is not None
            assert spec.origin is not None
            jars = Path(spec.origin).parent / "jars"
        self._jars = jars
        self.uri = ""

    def __enter__(self) -> HiveMetastore:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        settings = {
            "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
            "hive.metastore.schema.verification": "false",
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.warehouse.dir": str(self._folder / "warehouse"),
            "hive.async.log.enabled": "false",  # it needs a jar that PySpark does not have
            "derby.stream.error.file": os.devnull,
        }
        java = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
        command = [java, "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{self._jars}/*"]
        command += [f"-D{name}={value}" for name, value in settings.items()]
        command += ["org.apache.hadoop.hive.metastore.HiveMetaStore", "-p", str(port)]
        self._log = (self._folder / "metastore.log").open("wb")
        self._process = subprocess.Popen(command, cwd=self._folder, stdout=self._log, stderr=subprocess.STDOUT)
        until = time.monotonic() + _SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.__exit__()
                    log = (self._folder / "metastore.log").read_text()[-2000:]
                    raise AssertionError(f"the metastore did not start:\n{log}") from None
                time.sleep(0.1)
        self.uri = f"thrift://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._log.close()
