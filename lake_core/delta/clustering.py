"""The columns by which a table is clustered: OPTIMIZE sorts by them, and writers must collect statistics for them.

Their physical names are in the domain `delta.clustering`. Files that were sorted together are a cube, which their tags
name. A cube that has reached its size is left as it is, so that each row is sorted only a few times.
Section: Clustered Table.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lake_core import runtime
from lake_core.arrow_scalar import scalar
from lake_core.delta.action import DomainMetadata
from lake_core.delta.curve import Curve
from lake_core.delta.errors import InvalidProperty, MalformedAction, SchemaMismatch
from lake_core.delta.numpy_arrays import booleans, numbers
from lake_core.delta.schema import quoted_path, resolve
from lake_core.delta.statistics import indexed_leaves, leaf_columns

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from lake_core.delta.action import Metadata

CUBE_COLUMNS: Final = "ZCUBE_ZORDER_BY"
"""The tag of a sorted file with the columns, as JSON text."""
CUBE_BYTES = 100 << 30
"""The size from which a cube is left as it is."""
CUBE: Final = "ZCUBE_ID"
"""The tag of a sorted file with its cube."""
PROVIDER: Final = "liquid"
"""Who sorted the files, as the log names it."""
DOMAIN: Final = "delta.clustering"
"""The metadata domain with the columns."""
_MOST_COLUMNS: Final = 4


def clustering_columns(domains: Iterable[DomainMetadata]) -> Sequence[tuple[str, ...]]:
    """Return the columns by which a table is clustered, by their physical names from the top level down.

    A column that is not in a struct may stand there as its name alone. Raises MalformedAction.
    """
    for domain in domains:
        if domain.domain == DOMAIN and not domain.removed:
            try:
                listed = json.loads(domain.configuration)["clusteringColumns"]
            except (ValueError, KeyError, TypeError):
                listed = None
            if not isinstance(listed, list):
                raise MalformedAction(f"the domain {DOMAIN} has no list of columns: {domain.configuration[:80]!r}")
            return [(each,) if isinstance(each, str) else tuple(map(str, each)) for each in listed]
    return ()


def clustered_by(metadata: Metadata, domains: Iterable[DomainMetadata]) -> Curve:
    """Return the curve along which a table is sorted; an empty one if it is not clustered.

    Raises MalformedAction for a column that the table does not have.
    """
    physical = clustering_columns(domains)
    if not physical:
        return Curve()
    mapping = metadata.column_mapping
    leaves = {mapping.physical_path(path): path for path, _ in leaf_columns(list(metadata.arrow_schema))}
    for path in physical:
        if path not in leaves:
            raise MalformedAction(f"the table is clustered by a column that it does not have: {'.'.join(path)!r}")
    return Curve(tuple(leaves[path] for path in physical), is_hilbert=True)


def clustering_domain(metadata: Metadata, names: Sequence[str]) -> DomainMetadata:
    """Return what the log holds of a table that is clustered by these columns; by none without any.

    Raises SchemaMismatch.
    """
    if isinstance(names, str):
        raise SchemaMismatch(f"cluster_by must be a list of columns: [{names!r}]")
    paths = ordered_columns(names, metadata.arrow_schema)
    if len(paths) > _MOST_COLUMNS or len(set(paths)) < len(paths):
        raise SchemaMismatch(f"cluster_by names {list(names)}: a table is clustered by at most four columns, each once")
    columns = [list(metadata.column_mapping.physical_path(path)) for path in paths]
    configuration = json.dumps({"clusteringColumns": columns, "domainName": DOMAIN}, ensure_ascii=False)
    return DomainMetadata(DOMAIN, configuration)


def ordered_columns(names: Sequence[str], schema: pa.Schema) -> list[tuple[str, ...]]:
    """Return the paths of columns to sort by. Raises SchemaMismatch for one that a table lacks, or without an order."""
    columns = [resolve(name, schema) for name in names]
    for path, kind in columns:
        if pa.types.is_nested(kind) or pa.types.is_null(kind):
            raise SchemaMismatch(
                f"column {'.'.join(path)!r} is {kind}, whose values have no order: "
                "choose a field inside it, or another column"
            )
    return [path for path, _ in columns]


def check_clustering(metadata: Metadata, domains: Iterable[DomainMetadata]) -> None:
    """Check that a clustered table has no partitions, and statistics of the columns by which it is clustered.

    Raises InvalidProperty, SchemaMismatch, MalformedAction.
    """
    clustered = clustering_columns(domains)
    if not clustered:
        return
    if metadata.partition_columns:
        raise SchemaMismatch("a table has either partitions or columns by which it is clustered: choose one of them")
    mapping = metadata.column_mapping
    indexed = {
        mapping.physical_path(path)
        for path, _ in indexed_leaves(metadata.arrow_schema, metadata.partition_columns, metadata.configuration)
    }
    for path in clustered:
        if path not in indexed:
            raise InvalidProperty(
                f"the table is clustered by column {'.'.join(path)!r}, which would get no statistics: keep it among "
                "those of delta.dataSkippingStatsColumns or delta.dataSkippingNumIndexedCols, or cluster by other "
                "columns first, with cluster_by"
            )


def new_cube(curve: Curve) -> tuple[tuple[str, str], ...]:
    """Return the tags of files that are sorted together."""
    return ((CUBE, str(runtime.uuid4())), (CUBE_COLUMNS, _listed(curve)))


def cube_of(files: pa.Table, chosen: npt.NDArray[np.int64]) -> tuple[tuple[str, str], ...]:
    """Return the tags of the only one of the chosen files, if it was sorted; files need clusteringProvider, tags."""
    if "tags" not in files.column_names or files["clusteringProvider"][int(chosen[0])].as_py() != PROVIDER:
        return ()
    return tuple(files["tags"][int(chosen[0])].as_py() or ())


def to_cluster(files: pa.Table, curve: Curve, holey: npt.NDArray[np.bool_], *, full: bool) -> npt.NDArray[np.int64]:
    """Return the numbers of the files that are to be sorted together.

    They are those that were not sorted yet, those with many deleted rows (`holey`), and those of cubes that can still
    grow. Files that are sorted by other columns stay, except with `full`, by which all files are sorted.
    """
    if full or not len(files):
        return np.arange(len(files))
    is_sorted = booleans(pc.fill_null(pc.equal(files["clusteringProvider"], scalar(PROVIDER)), scalar(False)))
    tags = files["tags"].combine_chunks()
    by, cube = (pc.fill_null(pc.map_lookup(tags, scalar(key), "first"), "") for key in (CUBE_COLUMNS, CUBE))
    alike = is_sorted & booleans(pc.equal(by, scalar(_listed(curve))))
    code = numbers(cube.dictionary_encode().indices)
    size = np.bincount(code[alike], weights=numbers(files["size"])[alike], minlength=int(code.max()) + 1)
    growing = alike & (size[code] < CUBE_BYTES)
    new = ~is_sorted | (holey & alike)
    if not new.any() and len(np.unique(code[growing])) < 2:
        return np.arange(0)
    return np.flatnonzero(new | growing)


def _listed(curve: Curve) -> str:
    return json.dumps([quoted_path(path) for path in curve.columns], ensure_ascii=False, separators=(",", ":"))
