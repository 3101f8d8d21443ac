"""The page of all settings, docs/reference/settings.md: `python -m tests.docs.settings_page` writes its tables."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from inspect import cleandoc
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lake_orch import (
    DeltaIOManager,
    FileIOManager,
    IcechunkIOManager,
    LakeIOManager,
    LakeResource,
    PoolIOManager,
)
from lake_orch.io_managers.asset import AssetIOManager
from tests.docs.blocks import DOCS

PAGE = DOCS / "reference" / "settings.md"
BEGIN, END = "<!-- begin of what tests/docs/settings_page.py writes -->", "<!-- end -->"

MANAGERS: Final[tuple[type[AssetIOManager], ...]] = (
    LakeIOManager,
    DeltaIOManager,
    IcechunkIOManager,
    PoolIOManager,
    FileIOManager,
)
"""The IO managers, in the order of the page."""
MODELS: Final[tuple[type[BaseModel], ...]] = (*MANAGERS, LakeResource)
"""All that the page has a section for."""
OF_OUTPUT: Final = "Definition metadata of an asset, or of an op's output"
OF_INPUT: Final = "Metadata of an input (`dg.AssetIn(metadata=...)`)"


def metadata_of(manager: type[AssetIOManager], section: str) -> Mapping[str, str]:
    """Return what each metadata of an IO manager means, by its names, from a section of the docstring."""
    text = cleandoc(vars(manager)["__doc__"] or "")
    match = re.search(rf"^{re.escape(section)}:\n((?:    .*\n?)+)", text, re.MULTILINE)
    if match is None:
        return {}
    entries = re.split(r"\n(?! )", textwrap.dedent(match[1]).strip())
    pairs = (entry.split(": ", 1) for entry in entries)
    return {" ".join(names.split()): " ".join(meaning.split()) for names, meaning in pairs}


def settings_of(model: type[BaseModel]) -> Mapping[str, FieldInfo]:
    """Return the settings of an IO manager or a resource.

    `lake` is left out, because Dagster drops the descriptions of required resources. The page speaks of it above.
    """
    return {name: field for name, field in model.model_fields.items() if name != "lake"}


def section(model: type[BaseModel]) -> str:
    """Return the section of an IO manager or a resource."""
    lines = [f"## {model.__name__}", "", "| Setting | Type | Default | What it is |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {_type(field.annotation)} | {_default(field)} | {_cell(field.description or '')} |"
        for name, field in settings_of(model).items()
    ]
    if issubclass(model, AssetIOManager):
        lines += _table("Metadata of an asset, or of an op's output", metadata_of(model, OF_OUTPUT))
        lines += _table("Metadata of an input, `dg.AssetIn(metadata=…)`", metadata_of(model, OF_INPUT))
    return "\n".join([*lines, ""])


def sections() -> str:
    """Return all that the page has between its marks."""
    return "\n".join(map(section, MODELS))


def _table(title: str, metadata: Mapping[str, str]) -> Iterator[str]:
    if metadata:
        yield from ("", f"{title}:", "", "| Metadata | What it is |", "|---|---|")
    for names, meaning in metadata.items():
        cell = ", ".join(f"`{name}`" for name in names.split(", "))
        yield f"| {cell} | {_cell(meaning[:1].upper() + meaning[1:])} |"


def _type(annotation: Any) -> str:
    """Return a type as users write it, in the form of a cell."""
    if get_origin(annotation) is Literal:
        return r" \| ".join(f"`{value!r}`" for value in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        return r" \| ".join(map(_type, get_args(annotation)))
    if annotation is NoneType:
        return "`None`"
    name = annotation.__name__ if get_origin(annotation) is None else str(annotation)
    return f"`{name.replace('typing.', '')}`"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    return f"`{field.get_default(call_default_factory=True, validated_data={})!r}`"


def _cell(text: str) -> str:
    return re.sub(r"(?<![`\w/])lake/\w+", r"`\g<0>`", text).replace("|", r"\|")


def main() -> None:
    """Write the tables into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{sections()}\n{END}{after}")


if __name__ == "__main__":
    main()
