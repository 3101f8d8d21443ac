"""Environments for Spark's executors that lack this package."""

from __future__ import annotations

import venv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("pyarrow", "numpy", "fsspec")
"""What executors need for files."""

S3_PACKAGES = (*PACKAGES, "obstore", "botocore", "dateutil", "jmespath", "six", "urllib3")
"""What executors need for S3: obstore and botocore, with the packages that botocore requires."""


def lean_python(folder: Path, packages: Sequence[str] = PACKAGES) -> Path:
    """Make an environment in a folder that has only these packages of this one, and return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    for name in packages:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        module = Path(spec.origin)
        package = module.parent if module.name == "__init__.py" else module
        for part in (package, package.with_name(f"{package.name}.libs")):  # the libraries of some stand beside them
            if part.exists():
                (site / part.name).symlink_to(part)
    return folder / "bin" / "python"
