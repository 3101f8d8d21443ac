"""What tasks read and wrote, as Airflow collects it. Where the provider of OpenLineage is, that takes it from there."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow.providers.common.compat.lineage.hook import get_hook_lineage_collector

from lake_orch.airflow.asset_uri import asset_uri
from lake_orch.airflow.hook import DEFAULT_BRANCH, LakeHook
from lake_orch.assets.description import ColumnSchema

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.lake import Lake

_LAKE, _VERSION, _ROWS, _COLUMNS = "lake", "version", "rows", "columns"
"""The names of what an asset says beside its URI."""


def note_read(lake: Lake, connection: str, branch: str, path: str, ref: str) -> None:
    """Note that a task has read a dataset, at a branch or in a session."""
    extra = {_LAKE: lake.url, _VERSION: lake.list_branches().get(ref, ref)}
    get_hook_lineage_collector().add_input_asset(
        _hook(connection), uri=asset_uri(connection, branch, path), asset_extra=extra
    )


def note_written(
    lake: Lake, connection: str, branch: str, path: str, version: str | None, metadata: Mapping[str, Any]
) -> None:
    """Note that a task has written a dataset.

    Args:
        lake: The lake.
        connection: Its connection.
        branch: The branch on which it is published, now or later.
        path: The dataset.
        version: The commit, or the session in which it is staged.
        metadata: The rows and columns, as `lake_orch.assets` reports them.
    """
    from lake_pipes.metadata import ROWS_WRITTEN

    extra: dict[str, Any] = {_LAKE: lake.url, _VERSION: version, _ROWS: metadata.get(ROWS_WRITTEN)}
    schema = next((value for value in metadata.values() if isinstance(value, ColumnSchema)), None)
    if schema is not None:
        extra[_COLUMNS] = [{"name": column.name, "type": column.type} for column in schema.columns]
    said = {name: value for name, value in extra.items() if value is not None}
    get_hook_lineage_collector().add_output_asset(
        _hook(connection), uri=asset_uri(connection, branch, path), asset_extra=said
    )


@cache
def _hook(connection: str) -> LakeHook:
    """Return the one hook of a connection: the collector counts what different ones note as different."""
    return LakeHook(connection)


def openlineage_dataset(asset: Any, lineage_context: Any) -> Any:
    """Return the dataset of OpenLineage that an asset is, with its version, its columns and the rows written.

    It is named by where its plain files are, as all tools name it that read these in place: `s3://bucket` and a key, or
    `file` and a path. What is not on the default branch has the branch behind it.
    """
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset, schema_dataset

    parts = urlsplit(asset.uri)
    branch, path = map(unquote, parts.path.lstrip("/").split("/", 1))
    root = urlsplit(asset.extra.get(_LAKE) or LakeHook(parts.netloc).open().url)
    facets: dict[str, Any] = {}
    if _VERSION in asset.extra:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=asset.extra[_VERSION])
    if _COLUMNS in asset.extra:
        columns = [schema_dataset.SchemaDatasetFacetFields(**column) for column in asset.extra[_COLUMNS]]
        facets["schema"] = schema_dataset.SchemaDatasetFacet(fields=columns)
    statistics: dict[str, Any] = {}
    if _ROWS in asset.extra:
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=asset.extra[_ROWS]
        )
    is_local = root.scheme == "file"
    name = f"{root.path.rstrip('/')}/{path}{'' if branch == DEFAULT_BRANCH else f'@{branch}'}"
    return OutputDataset(
        namespace="file" if is_local else f"{root.scheme}://{root.netloc}",
        name=name if is_local else name.lstrip("/"),
        facets=facets,
        outputFacets=statistics,
    )
