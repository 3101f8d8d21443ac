"""`AssetFormat`: how values of assets become datasets of one format, and back, for every orchestrator.

Formats register their classes under the entry point group `lake_orch.asset_formats`, beside their `DatasetFormat`,
by the same name. An orchestrator describes an output or input (`AssetOutput`, `AssetInput`), opens the workspace and
the state, and reports what was written. It names no format.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from typing import IO, TYPE_CHECKING, Any, ClassVar, Final, Generic, Protocol, TypeVar

from lake_core.backoff import Backoff
from lake_core.dataset import UnknownFormat
from lake_core.installed import installed
from lake_core.lake.errors import DatasetNotFound
from lake_orch.assets.description import AssetPath
from lake_orch.assets.metadata_names import ASSET_FORMATS, MetadataNames
from lake_orch.assets.partitions import Partitions
from lake_orch.assets.place import Place
from lake_orch.assets.report import describe_write, read_with
from lake_orch.definition_metadata import MODE, REF, read_text
from lake_orch.errors import InvalidDefinition
from lake_orch.location import table_path
from lake_pipes.metadata import PATH, receipt_metadata

if TYPE_CHECKING:
    import pyarrow as pa

    from lake_core.errors import LakeError
    from lake_core.store import ObjectStore
    from lake_core.txn import Txn
    from lake_core.workspace import Workspace
    from lake_orch.assets.owner import Owner

READING_CODE: Final = "lake.at('{commit}').open('{path}')"
"""Python code that reads a dataset of any format as of a commit."""

FORMAT: Final = "lake/format"
"""The metadata that names the format of an asset."""

SINGLE_BATCH: Final = 1
"""The transaction version of the only write of an output. Writes in a step's own code are numbered from here."""

TRIES = 5
"""The most attempts to write a value that is read or computed again for each."""
PAUSES = Backoff(first=0.1, longest=2.0)
"""The pauses between these attempts."""

ResultT = TypeVar("ResultT")


class ReadOnce(Exception):
    """The value was read by an earlier attempt, and cannot be read again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetOutput:
    """An output of an asset or an op, as its orchestrator describes it."""

    producer: str
    """The name of the asset, or of the step, in errors: `asset orders`."""
    asset_key: Sequence[str] | None
    """None for an output of an op."""
    metadata: Mapping[str, Any]
    """The definition metadata."""
    partitions: Partitions | None = None
    """The asset's partitions, or None if it has none."""
    keys: Sequence[str] = ()
    """The partitions that the run writes."""
    mapping_keys: Sequence[str] = ()
    """The keys of mapped steps and dynamic outputs, which are below the path of the asset."""
    owner: Owner | None = None
    """The asset, as the owner of what it writes. None for an output of an op."""
    upstream: Sequence[AssetPath] = ()
    """The keys of the assets that it depends on."""

    @property
    def subject(self) -> str:
        """Return the name of the output in errors and the log."""
        return f"the output of {self.producer}"

    @property
    def path(self) -> str:
        """Return where the output is stored, relative to the lake's root. Raises InvalidDefinition."""
        return self.located(table_path(self.asset_key, self.metadata))

    def check_mode(self, mode: str | None) -> None:
        """Raise InvalidDefinition for a mode that leaves out all partitions of a run if some are there already."""
        if mode == "ignore" and self.partitions is not None and len(self.keys) > 1:
            raise InvalidDefinition(
                f"{MODE} 'ignore' of {self.producer} would leave out all {len(self.keys)} partitions of the run if one "
                "of them is there: launch a run for each, or use 'overwrite'"
            )

    def located(self, path: str) -> str:
        """Return where the output is stored, from the path of its asset."""
        return "/".join([path, *self.mapping_keys])


@dataclass(frozen=True, slots=True, kw_only=True)
class AssetInput:
    """The part of the dataset of an asset or op that a parameter requests."""

    subject: str
    """The name of the input in errors and the log: `input 'orders'`."""
    path: str
    """The path of the dataset, relative to the lake's root."""
    settings: Mapping[str, Any]
    """The definition metadata of the input."""
    annotation: object
    """The type to load, without `| None`. For the outputs of several steps, the type of each."""
    declared: object = None
    """The same for formats that load lists: `list[T]` may be the type of one value."""
    optional: bool = False
    """Whether the parameter is annotated `T | None`."""
    asset_key: Sequence[str] | None = None
    """The key of the asset that is read."""
    producer: str = ""
    """Its name."""
    is_external: bool = False
    """Whether no asset of the same definitions makes it, as far as is known."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The definition metadata of the output that is read. It is empty if no asset or op produces the output."""
    output: AssetOutput | None = None
    """The output that is read, if it is known."""
    partitions: Partitions | None = None
    keys: Sequence[str] | None = None
    """The partitions to read, or None for an asset without partitions."""

    @property
    def ref(self) -> str | None:
        """Return the branch, tag or commit to read, instead of what the run sees. Raises InvalidDefinition."""
        return read_text(self.settings, REF, self.subject)

    def of_partitions(self) -> Partitions:
        """Return the partitions of an asset that has some."""
        assert self.partitions is not None
        return self.partitions


class ReadingStep(Protocol):
    """What a format may ask of the orchestrator while it reads an input."""

    @property
    def lineage_key(self) -> AssetPath | None:
        """Return the key by which column lineage names the asset that is read, or None if nothing is tracked."""

    def reads_itself(self) -> bool:
        """Return whether the step also writes the asset that it reads."""

    def is_staged(self) -> bool:
        """Return whether the run has staged changes of the dataset that are not published yet."""

    def unread(self, latest: Callable[[], str]) -> tuple[str | None, str]:
        """Return the bounds of what the reading asset has not read yet, and record that it is read.

        `latest` returns the id of the newest state. The bounds are the last state that was read, or None, and the one
        to read to. Raises InvalidDefinition where there is no such asset.
        """


@dataclass(frozen=True, slots=True)
class Written:
    """The report of a write."""

    summary: str
    """A line for the log, without the name of the output."""
    metadata: Mapping[str, Any]
    """The output metadata: numbers, texts and the values of `lake_orch.assets.description`."""
    data_version: str
    """What differs where the data differs: not for an attempt that an earlier one made already."""
    warnings: Sequence[str] = ()

    @classmethod
    def of_dataset(cls, workspace: Workspace, path: str, size: str, data_version: str) -> Written:
        """Return the report of a write of a dataset, once the workspace is finished.

        `size` says what was written, such as `3 lines`.
        """
        receipt, url = workspace.receipt, workspace.url(path)
        is_skipped = receipt is not None and receipt.skipped
        commit = None if receipt is None else receipt.commit
        metadata = {
            **({} if receipt is None else receipt_metadata(receipt)),
            **read_with(commit, path, READING_CODE),
            "dagster/uri": url,
            PATH: path,
        }
        summary = describe_write(size, url, f"data version {data_version[:8]}", receipt, skipped=is_skipped)
        return cls(summary, metadata, data_version)


class AssetWrite(ABC, Generic[ResultT]):
    """The write of one value. It is made again, in another workspace, if it conflicts with another run's."""

    tries: ClassVar[int] = TRIES
    pauses: ClassVar[Backoff] = PAUSES
    logged: ClassVar[type[Warning] | None] = None
    """Warnings that belong in the log of the step."""

    @abstractmethod
    def to(self, workspace: Workspace) -> ResultT:
        """Write the value. Raises ReadOnce if it cannot be read again for another attempt."""

    @abstractmethod
    def written(self, result: ResultT, workspace: Workspace) -> Written:
        """Describe what was written, once the workspace is finished."""


class AssetRead(ABC):
    """The read of one input."""

    pins_state: bool = False
    """Whether the input names a state, so that it does not matter whether newer rows are published."""
    options: Mapping[str, Any] = {}
    """Options of the format's `open`."""
    loads_each_partition: bool = True
    """Whether a parameter that is annotated `dict[str, T]` gets one value of type T for each partition."""
    loads_absent: bool = False
    """Whether an empty value is loaded where there is no dataset yet, and there need not be one."""

    def absent(self, message: str) -> LakeError:
        """Return the error for a dataset that does not exist."""
        return DatasetNotFound(message)

    def start(self, dataset: Any | None, step: ReadingStep | None) -> str:
        """Begin to read a dataset, and return a line for the log. `step` is None outside of a run."""
        return "" if dataset is not None else "nothing yet"

    @abstractmethod
    def load(self, dataset: Any | None, keys: Sequence[str] | None, annotation: object) -> Any:
        """Return the value of some partitions, or of all if `keys` is None, as the annotated type."""


class Batch(Protocol):
    """Files of a landing zone that are written together."""

    @property
    def name(self) -> str:
        """Return the name of the batch in errors and the log."""

    @property
    def txn(self) -> Txn:
        """Return the transaction identifier to write the batch with: that of the zone, and the batch's number."""

    def open_files(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the name of each file in errors, with its decompressed bytes."""

    def to_arrow(self, *, schema: pa.Schema | None = None) -> pa.Table:
        """Read the rows of files whose extension is that of a format of rows. Raises UnsupportedData."""


class AssetLanding(ABC, Generic[ResultT]):
    """How the batches of a landing zone are added to one dataset, in the order of their numbers, each once."""

    path: str
    """The path of the dataset, relative to the lake's root."""

    @abstractmethod
    def last_batch(self, dataset: Any, application: str) -> int | None:
        """Return the highest number that the dataset records for the application of a zone, or None for none.

        It is 0 if what it recorded was reverted.
        """

    def identity(self, dataset: Any) -> str:
        """Return what tells a dataset from one that is created again at its path, if the format has such an id."""
        return ""

    def retention(self, dataset: Any) -> timedelta | None:
        """Return how long the dataset records a batch after it has landed, or None for ever."""
        return None

    @abstractmethod
    def write(self, batch: Batch, value: Any | None) -> AssetWrite[ResultT]:
        """Prepare the write of a batch, which does nothing if the dataset records the batch.

        `value` is what the zone's own function read of the batch. It is None if the format reads the files itself.
        """

    @abstractmethod
    def row_count(self, result: ResultT) -> int | None:
        """Return the number of rows or records of a batch by the result of its write, or None if it is unknown."""


@dataclass(frozen=True, slots=True)
class AssetFormat(ABC):
    """How values are stored in one format.

    A subclass with options is a dataclass. Its fields are the options of an IO manager, and have defaults.
    """

    format: ClassVar[str]
    """The name of its `DatasetFormat`, if it has one."""
    names: ClassVar[MetadataNames] = MetadataNames()
    """The definition metadata that has an effect."""
    takes_partitions: ClassVar[bool] = False
    """Whether a run can write and read some partitions of an asset. Otherwise, partitioned assets are refused."""
    is_dataset: ClassVar[bool] = True
    """Whether values are datasets of a `DatasetFormat`. If not, they are plain files of the lake."""
    kind: ClassVar[str] = ""
    """The kind of its assets in the UI, such as `deltalake`. Without one, that is the name of the format."""
    reading_code: ClassVar[str] = READING_CODE
    """Python code that reads a dataset as of a commit, for whoever looks at its metadata."""

    @classmethod
    def place(cls, asset_key: Sequence[str] | None, metadata: Mapping[str, Any], options: Mapping[str, Any]) -> Place:
        """Return the place of an output, without its mapping keys.

        Args:
            asset_key: The key of its asset, or None for an output of an op.
            metadata: Its definition metadata.
            options: The configuration of the IO manager.

        Raises:
            InvalidDefinition: It has no place, or the path is invalid.
        """
        path = table_path(asset_key, metadata)
        return Place(path, replaces=cls.replaces(metadata, options.get("mode", "overwrite")))

    @classmethod
    def replaces(cls, metadata: Mapping[str, Any], mode: str) -> bool:
        """Return whether a write by this metadata replaces what another output has written to the same dataset.

        `mode` is what the IO manager's options say. Raises InvalidDefinition.
        """
        return bool(metadata.get(MODE, mode) == "overwrite")

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Return whether values like this one are stored in this format if nothing names another."""

    def continues(self, value: object) -> bool:
        """Return whether a value is stored in a dataset of this format that is there, though it may be of another.

        Such as a list without records, which says nothing of its type.
        """
        return self.accepts(value)

    def exists(self, files: ObjectStore, output: AssetOutput) -> bool:
        """Return whether files of an output exist. Only for formats whose values are no datasets."""
        return False

    @abstractmethod
    def loads(self, annotation: object) -> bool:
        """Return whether a parameter that is annotated so can be loaded from this format."""

    @abstractmethod
    def write(self, value: Any, output: AssetOutput) -> AssetWrite[Any]:
        """Prepare the write of a value. Raises InvalidDefinition, UnsupportedData before anything is written."""

    @abstractmethod
    def read(self, request: AssetInput) -> AssetRead:
        """Prepare the read of an input. Raises InvalidDefinition."""

    def check(self, output: AssetOutput) -> None:
        """Raise InvalidDefinition for metadata without effect, and for partitions of a format that stores none."""
        self.names.check(output.metadata, "output", output.producer)
        if output.partitions is not None and not self.takes_partitions:
            raise InvalidDefinition(
                f"{output.producer} writes partitions, and the format {self.format!r} stores no partitions: leave them "
                "out, or store it in another format"
            )

    def landing(self, output: AssetOutput) -> AssetLanding[Any]:
        """Prepare to add the batches of a landing zone to an output. Raises InvalidDefinition, the default."""
        raise InvalidDefinition(
            f"{output.producer} lands in the format {self.format!r}, which takes no batches of files: land in a table, "
            "and write the output from its rows"
        )


def asset_formats() -> Sequence[str]:
    """Return the names of the installed formats, in order."""
    return list(installed(ASSET_FORMATS))


def check_appends(mode: str, subject: str) -> None:
    """Raise InvalidDefinition for a mode of a landing zone's output that would replace what has landed."""
    if mode != "append":
        raise InvalidDefinition(f"{MODE} of {subject} is {mode!r}, but batches are appended: leave it out")


def asset_format_class(name: str) -> type[AssetFormat]:
    """Return the class of a format. Raises UnknownFormat."""
    if name not in installed(ASSET_FORMATS):
        raise UnknownFormat(
            f"no asset format {name!r} is installed (installed are {', '.join(asset_formats()) or 'none'}): install "
            f"the package that provides it, which registers it as an entry point of {ASSET_FORMATS}"
        )
    try:
        kind: type[AssetFormat] = installed(ASSET_FORMATS)[name].load()
    except ModuleNotFoundError as error:
        raise UnknownFormat(
            f"the format {name!r} needs the package {error.name}, which is not installed: install the extra that has it"
        ) from error
    return kind


def asset_format(name: str, options: Mapping[str, Any], shared: Mapping[str, Any] | None = None) -> AssetFormat:
    """Return a format with options, and with those of the shared options that it has.

    Raises UnknownFormat; InvalidDefinition for options that it does not have.
    """
    kind = asset_format_class(name)
    known = [each.name for each in fields(kind)]
    options = {option: value for option, value in (shared or {}).items() if option in known} | dict(options)
    unknown = sorted(options.keys() - set(known))
    if unknown:
        raise InvalidDefinition(
            f"the format {name!r} has no option {unknown[0]!r}: its options are {', '.join(known) or 'none'}"
        )
    for each in fields(kind):
        value = options.get(each.name, each.default)
        if isinstance(each.default, bool | int | str) and type(value) is not type(each.default):
            raise InvalidDefinition(
                f"the option {each.name!r} of the format {name!r} is {value!r}: use a {type(each.default).__name__}"
            )
    return kind(**options)
