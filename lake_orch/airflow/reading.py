"""What tasks read: datasets as their session has them, or as they are published."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from airflow.sdk import get_current_context

from lake_core.lake.errors import DatasetNotFound
from lake_core.lake.refs.reached import CommitLinks, has_reached
from lake_orch.airflow.hook import DEFAULT_BRANCH, LakeHook
from lake_orch.airflow.lineage import note_read
from lake_orch.airflow.session_group import session_of
from lake_orch.airflow.task_run import TaskRun
from lake_orch.assets.annotation import without_none
from lake_orch.assets.asset_format import AssetInput, AssetOutput, asset_format, asset_format_class
from lake_orch.errors import InvalidDefinition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.lake import Lake

_WITHOUT_PREFIX = ("columns",)


class DescribedDataset(Protocol):
    """A dataset as a DAG file describes it."""

    @property
    def format(self) -> str:
        """Return the name of its format."""

    @property
    def path(self) -> str:
        """Return its path below the lake's root."""

    @property
    def connection(self) -> str:
        """Return the connection of its lake."""

    @property
    def branch(self) -> str | None:
        """Return its branch, or None for that of the session, or else `main`."""

    def settings(self) -> Mapping[str, Any]:
        """Return its definition metadata."""


def place_of(dataset: DescribedDataset) -> tuple[Lake, str, str]:
    """Return the lake of a dataset, the ref at which the task that is running reads it, and the branch of that."""
    session = session_of(get_current_context())
    if session is not None and session.connection == dataset.connection:
        run = TaskRun.of_session(session)
        if dataset.branch in (None, session.branch, run.branch):
            return run.lake, run.ref(), run.branch
    branch = dataset.branch or DEFAULT_BRANCH
    return LakeHook(dataset.connection).open(), branch, branch


def check_visible(dataset: DescribedDataset, session_id: str) -> None:
    """Check that the task that is running reads what another task has written into a session.

    Raises:
        InvalidDefinition: The session is that of another group, or of none, and is not published.
    """
    group = session_of(get_current_context())
    own = None
    if group is not None and group.connection == dataset.connection:
        run = TaskRun.of_session(group).run
        if any(generation.id == session_id for generation in run.lake.list_generations(run.name)):
            return
        own = run.session
    record = LakeHook(dataset.connection).open().get_session(session_id).record
    if not record.is_published:
        raise InvalidDefinition(
            f"{dataset.path} is to be read as a task has written it into the session {session_id!r}, which is not "
            "published yet: let this task follow its group, as in `run >> task`, or put it into the group"
        )
    if own is not None and group is not None and own.branch == record.branch:
        refs = run.lake.repository.refs()
        if record.commit is not None and not has_reached(CommitLinks(refs), own.base, record.commit):
            raise InvalidDefinition(
                f"{dataset.path} was published by the session {session_id!r} after that of {group.group_id!r} began: "
                "let the one group follow the other, as in `first >> second`"
            )


def exists(dataset: DescribedDataset) -> bool:
    """Return whether a dataset is there, where the task that is running reads it. Plain files are not looked for."""
    lake, ref, _ = place_of(dataset)
    return not asset_format_class(dataset.format).is_dataset or dataset.path in lake.at(ref).datasets()


def open_dataset(dataset: DescribedDataset) -> Any:
    """Open a dataset as its format's handle, or the store of files. Raises DatasetNotFound."""
    lake, ref, branch = place_of(dataset)
    state = lake.at(ref)
    is_dataset = asset_format_class(dataset.format).is_dataset
    opened = state.open(dataset.path, dataset.format) if is_dataset else state
    note_read(lake, dataset.connection, branch, dataset.path, ref)
    return opened


def load_dataset(
    dataset: DescribedDataset, annotation: object, settings: Mapping[str, Any], *, subject: str = "the value"
) -> Any:
    """Load a dataset as a type.

    Args:
        dataset: The dataset.
        annotation: The type.
        settings: Settings of an input, by name, such as `where`.
        subject: The name of the value in errors.

    Raises:
        DatasetNotFound: It does not exist, and the type is not `T | None`.
        InvalidDefinition: The format has no such setting.
        UnsupportedData: It cannot be loaded as this type.
    """
    wanted, optional = without_none(annotation)
    metadata = {name if name in _WITHOUT_PREFIX else f"lake/{name}": each for name, each in settings.items()}
    output = AssetOutput(producer=dataset.path, asset_key=dataset.path.split("/"), metadata=dataset.settings())
    request = AssetInput(
        subject=subject,
        path=dataset.path,
        settings=metadata,
        annotation=wanted,
        declared=wanted,
        optional=optional,
        producer=dataset.path,
        is_external=True,
        metadata=dataset.settings(),
        output=output,
    )
    format = asset_format(dataset.format, {})
    format.names.check(metadata, "input", subject)
    read = format.read(request)
    lake, ref, branch = place_of(dataset)
    ref = request.ref or ref
    state = lake.at(ref)
    try:
        opened = state.open(dataset.path, dataset.format, **read.options) if format.is_dataset else state
    except DatasetNotFound as error:
        if optional:
            return None
        raise read.absent(str(error)) from None
    note_read(lake, dataset.connection, branch, dataset.path, ref)
    read.start(opened, None)
    return read.load(opened, None, wanted)
