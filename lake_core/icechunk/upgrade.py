"""The upgrade of a repository of version 1 to version 2, in place. No snapshot, manifest or chunk is rewritten.

The object `repo` is written first, which makes the repository one of version 2. Each branch is then replaced by itself:
a writer of version 1 that has read it before fails, and one that reads it afterwards finds `repo`. A branch that has
moved in the meantime is moved in `repo`, too; tags and branches that were made or deleted are made or deleted there.
The files of version 1 are deleted last.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake_core.errors import AlreadyExists, NotFound, PreconditionFailed
from lake_core.icechunk.config_file import CONFIG_KEY, encode_config_v2
from lake_core.icechunk.errors import IcechunkError, RefNotFound, UnsupportedSpecVersion
from lake_core.icechunk.identifier import INITIAL_SNAPSHOT, encode_id
from lake_core.icechunk.layout_v1 import LayoutV1
from lake_core.icechunk.layout_v2 import listed_snapshot
from lake_core.icechunk.refs import MAIN, Ref, RefKind, decode_ref, encode_ref, ref_key
from lake_core.icechunk.repo_info import REPO_KEY, ListedSnapshot, RepoInfo
from lake_core.icechunk.repo_info_file import encode_repo_info
from lake_core.icechunk.repo_status import RepoStatus
from lake_core.icechunk.snapshot import microseconds, timestamp
from lake_core.icechunk.update import (
    BranchCreated,
    BranchDeleted,
    NewCommit,
    RecordedUpdate,
    RepoInitialized,
    RepoMigrated,
    TagCreated,
    TagDeleted,
    UpdateType,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Set

    from lake_core.icechunk.asset_manager import AssetManager
    from lake_core.icechunk.repository import Repository
    from lake_core.store import ObjectStore

_FIRST, _SECOND = 1_000, 2_000
"""By how many microseconds the made-up time of a branch or tag, and of a deletion, follows that of its snapshot."""


def upgrade_icechunk_repository(repo: Repository, *, dry_run: bool, delete_unused_v1_files: bool = True) -> Repository:
    """Upgrade a repository to version 2 of the specification.

    Sessions that read go on. A writable session of this package commits to the upgraded repository. Other clients must
    not write meanwhile: icechunk 1 cannot open the repository afterwards.

    Args:
        repo: The repository.
        dry_run: Whether only to check that it can be upgraded.
        delete_unused_v1_files: Whether to delete `refs/` and `config.yaml`, which nothing reads any longer.

    Returns:
        A handle on the upgraded repository; with `dry_run` the same one.

    Raises:
        UnsupportedSpecVersion: The repository is of version 2 already.
        DamagedObject: A branch, a tag, a snapshot or the configuration cannot be read. Nothing was changed.
        IcechunkError: The repository is in a lake.
    """
    store = repo.storage
    if store.versioned:
        raise IcechunkError(
            "a repository in a lake is upgraded in its folder: open that by its URL (Repository.open), and upgrade it. "
            "The next publish or `lake adopt` brings the upgrade into the lake"
        )
    if repo.spec_version != 1:
        raise UnsupportedSpecVersion(f"the repository at {store.url()} follows version 2 already: go on using it")
    upgrade = _Upgrade(repo.assets, store, microseconds(repo.now()))
    info = upgrade.state()
    if dry_run:
        return repo
    try:
        store.put(REPO_KEY, encode_repo_info(info, repo.assets.compression_level), if_absent=True)
    except AlreadyExists:
        raise UnsupportedSpecVersion(f"another process has upgraded the repository at {store.url()}") from None
    upgrade.seal(info)
    if delete_unused_v1_files:
        store.delete([*(meta.key for meta in store.list("refs/")), CONFIG_KEY])
    return repo.upgraded(upgrade.config_tag, None if info.config is None else info.config.hex())


def upgraded_state(assets: AssetManager, store: ObjectStore, now: int) -> RepoInfo:
    """Return what version 2 stores of a repository of version 1. `now`: microseconds since the epoch."""
    return _Upgrade(assets, store, now).state()


@dataclass(slots=True)
class _Upgrade:
    assets: AssetManager
    store: ObjectStore
    now: int
    """Microseconds since the epoch."""
    config_tag: str | None = None
    """The tag of the configuration of version 1, once the state was read."""
    _layout: LayoutV1 = field(init=False)

    def __post_init__(self) -> None:
        self._layout = LayoutV1(self.store, is_upgraded=True)

    def state(self) -> RepoInfo:
        """Return the state of the repository as version 2 stores it."""
        tips = self._layout.list_refs()
        config, self.config_tag = self._layout.read_config()
        snapshots = self._listed([tip.snapshot_id for tip in tips])
        deleted = self._deleted_tags()
        updates = sorted(self._updates(tips, snapshots, deleted), key=lambda update: update.time)
        times = [update.time for update in updates]
        for number in range(1, len(times)):
            times[number] = max(times[number], times[number - 1] + 1)
        ordered = [replace(update, time=time) for update, time in zip(updates, times, strict=True)]
        migrated = RecordedUpdate(RepoMigrated(1, 2), max(self.now, times[-1] + 1))
        return RepoInfo(
            branches={tip.name: tip.snapshot_id for tip in tips if tip.kind is RefKind.BRANCH},
            # One that was deleted since it was read counts as deleted.
            tags={tip.name: tip.snapshot_id for tip in tips if tip.kind is RefKind.TAG and tip.name not in deleted},
            deleted_tags=frozenset(deleted),
            snapshots=snapshots,
            status=RepoStatus(set_at=timestamp(self.now)),
            updates=[migrated, *reversed(ordered)],
            config=None if config is None else encode_config_v2(config),
        )

    def _listed(self, tips: list[bytes]) -> dict[bytes, ListedSnapshot]:
        # By the first version whatever `repo` says, as it may be there already.
        return {
            snapshot.snapshot_id: listed_snapshot(snapshot, snapshot.parent_id)
            for snapshot in self._layout.reachable(self.assets, tips, 50)
        }

    def _deleted_tags(self) -> dict[str, bytes]:
        """Return the snapshots that deleted tags named, by the name of the tag."""
        deleted: dict[str, bytes] = {}
        for meta in self.store.list("refs/tag."):
            name = meta.key.removeprefix("refs/tag.").removesuffix("/ref.json.deleted")
            if meta.key == ref_key(RefKind.TAG, name) + ".deleted":
                try:
                    deleted[name] = decode_ref(self.store.get(ref_key(RefKind.TAG, name)), meta.key)
                except NotFound:
                    deleted[name] = INITIAL_SNAPSHOT
        return deleted

    def _updates(
        self, tips: list[Ref], snapshots: dict[bytes, ListedSnapshot], deleted: dict[str, bytes]
    ) -> Iterator[RecordedUpdate]:
        """Yield what must have happened, at about the times of the snapshots."""
        written: set[bytes] = set()
        for tip in sorted(tips, key=lambda tip: (tip.kind is not RefKind.BRANCH, tip.name != MAIN, tip.name)):
            time = snapshots[tip.snapshot_id].flushed_at
            if tip.kind is RefKind.TAG:
                yield RecordedUpdate(TagCreated(tip.name), time + _FIRST)
                continue
            if tip.name != MAIN:
                yield RecordedUpdate(BranchCreated(tip.name), time + _FIRST)
            current: bytes | None = tip.snapshot_id
            while current is not None and current not in written:
                entry = snapshots[current]
                written.add(current)
                kind: UpdateType = NewCommit(tip.name, encode_id(current))
                yield RecordedUpdate(RepoInitialized() if entry.parent_id is None else kind, entry.flushed_at)
                current = entry.parent_id
        for name, snapshot_id in deleted.items():
            time = snapshots[snapshot_id].flushed_at if snapshot_id in snapshots else self.now
            yield RecordedUpdate(TagCreated(name), time + _FIRST)
            yield RecordedUpdate(TagDeleted(name, encode_id(snapshot_id)), time + _SECOND)

    def seal(self, info: RepoInfo) -> None:
        """Replace each branch by itself, so that a writer of version 1 cannot move it. Bring what has moved to `repo`.

        `info`: the state that was written.
        """
        sealed: dict[str, bytes] = {}
        while open_names := self._layout.list_names(RefKind.BRANCH) - sealed.keys():
            for name in sorted(open_names):
                try:
                    tip = self._layout.lookup(RefKind.BRANCH, name)
                    key = ref_key(RefKind.BRANCH, name)
                    self.store.put(key, encode_ref(tip.snapshot_id) + b" ", if_match=tip.etag)
                except (PreconditionFailed, RefNotFound, NotFound):
                    continue  # it has moved, or was deleted: it is looked for again
                sealed[name] = tip.snapshot_id
        late = _Late(
            branches={name: tip for name, tip in sealed.items() if info.branches.get(name) != tip},
            tags={
                tip.name: tip.snapshot_id
                for tip in self._layout.list_refs()
                if tip.kind is RefKind.TAG and tip.name not in info.tags
            },
            deleted_branches=info.branches.keys() - sealed.keys(),
            deleted_tags=self._deleted_tags().keys() - info.deleted_tags,
        )
        if late.branches or late.tags or late.deleted_branches or late.deleted_tags:
            self._bring(info, late)

    def _bring(self, before: RepoInfo, late: _Late) -> None:
        """Bring late changes to `repo`, whose state was `before` when it was written."""
        listed = self._listed([*late.branches.values(), *late.tags.values()])

        def change(info: RepoInfo) -> tuple[RepoInfo, UpdateType]:
            branches = {}
            for name, tip in late.branches.items():
                # A writer of version 2 may have moved the branch already: the late commits get a branch of their own.
                is_unmoved = info.branches.get(name) == before.branches.get(name)
                branches[name if is_unmoved else f"{name}-{encode_id(tip)}"] = tip
            gone = {name for name in late.deleted_branches if info.branches.get(name) == before.branches[name]}
            kept = {name: tip for name, tip in info.branches.items() if name not in gone}
            state = replace(
                info,
                snapshots={**listed, **info.snapshots},
                branches={**kept, **branches},
                tags={name: tip for name, tip in {**info.tags, **late.tags}.items() if name not in late.deleted_tags},
                deleted_tags=info.deleted_tags | late.deleted_tags,
            )
            if branches:
                name, tip = next(iter(branches.items()))
                return state, NewCommit(name, encode_id(tip))
            if late.tags:
                return state, TagCreated(next(iter(late.tags)))
            if late.deleted_tags:
                name = next(iter(late.deleted_tags))
                return state, TagDeleted(name, encode_id(before.tags.get(name, INITIAL_SNAPSHOT)))
            name = next(iter(late.deleted_branches))
            return state, BranchDeleted(name, encode_id(before.branches[name]))

        self.assets.layout.update(change)


@dataclass(frozen=True, slots=True)
class _Late:
    """What writers of version 1 did between the state that was read and the last of their branches that was sealed."""

    branches: dict[str, bytes]
    tags: dict[str, bytes]
    deleted_branches: Set[str]
    deleted_tags: Set[str]
