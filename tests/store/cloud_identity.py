"""A server that is a token service and a bucket at once: objects are for those who show the token of the moment."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

CONTENT = b"what only the right token opens"
IDENTITY_HEADER = "header-of-the-machine"


class IdentityServer(ThreadingHTTPServer):
    """Answers as Google's and Azure's token services do, and as a bucket."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.issued: list[str] = []
        self.asked: list[str] = []
        """The paths of the requests for tokens, in order."""
        self.lifetime = 3600
        """Seconds for which a token is good."""
        self.refuses = False
        """Whether the token service gives no tokens."""
        self.claims: dict[str, Any] = {}
        """The claims of the last assertion that a service account signed."""
        self.public_key: Any = None
        """The key of the service account whose assertions are accepted."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def issue(self, path: str) -> str:
        self.asked.append(path)
        self.issued.append(f"token-{len(self.issued) + 1}")
        return self.issued[-1]


class _Handler(BaseHTTPRequestHandler):
    server: IdentityServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/" or path.startswith("/computeMetadata/"):
            self._metadata(path)
        elif path == "/msi":
            self._managed_identity()
        else:
            self._object()

    def do_HEAD(self) -> None:
        self._object()

    def do_POST(self) -> None:
        from google.auth import jwt

        body = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        if self.server.refuses:
            self._answer(400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."})
            return
        key = self.server.public_key
        self.server.claims = dict(jwt.decode(body["assertion"][0], certs={"1": key}))  # verifies the signature
        self._answer(200, {**self._token("/token"), "token_type": "Bearer"})

    def _token(self, path: str) -> dict[str, Any]:
        return {"access_token": self.server.issue(path), "expires_in": self.server.lifetime}

    def _metadata(self, path: str) -> None:
        """Answer as the metadata server of a Google machine."""
        google = {"Metadata-Flavor": "Google"}
        if self.headers.get("Metadata-Flavor") != "Google":
            self._answer(403, {}, google)
        elif path.endswith("/token"):
            self._answer(200, {**self._token(path), "token_type": "Bearer"}, google)
        elif path.endswith("/project-id"):
            self._answer(200, "project", google)
        else:
            self._answer(200, {"email": "machine@project", "scopes": [], "aliases": ["default"]}, google)

    def _managed_identity(self) -> None:
        """Answer as the token service of an Azure machine."""
        if self.headers.get("X-IDENTITY-HEADER") != IDENTITY_HEADER or self.server.refuses:
            self._answer(400, {"error": "invalid_request", "error_description": "no identity for this machine"})
            return
        expires = int(time.time()) + self.server.lifetime
        resource = parse_qs(urlsplit(self.path).query)["resource"][0]
        token = self.server.issue("/msi")
        self._answer(
            200, {"access_token": token, "expires_on": str(expires), "resource": resource, "token_type": "Bearer"}
        )

    def _object(self) -> None:
        if not self.server.issued or self.headers.get("Authorization") != f"Bearer {self.server.issued[-1]}":
            self._send(401, b"<Error><Code>InvalidAuthenticationInfo</Code></Error>", {})
            return
        self._send(200, CONTENT, {"ETag": '"1"', "Last-Modified": _http_date(), "x-goog-generation": "1"})

    def _answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        text = body if isinstance(body, str) else json.dumps(body)
        self._send(status, text.encode(), {"Content-Type": "application/json", **(headers or {})})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _http_date() -> str:
    return datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")


@contextmanager
def identity_server() -> Iterator[IdentityServer]:
    """Run a server until the block ends."""
    with IdentityServer() as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
