"""What all IO managers do alike: they ask an `AssetFormat` for what differs between formats."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields
from typing import Any

from dagster import ConfigurableIOManager, InputContext, OutputContext

from lake_core.errors import LakeError
from lake_core.lake.errors import DatasetNotFound
from lake_orch.assets.asset_format import FORMAT, AssetFormat, AssetInput, AssetOutput, AssetRead
from lake_orch.assets.description import AssetPath
from lake_orch.assets.place import Place
from lake_orch.dagster.metadata import dagster_metadata, plain_metadata
from lake_orch.dagster.page_links import page_links
from lake_orch.dagster.runs.attempt import RunOfStep, run_of, step_of
from lake_orch.errors import InvalidDefinition
from lake_orch.io_managers.input import check_input_published, reads_itself, request_of, type_of_each_partition
from lake_orch.io_managers.logged_warnings import logged_warnings
from lake_orch.io_managers.nothing_returned import warn_of_nothing
from lake_orch.io_managers.output import described_output, set_data_version
from lake_orch.io_managers.place import HasPlaces, check_place
from lake_orch.io_managers.retry import write_with_retries
from lake_orch.resources import LakeResource
from lake_pipes.metadata import PATH


class AssetIOManager(HasPlaces, ConfigurableIOManager):
    """The base class of IO managers, whose formats store values. Each write takes effect exactly once."""

    lake: LakeResource

    @classmethod
    @abstractmethod
    def format_class(cls, metadata: Mapping[str, Any]) -> type[AssetFormat]:
        """Return the class of the format of an output, by its metadata alone."""

    @classmethod
    def place_of(
        cls, asset_key: Sequence[str] | None, metadata: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Place:
        """Return the place of an output, which its format decides."""
        return cls.format_class(metadata).place(asset_key, metadata, options)

    def format_of_output(self, output: AssetOutput, value: object, run: RunOfStep) -> AssetFormat:
        """Return the format in which an output is stored, with the options of this IO manager."""
        return self._only_format()

    def format_of_input(self, request: AssetInput, run: RunOfStep | None) -> AssetFormat:
        """Return the format in which the dataset of an input is stored, with the options of this IO manager."""
        return self._only_format()

    def _only_format(self, **options: Any) -> AssetFormat:
        """Return the format of an IO manager that has one. Its options have the names of the settings."""
        kind = self.format_class({})
        names = {each.name for each in fields(kind)}
        return kind(**{name: value for name, value in self if name in names}, **options)

    def handle_output(self, context: OutputContext, obj: Any) -> None:
        """Write an output to its dataset.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError, TableNotEmpty, TableOwned, and the errors of the
        format.
        """
        if obj is None:
            warn_of_nothing(context)
            return
        output = described_output(context)
        step = context.step_context
        format = self.format_of_output(output, obj, (step.instance, step.dagster_run))
        _check_named(output.metadata, format, output.producer)
        format.check(output)
        _check_late(context.output_metadata, format, output)
        write = format.write(obj, output)
        check_place(context, type(self), dict(self))
        with nullcontext() if write.logged is None else logged_warnings(context, write.logged):
            result, workspace = write_with_retries(
                context, self.lake, output.keys, write.to, output.subject, tries=write.tries, pauses=write.pauses
            )
        written = write.written(result, workspace)
        context.log.info(f"{output.subject}: {written.summary}")
        for warning in written.warnings:
            context.log.warning(f"{output.subject}: {warning}")
        links = page_links(self.lake.ui_url, written.metadata)
        context.add_output_metadata(dagster_metadata(written.metadata) | links)
        set_data_version(context, written.data_version)

    def load_input(self, context: InputContext) -> Any:
        """Read an input. For a partitioned asset, read exactly the partitions that the run's partitions map to.

        A missing dataset is an error, unless the run is the first of an asset that depends on itself, or needs no
        partition. Then a parameter annotated `T | None` gets None. A table has no rows for any other parameter.

        Raises InvalidDefinition, UnsupportedData, PartitionSliceError, and the errors of the format.
        """
        request, run = request_of(context), run_of(context)
        format = self.format_of_input(request, run)
        format.names.check(request.settings, "input", request.subject)
        read = format.read(request)
        if request.keys == [] and request.optional:
            return None
        if not read.pins_state:
            check_input_published(self.lake, context, request.ref)
        try:
            dataset = self._opened(format, read, context, request)
        except DatasetNotFound as error:
            dataset = None
            need_not_exist = reads_itself(context) or (read.loads_absent and request.keys == [])
            if need_not_exist and request.optional:
                return None
            if not (need_not_exist and read.loads_absent):
                absent: LakeError = read.absent(str(error))
                raise absent from None
        each = type_of_each_partition(request) if read.loads_each_partition else None
        state = read.start(dataset, None if run is None else _Step(context, self.lake, request))
        parts = "" if request.keys is None else f", {request.of_partitions().label(request.keys)}"
        context.log.info(f"{request.subject} is {request.path}, {state}{parts}")
        if each is None:
            return read.load(dataset, request.keys, request.annotation)
        return {key: read.load(dataset, [key], each) for key in request.keys or ()}

    def _opened(self, format: AssetFormat, read: AssetRead, context: InputContext, request: AssetInput) -> Any:
        """Return the dataset of an input, or the store of files. Raises DatasetNotFound."""
        run, step = run_of(context), step_of(context)
        if not format.is_dataset:
            return self.lake.read_files(run, ref=request.ref, step=step)
        return self.lake.read(request.path, format.format, run, ref=request.ref, step=step, **read.options)


def _check_named(metadata: Mapping[str, Any], format: AssetFormat, subject: str) -> None:
    """Raise InvalidDefinition if metadata names another format than the one in which an output is stored."""
    named = metadata.get(FORMAT, format.format)
    if named != format.format:
        raise InvalidDefinition(
            f"{FORMAT} of {subject} is {named!r}, but its IO manager stores the format {format.format!r}: use a "
            "LakeIOManager, or leave it out"
        )


def _check_late(metadata: Mapping[str, Any], format: AssetFormat, output: AssetOutput) -> None:
    """Raise InvalidDefinition if the code of a step sets what only the definition decides.

    It may say where a table is to which it has written itself.
    """
    for name, value in plain_metadata(metadata).items():
        if name in format.names.output and name != PATH and value != output.metadata.get(name):
            raise InvalidDefinition(
                f"the code of {output.producer} returns the metadata {name!r}, which has no effect there: set it in "
                "the metadata= of the definition. The output was not written"
            )


class _Step:
    """The step that reads an input, for its format."""

    def __init__(self, context: InputContext, lake: LakeResource, request: AssetInput) -> None:
        self._context, self._lake, self._request = context, lake, request

    @property
    def lineage_key(self) -> AssetPath | None:
        return tuple(self._context.asset_key.path) if self._context.has_asset_key else None

    def reads_itself(self) -> bool:
        return reads_itself(self._context)

    def is_staged(self) -> bool:
        step = self._context.step_context
        return self._lake.is_staged(self._request.path, step.instance, step.dagster_run)

    def unread(self, latest: Callable[[], str]) -> tuple[str | None, str]:
        from lake_orch.io_managers.last_run import unread

        position = unread(self._context, self._lake, self._request, latest)
        return position.since, position.until
