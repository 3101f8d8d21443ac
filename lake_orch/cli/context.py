"""The context of the commands: the lake and the Dagster instance."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dagster as dg

from lake_core.cli.context import Context
from lake_orch._dagster import DagsterHomeNotSetError
from lake_orch.cli.code_location import resources_of
from lake_orch.errors import InvalidDefinition
from lake_orch.jobs.resource_of_run import find_lake
from lake_orch.resources import LakeResource


@dataclass(slots=True)
class OrchContext(Context):
    """The options before the command."""

    root: str | None = None
    module: str | None = None
    resource: str | None = None

    @contextmanager
    def opened(self) -> Iterator[tuple[dg.DagsterInstance, LakeResource]]:
        """Open the instance of DAGSTER_HOME, and the lake.

        Raises InvalidDefinition if the lake or the instance is missing, or if the lake is named twice.
        """
        if (self.root is None) == (self.module is None):
            raise InvalidDefinition(
                "name the lake: either by its folder or URL, with --root or LAKE_URL, "
                "or by the module of a code location that has it, with -m"
            )
        if self.module is not None and self.storage_options:
            raise InvalidDefinition(
                "a code location has its own storage options: leave --storage-option out, or use --root"
            )
        with _instance() as instance:
            if self.root is not None:
                yield instance, LakeResource(root=self.root, storage_options=dict(self.storage_options))
                return
            resources = resources_of(str(self.module))
            if self.resource is not None:
                if self.resource not in resources:
                    raise InvalidDefinition(
                        f"module {self.module} has no resource {self.resource!r}: it has {', '.join(sorted(resources))}"
                    )
                resources = {self.resource: resources[self.resource]}
            with find_lake(resources, str(self.module), instance) as lake:
                yield instance, lake


@contextmanager
def _instance() -> Iterator[dg.DagsterInstance]:
    try:
        default = dg.DagsterInstance.get()
    except (DagsterHomeNotSetError, dg.DagsterInvariantViolationError) as error:
        reason = " ".join(str(error).split()).partition(". ")[0].rstrip(".")
        raise InvalidDefinition(
            f"no Dagster instance: set DAGSTER_HOME to the absolute path of its folder, as for the daemon ({reason})"
        ) from None
    with default as instance:
        yield instance
