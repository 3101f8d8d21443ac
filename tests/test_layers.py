"""Every folder imports only what stands below it: the list is the architecture."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

_GROUND = ("lake_core.errors", "lake_core.readable", "lake_core.runtime", "lake_core.backoff")
_FOUNDATION = (*_GROUND, "lake_core.dataset", "lake_core.key_rules", "lake_core.store")
_TREE = ("lake_core.journal", "lake_core.graveler")
_FORMATS = ("lake_core.delta", "lake_core.icechunk", "lake_core.pool")
_LAKE_WINGS = ("errors", "format", "state", "refs", "repository", "publish", "session", "gc", "exporting", "lake", "filesystem")
"""What a lake consists of, lowest first: each imports only what stands before it."""
_ALL_OF_CORE = (*_FOUNDATION, "lake_core.expression", *_TREE, "lake_core.lake", *_FORMATS, "lake_core.spark")

MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "lake_core": ("lake_core.lake",),  # when it is asked for: importing the package itself costs nothing
    "lake_core.errors": (),
    "lake_core.readable": (),
    "lake_core.runtime": (),
    "lake_core.backoff": ("lake_core.runtime",),
    "lake_core.store": ("lake_core.errors", "lake_core.runtime", "lake_core.backoff"),
    "lake_core.dataset": ("lake_core.errors", "lake_core.store"),  # a resolver is handed stores
    "lake_core.testing": ("lake_core.errors", "lake_core.runtime", "lake_core.store"),
    "lake_core.expression": _FOUNDATION,
    "lake_core.journal": _FOUNDATION,
    "lake_core.graveler": (*_FOUNDATION, "lake_core.journal"),
    "lake_core.key_rules": (),
    "lake_core.zarr_arrays": ("lake_core.key_rules",),
    "lake_core.lake": (*_FOUNDATION, *_TREE),
    **{
        f"lake_core.lake.{wing}": (*_FOUNDATION, *_TREE, *(f"lake_core.lake.{lower}" for lower in _LAKE_WINGS[:number]))
        for number, wing in enumerate(_LAKE_WINGS)
    },
    # formats know neither lakes nor one another
    "lake_core.delta": (*_FOUNDATION, "lake_core.expression"),
    "lake_core.icechunk": _FOUNDATION,
    "lake_core.pool": (*_FOUNDATION, "lake_core.journal"),
    "lake_core.cli": (*_FOUNDATION, *_TREE, "lake_core.lake", *_FORMATS),
    "lake_core.spark": (*_FOUNDATION, "lake_core.expression", *_TREE, "lake_core.lake", *_FORMATS),
    "lake_pipes": _ALL_OF_CORE,
    "lake_orch": (*_ALL_OF_CORE, "lake_core.cli", "lake_pipes"),  # its command looks and answers as `lake` does
    "example_pipelines": (*_ALL_OF_CORE, "lake_orch"),
}
"""What each layer may import of ours, besides itself. Listed whether or not the folder exists yet."""

THIRD_PARTY_OF: dict[str, tuple[str, ...]] = {
    "pyspark": ("lake_core.spark", "lake_orch", "example_pipelines"),
    "dagster": ("lake_orch", "example_pipelines"),
}
"""Heavy libraries, and the only layers that may import them."""

_OURS = ("lake_core", "lake_pipes", "lake_orch", "example_pipelines")


def modules() -> list[Path]:
    return sorted(path for package in _OURS for path in (ROOT / package).rglob("*.py"))


def layer_of(module: str) -> str:
    """The layer of a dotted name: two parts inside lake_core, three inside of a lake, one elsewhere."""
    parts = module.split(".")
    wing = ".".join(parts[:3])
    if wing in MAY_IMPORT:
        return wing
    return ".".join(parts[:2]) if parts[0] == "lake_core" else parts[0]


def allows(layer: str, target: str) -> bool:
    """Whether a layer may import another: one that it names, a folder of that, or a folder of its own."""
    return any(target == below or target.startswith(f"{below}.") for below in (layer, *MAY_IMPORT[layer])) or target == "lake_core"


def imports(source: str, module: str, *, is_package: bool) -> Iterator[tuple[int, str]]:
    """Every imported name with its line: lazy ones, relative ones and those for type checkers included."""
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            # `from lake_core import delta` names a layer only together with the alias
            yield from ((node.lineno, f"{base}.{alias.name}" if base == "lake_core" else base) for alias in node.names)


def violations(path: Path) -> Iterator[str]:
    relative = path.relative_to(ROOT).with_suffix("")
    is_package = relative.name == "__init__"
    module = ".".join(relative.parts[:-1] if is_package else relative.parts)
    layer = layer_of(module)
    if layer not in MAY_IMPORT:
        yield f"{relative}: {layer} is no layer; give it its place in MAY_IMPORT"
        return
    for line, name in imports(path.read_text("utf-8"), module, is_package=is_package):
        top = name.split(".")[0]
        if top in _OURS:
            target = layer_of(name)
            if not allows(layer, target):
                yield f"{relative}.py:{line}: {layer} imports {target}, which does not stand below it"
        elif top in THIRD_PARTY_OF and layer not in THIRD_PARTY_OF[top]:
            yield f"{relative}.py:{line}: {layer} imports {top}"


def test_every_import_points_downwards() -> None:
    assert len(modules()) > 10
    assert [line for path in modules() for line in violations(path)] == []


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import lake_core.delta.table", "lake_core.delta.table"),
        ("def f():\n    from lake_core import delta", "lake_core.delta"),
        ("from ..delta import DeltaTable", "lake_core.delta"),
        ("from .. import delta", "lake_core.delta"),
        ("from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lake_core.delta", "lake_core.delta"),
    ],
)
def test_no_way_of_importing_is_overlooked(source: str, expected: str) -> None:
    assert expected in [name for _, name in imports(source, "lake_core.store.local", is_package=False)]


def test_layers_have_no_cycle() -> None:
    settled: set[str] = set()
    remaining = dict(MAY_IMPORT)
    while remaining:
        free = [layer for layer, below in remaining.items() if settled.issuperset(below)]
        assert free, f"a cycle among {sorted(remaining)}"
        settled.update(free)
        for layer in free:
            del remaining[layer]


def module_imports(path: Path, known: set[str]) -> Iterator[str]:
    """The modules of ours that a module imports: lazily and for type checkers, too."""
    relative = path.relative_to(ROOT).with_suffix("")
    is_package = relative.name == "__init__"
    module = ".".join(relative.parts[:-1] if is_package else relative.parts)
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (name if (name := f"{base}.{alias.name}") in known else base for alias in node.names if base in known)


def circles(graph: dict[str, set[str]]) -> list[str]:
    """The modules that reach themselves."""

    def reaches_itself(start: str) -> bool:
        reached: set[str] = set()
        queue = [*graph[start]]
        while queue:
            module = queue.pop()
            if module not in reached:
                reached.add(module)
                queue += graph[module]
        return start in reached

    return sorted(module for module in graph if reaches_itself(module))


_LEFT = {"lake_core.expression.expression", "lake_core.expression.predicate"}
"""Two trees of one language, until they are one."""


def test_modules_have_no_circle() -> None:
    paths = [path for path in modules() if path.is_relative_to(ROOT / "lake_core")]
    names = {path: ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__") for path in paths}
    known = set(names.values())
    graph = {
        name: {target for target in module_imports(path, known) if target != name and not is_handle_type(name, target)}
        for path, name in names.items()
    }
    assert set(circles(graph)) - _LEFT == set()


def is_handle_type(module: str, target: str) -> bool:
    """Whether an import is one of the types of handles, which a lake names and does not know."""
    return module.startswith("lake_core.lake.") and layer_of(target) == "lake_core.delta"


def test_a_circle_is_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == ["b", "c"]
