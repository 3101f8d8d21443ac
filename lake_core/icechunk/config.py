"""The configuration of a repository, and `config.yaml`, where it is kept. Names and defaults are Icechunk's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import yaml

from lake_core.icechunk.errors import DamagedObject, InvalidConfig
from lake_core.icechunk.file_header import DEFAULT_COMPRESSION_LEVEL

CONFIG_KEY = "config.yaml"
DEFAULT_INLINE_THRESHOLD = 512
_LARGEST_INLINE_THRESHOLD = 2**16 - 1
_LARGEST_CONFIG = 2**20


@dataclass(frozen=True, slots=True)
class Tagged:
    """A YAML value with a tag, such as `!s3 {region: eu-west-1}`."""

    tag: str
    value: Any


@dataclass(frozen=True, slots=True)
class ObjectStoreConfig:
    """How the objects of a virtual chunk container are reached. Credentials are no part of it.

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
    """Return the configuration of a container on S3, or on what speaks its protocol."""
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


@dataclass(frozen=True, slots=True)
class VirtualChunkContainer:
    """A place outside of the repository that virtual chunks may lie in: all objects whose URLs begin with `url_prefix`."""

    url_prefix: str
    store: ObjectStoreConfig
    name: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.url_prefix, str) or "://" not in self.url_prefix or not self.url_prefix.endswith("/"):
            raise InvalidConfig(f"the prefix of a virtual chunk container is a URL that ends in '/', not {self.url_prefix!r}")


@dataclass(slots=True)
class CompressionConfig:
    """How manifests, snapshots and transaction logs are compressed."""

    algorithm: Literal["zstd"] | None = None
    level: int | None = None


@dataclass(slots=True)
class CachingConfig:
    """How much is kept in memory. Kept for other clients of the repository: this one bounds its cache by bytes."""

    num_snapshot_nodes: int | None = None
    num_chunk_refs: int | None = None
    num_transaction_changes: int | None = None
    num_bytes_attributes: int | None = None
    num_bytes_chunks: int | None = None


@dataclass(frozen=True, slots=True)
class ManifestSplitCondition:
    """Which arrays a rule of splitting is for: `kind` is path_matches, name_matches, and, or, any_array."""

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
    """Which dimensions of an array a split size is for: `kind` is Axis, DimensionName or Any."""

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
    """Rules by which the references of an array are spread over several manifests. The first rule that matches an array counts."""

    split_sizes: SplitSizes | Sequence[Any] | None = None
    """(condition of arrays, ((condition of dimensions, number of chunks), …)), …"""

    def __post_init__(self) -> None:
        self.split_sizes = _split_sizes(self.split_sizes or ())

    @staticmethod
    def from_dict(split_sizes: Mapping[ManifestSplitCondition, Mapping[ManifestSplitDimCondition, int]]) -> ManifestSplittingConfig:
        """Return the rules of a mapping of conditions to split sizes by dimension."""
        return ManifestSplittingConfig(tuple((condition, tuple(sizes.items())) for condition, sizes in split_sizes.items()))


def _split_sizes(rules: Sequence[Any]) -> SplitSizes:
    checked = []
    for condition, sizes in rules:
        pairs = tuple((dimension, number) for dimension, number in (sizes.items() if isinstance(sizes, Mapping) else sizes))
        for _, number in pairs:
            if not isinstance(number, int) or isinstance(number, bool) or number < 1:
                raise InvalidConfig(f"a manifest is split by whole numbers of chunks from 1 up, not by {number!r}")
        checked.append((condition, pairs))
    return tuple(checked)


@dataclass(slots=True)
class ManifestPreloadConfig:
    """Which manifests other clients read when they open a session. This one reads manifests when they are needed."""

    max_total_refs: int | None = None
    preload_if: Any = None


@dataclass(slots=True)
class ManifestConfig:
    """How manifests are read and written."""

    preload: ManifestPreloadConfig | None = None
    splitting: ManifestSplittingConfig | None = None


@dataclass(slots=True)
class RepositoryConfig:
    """The configuration of a repository. None stands for the default."""

    inline_chunk_threshold_bytes: int | None = None
    """The longest chunk that is stored in the manifest itself. Default 512."""
    get_partial_values_concurrency: int | None = None
    compression: CompressionConfig | None = None
    max_concurrent_requests: int | None = None
    caching: CachingConfig | None = None
    storage: Any = None
    virtual_chunk_containers: dict[str, VirtualChunkContainer] | None = None
    """By URL prefix."""
    manifest: ManifestConfig | None = None
    unknown: dict[str, Any] = field(default_factory=dict, repr=False)
    """Keys of `config.yaml` that later clients wrote; they are kept."""

    @staticmethod
    def default() -> RepositoryConfig:
        """Return a configuration that is all defaults."""
        return RepositoryConfig()

    def set_virtual_chunk_container(self, container: VirtualChunkContainer) -> None:
        """Add a container, or replace the one of its URL prefix."""
        self.virtual_chunk_containers = {**(self.virtual_chunk_containers or {}), container.url_prefix: container}

    def get_virtual_chunk_container(self, url_prefix: str) -> VirtualChunkContainer | None:
        """Return the container of a URL prefix, or None."""
        return (self.virtual_chunk_containers or {}).get(url_prefix)

    def clear_virtual_chunk_containers(self) -> None:
        """Remove all containers."""
        self.virtual_chunk_containers = None

    @property
    def inline_threshold(self) -> int:
        """The longest chunk, in bytes, that is stored in the manifest."""
        return DEFAULT_INLINE_THRESHOLD if self.inline_chunk_threshold_bytes is None else self.inline_chunk_threshold_bytes

    @property
    def compression_level(self) -> int:
        """The level of zstd."""
        level = None if self.compression is None else self.compression.level
        return DEFAULT_COMPRESSION_LEVEL if level is None else level

    @property
    def splitting(self) -> SplitSizes:
        """The rules by which manifests are split; none by default."""
        splitting = None if self.manifest is None else self.manifest.splitting
        return () if splitting is None else _split_sizes(splitting.split_sizes or ())

    def check(self) -> None:
        """Raise InvalidConfig for a value that is not valid."""
        threshold = self.inline_threshold
        if not isinstance(threshold, int) or isinstance(threshold, bool) or not 0 <= threshold <= _LARGEST_INLINE_THRESHOLD:
            raise InvalidConfig(f"inline_chunk_threshold_bytes is a whole number up to {_LARGEST_INLINE_THRESHOLD}, not {threshold!r}")
        level = self.compression_level
        if not isinstance(level, int) or isinstance(level, bool) or not -7 <= level <= 22:
            raise InvalidConfig(f"the level of zstd is a whole number up to 22, not {level!r}")
        if self.compression is not None and self.compression.algorithm not in (None, "zstd"):
            raise InvalidConfig(f"files of a repository are compressed by zstd, not {self.compression.algorithm!r}")
        for prefix, container in (self.virtual_chunk_containers or {}).items():
            if prefix != container.url_prefix:
                raise InvalidConfig(f"the virtual chunk container of {container.url_prefix!r} stands under the prefix {prefix!r}")


# config.yaml


_PLAIN = ""
"""The style of a scalar without quotes."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Reads plain values, and keeps tags of the file's own."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """Writes plain values and tags."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def choose_scalar_style(self) -> str:
        # A number with a tag would be put in quotes, which other readers take for text.
        if self.event.style == _PLAIN:
            return _PLAIN
        return str(super().choose_scalar_style())


def _construct_tagged(loader: yaml.SafeLoader, tag: str, node: yaml.Node) -> Tagged:
    if isinstance(node, yaml.MappingNode):
        return Tagged(tag, loader.construct_mapping(node, deep=True))
    if isinstance(node, yaml.SequenceNode):
        return Tagged(tag, loader.construct_sequence(node, deep=True))
    assert isinstance(node, yaml.ScalarNode)
    plain = yaml.ScalarNode(loader.resolve(yaml.ScalarNode, node.value, (True, False)), node.value)
    return Tagged(tag, loader.construct_object(plain) if node.style is None else node.value)


def _represent_tagged(dumper: yaml.SafeDumper, tagged: Tagged) -> yaml.Node:
    node = dumper.represent_data(tagged.value)
    node.tag = "!" + tagged.tag
    if isinstance(node, yaml.ScalarNode) and not isinstance(tagged.value, str):
        node.style = _PLAIN
    return node


_Loader.add_multi_constructor("!", _construct_tagged)
_Dumper.add_representer(Tagged, _represent_tagged)


def decode_config(data: bytes) -> RepositoryConfig:
    """Return the configuration that `config.yaml` holds. Raises DamagedObject."""
    if len(data) > _LARGEST_CONFIG:
        raise DamagedObject(CONFIG_KEY, f"it is larger than {_LARGEST_CONFIG} bytes")
    try:
        document = yaml.load(data, Loader=_Loader)
        config = _config_from(document or {})
        config.check()
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedObject(CONFIG_KEY, f"it is not YAML ({str(error).splitlines()[0]})") from None
    except (InvalidConfig, TypeError, ValueError, AttributeError, KeyError) as error:
        raise DamagedObject(CONFIG_KEY, f"it is not a configuration ({error})") from None
    return config


def encode_config(config: RepositoryConfig) -> bytes:
    """Return `config.yaml`."""
    config.check()
    containers = config.virtual_chunk_containers
    manifest = config.manifest
    document = {
        "inline_chunk_threshold_bytes": config.inline_chunk_threshold_bytes,
        "get_partial_values_concurrency": config.get_partial_values_concurrency,
        "compression": None if config.compression is None else _slots(config.compression),
        "max_concurrent_requests": config.max_concurrent_requests,
        "caching": None if config.caching is None else _slots(config.caching),
        "storage": config.storage,
        "virtual_chunk_containers": None
        if containers is None
        else {prefix: _container_to(container) for prefix, container in containers.items()},
        "manifest": None if manifest is None else _manifest_to(manifest),
        **config.unknown,
    }
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return text.encode()


def _slots(value: CompressionConfig | CachingConfig | ManifestPreloadConfig) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__slots__}


def _config_from(document: dict[str, Any]) -> RepositoryConfig:
    values = dict(document)
    known = RepositoryConfig(
        **{
            name: values.pop(name, None)
            for name in ("inline_chunk_threshold_bytes", "get_partial_values_concurrency", "max_concurrent_requests", "storage")
        }
    )
    compression, caching = values.pop("compression", None), values.pop("caching", None)
    containers, manifest = values.pop("virtual_chunk_containers", None), values.pop("manifest", None)
    return replace(
        known,
        compression=None if compression is None else CompressionConfig(**compression),
        caching=None if caching is None else CachingConfig(**caching),
        virtual_chunk_containers=None if containers is None else {prefix: _container_from(value) for prefix, value in containers.items()},
        manifest=None if manifest is None else _manifest_from(manifest),
        unknown=values,
    )


def _container_from(value: dict[str, Any]) -> VirtualChunkContainer:
    store = value["store"]
    kind = ObjectStoreConfig(store.tag, store.value) if isinstance(store, Tagged) else ObjectStoreConfig(str(store))
    return VirtualChunkContainer(value["url_prefix"], kind, value.get("name"))


def _container_to(container: VirtualChunkContainer) -> dict[str, Any]:
    store = container.store
    return {
        "name": container.name,
        "url_prefix": container.url_prefix,
        "store": store.kind if store.options is None else Tagged(store.kind, store.options),
    }


def _manifest_from(value: dict[str, Any]) -> ManifestConfig:
    preload, splitting = value.get("preload"), value.get("splitting")
    return ManifestConfig(
        preload=None if preload is None else ManifestPreloadConfig(preload.get("max_total_refs"), preload.get("preload_if")),
        splitting=None
        if splitting is None
        else ManifestSplittingConfig(
            tuple(
                (_condition_from(condition), tuple((_dimension_from(size["condition"]), size["num_chunks"]) for size in sizes))
                for condition, sizes in splitting.get("split_sizes") or ()
            )
        ),
    )


def _manifest_to(manifest: ManifestConfig) -> dict[str, Any]:
    rules = None if manifest.splitting is None else _split_sizes(manifest.splitting.split_sizes or ())
    return {
        "preload": None if manifest.preload is None else _slots(manifest.preload),
        "splitting": None
        if rules is None
        else {
            "split_sizes": [
                [_condition_to(condition), [{"condition": _dimension_to(dimension), "num_chunks": number} for dimension, number in sizes]]
                for condition, sizes in rules
            ]
        },
    }


def _condition_from(value: Any) -> ManifestSplitCondition:
    if value == "any_array":
        return ManifestSplitCondition.AnyArray()
    if value.tag in ("and", "or"):
        return ManifestSplitCondition(value.tag, tuple(_condition_from(part) for part in value.value))
    if value.tag not in ("path_matches", "name_matches"):
        raise InvalidConfig(f"manifests are split by a condition that is not known: {value.tag!r}")
    return ManifestSplitCondition(value.tag, value.value["regex"])


def _condition_to(condition: ManifestSplitCondition) -> Any:
    if isinstance(condition.argument, tuple):
        return Tagged(condition.kind, [_condition_to(part) for part in condition.argument])
    return condition.kind if condition.argument is None else Tagged(condition.kind, {"regex": condition.argument})


def _dimension_from(value: Any) -> ManifestSplitDimCondition:
    return ManifestSplitDimCondition(value.tag, value.value) if isinstance(value, Tagged) else ManifestSplitDimCondition(value)


def _dimension_to(condition: ManifestSplitDimCondition) -> Any:
    return condition.kind if condition.argument is None else Tagged(condition.kind, condition.argument)
