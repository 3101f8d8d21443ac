"""The API of a lakeFS server, as far as a mirror needs it."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from lake_core.errors import CredentialsInUrl, InvalidUrl
from lake_core.graveler.identity import epoch_seconds
from lake_core.json_http import HttpFailure, HttpRefusal, JsonServer, NoJson
from lake_core.lake.errors import ServerRefused, ServerUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from lake_core.graveler import Commit

KEY_VARIABLE = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID"
SECRET_VARIABLE = "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
"""The environment variables with the credentials of a lakeFS user; `lakectl` reads the same."""
_PATH = re.compile(r"(.*)/repositories/([a-z0-9][a-z0-9-]{2,62})(?:/.*)?")


@dataclass(frozen=True, slots=True)
class LakeFSRepository:
    """A repository on a lakeFS server."""

    endpoint: str
    """The server's URL, without the path of the API."""
    name: str
    key: str = field(repr=False)
    secret: str = field(repr=False)

    @classmethod
    def from_url(cls, url: str, environment: Mapping[str, str] = os.environ) -> LakeFSRepository:
        """Return the repository at the URL that lakeFS's own pages have: `https://host/repositories/NAME`.

        Raises InvalidUrl, CredentialsInUrl; ServerRefused without credentials in the environment.
        """
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise CredentialsInUrl(f"the server's URL must not hold credentials: set {KEY_VARIABLE}, {SECRET_VARIABLE}")
        match = _PATH.fullmatch(parts.path)
        if parts.scheme not in ("http", "https") or not parts.netloc or match is None:
            raise InvalidUrl(
                f"{url!r} is not a repository on a lakeFS server: write https://host/repositories/NAME, as its page "
                "in the browser"
            )
        key, secret = environment.get(KEY_VARIABLE), environment.get(SECRET_VARIABLE)
        if not key or not secret:
            raise ServerRefused(f"{parts.netloc} needs credentials: set {KEY_VARIABLE} and {SECRET_VARIABLE}")
        return cls(f"{parts.scheme}://{parts.netloc}{match[1]}", match[2], key, secret)

    def branches(self, names: Iterable[str]) -> dict[str, str]:
        """Return the commits of those of some branches that exist. Raises ServerRefused, ServerUnavailable."""
        return self._commits("branches", names)

    def tags(self, names: Iterable[str]) -> dict[str, str]:
        """Return the commits of those of some tags that exist. Raises as `branches`."""
        return self._commits("tags", names)

    def has_commit(self, id: str) -> bool:
        """Return whether the repository has a commit. Raises as `branches`."""
        return self._ask("GET", f"commits/{id}") is not None

    def create_commit_record(self, commit: Commit) -> None:
        """Add a commit whose tree is in the storage namespace. Raises as `branches`."""
        body = {
            "commit_id": commit.id,
            "version": commit.version,
            "committer": commit.committer,
            "message": commit.message,
            "metarange_id": commit.metarange_id,
            "creation_date": epoch_seconds(commit.creation_date),
            "parents": list(commit.parents),
            "metadata": dict(commit.metadata),
            "generation": commit.generation,
        }
        self._ask("POST", "commits", body, is_required=True)

    def check_readable(self, commit: str) -> None:
        """Check that the server finds a commit's tree in its storage namespace. Raises as `branches`."""
        self._ask("GET", f"refs/{commit}/objects/ls?amount=1", is_required=True)

    def create_branch(self, name: str, commit: str) -> None:
        """Create a branch. Raises as `branches`."""
        self._ask("POST", "branches", {"name": name, "source": commit}, is_required=True)

    def create_tag(self, name: str, commit: str) -> None:
        """Create a tag. Raises as `branches`."""
        self._ask("POST", "tags", {"id": name, "ref": commit}, is_required=True)

    def hard_reset(self, branch: str, commit: str) -> None:
        """Move a branch without uncommitted changes. Raises as `branches`."""
        self._ask("PUT", f"branches/{quote(branch, safe='')}/hard_reset?ref={commit}", is_required=True)

    def check_exists(self) -> None:
        """Check that the server has the repository. Raises as `branches`."""
        self._ask("GET", "", is_required=True)

    def _commits(self, kind: str, names: Iterable[str]) -> dict[str, str]:
        answers = {name: self._ask("GET", f"{kind}/{quote(name, safe='')}") for name in names}
        commits = {name: answer.get("commit_id") for name, answer in answers.items() if answer is not None}
        if not all(isinstance(commit, str) for commit in commits.values()):
            raise ServerRefused(f"{self.endpoint} is not a lakeFS server: its {kind} name no commits")
        return {name: str(commit) for name, commit in commits.items()}

    def _ask(self, method: str, path: str, body: object = None, *, is_required: bool = False) -> dict[str, Any] | None:
        """Send a request. Returns the answer; None for what does not exist, unless it is required."""
        token = base64.b64encode(f"{self.key}:{self.secret}".encode()).decode()
        server = JsonServer(f"{self.endpoint}/api/v1/repositories/{self.name}", {"Authorization": f"Basic {token}"})
        request = f"{method} {path.partition('?')[0] or self.name}"
        try:
            # Other calls answer with nothing, or with an id as it is.
            return dict(server.ask(method, path and f"/{path}", body, is_read=method == "GET") or {})
        except HttpRefusal as error:
            if error.status == 404 and not is_required:
                return None
            reason = f"{self.endpoint} answered {request}: {error}"
            raise ServerRefused(f"{reason}{_advice(error.status)}") from None
        except HttpFailure as error:
            raise ServerUnavailable(
                f"{self.endpoint}: {request}: {error}. What was done stays: run the same command again later"
            ) from None
        except (NoJson, ValueError, TypeError):
            raise ServerRefused(f"{self.endpoint} is not a lakeFS server: its answer is not JSON") from None


def _advice(code: int) -> str:
    if code in (401, 403):
        return f" (check {KEY_VARIABLE} and {SECRET_VARIABLE})"
    return ""
