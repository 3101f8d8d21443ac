"""The settings of the pages."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import quote

from lake_core.report.query import Limits

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class PageSettings:
    """How the pages are served."""

    writes: bool = False
    """Whether sessions, branches and tags can be acted on."""
    token: str | None = None
    """What a visitor must know. None for pages that only this machine reaches."""
    hosts: frozenset[str] = frozenset({"localhost", "127.0.0.1", "::1"})
    """The names by which the server may be called, without ports."""
    any_address: bool = False
    """Whether it may also be called by any IP address, because it listens on all of them."""
    dagster_url: str | None = None
    """Where Dagster shows its runs."""
    query_limits: Limits = field(
        default_factory=lambda: Limits(
            seconds=30.0, memory="1GB", threads=2, table_bytes=1 << 30, result_bytes=64_000_000
        )
    )
    query_rows: int = 10_000
    """The most rows of a query's result."""
    compared_rows: int = 4_000_000
    """The most rows that are read to compare two versions of a dataset."""

    def allows_host(self, header: str) -> bool:
        """Return whether a request may name this host. A page of another name could have been pointed at this one."""
        host = header.rsplit(":", 1)[0] if not header.endswith("]") and header.count(":") != 0 else header
        host = host.strip("[]").lower().rstrip(".")
        if host in self.hosts:
            return True
        if not self.any_address:
            return False
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True

    def run_url(self, metadata: Mapping[str, str]) -> str | None:
        """Return where the run of a commit is shown."""
        run = metadata.get("dagster/run")
        return None if run is None or self.dagster_url is None else f"{self.dagster_url}/runs/{quote(run, safe='')}"

    def asset_url(self, asset: str) -> str | None:
        """Return where an asset, such as `sales/orders`, is shown."""
        return None if self.dagster_url is None else f"{self.dagster_url}/assets/{quote(asset, safe='/')}"


_WORD = re.compile(r"[^\s'\"]*")
_AUTHORITY = re.compile(r"[^\s'\"/?#]*")
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
"""The schemes that have the name of a container before the `@`."""
_SIGNATURES = re.compile(
    r"([?&;](?:sig|signature|x-amz-signature|x-amz-credential|x-amz-security-token|x-goog-signature|"
    r"x-goog-credential|token|access_token|password|pwd|secret|(?:access|account|api)?[-_]?key)=)[^&\s'\"]+",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"secret|passw(?:or)?d|passphrase|pwd|credential|authorization|(?:access|account|api|private|sas|connection).?"
    r"(?:key|string)|(?:^|[._-])sas(?:[._-]|$)|token$",
    re.IGNORECASE,
)
HIDDEN = "(hidden)"
"""What a page shows in place of a secret."""


def without_secrets(text: str) -> str:
    """Return a text without the credentials and signatures of URLs in it. The time is linear in its length."""
    before, *rest = text.split("://")
    if not rest:
        return text
    parts = [before]
    for part in rest:
        parts.append(_without_credentials(part, is_container=parts[-1].lower().endswith(_CONTAINERS)))
    return _SIGNATURES.sub(rf"\1{HIDDEN}", "://".join(parts))


def _without_credentials(part: str, *, is_container: bool) -> str:
    """Return what follows `://` without a user and a password. A password may hold `/` and `@`."""
    authority = _match(_AUTHORITY, part)
    user, at, _ = authority.rpartition("@")
    secret = authority.partition(":")[2]
    if not at and secret and not secret.isdigit():
        user, at, _ = _match(_WORD, part).rpartition("@")
    if not at or (is_container and ":" not in user):
        return part
    return HIDDEN + part[len(user) :]


def _match(pattern: re.Pattern[str], text: str) -> str:
    match = pattern.match(text)
    return "" if match is None else match[0]


def is_secret_name(name: str) -> bool:
    """Return whether a property of this name may hold a secret."""
    return _SECRET_NAME.search(name) is not None
