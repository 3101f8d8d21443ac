"""Scaffolders for `dg scaffold defs lake_orch.components.X name`: a loadable defs.yaml with the required settings."""

import textwrap
from typing import Any

import dagster as dg


class LakeScaffolder(dg.Scaffolder[Any]):
    """A scaffolder that writes a component's example as its defs.yaml.

    For Python it writes the same as Dagster's scaffolder.
    """

    example: str = "{}"
    """The attributes, as YAML text with comments. `NAME` stands for the name of the new folder."""
    module: str = ""
    """Python text that is written beside the defs.yaml as `NAME.py`, if there is any."""

    def scaffold(self, request: dg.ScaffoldRequest[Any]) -> None:
        """Write the defs.yaml, or append to it, and the Python module beside it unless that exists."""
        if request.scaffold_format == "python":
            dg.scaffold_component(request)
            return
        path = request.target_path if request.append else request.target_path / "defs.yaml"
        name = (request.target_path.parent if request.append else request.target_path).name
        attributes = textwrap.indent(textwrap.dedent(self.example).strip().replace("NAME", name), "  ")
        document = f"type: {request.type_name}\n\nattributes:\n{attributes}\n"
        with path.open("a" if request.append else "w", encoding="utf-8") as file:
            file.write(f"---\n{document}" if request.append else document)
        module = path.parent / f"{name}.py"
        if self.module and not module.exists():
            module.write_text(textwrap.dedent(self.module).lstrip().replace("NAME", name), encoding="utf-8")


def scaffolds(example: str, module: str = "") -> type[LakeScaffolder]:
    """Return a scaffolder that writes this example, and a Python module beside it."""
    return type("LakeScaffolder", (LakeScaffolder,), {"example": example, "module": module})
