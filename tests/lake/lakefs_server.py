"""A stand-in for a lakeFS server: the calls of a mirror, with the checks that a lakeFS server makes.

It keeps commits, branches and tags in memory, and reads trees from a storage namespace.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from lake_core.graveler import Commit, Graveler, commit_id
from lake_core.store import ObjectStore

KEY, SECRET = "AKIAIOSFOLFS", "a-secret-that-is-not-printed"


class Server:
    """The state of one repository."""

    def __init__(self, namespace: ObjectStore) -> None:
        self.trees = Graveler(namespace)
        self.namespace = namespace
        self.commits: dict[str, dict[str, Any]] = {}
        self.branches: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.requests: list[str] = []
        self.failures: list[int] = []
        """Codes to answer the next requests with."""
        self.most_commits = 1000

    def restore(self) -> None:
        """Take over the dumps of an export, as `refs-restore` does."""
        manifest = json.loads(self.namespace.get("_lakefs/refs_manifest.json"))
        for record in self.trees.scan(manifest["commits_meta_range_id"]):
            self.commits[record.key.decode()] = {"metarange_id": Commit.decode(record.value).metarange_id}
        for kind, refs in (("branches", self.branches), ("tags", self.tags)):
            for record in self.trees.scan(manifest[f"{kind}_meta_range_id"]):
                refs[record.key.decode()] = record.identity.decode()

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        """Return the status and the body of the answer to a request."""
        match method, *path.split("/"):
            case "GET", "":
                return 200, {"id": "repo"}
            case "GET", ("branches" | "tags") as kind, name:
                refs = self.branches if kind == "branches" else self.tags
                return (200, {"id": name, "commit_id": refs[name]}) if name in refs else (404, {"message": "not found"})
            case "GET", "commits", id:
                return (200, {"id": id}) if id in self.commits else (404, {"message": "not found"})
            case "POST", "commits":
                return self._create_commit_record(body)
            case "POST", "branches":
                return self._set(self.branches, body["name"], body["source"], 201)
            case "POST", "tags":
                return self._set(self.tags, body["id"], body["ref"], 201)
            case "PUT", "branches", name, "hard_reset":
                return self._set(self.branches, name, query["ref"][0], 204)
            case "GET", "refs", id, "objects", "ls":
                tree = self.commits[id]["metarange_id"]
                return (200, {}) if not tree or self.namespace.exists(f"_lakefs/{tree}") else (500, {"message": tree})
        return 400, {"message": f"unknown call {method} {path}"}

    def _create_commit_record(self, body: dict[str, Any]) -> tuple[int, Any]:
        named = commit_id(
            body["committer"],
            body["message"],
            body["metarange_id"],
            body["creation_date"],
            body["metadata"],
            body["parents"],
        )
        if named != body["commit_id"]:
            return 400, {"message": "commit id does not match"}
        if not all(parent in self.commits for parent in body["parents"]):
            return 400, {"message": "a parent is missing"}
        if len(self.commits) >= self.most_commits:
            return 400, {"message": "no more commits"}
        self.commits[named] = body
        return 204, None

    def _set(self, refs: dict[str, str], name: str, commit: str, status: int) -> tuple[int, Any]:
        if commit not in self.commits or not re.fullmatch(r"\w[-\w]*", name if refs is self.branches else "x"):
            return 400, {"message": "invalid value"}
        refs[name] = commit
        return status, None if status == 204 else commit


@contextmanager
def serving(server: Server) -> Iterator[str]:
    """Serve a repository on loopback, and return its URL."""
    token = base64.b64encode(f"{KEY}:{SECRET}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            parts = urlsplit(self.path)
            path = parts.path.removeprefix("/api/v1/repositories/repo").strip("/")
            data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.headers.get("Authorization") != f"Basic {token}":
                status, body = 401, {"message": "error authenticating request"}
            elif server.failures:
                status, body = server.failures.pop(0), {"message": "predicate failed"}
            else:
                server.requests.append(f"{self.command} {path}")
                query = parse_qs(parts.query)
                status, body = server.answer(self.command, path, query, json.loads(data) if data else None)
            self.send_response(status)
            if status in (301, 302):
                self.send_header("Location", "http://127.0.0.1:9/")
            self.end_headers()
            if body is not None:
                self.wfile.write((body if isinstance(body, str) else json.dumps(body)).encode())

        do_GET = do_POST = do_PUT = _handle

        def log_message(self, *_: object) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/repositories/repo"
    finally:
        http.shutdown()
        thread.join()
        http.server_close()
