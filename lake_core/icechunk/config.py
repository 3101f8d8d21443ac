"""The configuration of a repository. Names and defaults are Icechunk's; `config_file` reads and writes it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from lake_core.icechunk.errors import InvalidConfig
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL
from lake_core.icechunk.location import without_secrets

DEFAULT_INLINE_THRESHOLD = 512
DEFAULT_UPDATES_PER_OBJECT = 1000
_LARGEST_INLINE_THRESHOLD = 2**16 - 1


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """The way to reach the objects of a virtual chunk container. It does not contain credentials.

    `kind`: local_file_system, in_memory, s3, s3_compatible, tigris, gcs, azure or http.
    """

    kind: str
    options: Any = None


def local_filesystem_store(path: str) -> ObjectStoreConfig:
    """Return the configuration of a container on a file system."""
    return ObjectStoreConfig("local_file_system", path)


def s3_store(
    region: str | None = None,
    endpoint_url: str | None = None,
    *,
    allow_http: bool = False,
    anonymous: bool = False,
    s3_compatible: bool = False,
) -> ObjectStoreConfig:
    """Return the configuration of a container on S3, or on a service with its protocol."""
    options = {
        "region": region,
        "endpoint_url": endpoint_url,
        "anonymous": anonymous,
        "allow_http": allow_http,
        "force_path_style": s3_compatible,
    }
    return ObjectStoreConfig("s3_compatible" if s3_compatible else "s3", options)


def http_store(options: Mapping[str, str] | None = None) -> ObjectStoreConfig:
    """Return the configuration of a container on a web server."""
    return ObjectStoreConfig("http", dict(options or {}))


def gcs_store(options: Mapping[str, str] | None = None) -> ObjectStoreConfig:
    """Return the configuration of a container on Google Cloud Storage."""
    return ObjectStoreConfig("gcs", dict(options or {}))


@dataclass(frozen=True, slots=True)
class VirtualChunkContainer:
    """A location outside the repository for virtual chunks: the objects whose URLs begin with `url_prefix`."""

    url_prefix: str
    store: ObjectStoreConfig
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.url_prefix, str) or "://" not in self.url_prefix or not self.url_prefix.endswith("/"):
            raise InvalidConfig(
                f"the prefix of a virtual chunk container must be a URL that ends in '/', not {self.url_prefix!r}"
            )


@dataclass(slots=True)
class CompressionConfig:
    """The compression of manifests, snapshots and transaction logs."""

    algorithm: Literal["zstd"] | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True)
class ManifestSplitCondition:
    """A condition that selects the arrays of a split rule.

    `kind` is path_matches, name_matches, and, or, or any_array.
    """

    kind: str
    argument: str | tuple[ManifestSplitCondition, ...] | None = None

    @staticmethod
    def path_matches(regex: str) -> ManifestSplitCondition:
        """Match arrays whose whole path has a match of the regular expression."""
        return ManifestSplitCondition("path_matches", regex)

    @staticmethod
    def name_matches(regex: str) -> ManifestSplitCondition:
        """Match arrays whose name, the last part of the path, has a match of the regular expression."""
        return ManifestSplitCondition("name_matches", regex)

    @staticmethod
    def and_conditions(conditions: Iterable[ManifestSplitCondition]) -> ManifestSplitCondition:
        """Match arrays that all conditions match."""
        return ManifestSplitCondition("and", tuple(conditions))

    @staticmethod
    def or_conditions(conditions: Iterable[ManifestSplitCondition]) -> ManifestSplitCondition:
        """Match arrays that one of the conditions matches."""
        return ManifestSplitCondition("or", tuple(conditions))

    @staticmethod
    def AnyArray() -> ManifestSplitCondition:
        """Match every array."""
        return ManifestSplitCondition("any_array")

    def __and__(self, other: ManifestSplitCondition) -> ManifestSplitCondition:
        return self.and_conditions((self, other))

    def __or__(self, other: ManifestSplitCondition) -> ManifestSplitCondition:
        return self.or_conditions((self, other))


@dataclass(frozen=True, slots=True)
class ManifestSplitDimCondition:
    """A condition that selects the dimensions of an array that a split size applies to.

    `kind` is Axis, DimensionName or Any.
    """

    kind: str
    argument: int | str | None = None

    @staticmethod
    def Axis(axis: int) -> ManifestSplitDimCondition:
        """Match a dimension by its number, from 0."""
        return ManifestSplitDimCondition("Axis", axis)

    @staticmethod
    def DimensionName(regex: str) -> ManifestSplitDimCondition:
        """Match dimensions whose name has a match of the regular expression."""
        return ManifestSplitDimCondition("DimensionName", regex)

    @staticmethod
    def Any() -> ManifestSplitDimCondition:
        """Match every dimension."""
        return ManifestSplitDimCondition("Any")


SplitSizes = tuple[tuple[ManifestSplitCondition, tuple[tuple[ManifestSplitDimCondition, int], ...]], ...]


@dataclass(slots=True)
class ManifestSplittingConfig:
    """Rules by which the references of an array are spread over several manifests.

    The first rule that matches an array applies.
    """

    split_sizes: SplitSizes | Sequence[Any] | None = None
    """(condition of arrays, ((condition of dimensions, number of chunks), …)), …"""

    def __post_init__(self) -> None:
        self.split_sizes = _split_sizes(self.split_sizes or ())

    @staticmethod
    def from_dict(
        split_sizes: Mapping[ManifestSplitCondition, Mapping[ManifestSplitDimCondition, int]],
    ) -> ManifestSplittingConfig:
        """Return the rules of a mapping of conditions to split sizes by dimension."""
        return ManifestSplittingConfig(
            tuple((condition, tuple(sizes.items())) for condition, sizes in split_sizes.items())
        )


def _split_sizes(rules: Sequence[Any]) -> SplitSizes:
    checked = []
    for condition, sizes in rules:
        pairs = tuple(
            (dimension, number) for dimension, number in (sizes.items() if isinstance(sizes, Mapping) else sizes)
        )
        for _, number in pairs:
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise InvalidConfig(
                    f"a manifest must be split by a whole number of chunks of at least 1, not by {number!r}"
                )
        checked.append((condition, pairs))
    return tuple(checked)


@dataclass(slots=True)
class ManifestPreloadConfig:
    """The manifests that other clients read when they open a session. This one reads manifests when they are needed."""

    max_total_refs: int | None = None
    preload_if: Any = None
    max_arrays_to_scan: int | None = None


@dataclass(slots=True)
class ManifestVirtualChunkLocationCompressionConfig:
    """The compression of the locations in manifests, by other clients. This one reads such manifests."""

    min_num_chunks: int | None = None
    dictionary_max_training_samples: int | None = None
    dictionary_max_size_bytes: int | None = None
    compression_level: int | None = None


@dataclass(slots=True)
class ManifestConfig:
    """The configuration of reading and writing manifests."""

    preload: ManifestPreloadConfig | None = None
    splitting: ManifestSplittingConfig | None = None
    virtual_chunk_location_compression: ManifestVirtualChunkLocationCompressionConfig | None = None
    max_concurrent_manifest_fetches_during_commit: int | None = None
    """Stored for other clients."""


@dataclass(slots=True)
class RepositoryConfig:
    """The configuration of a repository. None stands for the default."""

    inline_chunk_threshold_bytes: int | None = None
    """The longest chunk that is stored in the manifest itself. Default 512."""
    get_partial_values_concurrency: int | None = None
    compression: CompressionConfig | None = None
    max_concurrent_requests: int | None = None
    caching: dict[str, Any] | None = None
    """Stored for other clients: this one limits its cache by bytes."""
    storage: Any = None
    virtual_chunk_containers: dict[str, VirtualChunkContainer] | None = None
    """By URL prefix."""
    manifest: ManifestConfig | None = None
    max_concurrent_decodes: int | None = None
    """Stored for other clients, as are the two below."""
    repo_update_retries: Any = None
    previous_file: str | None = None
    num_updates_per_repo_info_file: int | None = None
    """Up to how many entries of the operations log one object of version 2 holds. Default 1000."""
    unknown: dict[str, Any] = field(default_factory=dict, repr=False)
    """Unknown keys, which later clients wrote. They are written back."""

    @staticmethod
    def default() -> RepositoryConfig:
        """Return the default configuration."""
        return RepositoryConfig()

    def merge(self, other: RepositoryConfig) -> RepositoryConfig:
        """Return this configuration with the values of another that are not None.

        Containers are added by their URL prefix.
        """
        merged: RepositoryConfig = _merged(self, other)
        return merged

    def set_virtual_chunk_container(self, container: VirtualChunkContainer) -> None:
        """Add a container, or replace the one of its URL prefix.

        Raises InvalidConfig if the prefix holds credentials.
        """
        shown = without_secrets(container.url_prefix)
        if shown != container.url_prefix:
            raise InvalidConfig(
                f"the prefix {shown[:200]!r} of a virtual chunk container must not hold credentials, which the "
                "repository would store: pass them to authorize_virtual_chunk_access"
            )
        self.virtual_chunk_containers = {**(self.virtual_chunk_containers or {}), container.url_prefix: container}

    def get_virtual_chunk_container(self, url_prefix: str) -> VirtualChunkContainer | None:
        """Return the container of a URL prefix, or None."""
        return (self.virtual_chunk_containers or {}).get(url_prefix)

    def clear_virtual_chunk_containers(self) -> None:
        """Remove all containers."""
        self.virtual_chunk_containers = None

    @property
    def inline_threshold(self) -> int:
        """Return the longest chunk, in bytes, that is stored in the manifest."""
        return (
            DEFAULT_INLINE_THRESHOLD if self.inline_chunk_threshold_bytes is None else self.inline_chunk_threshold_bytes
        )

    @property
    def compression_level(self) -> int:
        """Return the level of zstd."""
        level = None if self.compression is None else self.compression.level
        return DEFAULT_COMPRESSION_LEVEL if level is None else level

    @property
    def updates_per_object(self) -> int:
        """Return up to how many entries of the operations log one object holds."""
        number = self.num_updates_per_repo_info_file
        return DEFAULT_UPDATES_PER_OBJECT if number is None else number

    @property
    def splitting(self) -> SplitSizes:
        """Return the rules by which manifests are split; none by default."""
        splitting = None if self.manifest is None else self.manifest.splitting
        return () if splitting is None else _split_sizes(splitting.split_sizes or ())

    def check(self) -> None:
        """Raise InvalidConfig for a value that is not valid."""
        threshold = self.inline_threshold
        if (
            not isinstance(threshold, int)
            or isinstance(threshold, bool)
            or not 0 <= threshold <= _LARGEST_INLINE_THRESHOLD
        ):
            raise InvalidConfig(
                f"inline_chunk_threshold_bytes must be a whole number of at most {_LARGEST_INLINE_THRESHOLD}, "
                f"not {threshold!r}"
            )
        updates = self.updates_per_object
        if not isinstance(updates, int) or isinstance(updates, bool) or updates < 1:
            raise InvalidConfig(f"num_updates_per_repo_info_file must be a whole number of at least 1, not {updates!r}")
        level = self.compression_level
        if not isinstance(level, int) or isinstance(level, bool) or not -7 <= level <= 22:
            raise InvalidConfig(f"the level of zstd must be a whole number of at most 22, not {level!r}")
        if self.compression is not None and self.compression.algorithm not in (None, "zstd"):
            raise InvalidConfig(
                f"the files of a repository can only be compressed by zstd, not by {self.compression.algorithm!r}"
            )
        for prefix, container in (self.virtual_chunk_containers or {}).items():
            if prefix != container.url_prefix:
                raise InvalidConfig(
                    f"the virtual chunk container of {container.url_prefix!r} is listed under the prefix {prefix!r}: "
                    "add containers with set_virtual_chunk_container"
                )


def _merged(config: Any, other: Any) -> Any:
    """Return a value of a configuration merged with another: field by field, key by key, or as a whole."""
    if config is None or other is None:
        return config if other is None else other
    if isinstance(config, dict):
        return {**config, **other}
    if type(config) is type(other) and type(config) in _PARTS:
        return type(config)(
            **{part.name: _merged(getattr(config, part.name), getattr(other, part.name)) for part in fields(config)}
        )
    return other


_PARTS = (RepositoryConfig, CompressionConfig, ManifestConfig, ManifestVirtualChunkLocationCompressionConfig)
"""The types that are merged field by field."""
