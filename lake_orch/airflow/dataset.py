"""What tasks of a DAG return into and load from: tables, arrays, pools and files of a lake, as a DAG file names them.

A DAG file is parsed again and again, so nothing here imports `lake_core` before a task runs.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from lake_orch.airflow.asset_uri import asset_uri
from lake_orch.airflow.hook import DEFAULT_BRANCH, DEFAULT_CONNECTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Asset

    from lake_orch.airflow.watcher import LakeWatcher

T = TypeVar("T")

_OWN = ("path", "connection", "branch", "metadata")
"""The fields that are no settings of a format."""


@dataclass(frozen=True, slots=True)
class DataInterval:
    """The slice of a dataset that lies in the data interval of a run, up to its end, which is excluded."""

    column: str
    """The column, the dimension or the key that has the time."""


@dataclass(frozen=True)
class LakeDataset:
    """A dataset of a lake."""

    format: ClassVar[str]

    path: str
    """The path below the lake's root."""
    connection: str = field(default=DEFAULT_CONNECTION, kw_only=True)
    """The id of a connection of the type `lake`."""
    branch: str | None = field(default=None, kw_only=True)
    """The branch. None for that of the session, or else `main`."""
    metadata: Mapping[str, Any] = field(default_factory=dict, kw_only=True, hash=False)
    """Further settings by their full names, such as `lake/owner`."""

    def __post_init__(self) -> None:
        parts = self.path.split("/")
        if "" in parts or "." in parts or ".." in parts:
            raise ValueError(
                f"{self.path!r} is no path of a dataset: it is relative to the lake's root, such as 'tables/orders', "
                "without a slash at an end, empty parts, '.' and '..'"
            )

    @property
    def asset(self) -> Asset:
        """Return the asset that has an event for each commit which changed this dataset."""
        return self.asset_with()

    def asset_with(self, *watchers: LakeWatcher) -> Asset:
        """Return the asset with watchers, such as `lake_watcher()`, for the commits of others."""
        from airflow.sdk import Asset

        uri = asset_uri(self.connection, self.branch or DEFAULT_BRANCH, self.path)
        watching = [watcher.of(self.connection, self.branch, self.path) for watcher in watchers]
        return Asset(name=uri.removeprefix("lake://"), uri=uri, watchers=watching)

    def settings(self) -> Mapping[str, Any]:
        """Return the definition metadata, by the names that all orchestrators have."""
        chosen = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _OWN}
        chosen_settings = {f"lake/{name}": value for name, value in chosen.items() if value is not None}
        return {"lake/path": self.path, **chosen_settings, **self.metadata}

    def open(self) -> Any:
        """Open the dataset in a task, as the session of the task has it, or else as the branch has it.

        Raises:
            DatasetNotFound: It does not exist.
        """
        from lake_orch.airflow.reading import open_dataset

        return open_dataset(self)

    def load(self, type: type[T], **settings: Any) -> T:
        """Load the dataset in a task as a type, such as `pa.Table`, with the settings of an input, such as `where=`.

        Raises:
            DatasetNotFound: It does not exist.
            InvalidDefinition: The format has no such setting.
        """
        from lake_orch.airflow.reading import load_dataset

        loaded: T = load_dataset(self, type, settings)
        return loaded


@dataclass(frozen=True)
class LakeTable(LakeDataset):
    """A Delta table."""

    format = "delta"

    partition_by: Sequence[str] | None = field(default=None, kw_only=True, hash=False)
    cluster_by: Sequence[str] | None = field(default=None, kw_only=True, hash=False)
    properties: Mapping[str, str] | None = field(default=None, kw_only=True, hash=False)
    constraints: Mapping[str, str] | None = field(default=None, kw_only=True, hash=False)
    generated: Mapping[str, str] | None = field(default=None, kw_only=True, hash=False)
    schema: Any = field(default=None, kw_only=True, hash=False)
    """A `pyarrow.Schema` that the rows are cast to."""
    schema_mode: str | None = field(default=None, kw_only=True)
    naive_timestamps: str | None = field(default=None, kw_only=True)
    owner: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class LakeArray(LakeDataset):
    """Arrays in an Icechunk repository."""

    format = "icechunk"

    encoding: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)
    dims: Sequence[str] | None = field(default=None, kw_only=True, hash=False)
    append_dim: str | None = field(default=None, kw_only=True)
    coordinates: Mapping[str, Any] | None = field(default=None, kw_only=True, hash=False)
    owner: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class LakePool(LakeDataset):
    """A pool of records."""

    format = "pool"

    key: str | None = field(default=None, kw_only=True)
    order: str | None = field(default=None, kw_only=True)
    threshold: Any = field(default=None, kw_only=True)
    times: Sequence[str] | None = field(default=None, kw_only=True, hash=False)
    owner: str | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class LakeFile(LakeDataset):
    """A plain file: bytes, text or JSON."""

    format = "files"

    owner: str | None = field(default=None, kw_only=True)


def dataset_class(format: str) -> type[LakeDataset]:
    """Return the class of datasets of a format. Datasets of a format of one's own have a class of their own."""
    pending = [LakeDataset]
    while pending:
        each = pending.pop()
        if getattr(each, "format", None) == format:
            return each
        pending += each.__subclasses__()
    raise LookupError(f"no class of datasets has the format {format!r}")


def into_of(task: Any) -> LakeDataset | None:
    """Return the dataset into which a task returns, also of a mapped one. None for tasks that return into none."""
    options = getattr(task, "partial_kwargs", None)
    into = getattr(task, "into", None) if options is None else options.get("into")
    return into if isinstance(into, LakeDataset) else None
