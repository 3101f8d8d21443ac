"""The base of private sessions and of the writers of shared ones: create, import and write datasets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lake_core import runtime
from lake_core.lake.errors import DatasetExists
from lake_core.lake.session.importing import (
    ImportedObjects,
    convert_dataset,
    import_copied_dataset,
    import_dataset,
    import_objects,
)
from lake_core.lake.state.claims import claim
from lake_core.lake.state.dataset_record import DatasetRecord, dataset_path
from lake_core.lake.state.writable_state import WritableState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from lake_core.delta import DeltaTable
    from lake_core.icechunk import DatasetRepository, RepositoryConfig
    from lake_core.pool import Order, Pool


class WriteSession(WritableState):
    """A state with changes on top, and the methods that create and import datasets."""

    def create(self, path: str, format: str, *args: Any, **options: Any) -> Any:
        """Create a dataset and return its format's handle.

        The arguments are those of the format's `create`, such as `exist_ok`.

        Raises:
            DatasetExists: The path, or one above or below it, is a dataset or holds plain files, or a dataset of
                another format was dropped there. Choose another path, or open what exists with `exist_ok=True`.
            InvalidKey: The path cannot be that of a dataset.
            SessionClosed: The session has ended. Open another one.
            LakeError: What the format's own `create` raises.
        """
        changes = self.changes
        changes.check_open()
        path = dataset_path(path)
        exist_ok = bool(options.pop("exist_ok", False))
        with changes.lock:
            record = self.datasets().get(path)
            exists = record is not None
            if record is not None and (not exist_ok or record.format != format):
                raise DatasetExists(
                    f"there is already a {record.format} dataset at {path!r} in {self.name}: "
                    "open it, or pass exist_ok=True"
                )
            dropped = {}
            if record is None:
                self.check_free(path, format)
                claim(self.root, path, format)
                record = DatasetRecord(path, format, str(runtime.uuid4()))
                # These are the log and the record of a dataset that was dropped.
                dropped = {
                    key: changes.view.get(key)
                    for key in (record.key, *(key for key, _ in changes.view.list(f"{path}/")))
                }
                changes.clear(f"{path}/")
                changes.register(record)
        view = self.folder_of(record)
        try:
            return view.format.create(view, *args, clock=self.clock, exist_ok=exist_ok, **options)
        except BaseException:
            if not exists:
                with changes.lock:
                    changes.clear(f"{path}/")
                    changes.unregister(record)
                    for key, item in dropped.items():
                        changes.set(key, item)
            raise

    def create_delta(
        self,
        path: str,
        schema: pa.Schema,
        *,
        partition_by: Sequence[str] | None = None,
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
        managed: bool = True,
    ) -> DeltaTable:
        """Create a Delta table, as `DeltaTable.create` does.

        The table has a writer feature that other clients do not support: they can read the table, but refuse to write
        it past the lake. With `managed=False` it has no such feature, and their commits are adopted before the next
        publish.
        """
        table: DeltaTable = self.create(
            path,
            "delta",
            schema,
            partition_by=partition_by,
            cluster_by=cluster_by,
            properties=properties,
            exist_ok=exist_ok,
            managed=managed,
        )
        return table

    def create_icechunk(
        self,
        path: str,
        *,
        config: RepositoryConfig | None = None,
        exist_ok: bool = False,
        spec_version: int | None = None,
    ) -> DatasetRepository:
        """Create an Icechunk repository. What is written to its `store` is published with the session.

        `spec_version`: the version of the Icechunk specification that it follows, 1 (the default) or 2.
        """
        repository: DatasetRepository = self.create(
            path, "icechunk", config=config, exist_ok=exist_ok, spec_version=spec_version
        )
        return repository

    def create_pool(
        self,
        path: str,
        *,
        key: str | Sequence[str] = "ts",
        order: Order = "desc",
        seek_stride: int | None = None,
        threshold: int | None = None,
        exist_ok: bool = False,
    ) -> Pool:
        """Create a pool, as `PoolLake.create_pool` does.

        The folder becomes a Zed lake, in which the pool has the name of the folder.

        All loads into the pool are published with the session, as one commit on the pool's branch main.
        """
        sizes = {
            name: value for name, value in (("seek_stride", seek_stride), ("threshold", threshold)) if value is not None
        }
        pool: Pool = self.create(path, "pool", key=key, order=order, exist_ok=exist_ok, **sizes)
        return pool

    def import_delta(self, path: str) -> DeltaTable:
        """Register a Delta table in the lake's folder, with its history. Only its log is copied.

        Other clients may still write it: their commits are adopted before the next publish.

        Raises:
            DatasetNotFound: There is no Delta table at the path.
            DatasetExists: The path, or one above or below it, is a dataset of the lake already, or has plain files.
        """
        return self.delta(self.import_dataset(path, "delta").path)

    def import_dataset(self, path: str, format: str, *, copy_files: bool = False) -> DatasetRecord:
        """Register a dataset of any format in the lake's folder. Only its log and pointers are copied.

        Pass `copy_files=True` if the dataset consists of plain files of the session, such as those of a lakeFS
        repository that became a lake. Its data files are then copied into the folder.

        Raises:
            DatasetNotFound: There is no dataset of the format at the path.
            DatasetExists: The path, or one above or below it, is a dataset of the lake already, or has plain files.
            InvalidKey: With `copy_files`, a file at the path is none of the format's. Move or delete it first.
            AlreadyExists: With `copy_files`, another file is where a data file would go. Move it away first.
            SessionClosed: The session has ended. Open another one.
        """
        self.changes.check_open()
        return (import_copied_dataset if copy_files else import_dataset)(self, path, format)

    def import_parquet(self, path: str, *, partition_by: pa.Schema | Sequence[str] | None = None) -> DeltaTable:
        """Convert a folder of Parquet files in the lake's folder to a Delta table; see `DeltaTable.convert`."""
        self.changes.check_open()
        table: DeltaTable = convert_dataset(self, path, "delta", partition_by=partition_by)
        return table

    def import_icechunk(self, path: str) -> DatasetRepository:
        """Register the branch main of an Icechunk repository in the lake's folder. No chunk is copied.

        Its other branches and tags stay in the folder, and are not part of the lake. Other clients may still write it:
        their commits to main are adopted before the next publish.

        Raises:
            DatasetNotFound: There is no repository at the path.
            DatasetExists: The path, or one above or below it, is a dataset of the lake already, or has plain files.
        """
        return self.icechunk(self.import_dataset(path, "icechunk").path)

    def import_zarr(self, path: str, *, config: RepositoryConfig | None = None) -> DatasetRepository:
        """Convert a plain Zarr v3 hierarchy, of this session or the lake's folder, to an Icechunk repository.

        Chunks are copied into the repository. Files in the lake's folder stay there, and can be deleted once the
        session is published.
        """
        self.changes.check_open()
        repository: DatasetRepository = convert_dataset(self, path, "icechunk", replaces_files=True, config=config)
        return repository

    def import_pool(self, path: str) -> Pool:
        """Register the branch main of the only pool of a Zed lake in the lake's folder. No data file is copied.

        Its other branches stay in the folder, and are not part of the lake. Other clients may still load into it: their
        commits to main are adopted before the next publish.

        Raises:
            DatasetNotFound: There is no Zed lake at the path.
            DatasetExists: The path, or one above or below it, is a dataset of the lake already, or has plain files.
            NoSuchPool: The Zed lake does not have exactly one pool.
        """
        return self.pool(self.import_dataset(path, "pool").path)

    def import_objects(self, prefix: str, *, to: str | None = None) -> ImportedObjects:
        """Add the objects under a prefix of the lake's folder to this session, at their keys or under `to`.

        They are not copied, so they must not change from now on.

        Raises:
            InvalidKey: An object's key cannot be one of the lake.
            SessionClosed: The session has ended. Open another one.
        """
        self.changes.check_open()
        return import_objects(self, prefix, to)
