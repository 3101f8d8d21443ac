"""Every folder imports only what stands below it: the list is the architecture."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("layers")  # the modules are parsed once
ROOT = Path(__file__).parent.parent

_GROUND = (
    "lake_core.errors",
    "lake_core.readable",
    "lake_core.runtime",
    "lake_core.backoff",
    "lake_core.json_http",
    "lake_core.clock",
    "lake_core.varint",
    "lake_core.txn",
    "lake_core.runner",
    "lake_core.arrow_scalar",
    "lake_core.lazy_exports",
    "lake_core.installed",
    "lake_core.nested_arrays",
    "lake_core.exact_cast",
    "lake_core.hybrid_calendar",
    "lake_core.json_numbers",
    "lake_core.variant_values",
    "lake_core.python_rows",
    "lake_core.pandas_frames",
    "lake_core.parquet_rows",
)
_FOUNDATION = (
    *_GROUND,
    "lake_core.dataset",
    "lake_core.inspection",
    "lake_core.key_rules",
    "lake_core.store",
    "lake_core.parquet_footer",
)
_TREE = ("lake_core.journal", "lake_core.graveler")
_FORMATS = ("lake_core.delta", "lake_core.icechunk", "lake_core.pool")
_LAKE_WINGS = (
    *("errors", "lake_format", "state", "refs", "repository", "publish", "session", "gc"),
    *("lakefs", "settings", "maintenance", "lake", "filesystem"),
)
"""What a lake consists of, lowest first: each imports only what stands before it."""
_ALL_OF_CORE = (
    *_FOUNDATION,
    "lake_core.expression",
    *_TREE,
    "lake_core.lake",
    *_FORMATS,
    "lake_core.catalog",
    "lake_core.workspace",
    "lake_core.spark",
)
_LANE_FOUNDATION = (
    *("lake_orch.errors", "lake_orch.tags", "lake_orch.location", "lake_orch.definition_metadata"),
    *("lake_orch.environment", "lake_orch.spark"),
)
_FORMATS_OF_ASSETS = (
    "lake_orch.assets.tables",
    "lake_orch.assets.arrays",
    "lake_orch.assets.pools",
    "lake_orch.assets.files",
)
_LANE = ("lake_orch.assets", *_FORMATS_OF_ASSETS, "lake_orch.assets.landing", "lake_orch.runs")
"""What knows no orchestrator."""
_BELOW_RESOURCES = (
    *_LANE_FOUNDATION,
    *_LANE,
    *("lake_orch._dagster", "lake_orch.dagster", "lake_pipes"),
)
_ABOVE_RESOURCES = (*_ALL_OF_CORE, *_BELOW_RESOURCES, "lake_orch.resources")
_DEFINITIONS = (
    *("lake_orch.errors", "lake_orch.resources", "lake_orch.io_managers", "lake_orch.jobs"),
    *("lake_orch.automation", "lake_orch.checks", "lake_orch.published_checks", "lake_orch.change_sensors"),
    *("lake_orch.landing_zone", "lake_orch.maintenance", "lake_orch.pipes"),
)

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    # They are imported on demand: importing the package itself costs nothing.
    "lake_core": ("lake_core.lake", "lake_core.version"),
    "lake_core.version": (),
    "lake_core.errors": (),
    "lake_core.readable": (),
    "lake_core.runtime": (),
    "lake_core.arrow_scalar": (),
    "lake_core.json_numbers": (),
    "lake_core.variant_values": ("lake_core.json_numbers",),
    "lake_core.python_rows": ("lake_core.variant_values",),
    "lake_core.lazy_exports": (),
    "lake_core.installed": ("lake_core.errors",),
    "lake_core.clock": (),
    "lake_core.varint": ("lake_core.errors",),
    "lake_core.txn": ("lake_core.errors",),
    "lake_core.backoff": ("lake_core.runtime",),
    "lake_core.json_http": ("lake_core.backoff",),
    "lake_core.runner": ("lake_core.errors", "lake_core.runtime"),
    "lake_core.store": ("lake_core.errors", "lake_core.readable", "lake_core.runtime", "lake_core.backoff"),
    "lake_core.inspection": ("lake_core.errors", "lake_core.store"),
    "lake_core.dataset": (
        "lake_core.errors",
        "lake_core.installed",
        "lake_core.inspection",
        "lake_core.store",
    ),  # a format is handed stores
    "lake_core.testing": (
        "lake_core.errors",
        "lake_core.runtime",
        "lake_core.store",
        "lake_core.dataset",
        "lake_core.inspection",
        "lake_core.lake",
        "lake_core.catalog",
        "lake_core.delta",
    ),
    "lake_core.expression": _FOUNDATION,
    "lake_core.journal": _FOUNDATION,
    "lake_core.graveler": (*_FOUNDATION, "lake_core.journal"),
    "lake_core.key_rules": ("lake_core.installed",),
    "lake_core.nested_arrays": (),
    "lake_core.exact_cast": (),
    "lake_core.hybrid_calendar": ("lake_core.errors", "lake_core.nested_arrays"),
    "lake_core.pandas_frames": (),
    "lake_core.parquet_footer": ("lake_core.store",),
    "lake_core.parquet_rows": ("lake_core.hybrid_calendar", "lake_core.nested_arrays"),
    "lake_core.zarr_arrays": ("lake_core.key_rules",),
    "lake_core.lake": (*_FOUNDATION, *_TREE, *(f"lake_core.lake.{wing}" for wing in _LAKE_WINGS)),
    **{
        f"lake_core.lake.{wing}": (*_FOUNDATION, *_TREE, *(f"lake_core.lake.{lower}" for lower in _LAKE_WINGS[:number]))
        for number, wing in enumerate(_LAKE_WINGS)
    },
    # formats know neither lakes nor one another
    "lake_core.delta": (*_FOUNDATION, "lake_core.expression"),
    "lake_core.icechunk": _FOUNDATION,
    "lake_core.pool": (*_FOUNDATION, "lake_core.expression", "lake_core.journal"),
    "lake_core.report": (*_FOUNDATION, *_TREE, "lake_core.lake"),  # what commands and pages both show
    "lake_core.ui": (*_FOUNDATION, *_TREE, "lake_core.lake", "lake_core.report"),
    "lake_core.catalog": (*_FOUNDATION, *_TREE, "lake_core.lake", "lake_core.delta"),
    "lake_core.cli": (
        *(*_FOUNDATION, *_TREE, "lake_core.lake", *_FORMATS),
        *("lake_core.catalog", "lake_core.report", "lake_core.ui"),
    ),
    "lake_core.spark": (
        "lake_core",
        "lake_core.version",
        *_FOUNDATION,
        "lake_core.expression",
        *_TREE,
        "lake_core.lake",
        *_FORMATS,
    ),
    "lake_core.workspace": (*_FOUNDATION, "lake_core.lake", *_FORMATS),
    "lake_pipes": (*_FOUNDATION, "lake_core.lake", *_FORMATS, "lake_core.workspace"),
    "lake_orch": (
        "lake_core.version",
        "lake_core.lazy_exports",
        *_DEFINITIONS,
        "lake_orch.assets.tables",
        "lake_orch.dagster",
    ),  # the names that users write
    "lake_orch.errors": ("lake_core.errors",),
    "lake_orch.tags": (),
    "lake_orch._dagster": ("lake_core.lazy_exports",),
    "lake_orch.location": ("lake_orch.errors",),
    "lake_orch.environment": ("lake_orch.errors",),
    "lake_orch.definition_metadata": ("lake_orch.errors",),
    "lake_orch.spark": (*_ALL_OF_CORE, "lake_orch.errors"),
    "lake_orch.spark.column_lineage": ("lake_orch.assets.tables", "lake_orch.dagster"),  # in Dagster's words
    "lake_orch.runs": (*_ALL_OF_CORE, *_LANE_FOUNDATION),
    "lake_orch.assets": (
        *_ALL_OF_CORE,
        *("lake_orch.errors", "lake_orch.tags", "lake_orch.definition_metadata", "lake_orch.location", "lake_pipes"),
    ),
    "lake_orch.assets.tables": (*_ALL_OF_CORE, *_LANE_FOUNDATION, "lake_orch.assets", "lake_orch.runs", "lake_pipes"),
    **{
        f"lake_orch.assets.{other}": (
            *_ALL_OF_CORE,
            *_LANE_FOUNDATION,
            *("lake_orch.assets", "lake_orch.assets.tables", "lake_orch.runs", "lake_pipes"),
        )
        for other in ("arrays", "pools", "files", "landing")
    },
    "lake_orch.dagster": (
        *_ALL_OF_CORE,
        *_LANE_FOUNDATION,
        *_LANE,
        *("lake_orch._dagster", "lake_pipes", "lake_core.version"),
    ),
    "lake_orch.airflow": (*_ALL_OF_CORE, *_LANE_FOUNDATION, *_LANE, "lake_pipes"),
    "lake_orch.resources": (*_ALL_OF_CORE, *_BELOW_RESOURCES),
    "lake_orch.io_managers": _ABOVE_RESOURCES,
    "lake_orch.jobs": _ABOVE_RESOURCES,
    "lake_orch.automation": (*_ABOVE_RESOURCES, "lake_orch.jobs"),
    "lake_orch.checks": (),
    "lake_orch.published_checks": _ABOVE_RESOURCES,
    "lake_orch.change_sensors": _ABOVE_RESOURCES,
    "lake_orch.catalog": _ABOVE_RESOURCES,
    "lake_orch.landing_zone": _ABOVE_RESOURCES,
    "lake_orch.maintenance": (*_ABOVE_RESOURCES, "lake_orch.jobs"),
    "lake_orch.pipes": _ABOVE_RESOURCES,
    "lake_orch.testing": (*_ABOVE_RESOURCES, "lake_orch.jobs"),
    "lake_orch.components": (*_ABOVE_RESOURCES, *_DEFINITIONS),
    "lake_orch.cli": (*_ABOVE_RESOURCES, "lake_orch.jobs", "lake_core.cli"),  # it looks and answers as `lake` does
    "lake_orch.__main__": ("lake_orch.cli",),
    "example_pipelines": (),
    "example_pipelines.flights": (
        *_ALL_OF_CORE,
        "lake_core",
        "lake_orch",
        *_DEFINITIONS,
        "lake_orch.assets.tables",
        "lake_orch.testing",
    ),
    "example_pipelines.airflow_flights": (*_ALL_OF_CORE, "lake_orch.airflow", "example_pipelines.flights"),
}
"""What each layer may import of ours, besides itself."""

_OF_DAGSTER = tuple(
    layer
    for layer in MAY_IMPORT
    if layer.startswith("lake_orch.") and layer not in (*_LANE, *_LANE_FOUNDATION, "lake_orch.airflow")
)

THIRD_PARTY_OF: dict[str, tuple[str, ...]] = {
    "pyspark": (
        *("lake_core.spark", "lake_orch.spark", "lake_orch.assets"),
        *("lake_orch.components", "lake_orch.dagster", "example_pipelines.flights"),
    ),
    "dagster": (*_OF_DAGSTER, "example_pipelines.flights"),
    "airflow": ("lake_orch.airflow", "example_pipelines.airflow_flights"),
    "boto3": ("lake_core.catalog",),
    "pymetastore": ("lake_core.catalog",),
    "thrift": ("lake_core.catalog",),
    "starlette": ("lake_core.ui",),
    "uvicorn": ("lake_core.ui",),
    "jinja2": ("lake_core.ui",),
}
"""Heavy libraries, and the only layers that may import them: those whose names begin so."""

FOLDERS_THAT_IMPORT_BOTH_WAYS: dict[tuple[str, str], str] = {
    ("lake_core.delta", "lake_core.delta.operations"): "a table's methods start its operations, which read its log",
    ("lake_core.pool", "lake_core.pool.arrow"): "pools hold batches of columns, whose values have the types of pools",
    ("lake_core.pool", "lake_core.pool.zng"): "pools are stored as ZNG, whose values have the types of pools",
    ("lake_core.pool", "lake_core.pool.zson"): "metadata and messages are ZSON, whose values have the types of pools",
    ("lake_core.store", "lake_core.store.cloud"): "a URL opens the store of a cloud, which is a store like any other",
}
"""Folders inside of a layer, each below the one before it, that still import one another, and why."""

_PRIVATE_NAMES_OF_DAGSTER = "lake_orch._dagster"

_OURS = ("lake_core", "lake_pipes", "lake_orch", "example_pipelines")
_BY_FOLDER = ("lake_core", "lake_orch", "example_pipelines")
"""Packages whose folders are layers, each by itself."""


def modules() -> list[Path]:
    return sorted(path for package in _OURS for path in (ROOT / package).rglob("*.py"))


def layer_of(module: str) -> str:
    """Name the layer of a module: three parts inside of a lake, two inside lake_core and lake_orch, one elsewhere."""
    parts = module.split(".")
    wing = ".".join(parts[:3])
    if wing in MAY_IMPORT:
        return wing
    return ".".join(parts[:2]) if parts[0] in _BY_FOLDER else parts[0]


def name_of(path: Path) -> tuple[str, bool]:
    """Return the dotted name of a module, and whether it is a package."""
    relative = path.relative_to(ROOT).with_suffix("")
    is_package = relative.name == "__init__"
    return ".".join(relative.parts[:-1] if is_package else relative.parts), is_package


def allows(layer: str, target: str) -> bool:
    """Tell whether a layer may import another: itself, one that it names, or any wing of a lake that it names whole."""
    below = (layer, *MAY_IMPORT[layer])
    return target in below or (target.startswith("lake_core.lake.") and "lake_core.lake" in below)


@functools.cache
def nodes(source: str) -> list[ast.AST]:
    """Return the nodes of a module by which it may import."""
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Import | ast.ImportFrom | ast.If)]


def imports(source: str, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Yield every imported name with its line: lazy ones, relative ones and those for type checkers included."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*parents, *([node.module] if node.module else [])])
            # `from lake_core import delta` names a layer only together with the alias
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def lines_for_type_checkers(source: str) -> set[int]:
    """Return the lines of the imports that only type checkers do."""
    guarded = [node for node in nodes(source) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {
        inner.lineno for node in guarded for inner in ast.walk(node) if isinstance(inner, (ast.Import, ast.ImportFrom))
    }


def violations(path: Path) -> Iterator[str]:
    module, is_package = name_of(path)
    layer = layer_of(module)
    if layer not in MAY_IMPORT:
        yield f"{module}: {layer} is no layer; add it to MAY_IMPORT"
        return
    source = path.read_text("utf-8")
    typed = lines_for_type_checkers(source)
    for line, name in imports(source, module, is_package=is_package):
        if line in typed and is_type_of_a_handle(module, name):
            continue
        top = name.split(".")[0]
        if top in _OURS:
            target = layer_of(name)
            if target not in MAY_IMPORT:
                target = top  # a name that the package itself exports
            if not allows(layer, target):
                yield f"{module}:{line}: {layer} imports {target}, which is not below it"
        elif top in THIRD_PARTY_OF and not layer.startswith(THIRD_PARTY_OF[top]):
            yield f"{module}:{line}: {layer} imports {top}"
        elif name.startswith("dagster._") and module != _PRIVATE_NAMES_OF_DAGSTER:
            yield f"{module}:{line}: {name} is private to Dagster; import it from {_PRIVATE_NAMES_OF_DAGSTER}"


def imported_modules() -> dict[str, set[str]]:
    """Map each module of ours to those that it imports."""
    paths = {name_of(path)[0]: path for path in modules()}
    graph: dict[str, set[str]] = {}
    for module, path in paths.items():
        names = {name for _, name in imports(path.read_text("utf-8"), module, is_package=name_of(path)[1])}
        targets = {name if name in paths else name.rpartition(".")[0] for name in names}
        graph[module] = {
            target for target in (targets & paths.keys()) - {module} if not is_type_of_a_handle(module, target)
        }
    return graph


def imported_folders() -> dict[str, set[str]]:
    """Map each folder inside of a layer to the folders of that layer that its modules import.

    The `__init__` of a folder is left out: it may export names of the folders inside of it.
    """
    packages = {module for module, is_package in map(name_of, modules()) if is_package}

    def folder_of(module: str) -> str:
        return module if module in packages else module.rpartition(".")[0]

    graph: dict[str, set[str]] = {package: set() for package in packages}
    for module, targets in imported_modules().items():
        if module not in packages:
            folder = folder_of(module)
            graph[folder] |= {folder_of(target) for target in targets if layer_of(target) == layer_of(module)} - {
                folder
            }
    return graph


def is_type_of_a_handle(module: str, target: str) -> bool:
    """Return whether an import is for the type of a handle alone.

    A lake names the formats that come with it, and does not know them.
    """
    return module.startswith("lake_core.lake.") and layer_of(target) in _FORMATS


def in_circles(graph: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the nodes of a graph that are on a cycle, or lead to one."""
    settled: set[str] = set()
    while free := {name for name, targets in graph.items() if name not in settled and settled.issuperset(targets)}:
        settled |= free
    return sorted(graph.keys() - settled)


def test_every_import_points_downwards() -> None:
    assert len(modules()) > 10
    assert [line for path in modules() for line in violations(path)] == []


def test_no_modules_import_one_another_in_a_circle() -> None:
    graph = imported_modules()
    assert len(graph) > 10
    assert in_circles(graph) == []


def test_no_folders_of_a_layer_import_one_another() -> None:
    graph = imported_folders()
    assert "lake_orch.assets.tables.rows" in graph["lake_orch.assets.tables"]
    for outer, inner in FOLDERS_THAT_IMPORT_BOTH_WAYS:
        assert inner in graph[outer], f"{outer} and {inner} no longer import one another: take them off the list"
        assert outer in graph[inner], f"{outer} and {inner} no longer import one another: take them off the list"
        graph[outer].remove(inner)
    assert in_circles(graph) == []


def test_a_circle_is_found() -> None:
    assert in_circles({"a": ["b"], "b": ["c"], "c": ["b"], "d": []}) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import lake_core.delta.table", "lake_core.delta.table"),
        ("def f():\n    from lake_core import delta", "lake_core.delta"),
        ("from ..delta import DeltaTable", "lake_core.delta.DeltaTable"),
        ("from .. import delta", "lake_core.delta"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lake_core.delta", "lake_core.delta"),
    ],
)
def test_no_way_of_importing_is_overlooked(source: str, expected: str) -> None:
    assert expected in [name for _, name in imports(source, "lake_core.store.local", is_package=False)]


def test_layers_have_no_cycle() -> None:
    assert in_circles(MAY_IMPORT) == []
