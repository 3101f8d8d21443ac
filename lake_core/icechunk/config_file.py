"""The configuration of a repository: the file `config.yaml` of version 1, and a FlexBuffer of version 2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import yaml

from lake_core.icechunk.config import (
    CompressionConfig,
    ManifestConfig,
    ManifestPreloadConfig,
    ManifestSplitCondition,
    ManifestSplitDimCondition,
    ManifestSplittingConfig,
    ManifestVirtualChunkLocationCompressionConfig,
    ObjectStoreConfig,
    RepositoryConfig,
    SplitSizes,
    VirtualChunkContainer,
)
from lake_core.icechunk.errors import DamagedObject, InvalidConfig
from lake_core.icechunk.flexbuffer import decode_flexbuffer, encode_flexbuffer

CONFIG_KEY = "config.yaml"
_LARGEST_CONFIG = 2**20
"""The largest configuration that is read, in bytes."""
_NEW_NAMES = ("max_concurrent_decodes", "repo_update_retries", "previous_file", "num_updates_per_repo_info_file")
"""Settings that icechunk 1 does not know."""
_PLAIN = ""
"""The style of a scalar without quotes."""


@dataclass(frozen=True, slots=True)
class Tagged:
    """A YAML value with a tag, such as `!s3 {region: eu-west-1}`."""

    tag: str
    value: Any


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """A loader of plain values and of values with a tag."""


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]
    """A dumper of plain values and of values with a tag."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def choose_scalar_style(self) -> str:
        # A number with a tag would be quoted, and other readers would read it as text.
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
    """Return the configuration in the bytes of `config.yaml`. Raises DamagedObject."""
    if len(data) > _LARGEST_CONFIG:
        raise DamagedObject(CONFIG_KEY, f"it is larger than {_LARGEST_CONFIG} bytes")
    try:
        document = yaml.load(data, Loader=_Loader)
        config = _decode_document(document or {})
        config.check()
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise DamagedObject(CONFIG_KEY, f"it is not YAML ({str(error).splitlines()[0]})") from None
    except (InvalidConfig, TypeError, ValueError, AttributeError, KeyError) as error:
        raise DamagedObject(CONFIG_KEY, f"it is not a configuration ({error})") from None
    return config


def encode_config(config: RepositoryConfig) -> bytes:
    """Return a configuration as the bytes of `config.yaml`. Raises InvalidConfig."""
    document = _encode_document(config)
    for name in _NEW_NAMES:
        if document[name] is None:
            del document[name]
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10**6)
    return text.encode()


def decode_config_v2(data: bytes, path: str) -> RepositoryConfig:
    """Return the configuration in a FlexBuffer of the object at `path`. Raises DamagedObject."""
    try:
        config = _decode_document(_with_tags(decode_flexbuffer(data) or {}))
        config.check()
    except (InvalidConfig, TypeError, ValueError, AttributeError, KeyError) as error:
        raise DamagedObject(path, f"its configuration is not valid ({error})") from None
    return config


def encode_config_v2(config: RepositoryConfig) -> bytes:
    """Return a configuration as a FlexBuffer. Raises InvalidConfig."""
    try:
        return encode_flexbuffer(_without_tags(_encode_document(config)))
    except ValueError as error:
        raise InvalidConfig(f"the configuration cannot be stored: {error}") from None


def _without_tags(value: Any) -> Any:
    """Return a value in which maps of one key stand for tags."""
    if isinstance(value, Tagged):
        return {value.tag: _without_tags(value.value)}
    if isinstance(value, dict):
        return {name: _without_tags(each) for name, each in value.items()}
    return [_without_tags(each) for each in value] if isinstance(value, list | tuple) else value


def _with_tags(document: Any) -> dict[str, Any]:
    """Return a document with tags where version 2 has maps of one key."""
    values = dict(document)
    containers = values.get("virtual_chunk_containers")
    if containers is not None:
        values["virtual_chunk_containers"] = {
            prefix: {**container, "store": _tagged(container["store"])} for prefix, container in containers.items()
        }
    splitting = (values.get("manifest") or {}).get("splitting")
    if splitting is not None:
        rules = [
            [_tagged(rule), [{**size, "condition": _tagged(size["condition"])} for size in sizes]]
            for rule, sizes in splitting.get("split_sizes") or ()
        ]
        values["manifest"] = {**values["manifest"], "splitting": {**splitting, "split_sizes": rules}}
    return values


def _tagged(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    ((tag, argument),) = value.items()
    return Tagged(tag, [_tagged(each) for each in argument] if isinstance(argument, list) else argument)


def _encode_document(config: RepositoryConfig) -> dict[str, Any]:
    config.check()
    containers = config.virtual_chunk_containers
    manifest = config.manifest
    return {
        "inline_chunk_threshold_bytes": config.inline_chunk_threshold_bytes,
        "get_partial_values_concurrency": config.get_partial_values_concurrency,
        "compression": None if config.compression is None else _fields(config.compression),
        "max_concurrent_requests": config.max_concurrent_requests,
        "caching": config.caching,
        "storage": config.storage,
        "virtual_chunk_containers": None
        if containers is None
        else {prefix: _encode_container(container) for prefix, container in containers.items()},
        "manifest": None if manifest is None else _encode_manifest(manifest, config.splitting),
        **{name: getattr(config, name) for name in _NEW_NAMES},
        **config.unknown,
    }


def _fields(options: Any) -> dict[str, Any]:
    return {name: getattr(options, name) for name in options.__slots__}


def _decode_document(document: dict[str, Any]) -> RepositoryConfig:
    values = dict(document)
    config = RepositoryConfig(
        **{
            name: values.pop(name, None)
            for name in (
                "inline_chunk_threshold_bytes",
                "get_partial_values_concurrency",
                "max_concurrent_requests",
                "caching",
                "storage",
                *_NEW_NAMES,
            )
        }
    )
    compression, manifest = values.pop("compression", None), values.pop("manifest", None)
    containers = values.pop("virtual_chunk_containers", None)
    return replace(
        config,
        compression=None if compression is None else CompressionConfig(**compression),
        virtual_chunk_containers=None
        if containers is None
        else {prefix: _decode_container(value) for prefix, value in containers.items()},
        manifest=None if manifest is None else _decode_manifest(manifest),
        unknown=values,
    )


def _decode_container(value: dict[str, Any]) -> VirtualChunkContainer:
    store = value["store"]
    kind = ObjectStoreConfig(store.tag, store.value) if isinstance(store, Tagged) else ObjectStoreConfig(str(store))
    return VirtualChunkContainer(value["url_prefix"], kind, value.get("name"))


def _encode_container(container: VirtualChunkContainer) -> dict[str, Any]:
    store = container.store
    return {
        "name": container.name,
        "url_prefix": container.url_prefix,
        "store": store.kind if store.options is None else Tagged(store.kind, store.options),
    }


def _decode_manifest(value: dict[str, Any]) -> ManifestConfig:
    preload, splitting = value.get("preload"), value.get("splitting")
    compression = value.get("virtual_chunk_location_compression")
    return ManifestConfig(
        virtual_chunk_location_compression=None
        if compression is None
        else ManifestVirtualChunkLocationCompressionConfig(**compression),
        max_concurrent_manifest_fetches_during_commit=value.get("max_concurrent_manifest_fetches_during_commit"),
        preload=None
        if preload is None
        else ManifestPreloadConfig(
            preload.get("max_total_refs"), preload.get("preload_if"), preload.get("max_arrays_to_scan")
        ),
        splitting=None
        if splitting is None
        else ManifestSplittingConfig(
            tuple(
                (
                    _decode_condition(condition),
                    tuple((_decode_dimension(size["condition"]), size["num_chunks"]) for size in sizes),
                )
                for condition, sizes in splitting.get("split_sizes") or ()
            )
        ),
    )


def _encode_manifest(manifest: ManifestConfig, split_sizes: SplitSizes) -> dict[str, Any]:
    compression = manifest.virtual_chunk_location_compression
    fetches = manifest.max_concurrent_manifest_fetches_during_commit
    return {
        **({} if compression is None else {"virtual_chunk_location_compression": _fields(compression)}),
        **({} if fetches is None else {"max_concurrent_manifest_fetches_during_commit": fetches}),
        "preload": None if manifest.preload is None else _encode_preload(manifest.preload),
        "splitting": None
        if manifest.splitting is None
        else {
            "split_sizes": [
                [
                    _encode_condition(condition),
                    [{"condition": _encode_dimension(dimension), "num_chunks": number} for dimension, number in sizes],
                ]
                for condition, sizes in split_sizes
            ]
        },
    }


def _encode_preload(preload: ManifestPreloadConfig) -> dict[str, Any]:
    fields = _fields(preload)
    if preload.max_arrays_to_scan is None:  # icechunk 1 does not know it
        del fields["max_arrays_to_scan"]
    return fields


def _decode_condition(value: Any) -> ManifestSplitCondition:
    if value == "any_array":
        return ManifestSplitCondition.AnyArray()
    if value.tag in ("and", "or"):
        return ManifestSplitCondition(value.tag, tuple(_decode_condition(part) for part in value.value))
    if value.tag not in ("path_matches", "name_matches"):
        raise InvalidConfig(f"the condition {value.tag!r} for splitting manifests is unknown")
    return ManifestSplitCondition(value.tag, value.value["regex"])


def _encode_condition(condition: ManifestSplitCondition) -> Any:
    if isinstance(condition.argument, tuple):
        return Tagged(condition.kind, [_encode_condition(part) for part in condition.argument])
    return condition.kind if condition.argument is None else Tagged(condition.kind, {"regex": condition.argument})


def _decode_dimension(value: Any) -> ManifestSplitDimCondition:
    return (
        ManifestSplitDimCondition(value.tag, value.value)
        if isinstance(value, Tagged)
        else ManifestSplitDimCondition(value)
    )


def _encode_dimension(condition: ManifestSplitDimCondition) -> Any:
    return condition.kind if condition.argument is None else Tagged(condition.kind, condition.argument)
