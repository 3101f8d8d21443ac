"""Maintenance of datasets: what a format measures, what it does about it, and with which settings.

Formats register a `Maintenance` under the entry point group `lake_orch.maintenance`, by their own name. An orchestrator
makes assets, schedules and checks of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

from lake_core.dataset import UnknownFormat
from lake_core.delta.errors import InvalidProperty
from lake_core.delta.properties import duration_ms
from lake_core.inspection import SMALL_FILE
from lake_core.installed import installed
from lake_core.lake.errors import Conflict
from lake_orch.errors import InvalidDefinition

if TYPE_CHECKING:
    from lake_core.lake import Lake
    from lake_core.lake.session.write_session import WriteSession
    from lake_orch.assets.spark_source import SparkSource

MAINTENANCE: Final = "lake_orch.maintenance"
"""The entry point group in which formats register their `Maintenance`: name → the object."""

TASKS: Final = "lake_orch.maintenance_tasks"
"""The entry point group in which packages add tasks to a format of others: `<format>.<task>` → a `Task`."""

T = TypeVar("T")

_OF_ALL: Final = ("path", "asset_key", "format")
"""The fields of a `MaintainedDataset` that are no settings of a format."""

_TRIES = 5
"""The most attempts to plan a rewrite again after a conflict with a concurrent writer."""


class MaintainedLake(Protocol):
    """The lake, or the folder of plain datasets, in which something is maintained."""

    def is_lake(self) -> bool:
        """Return whether a lake exists at the root."""

    def open(self) -> Lake:
        """Open the lake."""

    def read(self, path: str, format: str, run: None, *, ref: str | None = None) -> Any:
        """Open a dataset. Raises DatasetNotFound."""


class TaskConfig(Protocol):
    """The configuration of one run of a task."""

    @property
    def dry_run(self) -> bool:
        """Return whether the task only reports what it would do."""

    @property
    def where(self) -> str | None:
        """Return the partitions to rearrange, as Spark SQL, or None for all."""


@dataclass(frozen=True, slots=True)
class TaskContext:
    """The dataset that a task maintains, with the configuration of the run."""

    lake: MaintainedLake
    target: Any
    """The settings, as a `MaintenanceTarget`."""
    config: TaskConfig
    branch: str
    """The branch that the run is based on."""
    spark: SparkSource | None = None

    def dataset(self) -> Any:
        """Open the dataset in its current state. Raises DatasetNotFound."""
        ref = self.branch if self.lake.is_lake() else None
        return self.lake.read(self.target.path, self.target.format, None, ref=ref)


Task: TypeAlias = Callable[[TaskContext], dict[str, Any]]
"""A task on one dataset, which returns metadata.

It must obey `context.config.dry_run`. `"lake/due": False` means that there was nothing to do. Then no observation is
reported. Its docstring is shown in the UI.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check."""

    passed: bool
    value: float
    limit: float


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """A check of what a format measures."""

    name: str
    remedy: str
    describe: str | Callable[[Any, Any], str]
    """What it measures and its limit, or a function of the limits and the target that returns it."""
    find: Callable[[Any, Any], Finding]
    """Compares the health with the limits."""

    def description(self, limits: object, target: object) -> str:
        """Return the description of the check: what it measures, its limit, and the remedy."""
        text = self.describe if isinstance(self.describe, str) else self.describe(limits, target)
        return f"{text}; {self.remedy}."


@dataclass(frozen=True, slots=True, kw_only=True)
class Maintenance:
    """The maintenance of datasets of one format."""

    datasets: str
    """The word for them: `tables`."""
    kind: str
    """Their kind in the UI."""
    settings: frozenset[str] = frozenset({"options"})
    """The settings of a target that have an effect."""
    tasks: Mapping[str, Task]
    default_tasks: Sequence[str] | None = None
    """The tasks that run where none are named, or None for all."""
    measure: Callable[[Any, Any], Any]
    """Measures a dataset, by its handle and the target."""
    metadata: Callable[[Any], Mapping[str, Any]]
    """Describes the health as metadata."""
    checks: Sequence[HealthCheck] = ()
    description: str = "What {path} needs."
    """Of the asset that shows the health."""
    link: str = "lake/dataset"
    """The metadata of that asset that links to the dataset's asset."""
    check: Callable[[Any], None] = lambda _: None
    """Raises InvalidDefinition for a target with invalid settings."""
    spark: bool = False
    """Whether tasks use Spark for large datasets."""
    collect: Task | None = None
    """What the task `garbage_collection` does with a dataset outside of lakes: a lake collects for all datasets.

    Its metadata has `lake/reclaimed_files` and `lake/reclaimed_bytes`. Raises DatasetNotFound.
    """

    def regular_tasks(self) -> Sequence[str]:
        """Return the names of the tasks that run where none are named."""
        return list(self.tasks) if self.default_tasks is None else self.default_tasks


@dataclass(frozen=True, slots=True)
class MaintainedDataset:
    """A dataset to maintain, with settings of its format."""

    path: str
    _: KW_ONLY
    zorder_by: Sequence[str] = ()
    target_size: int | None = None
    """The size of a compacted file in bytes. The default is the table's `delta.targetFileSize`, or else 128 MiB."""
    small_file: int = SMALL_FILE
    """The size in bytes below which a file counts as small."""
    min_small_file_ratio: float = 0.2
    """The part of small files from which compaction is due."""
    max_uncheckpointed_commits: int = 10
    """The number of commits from which a checkpoint is due."""
    retention: str | None = None
    """How long outdated data is kept, such as `14 days`.

    By default, a table's properties decide how long its removed files are kept. Snapshots of arrays are kept for 30
    days, and data objects that a pool no longer needs for 8 days.
    """
    txn_retention: str | None = None
    """How long transaction identifiers are kept, such as `30 days`. By default, they are kept forever."""
    spark_above: int = 8 << 30
    """The size of a table in bytes from which Spark rewrites it, if there is a Spark resource."""
    spark_above_files: int = 1_000_000
    """The number of files, removed ones included, from which Spark vacuums a table and writes its checkpoints.

    This needs a Spark resource.
    """
    max_mergeable_manifests: int = 10
    """The number of mergeable manifests from which they are rewritten."""
    max_mergeable_objects: int = 10
    """The number of mergeable data objects of a pool from which they are compacted."""
    format: str = "delta"
    """`delta` for a table, `icechunk` for arrays, `pool` for a pool, or a format that another package installs."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Settings of a format that another package installs."""

    def check(self) -> None:
        """Raise InvalidDefinition for invalid settings, and for those of another format."""
        maintenance = maintenance_of(self.format)
        for setting in fields(self):
            is_own = setting.name in _OF_ALL or setting.name in maintenance.settings
            if not is_own and getattr(self, setting.name) != (setting.default if setting.name != "options" else {}):
                raise InvalidDefinition(
                    f"{setting.name} has no effect on {self.path}, which is of the format {self.format}: leave it out. "
                    f"Its settings are {', '.join(sorted(maintenance.settings)) or 'none'}"
                )
        maintenance.check(self)


def maintained_formats() -> Sequence[str]:
    """Return the names of the formats that have maintenance, in order."""
    return list(installed(MAINTENANCE))


@cache
def maintenance_of(format: str) -> Maintenance:
    """Return the maintenance of a format, with the tasks that other packages add to it.

    Raises UnknownFormat; InvalidDefinition for an added task whose name is taken.
    """
    if format not in installed(MAINTENANCE):
        raise UnknownFormat(
            f"datasets of the format {format!r} have no maintenance (those of {', '.join(maintained_formats())} have)"
        )
    maintenance: Maintenance = installed(MAINTENANCE)[format].load()
    added = {point.name.removeprefix(f"{format}."): point for point in installed(TASKS).values()}
    tasks = {name: point.load() for name, point in added.items() if name != point.name}
    if taken := sorted(tasks.keys() & maintenance.tasks.keys()):
        raise InvalidDefinition(
            f"{added[taken[0]].value} is registered as the task {taken[0]!r} of the format {format!r}, which has one "
            f"of this name: rename the entry point of {TASKS}"
        )
    if not tasks:
        return maintenance
    regular = maintenance.regular_tasks()
    return replace(maintenance, tasks={**maintenance.tasks, **tasks}, default_tasks=regular)


def all_maintenance() -> Iterator[tuple[str, Maintenance]]:
    """Yield the maintenance of each format, with its name."""
    return ((format, maintenance_of(format)) for format in maintained_formats())


def retention_of(target: Any, default: str) -> timedelta:
    """Return how long a target's outdated data is kept. Raises InvalidDefinition unless `retention` is an interval."""
    retention: object = default if target.retention is None else target.retention
    if not isinstance(retention, str):
        raise InvalidDefinition(f"retention is {retention!r}: use an interval such as '7 days' (of {target.path})")
    try:
        return timedelta(milliseconds=duration_ms(retention, "retention"))
    except InvalidProperty as error:
        raise InvalidDefinition(f"{error} (of {target.path})") from None


def at_most(name: str) -> Callable[[Any, Any], Finding]:
    """Return the check that a measured number is not above the limit of the same name. None counts as 0."""

    def find(health: Any, limits: Any) -> Finding:
        value, limit = getattr(health, name) or 0, getattr(limits, name)
        return Finding(value <= limit, value, limit)

    return find


def check_least(target: Any, setting: str, least: int) -> None:
    """Raise InvalidDefinition unless a setting is a whole number of at least `least`."""
    value: object = getattr(target, setting)
    if not isinstance(value, int) or value < least:
        raise InvalidDefinition(f"{setting} is {value!r}: use a whole number of {least} or more (of {target.path})")


def rewrite_in_lake(context: TaskContext, message: str, rewrite: Callable[[WriteSession], T]) -> tuple[T, str | None]:
    """Rewrite data of a lake in a separate commit. Concurrent writers of the same data take precedence.

    Args:
        context: The dataset to rewrite, and the branch.
        message: The message of the commit.
        rewrite: Rewrites the data in a session. It is called again after a conflict.

    Returns:
        The result of `rewrite`, and the id of the commit, or None if nothing changed.
    """

    def attempt() -> tuple[T, str | None]:
        metadata = {"dagster/task": "maintenance"}
        with context.lake.open().session(context.branch, message=message, metadata=metadata) as session:
            result = rewrite(session)
        return result, session.publish().commit

    return _until_undisturbed(attempt, Conflict)


def rewrite_dataset(
    context: TaskContext, message: str, rewrite: Callable[[Any], T], *conflicts: type[Exception]
) -> tuple[T, str | None]:
    """Rewrite a dataset by its handle, and return the result and the commit as `rewrite_in_lake` does.

    Outside of a lake there is no commit, and `conflicts` are what `rewrite` raises if another writer came first.
    """
    path, format = context.target.path, context.target.format
    if context.lake.is_lake():
        return rewrite_in_lake(context, message, lambda session: rewrite(session.open(path, format)))
    return _until_undisturbed(lambda: (rewrite(context.dataset()), None), *conflicts)


def _until_undisturbed(attempt: Callable[[], T], *conflicts: type[Exception]) -> T:
    """Return the result of an attempt. After a conflict with a concurrent writer, try again, at most `_TRIES` times."""
    for _ in range(_TRIES - 1):
        with suppress(*conflicts):
            return attempt()
    return attempt()
