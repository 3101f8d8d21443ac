"""What Dagster says, in the words of the lane: partitions, metadata, owners, and writes in the code of a step."""

from dagster_shared.libraries import DagsterLibraryRegistry

from lake_core.version import __version__

DagsterLibraryRegistry.register("lake-orch", __version__, is_dagster_package=False)
