"""Icechunk repositories as a dataset format of lakes: classes of objects, what states reach, how differences apply."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from lake_core.dataset import (
    NOT_EMPTY,
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
from lake_core.icechunk.ancestry import ancestry
from lake_core.icechunk.apply_difference import (
    raised_markers,
    share_values,
)
from lake_core.icechunk.asset_manager import AssetManager
from lake_core.icechunk.config_file import CONFIG_KEY
from lake_core.icechunk.dataset_application import applied_difference, dropped
from lake_core.icechunk.dataset_repository import DatasetRepository
from lake_core.icechunk.dataset_state import MAIN_KEY, read_state, states_assets
from lake_core.icechunk.difference import Difference, difference
from lake_core.icechunk.errors import DamagedObject, IcechunkError, InvalidRefName, UnsupportedSpecVersion
from lake_core.icechunk.file_header import FileType, decode_file, zstd_problem
from lake_core.icechunk.folders import CHUNKS, MANIFESTS, SNAPSHOTS, TRANSACTIONS
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id, encode_ids
from lake_core.icechunk.layouts import layout_of
from lake_core.icechunk.listed_garbage import pruned_logs
from lake_core.icechunk.refs import MAIN, RefKind
from lake_core.icechunk.repo_info import REPO_KEY, RepoInfo
from lake_core.icechunk.repo_info_file import decode_repo_info
from lake_core.icechunk.repository import Repository
from lake_core.icechunk.snapshot import ArrayNode, ManifestFileInfo, Node
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


class IcechunkFormat(DatasetFormat):
    """Icechunk repositories as datasets of a lake."""

    format = "icechunk"
    description = "an Icechunk repository"

    # Objects

    def key_class(self, key: str) -> KeyClass | None:
        """Return UNIQUE for content named by ids, POINTER for refs and the configuration, else None."""
        if _UNIQUE.fullmatch(key):
            return KeyClass.UNIQUE
        # Only main and the configuration are ever put there; others may be read.
        return KeyClass.POINTER if key in (CONFIG_KEY, REPO_KEY) or _REF.fullmatch(key) else None

    def validate_entry(self, store: DatasetStore, key: str, data: bytes) -> None:
        """Raise InvalidRefName for a change of branches and tags other than main."""
        if key == REPO_KEY:
            is_changed = _other_refs(decode_repo_info(data)) != _other_refs(_listed_refs(store))
        else:
            is_changed = key not in (MAIN_KEY, CONFIG_KEY)
        if is_changed:
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

        assets = states_assets(store, store)
        return IcechunkInspection(
            store,
            assets,
            read_state(assets, store).snapshot,
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
        """List main and the configuration.

        Other branches and tags of version 1 are only in the folder, in no state of the lake. Those of version 2 are in
        the same object as main.
        """
        layout_of(store).lookup(RefKind.BRANCH, MAIN)
        return self.pointer_keys(store)

    # Versions

    def version(self, store: ObjectStore) -> int | None:
        """Return None: snapshots have ids, not numbers."""
        return None

    def pointer_keys(self, store: ObjectStore) -> Sequence[str]:
        """List the configuration before main. In version 2, one object has both.

        A repository is behind as long as its main is, so main must be moved last.
        """
        if store.exists(REPO_KEY):
            return [REPO_KEY]
        return [key for key in (CONFIG_KEY, MAIN_KEY) if store.exists(key)]

    def superseded_pointers(self, state: ObjectStore, folder: ObjectStore) -> Sequence[str]:
        """List the pointers of version 1 in a state whose folder was upgraded to version 2."""
        return self.pointer_keys(state) if folder.exists(REPO_KEY) and not state.exists(REPO_KEY) else ()

    def is_behind(self, pointer: str, store: ObjectStore, other: ObjectStore) -> bool:
        """Return whether the tip of main in `store` is an ancestor of that in `other`.

        In version 2 one object has all refs and settings, so the log of the newer one must hold the last update of the
        older. An update that it does not know, be it of another branch, would be lost.
        """
        layouts = layout_of(store), layout_of(other)
        older, newer = (layout.lookup(RefKind.BRANCH, MAIN).snapshot_id for layout in layouts)
        if layouts[1].spec_version > 1:
            if layouts[0].spec_version > 1 and not _follows(*(layout.info() for layout in layouts)):
                return False
            if older == newer:
                return True
        assets = AssetManager(other)
        return older != newer and any(entry.snapshot_id == older for entry in ancestry(assets, newer))

    def takes_back(self, store: ObjectStore, other: ObjectStore) -> bool:
        """Return whether the log of operations of `other` has the last update of `store`, whose main it left.

        Repositories of version 1 have no such log.
        """
        layouts = layout_of(store), layout_of(other)
        if any(layout.spec_version == 1 for layout in layouts):
            return False
        return _follows(*(layout.info() for layout in layouts))

    def apply(
        self, base: ObjectStore | None, incoming: ObjectStore | None, target: ObjectStore | None, context: ApplyContext
    ) -> Applied:
        """Bring changed nodes and chunks onto the target's newest snapshot, as one new snapshot."""
        problem = self.incompatibility(context.data_root)
        if problem is not None:
            raise UnsupportedSpecVersion(problem)
        assets = states_assets(context.data_root, target, incoming, base)
        before, after, head = (
            None if store is None else read_state(assets, store) for store in (base, incoming, target)
        )
        if after is None:
            return Applied({}, None, "DROP") if head is None else dropped(assets, before, head, context)
        if head is None and before is not None:
            raise DatasetConflict(f"it was dropped on {context.onto} in the meantime", kind="Dropped")
        return applied_difference(assets, before, after, head, context)

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
            assets = states_assets(after, after, before)
            first = assets.snapshot(INITIAL_SNAPSHOT) if before is None else read_state(assets, before).snapshot
            logs.append(difference(assets, first, read_state(assets, after).snapshot))
        return share_values(*logs)

    def raised_markers(self, before: ObjectStore | None, after: ObjectStore | None) -> AbstractSet[Txn]:
        """Return the markers whose versions rose from one state to another."""
        if after is None:
            return frozenset()
        assets = states_assets(after, after, before)
        base = None if before is None else read_state(assets, before).snapshot
        raised = raised_markers(assets, base, read_state(assets, after).snapshot)
        return {(app_id, marker.version) for app_id, marker in raised.items()}

    def compare(
        self, before: ObjectStore | None, after: ObjectStore | None, *, sample: int, most_rows: int
    ) -> DatasetComparison:
        """Compare arrays and groups, and count the chunks of arrays that differ."""
        store = after or before
        assert store is not None
        assets = states_assets(store, after, before)
        old, new = (
            assets.snapshot(INITIAL_SNAPSHOT) if side is None else read_state(assets, side).snapshot
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
        if not state.versioned and self.incompatibility(state) is not None:
            # What it reaches is only in files that are not read here.
            return {meta.key: None for meta in state.list() if _UNIQUE.fullmatch(meta.key)}
        assets, layout = AssetManager(state), layout_of(state)
        snapshot_ids: set[bytes] = set()
        manifests: dict[bytes, ManifestFileInfo] = {}
        tips = layout.list_refs() if layout.spec_version > 1 or not state.versioned else []
        main = layout.lookup(RefKind.BRANCH, MAIN).snapshot_id
        manifests.update(assets.snapshot(main).manifest_files)
        snapshot_ids.update(entry.snapshot_id for entry in ancestry(assets, main))
        # The lake may have collected what only earlier snapshots of main need.
        history = frozenset(snapshot_ids)
        for tip in tips:
            for entry in ancestry(assets, tip.snapshot_id):
                if entry.snapshot_id == tip.snapshot_id or entry.snapshot_id not in history:
                    snapshot_ids.add(entry.snapshot_id)
                    manifests.update(assets.snapshot(entry.snapshot_id).manifest_files)
        logs = set(snapshot_ids)
        if layout.spec_version > 1:
            info = layout.info()
            logs |= pruned_logs(info, [tip.snapshot_id for tip in tips])
            snapshot_ids |= {*info.snapshots} if not state.versioned else set()
        sizes: Sizes = {}
        for snapshot_id in sorted(snapshot_ids):
            sizes[SNAPSHOTS + encode_id(snapshot_id)] = NOT_EMPTY
        for log_id in sorted(logs):
            # A repository that began as one of version 1 has no log of its first snapshot.
            if log_id != INITIAL_SNAPSHOT:
                sizes[TRANSACTIONS + encode_id(log_id)] = NOT_EMPTY
        first_log = TRANSACTIONS + encode_id(INITIAL_SNAPSHOT)
        if layout.spec_version > 1 and assets.store.exists(first_log):
            sizes[first_log] = NOT_EMPTY
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
        """Return that the object `repo` of the repository cannot be read, if so: a later client may have written it."""
        try:
            if store.exists(REPO_KEY):
                layout_of(store).info()
        except (UnsupportedSpecVersion, DamagedObject) as error:
            return f"{error} (at {store.url()}). The lake reads its own last state, and writes no other one"
        return None

    def collectable(self, key: str) -> bool:
        """Return True: UNIQUE keys have forms that only Icechunk writes."""
        return True


def _follows(older: RepoInfo, newer: RepoInfo) -> bool:
    """Return whether the newest entry of a log is an earlier one of another, or from before where that is cut."""
    newest = older.updates[0]
    if newer.before_updates is not None and newest.time < newer.updates[-1].time:
        return True
    return any((each.kind, each.time) == (newest.kind, newest.time) for each in newer.updates[1:])


def _listed_refs(store: DatasetStore) -> RepoInfo | None:
    layout = layout_of(store)
    return layout.info() if layout.spec_version > 1 else None


def _other_refs(info: RepoInfo | None) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return the branches other than main, and the tags."""
    if info is None:
        return {}, {}
    return {name: tip for name, tip in info.branches.items() if name != MAIN}, dict(info.tags)


def _differ(before: ObjectStore | None, after: ObjectStore | None, *, comes: bool) -> bool:
    """Return whether the arrays and groups of two states differ."""
    if before is None or after is None:
        return before is not after
    assets = states_assets(after, after, before)
    return not difference(assets, *(read_state(assets, each).snapshot for each in (before, after))).is_empty()


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
