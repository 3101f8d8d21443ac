"""The root of a lake, or of a folder of plain datasets, as a Dagster resource."""

from typing import Any
from urllib.parse import urlsplit

from dagster import ConfigurableResource
from pydantic import ConfigDict, Field, PrivateAttr, model_validator

from lake_core.lake import Lake
from lake_core.store import ObjectStore, open_store
from lake_orch.environment import from_environment
from lake_orch.errors import NotALake
from lake_orch.location import checked_path
from lake_pipes.pages import is_ui_url


class LakeRoot(ConfigurableResource):  # type: ignore[type-arg]
    """The root of a lake, or of a folder of plain datasets, and the options that open it."""

    # Otherwise errors would show storage_options.
    model_config = ConfigDict(hide_input_in_errors=True)

    root: str = Field(description="URL or local path of the lake's root folder.")
    storage_options: dict[str, Any] = Field(
        default_factory=dict,
        description="fsspec's options for the root. Give secrets as EnvVar: Dagster shows other values in its UI.",
        repr=False,
    )
    ui_url: str | None = Field(
        default=None,
        description="Where `lake ui` serves the lake. Then materializations and observations link to its pages.",
    )
    _lake: Lake | None = PrivateAttr(default=None)
    _is_lake: bool | None = PrivateAttr(default=None)

    @model_validator(mode="after")
    def _check_root(self) -> "LakeRoot":
        # The root is visible in Dagster's UI, tags of runs, and metadata.
        if "@" in self.root and urlsplit(self.root).password is not None:
            raise ValueError(
                "the lake's root holds a password, and the UI shows the root: "
                "give secrets as storage_options, by EnvVar"
            )
        if self.ui_url is not None and not is_ui_url(self.ui_url):
            raise ValueError(
                f"ui_url must be where `lake ui` serves the lake, such as http://localhost:7117, not {self.ui_url!r}"
            )
        return self

    def url(self, path: str) -> str:
        """Return the URL of a path below the root."""
        return f"{self.root.rstrip('/')}/{checked_path(path)}"

    def _store_of(self, path: str) -> ObjectStore:
        return open_store(self.url(path), storage_options=self.options() or None)

    def options(self) -> dict[str, Any]:
        """Return `storage_options` with the values of its environment variables, at any depth.

        Raises:
            InvalidDefinition: A variable is not set. Set it where the run's processes start.
        """
        return dict(from_environment(self.storage_options))

    def is_lake(self) -> bool:
        """Return whether a lake exists at the root, and not only a folder of plain tables. The result is cached."""
        if self._is_lake is None:
            self._is_lake = Lake.exists(self.root, storage_options=self.options())
        return self._is_lake

    def open(self) -> Lake:
        """Open the lake.

        Raises:
            NotALake: The root is a folder of plain tables. `lake init` makes it a lake.
        """
        if self._lake is None:
            if not self.is_lake():
                raise NotALake(
                    f"{self.root} is not a lake, and this operation needs one: make it one with `lake init {self.root}`"
                )
            self._lake = Lake.open(self.root, storage_options=self.options())
        return self._lake
