"""The IO manager for other objects: it stores them as files of the lake."""

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from lake_orch.assets.files.asset_format import FileFormat
from lake_orch.io_managers.asset import AssetIOManager


class FileIOManager(AssetIOManager):
    """An IO manager that stores bytes, text and JSON (dicts, lists, numbers) as files of the lake.

    A run with a session writes to the session.

    Example:
        .. code-block:: python

            @dg.asset(io_manager_key="files")
            def report(orders: pa.Table) -> dict[str, Any]:     # files/report.json
                return {"rows": orders.num_rows}

            resources = {"io_manager": DeltaIOManager(lake=lake), "files": FileIOManager(lake=lake), "lake": lake}

    The file is `files/<asset key>.<extension>` below the root. The file of a partition is `files/<asset
    key>/<partition>.<extension>`. The type of the value decides the extension. Several partitions are loaded as a dict
    by partition key, and written from such a dict, as by Dagster's own file managers.

    A file belongs to the asset that wrote it first. No other asset replaces it (`TableOwned`), or reads it as its own
    (`NotFound`).

    Definition metadata of an asset, or of an op's output:
        lake/owner: `take` takes over a file that another asset wrote, `shared` also lets other assets overwrite it.
        lake/path: the file's path below the root, with or without an extension, instead of the asset's key.

    Metadata of an input (`dg.AssetIn(metadata=...)`):
        lake/ref: the branch, tag or commit of the lake to load from.
        allow_missing_partitions: whether partitions that have no file are left out.

    Any other type needs `allow_pickle=True`. Reading a pickle can run any code that its writer put there.
    """

    allow_pickle: bool = Field(default=False, description="Whether other objects are stored, and loaded, with pickle.")
    prefix: str = Field(
        default="files", description="The folder below the lake's root for files of assets without lake/path."
    )

    @classmethod
    def format_class(cls, metadata: Mapping[str, Any]) -> type[FileFormat]:
        """Return the class of the format."""
        return FileFormat
