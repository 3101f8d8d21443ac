"""The connection of a lake: its root and the options of its store."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import mask_secret
from airflow.sdk import BaseHook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lake_core.lake import Lake

DEFAULT_CONNECTION = "lake_default"
DEFAULT_BRANCH = "main"


@dataclass(frozen=True, slots=True)
class LakePlace:
    """The place that a connection names."""

    connection: str
    root: str
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Options of the store, secrets among them."""
    ui_url: str | None = None
    """Where `lake ui` serves the lake."""

    def open(self) -> Lake:
        """Open the lake. Raises NotALake."""
        from lake_core.lake import Lake
        from lake_orch.errors import NotALake

        options = dict(self.storage_options)
        if not Lake.exists(self.root, storage_options=options):
            raise NotALake(
                f"{self.root}, of the connection {self.connection!r}, is not a lake: make it one with "
                f"`lake init {self.root}`"
            )
        return Lake.open(self.root, storage_options=options)


class LakeHook(BaseHook):
    """Opens the lake of a connection of the type `lake`.

    The connection's host is the root of the lake, such as `s3://bucket/lake` or a folder. Its extra may have
    `storage_options`, and as `ui_url` the address at which `lake ui` serves the lake. Its password may have further
    storage options as JSON, which are secret. Where a form has no such fields, the extra may have the `root` as well.
    """

    conn_name_attr: ClassVar[str] = "lake_conn_id"
    default_conn_name: ClassVar[str] = DEFAULT_CONNECTION
    conn_type: ClassVar[str] = "lake"
    hook_name: ClassVar[str] = "Lake"

    def __init__(self, lake_conn_id: str = DEFAULT_CONNECTION, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lake_conn_id = lake_conn_id

    def place(self) -> LakePlace:
        """Return the place of the lake.

        Raises:
            InvalidDefinition: The connection names no root, or its options are not JSON.
        """
        from lake_orch.errors import InvalidDefinition
        from lake_pipes.pages import is_ui_url

        connection = self.get_connection(self.lake_conn_id)
        try:
            extra = json.loads(connection.extra or "{}")
        except ValueError:
            extra = None
        if not isinstance(extra, dict):
            raise InvalidDefinition(
                f"the extra of the connection {self.lake_conn_id!r} is no JSON object: use one, such as "
                '{"storage_options": {"region": "eu-central-1"}}'
            )
        root = connection.host or extra.get("root")
        if not root:
            raise InvalidDefinition(
                f"the connection {self.lake_conn_id!r} names no lake: give it the root as its host, such as "
                "s3://bucket/lake"
            )
        if "branch" in extra:
            raise InvalidDefinition(
                f"the connection {self.lake_conn_id!r} names a branch, but is a whole lake: give the branch to "
                "lake_session(branch=…) or LakeTable(…, branch=…)"
            )
        options = extra.get("storage_options") or {}
        try:
            secret = json.loads(connection.password) if connection.password else {}
        except ValueError:
            secret = None
        if not isinstance(options, dict) or not isinstance(secret, dict):
            raise InvalidDefinition(
                f"the storage options of the connection {self.lake_conn_id!r} are no JSON object: use one, such as "
                '{"region": "eu-central-1"}'
            )
        mask_secret(secret)
        ui_url = extra.get("ui_url")
        if ui_url is not None and not is_ui_url(ui_url):
            raise InvalidDefinition(
                f"ui_url of the connection {self.lake_conn_id!r} must be where `lake ui` serves the lake, such as "
                "http://localhost:7117, without a token"
            )
        return LakePlace(self.lake_conn_id, str(root), {**options, **secret}, ui_url)

    def open(self) -> Lake:
        """Open the lake.

        Raises:
            NotALake: There is none at the root: `lake init` makes one.
            InvalidDefinition: The connection is not complete.
        """
        return self.place().open()

    def instance(self) -> str:
        """Return what the commits of runs of this Airflow are known by: its address, and the connection."""
        from airflow.configuration import conf

        return f"{conf.get('api', 'base_url', fallback='')} {self.lake_conn_id}".strip()

    def get_conn(self) -> Lake:
        """Open the lake."""
        return self.open()

    def test_connection(self) -> tuple[bool, str]:
        """Return whether the lake can be opened, and what to do if not."""
        from lake_core.readable import listed

        try:
            lake = self.open()
            branches = listed(sorted(lake.list_branches()))
        except Exception as error:  # whatever it is, the form is to show it
            return False, str(error)
        return True, f"The lake is open at {lake.url}, with the branches {branches}"

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return how the form of a connection shows its fields."""
        from lake_orch.airflow.provider import get_provider_info

        types: Any = get_provider_info()["connection-types"]
        behaviour: dict[str, Any] = types[0]["ui-field-behaviour"]
        return behaviour
