"""The component of a lake: its resources, and the sensors and jobs for its sessions."""

# No `from __future__ import annotations` here: components' fields are read as objects.

from typing import Annotated, Any, Literal

import dagster as dg
from pydantic import Field

from lake_orch.components.references import SecretText, SensorStatus, StorageOptions, described, load_function
from lake_orch.components.scaffolding import scaffolds
from lake_orch.io_managers.delta import DeltaIOManager
from lake_orch.io_managers.files import FileIOManager
from lake_orch.io_managers.lake import LakeIOManager
from lake_orch.io_managers.pool import PoolIOManager
from lake_orch.jobs.backfill import lake_backfill_sensor
from lake_orch.jobs.executor import lake_executor
from lake_orch.jobs.ops import lake_recover
from lake_orch.jobs.session_sensors import lake_session_reaper, lake_session_sensors
from lake_orch.resources import LakeResource, SparkResource


class SparkSettings(dg.Model, dg.Resolvable):
    """The Spark session of the steps: the fields of `SparkResource`."""

    master: Annotated[str | None, described("Spark master, such as local[4] or spark://host:7077.")] = None
    remote: SecretText = None
    shared: Annotated[bool, described("Share one local Spark Connect server among the processes of the instance.")] = (
        False
    )
    idle_timeout: Annotated[
        float, Field(gt=0), described("Seconds without a client after which a shared server stops.")
    ] = 600
    app_name: Annotated[str, described("The application's name in Spark's own UI.")] = "lake"
    config: Annotated[dict[str, str], described("Spark settings. No credentials belong here.")] = Field(
        default_factory=dict
    )

    def resource(self) -> SparkResource:
        """Return the resource with these settings."""
        return SparkResource(**{name: value for name, value in self if value is not None})


@dg.scaffold_with(
    scaffolds(
        """
        root: "{{ env('LAKE_ROOT', 'lake') }}"
        # Secrets stay references to environment variables:
        # storage_options:
        #   key: "{{ env.S3_KEY }}"
        #   secret: "{{ env.S3_SECRET }}"
        # scope: run          # a run publishes all its work at once; needs a lake (`lake init ROOT`)
        # spark:
        #   shared: true
        sessions: false       # true once the root is a lake
        """
    )
)
class LakeComponent(dg.Component, dg.Model, dg.Resolvable):
    """The lake of a code location.

    It defines the resources `lake`, `spark`, `io_manager`, `file_io_manager`, `array_io_manager` and `pool_io_manager`,
    and the executor that makes a run one session. For sessions of failed runs it defines sensors, a job that publishes
    them, and a reaper on a schedule.
    """

    root: Annotated[
        str, described("URL or local path of the lake's root folder, or of a folder of plain Delta tables.")
    ]
    storage_options: StorageOptions = Field(default_factory=dict)
    ui_url: Annotated[str | None, described("Where `lake ui` serves the lake, for links in materializations.")] = None
    branch: Annotated[str, described("The branch that runs read and publish to.")] = "main"
    branch_from: Annotated[str | None, described("The branch to create a missing branch from.")] = None
    scope: Annotated[
        Literal["asset", "run"], described("What is published together: each asset, or the whole run.")
    ] = "asset"
    gate: Annotated[
        Literal["blocking", "error", "none"],
        described("Under scope run: which failed checks prevent publishing a run."),
    ] = "blocking"
    keep_failed_for: Annotated[
        float, Field(gt=0, le=168), described("Hours for which the session of a failed run is kept.")
    ] = 24
    backfills: Annotated[
        Literal["publish", "gather"],
        described(
            "publish: each run of a backfill publishes by itself. gather: all write to one branch, "
            "which a sensor merges once."
        ),
    ] = "publish"
    mode: Annotated[
        Literal["overwrite", "append", "overwrite_partitions", "error", "ignore"],
        described("How outputs are written if their metadata names no lake/mode."),
    ] = "overwrite"
    schema_mode: Annotated[
        Literal["none", "fill", "merge", "overwrite"],
        described("How new and missing columns are handled."),
    ] = "none"
    preview_rows: Annotated[
        int,
        Field(ge=0, le=50),
        described("Rows of a table that lake/preview shows, which Dagster keeps in its database; 0 for none."),
    ] = 5
    with_column_lineage: Annotated[bool, described("Whether Spark's plans are read for column lineage.")] = True
    naive_timestamps: Annotated[
        Literal["refuse", "utc", "ntz"], described("The meaning of timestamps without a zone.")
    ] = "refuse"
    arrays: Annotated[
        bool, described("Add the resource array_io_manager, which stores arrays. Needs the extra arrays.")
    ] = False
    pools: Annotated[bool, described("Add the resource pool_io_manager, which stores records of any shape.")] = False
    formats: Annotated[
        dict[str, dict[str, Any]] | None,
        described("Options by format of the resource lake_io_manager, which stores all formats; null for none."),
    ] = None
    spark: Annotated[
        SparkSettings | None, described("The resource spark; {} for a session with Spark's own settings.")
    ] = None
    allow_pickle: Annotated[bool, described("Whether file_io_manager stores and loads any object, with pickle.")] = (
        False
    )
    executor: Annotated[
        bool | None,
        described("Whether the code location's executor makes each run one session; by default under scope run."),
    ] = None
    sessions: Annotated[
        bool,
        described(
            "Add the session sensors, the job lake_recover and the reaper. For lakes, not for folders of plain tables."
        ),
    ] = True
    reaper_schedule: Annotated[str | None, described("Cron schedule of the reaper; null for none.")] = "*/30 * * * *"
    sensors: SensorStatus = "RUNNING"
    alert: Annotated[
        str | None, described("module:function, called with a SessionAlert for failed publishes and stale sessions.")
    ] = None

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Build the definitions. Raises InvalidDefinition for an alert that cannot be imported."""
        lake = LakeResource(
            root=self.root,
            storage_options=self.storage_options,
            ui_url=self.ui_url,
            branch=self.branch,
            branch_from=self.branch_from,
            scope=self.scope,
            keep_failed_for=self.keep_failed_for,
            backfills=self.backfills,
            # The gate is passed only if it was set, because the resource refuses one under scope asset.
            **({"gate": self.gate} if "gate" in self.model_fields_set and self.gate != "blocking" else {}),
        )
        spark = None if self.spark is None else self.spark.resource()
        resources: dict[str, Any] = {
            "lake": lake,
            "io_manager": DeltaIOManager(
                lake=lake,
                spark=spark,
                mode=self.mode,
                schema_mode=self.schema_mode,
                naive_timestamps=self.naive_timestamps,
                preview_rows=self.preview_rows,
                with_column_lineage=self.with_column_lineage,
            ),
            "file_io_manager": FileIOManager(lake=lake, allow_pickle=self.allow_pickle),
        }
        if self.arrays:
            from lake_orch.io_managers.icechunk import IcechunkIOManager  # needs the extra `arrays`

            resources["array_io_manager"] = IcechunkIOManager(lake=lake)
        if self.pools:
            resources["pool_io_manager"] = PoolIOManager(lake=lake, spark=spark, preview_rows=self.preview_rows)
        if self.formats is not None:
            resources["lake_io_manager"] = LakeIOManager(lake=lake, spark=spark, formats=self.formats)
        if spark is not None:
            resources["spark"] = spark
        needs_executor = self.scope == "run" if self.executor is None else self.executor
        definitions = dg.Definitions(resources=resources, executor=lake_executor if needs_executor else None)
        return dg.Definitions.merge(definitions, self._sessions(context)) if self.sessions else definitions

    def _sessions(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        alert = None if self.alert is None else load_function(self.alert, context)
        status = dg.DefaultSensorStatus(self.sensors)
        sensors = list(lake_session_sensors(alert=alert, default_status=status))
        if self.backfills == "gather":
            sensors.append(lake_backfill_sensor(default_status=status))
        reaper = lake_session_reaper(alert=alert, group_name="maintenance")
        schedules = []
        if self.reaper_schedule is not None:
            target = dg.AssetSelection.assets(reaper.key)
            schedules.append(
                dg.ScheduleDefinition(name="lake_session_reaper", target=target, cron_schedule=self.reaper_schedule)
            )
        return dg.Definitions(assets=[reaper], jobs=[lake_recover()], sensors=sensors, schedules=schedules)
