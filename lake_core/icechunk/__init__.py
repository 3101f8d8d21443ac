"""Icechunk repositories, specification versions 1 and 2, on any object store: `Repository`. Needs the extra `arrays`.

Modules: `repository` opens a `session` on a snapshot. `store` is the session as a Zarr store; `change_set` holds its
changes. `commit` writes them as manifests, a snapshot and a transaction log, and `refs` moves the branch. If others
committed first, `rebase` applies the changes on top of their commits: `conflict_detector` finds the conflicts,
`conflict_solver` and `append_solver` resolve some of them. `manifest_file`, `snapshot_file` and `transaction_log` read
and write the files, with `file_header` and `flatbuffer`. `maintenance` has `expiration`, `garbage_collection` and
`manifest_rewrite`.

The versions differ in where branches, tags, history and configuration are: `repository_layout` is what both sides,
`layout_v1` and `layout_v2`, can do, and `layouts` chooses one. Version 2 keeps all of it in one object: `repo_info` and
`repo_info_file`, whose updates are listed in the `ops_log`.
"""

from __future__ import annotations

import lake_core.icechunk.packages  # noqa: F401  # first: the other modules need what it looks for
from lake_core.icechunk.append_solver import AppendSolver
from lake_core.icechunk.chunk_storage import ChunkStorageStats
from lake_core.icechunk.commit import CommitResult
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
    VirtualChunkContainer,
    gcs_store,
    http_store,
    local_filesystem_store,
    s3_store,
)
from lake_core.icechunk.conflict import Conflict, ConflictType
from lake_core.icechunk.conflict_detector import ConflictDetector
from lake_core.icechunk.conflict_solver import BasicConflictSolver, ConflictSolver, VersionSelection
from lake_core.icechunk.dataset_repository import DatasetRepository
from lake_core.icechunk.diff import Diff
from lake_core.icechunk.errors import ConflictError, IcechunkError, NoChangesToCommit, RebaseFailedError
from lake_core.icechunk.feature_flags import FeatureFlag
from lake_core.icechunk.garbage_collection import GCSummary
from lake_core.icechunk.repo_status import RepoAvailability, RepoStatus
from lake_core.icechunk.repository import Repository, SpecVersion
from lake_core.icechunk.session import ForkSession, Session
from lake_core.icechunk.session_state import ChunkType, SessionMode
from lake_core.icechunk.snapshot import ManifestFileInfo, SnapshotInfo
from lake_core.icechunk.storage import (
    azure_storage,
    gcs_storage,
    in_memory_storage,
    local_filesystem_storage,
    s3_storage,
)
from lake_core.icechunk.store import IcechunkStore
from lake_core.icechunk.update import Update, UpdateType
from lake_core.icechunk.upgrade import upgrade_icechunk_repository
from lake_core.icechunk.virtual import VirtualChunkSpec
from lake_core.icechunk.virtual_sources import unreadable_sources

__all__ = [
    "AppendSolver",
    "BasicConflictSolver",
    "ChunkStorageStats",
    "ChunkType",
    "azure_storage",
    "gcs_storage",
    "in_memory_storage",
    "local_filesystem_storage",
    "s3_storage",
    "CommitResult",
    "CompressionConfig",
    "Conflict",
    "ConflictDetector",
    "ConflictError",
    "ConflictSolver",
    "ConflictType",
    "DatasetRepository",
    "Diff",
    "FeatureFlag",
    "ForkSession",
    "GCSummary",
    "IcechunkError",
    "IcechunkStore",
    "ManifestConfig",
    "ManifestFileInfo",
    "ManifestPreloadConfig",
    "ManifestSplitCondition",
    "ManifestSplitDimCondition",
    "ManifestSplittingConfig",
    "ManifestVirtualChunkLocationCompressionConfig",
    "NoChangesToCommit",
    "ObjectStoreConfig",
    "RebaseFailedError",
    "RepoAvailability",
    "RepoStatus",
    "Repository",
    "RepositoryConfig",
    "Session",
    "SessionMode",
    "SnapshotInfo",
    "SpecVersion",
    "Update",
    "UpdateType",
    "VersionSelection",
    "VirtualChunkContainer",
    "VirtualChunkSpec",
    "gcs_store",
    "http_store",
    "local_filesystem_store",
    "s3_store",
    "unreadable_sources",
    "upgrade_icechunk_repository",
]
