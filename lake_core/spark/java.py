"""Checks that Java is installed and new enough for Spark, before a JVM fails with an obscure error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from lake_core.spark.errors import JavaTooOld, NoJava

MINIMUM = 17
"""The oldest Java on which Spark 4 runs."""

_INSTALL = f"Install a JDK {MINIMUM} or newer (e.g. openjdk-{MINIMUM}-jre-headless), or point JAVA_HOME at one"


def check_java() -> int:
    """Return the major version of the Java that Spark will use. Raises NoJava or JavaTooOld."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK):
        where = f"JAVA_HOME has no bin/java: {home}" if home else "there is no java on PATH"
        raise NoJava(f"Spark needs Java, but {where}. {_INSTALL}")
    try:
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoJava(f"Spark needs Java, but {java} cannot be run ({error}). {_INSTALL}") from None
    match = re.search(r'version "(\d+)(?:\.(\d+))?', output.stderr + output.stdout)
    if match is None:
        raise NoJava(f"Spark needs Java, but {java} does not print its version. {_INSTALL}")
    major = int(match[2] or 0) if match[1] == "1" else int(match[1])
    if major < MINIMUM:
        raise JavaTooOld(f"Spark needs Java {MINIMUM} or newer, but {java} is Java {major}. {_INSTALL}")
    return major
