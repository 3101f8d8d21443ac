"""Icechunk repositories as a dataset format of lakes: classes of objects, what states reach, how differences apply."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lake_core.dataset import (
    NOT_EMPTY,
    NOTHING,
    Applied,
    ApplyContext,
    AtLeast,
    DatasetComparison,
    DatasetConflict,
    DatasetFormat,
    DatasetStore,
    KeyClass,
    NodeChange,
    ReadCheck,
    Sizes,
)
from lake_core.errors import NotFound
from lake_core.icechunk import refs
from lake_core.icechunk.ancestry import ancestry
from lake_core.icechunk.apply_difference import (
    SnapshotApplication,
    check_not_undone,
    is_recorded,
    raised_markers,
    share_values,
)
from lake_core.icechunk.asset_manager import MANIFESTS, SNAPSHOTS, TRANSACTIONS, AssetManager
from lake_core.icechunk.chunk_file import CHUNKS
from lake_core.icechunk.config import RepositoryConfig
from lake_core.icechunk.config_file import CONFIG_KEY, decode_config, encode_config
from lake_core.icechunk.dataset_repository import DatasetRepository
from lake_core.icechunk.difference import Difference, difference
from lake_core.icechunk.errors import IcechunkError, InvalidRefName
from lake_core.icechunk.file_header import FileType, decode_file, zstd_problem
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id, encode_ids
from lake_core.icechunk.refs import MAIN, RefKind, encode_ref, ref_key
from lake_core.icechunk.repository import Repository
from lake_core.icechunk.repository_layout import SPEC_V2_KEY, check_spec_version, incompatibility
from lake_core.icechunk.snapshot import ArrayNode, ManifestFileInfo, Node, Snapshot
from lake_core.icechunk.zarr_import import import_zarr

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet

    from lake_core.icechunk.inspection import IcechunkInspection
    from lake_core.store import ObjectStore
    from lake_core.txn import Txn

_UNIQUE = re.compile(rf"(?:{SNAPSHOTS}|{MANIFESTS}|{TRANSACTIONS}|{CHUNKS})[0-9A-HJKMNP-TV-Z]{{20}}")
_FILE_TYPES = {
    SNAPSHOTS: FileType.SNAPSHOT,
    MANIFESTS: FileType.MANIFEST,
    TRANSACTIONS: FileType.TRANSACTION_LOG,
}
_REF = re.compile(r"refs/(?:branch|tag)\.[^/]+/ref\.json(?:\.deleted)?")
_MAIN = ref_key(RefKind.BRANCH, MAIN)


@dataclass(frozen=True, slots=True)
class _RepositoryState:
    """The branch main and the configuration of a repository in one state of the lake."""

    snapshot: Snapshot
    config: bytes | None


class IcechunkFormat(DatasetFormat):
    """Icechunk repositories as datasets of a lake."""

    format = "icechunk"

    # Objects

    def key_class(self, key: str) -> KeyClass | None:
        """Return UNIQUE for content named by ids, POINTER for refs and the configuration, else None."""
        if _UNIQUE.fullmatch(key):
            return KeyClass.UNIQUE
        # Only main and the configuration are ever put there; others may be read.
        return KeyClass.POINTER if key in (CONFIG_KEY, SPEC_V2_KEY) or _REF.fullmatch(key) else None

    def validate_entry(self, store: DatasetStore, key: str, data: bytes) -> None:
        """Raise InvalidRefName for branches and tags other than main."""
        if key not in (_MAIN, CONFIG_KEY):
            raise InvalidRefName(
                "a repository in a lake has only the branch main: branches and tags belong to the lake and "
                "cover all its datasets at once (lake.create_branch, lake.create_tag)"
            )

    def exists(self, store: ObjectStore) -> bool:
        """Return whether the store has a repository."""
        return Repository.exists(store)

    def open(self, store: ObjectStore, *, clock: Callable[[], dt.datetime] | None, **options: Any) -> Repository:
        """Return a `DatasetRepository`; a `Repository` for one outside of a lake."""
        kind = DatasetRepository if store.versioned else Repository
        return kind.open(store, clock=clock, **options)

    def create(
        self, store: ObjectStore, *args: Any, clock: Callable[[], dt.datetime] | None, **options: Any
    ) -> Repository:
        """Create a `DatasetRepository`, or a `Repository` outside of a lake, with the arguments of its `create`."""
        kind = DatasetRepository if store.versioned else Repository
        return kind.create(store, *args, clock=clock, **options)

    def inspect(self, store: ObjectStore) -> IcechunkInspection:
        """Return what a person can look at in the newest snapshot of main."""
        from lake_core.icechunk.inspection import IcechunkInspection

        assets = AssetManager(store)
        return IcechunkInspection(
            store,
            assets,
            _read(assets, store).snapshot,
            lambda: Repository.open(store).readonly_session(MAIN).store,
        )

    def convert(
        self,
        store: DatasetStore,
        *,
        clock: Callable[[], dt.datetime] | None,
        source: ObjectStore | None = None,
        **options: Any,
    ) -> DatasetRepository:
        """Import the Zarr v3 hierarchy in `source` as a repository.

        The default is the dataset's folder. Chunks are copied.
        """
        repository = DatasetRepository.create(store, clock=clock, **options)
        import_zarr(store.data_root if source is None else source, repository.session)
        return repository

    def import_keys(self, store: ObjectStore) -> Sequence[str]:
        """List main and the configuration. Other branches and tags are only in the folder, in no state of the lake."""
        check_spec_version(store)
        return self.pointer_keys(store)

    # Versions

    def version(self, store: ObjectStore) -> int | None:
        """Return None: snapshots have ids, not numbers."""
        return None

    def pointer_keys(self, store: ObjectStore) -> Sequence[str]:
        """List the configuration before main.

        A repository is behind as long as its main is, so main must be moved last.
        """
        return [key for key in (CONFIG_KEY, _MAIN) if store.exists(key)]

    def is_behind(self, pointer: str, store: ObjectStore, other: ObjectStore) -> bool:
        """Return whether the tip of main in `store` is an ancestor of that in `other`."""
        older, newer = (refs.lookup(side, RefKind.BRANCH, MAIN).snapshot_id for side in (store, other))
        return older != newer and any(
            snapshot.snapshot_id == older for snapshot in ancestry(AssetManager(other), newer)
        )

    def apply(
        self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext
    ) -> Applied:
        """Bring changed nodes and chunks onto the target's newest snapshot, as one new snapshot."""
        check_spec_version(context.data_root)
        assets = AssetManager(context.data_root)
        before, after, head = (None if store is None else _read(assets, store) for store in (base, incoming, target))
        if after is None:
            return Applied({}, None, "DROP") if head is None else _dropped(assets, before, head, context)
        if head is None and before is not None:
            raise DatasetConflict(f"it was dropped on {context.onto} in the meantime", kind="Dropped")
        return _applied(assets, before, after, head, context)

    def read_check(self, before: ObjectStore | None, after: ObjectStore | None) -> ReadCheck | None:
        """Return None, as a change of chunks and nodes conflicts with those of the same, and has read no others.

        A drop has read everything.
        """
        return None if after is not None else _differ

    def shares_values(
        self,
        change: tuple[ObjectStore | None, ObjectStore | None],
        other: tuple[ObjectStore | None, ObjectStore | None],
    ) -> bool:
        """Return whether both set the same chunk, or changed the same array or group."""
        logs = []
        for before, after in (change, other):
            if after is None:
                return True
            assets = AssetManager(after)
            first = assets.snapshot(INITIAL_SNAPSHOT) if before is None else _read(assets, before).snapshot
            logs.append(difference(assets, first, _read(assets, after).snapshot))
        return share_values(*logs)

    def raised_markers(self, before: ObjectStore | None, after: ObjectStore | None) -> AbstractSet[Txn]:
        """Return the markers whose versions rose from one state to another."""
        if after is None:
            return frozenset()
        assets = AssetManager(after)
        base = None if before is None else _read(assets, before).snapshot
        raised = raised_markers(assets, base, _read(assets, after).snapshot)
        return {(app_id, marker.version) for app_id, marker in raised.items()}

    def compare(
        self, before: ObjectStore | None, after: ObjectStore | None, *, sample: int, most_rows: int
    ) -> DatasetComparison:
        """Compare arrays and groups, and count the chunks of arrays that differ."""
        store = after or before
        assert store is not None
        assets = AssetManager(store)
        old, new = (
            assets.snapshot(INITIAL_SNAPSHOT) if side is None else _read(assets, side).snapshot
            for side in (before, after)
        )
        changes = difference(assets, old, new)
        keys = [set() if side is None else set(self.reachable(side, None)) for side in (before, after)]
        files = len(keys[1] - keys[0]), len(keys[0] - keys[1])
        return DatasetComparison(None, None, None, None, False, *files, nodes=list(_node_changes(changes)))

    # Garbage

    def reachable(self, state: ObjectStore, since: int | None) -> Sizes:
        """List the snapshots and transaction logs of all history, and the newest snapshot's manifests and chunks.

        The history is reachable, because plain readers walk it. So are all chunks of branches and tags that other
        clients made in the folder.
        """
        if not state.versioned and incompatibility(state) is not None:
            # Another client has upgraded the folder. What it reaches is only in files that are not read here.
            return {meta.key: None for meta in state.list() if _UNIQUE.fullmatch(meta.key)}
        assets = AssetManager(state)
        snapshot_ids: set[bytes] = set()
        manifests: dict[bytes, ManifestFileInfo] = {}
        for kind in () if state.versioned else RefKind:
            for name in refs.list_names(state, kind) - {MAIN if kind is RefKind.BRANCH else ""}:
                for snapshot in ancestry(assets, refs.lookup(state, kind, name).snapshot_id):
                    snapshot_ids.add(snapshot.snapshot_id)
                    manifests.update(snapshot.manifest_files)
        tip = refs.lookup(state, RefKind.BRANCH, MAIN).snapshot_id
        manifests.update(assets.snapshot(tip).manifest_files)
        snapshot_ids.update(snapshot.snapshot_id for snapshot in ancestry(assets, tip))
        sizes: Sizes = {}
        for snapshot_id in sorted(snapshot_ids):
            sizes[SNAPSHOTS + encode_id(snapshot_id)] = NOT_EMPTY
            if snapshot_id != INITIAL_SNAPSHOT:
                sizes[TRANSACTIONS + encode_id(snapshot_id)] = NOT_EMPTY
        for manifest_id in sorted(manifests):
            sizes[MANIFESTS + encode_id(manifest_id)] = manifests[manifest_id].size_bytes
        sizes.update(_chunk_objects(assets, manifests))
        return sizes

    def content_problem(self, store: ObjectStore, key: str) -> str | None:
        """Decode a snapshot, a manifest or a transaction log, or the zstd frame of a chunk.

        A chunk that is no zstd frame is only read: Icechunk records no checksum for it.
        """
        data = bytes(store.get(key))
        for folder, type in _FILE_TYPES.items():
            if key.startswith(folder):
                try:
                    decode_file(data, type, key)
                except IcechunkError as error:
                    return str(error)
                return None
        return zstd_problem(data)

    def incompatibility(self, store: ObjectStore) -> str | None:
        """Return that another client has upgraded the repository to version 2 of the specification, if so."""
        reason = incompatibility(store)
        return None if reason is None else f"{reason}. The lake reads its own last state, and writes no other one"

    def collectable(self, key: str) -> bool:
        """Return True: UNIQUE keys have forms that only Icechunk writes."""
        return True


def _read(assets: AssetManager, store: ObjectStore) -> _RepositoryState:
    snapshot = assets.snapshot(refs.lookup(store, RefKind.BRANCH, MAIN).snapshot_id)
    try:
        return _RepositoryState(snapshot, bytes(store.get(CONFIG_KEY)))
    except NotFound:
        return _RepositoryState(snapshot, None)


def _differ(before: ObjectStore | None, after: ObjectStore | None, *, comes: bool) -> bool:
    """Return whether the arrays and groups of two states differ."""
    if before is None or after is None:
        return before is not after
    assets = AssetManager(after)
    return not difference(assets, *(_read(assets, each).snapshot for each in (before, after))).is_empty()


def _decoded(config: bytes | None) -> RepositoryConfig:
    return RepositoryConfig() if config is None else decode_config(config)


def _merged_config(
    before: _RepositoryState | None, after: _RepositoryState, head: _RepositoryState, context: ApplyContext
) -> bytes | None:
    old = None if before is None else before.config
    if after.config in (old, head.config):
        return head.config
    if head.config != old:
        raise DatasetConflict(f"its configuration was changed on {context.onto} too", kind="ConfigChanged")
    return after.config


def _applied(
    assets: AssetManager,
    before: _RepositoryState | None,
    after: _RepositoryState,
    head: _RepositoryState | None,
    context: ApplyContext,
) -> Applied:
    """Apply the difference between two states to the head of main. Raises DatasetConflict."""
    overwrites = context.recreated or context.replaces
    config = after.config if head is None or overwrites else _merged_config(before, after, head, context)
    application = SnapshotApplication(
        assets, _decoded(config), context.now, _message(context), context.onto, context.dry_run
    )
    base = None if before is None else before.snapshot
    if head is None:
        applied = application.create(after.snapshot)
    elif overwrites:
        applied = application.replace(head.snapshot, after.snapshot)
    elif is_recorded(assets, base, after.snapshot, head.snapshot, context):
        raised = raised_markers(assets, base, after.snapshot)
        return Applied.skip(None, [(app_id, marker.version) for app_id, marker in raised.items()])
    else:
        if not (context.by_writes or context.in_session):
            check_not_undone(assets, base, after.snapshot, head.snapshot)
        first = assets.snapshot(INITIAL_SNAPSHOT) if before is None else before.snapshot
        change = application.change(first, after.snapshot, head.snapshot, shares_groups=before is None)
        if change is None and config == head.config:
            return Applied({}, None, NOTHING)
        applied = change or application.replace(head.snapshot, head.snapshot)  # only the configuration changed
    puts = {_MAIN: encode_ref(applied.snapshot_id), **_config_put(config, None if head is None else head.config)}
    return Applied(puts, None, "WRITE", _summary(applied.difference), applied.references)


def _config_put(config: bytes | None, head_config: bytes | None) -> dict[str, bytes]:
    """Return `config.yaml` by its key; nothing where the head has the same."""
    if config is None and head_config is not None:
        config = encode_config(RepositoryConfig())
    return {} if config is None or config == head_config else {CONFIG_KEY: config}


def _dropped(
    assets: AssetManager, before: _RepositoryState | None, head: _RepositoryState, context: ApplyContext
) -> Applied:
    """Write an empty snapshot on top of the head, so that plain readers see that its arrays are gone.

    What takes back the creation of a repository that others have written to only erases what was written then.
    """
    message = "Taken out" if context.undoes else "Dropped"
    application = SnapshotApplication(
        assets, _decoded(head.config), context.now, message, context.onto, context.dry_run
    )
    is_changed = before is not None and not difference(assets, before.snapshot, head.snapshot).is_empty()
    if before is not None and context.undoes and is_changed:
        taken = application.take_out(before.snapshot, head.snapshot)
        if taken is None:
            return Applied({}, None, NOTHING, is_kept=True)
        puts = {_MAIN: encode_ref(taken.snapshot_id)}
        return Applied(puts, None, "DELETE", _summary(taken.difference), taken.references, is_kept=True)
    if is_changed:
        raise DatasetConflict(f"these changes drop it, but it was changed on {context.onto}", kind="Rewritten")
    applied = application.replace(head.snapshot, assets.snapshot(INITIAL_SNAPSHOT))
    return Applied(
        {_MAIN: encode_ref(applied.snapshot_id)}, None, "DROP", _summary(applied.difference), applied.references
    )


def _message(context: ApplyContext) -> str:
    return f"Session {context.session} of the lake" if context.session else f"Brought onto {context.onto}"


def _summary(changes: Difference) -> dict[str, int]:
    arrays = [isinstance(node, ArrayNode) for node in changes.created.values()]
    return {
        "arrays_added": sum(arrays),
        "arrays_removed": sum(isinstance(node, ArrayNode) for node in changes.deleted.values()),
        "chunks_written": sum(len(chunks.written) for chunks in changes.chunks.values()),
        "chunks_erased": sum(len(chunks.erased) for chunks in changes.chunks.values()),
    }


def _node_changes(changes: Difference) -> Iterator[NodeChange]:
    written = {node_id: (len(chunks.written), len(chunks.erased)) for node_id, chunks in changes.chunks.items()}
    for path, node in changes.after.nodes.items():
        if path in changes.created:
            yield NodeChange(path, "added", _kind(node), *written.get(node.node_id, (0, 0)))
        elif path in changes.updated or node.node_id in written:
            yield NodeChange(path, "changed", _kind(node), *written.get(node.node_id, (0, 0)))
    for node in changes.deleted.values():
        yield NodeChange(node.path, "dropped", _kind(node))


def _kind(node: Node) -> Any:
    return "array" if isinstance(node, ArrayNode) else "group"


def _chunk_objects(assets: AssetManager, manifests: Iterable[bytes]) -> Iterator[tuple[str, int]]:
    """Yield the chunk objects that manifests refer to, with the bytes that they have at least."""
    ids, ends = [np.empty((0, 12), np.uint8)], [np.empty(0, np.uint64)]
    for manifest_id in sorted(manifests):
        for array in assets.manifest(manifest_id).arrays():
            native = array.native_chunks()
            ids.append(native.chunk_id)
            ends.append(native.offset + native.length)
    unique, inverse = np.unique(np.concatenate(ids), axis=0, return_inverse=True)
    least = np.zeros(len(unique), np.uint64)
    np.maximum.at(least, inverse.reshape(-1), np.concatenate(ends))
    for identifier, end in zip(encode_ids(unique), least.tolist(), strict=True):
        yield CHUNKS + identifier, AtLeast(end)
