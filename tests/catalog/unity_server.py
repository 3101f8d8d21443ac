"""A server that answers as Unity Catalog's open server does, as far as tables go.

`tests/interop/test_unity.py` holds the real one to the same tests.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PATH = "/api/2.1/unity-catalog"
_NAME = re.compile(r"[^. /\x00-\x1f\x7f]{1,255}")
_COLUMN = {"name", "type_text", "type_json", "type_name", "position", "nullable"}


class UnityServer:
    """The server, a context manager."""

    def __init__(self) -> None:
        self.schemas: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
        self.token = ""
        self.failures: list[int] = []
        """Statuses of the next answers. The request is done nevertheless: its answer is what is lost."""
        self.requests: list[str] = []
        self.refused_columns: set[str] = set()
        self._turn = threading.Lock()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                with server._turn:
                    server.requests.append(f"{self.command} {self.path}")
                    if server.token and self.headers.get("Authorization") != f"Bearer {server.token}":
                        status, answer = 401, _error("UNAUTHENTICATED", "no valid token")
                    else:
                        status, answer = server.answer(self.command, self.path, body)
                    if server.failures:
                        status, answer = server.failures.pop(0), _error("INTERNAL", "lost")
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_DELETE = answer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> UnityServer:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(path.removeprefix(PATH))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        match method, [unquote(part) for part in parts.path.split("/")[1:]]:
            case "POST", ["schemas"]:
                key = body["catalog_name"], body["name"]
                if key in self.schemas:
                    return 400, _error("SCHEMA_ALREADY_EXISTS", f"Schema already exists: {key[1]}")
                self.schemas[key] = {}
                return 200, body
            case "POST", ["tables"]:
                return self._create(body)
            case "GET", ["tables"]:
                tables = self.schemas.get((query["catalog_name"], query["schema_name"]))
                if tables is None:
                    return 404, _error("SCHEMA_NOT_FOUND", "Schema not found")
                names = sorted(name for name in tables if name > query.get("page_token", ""))
                page = names[: int(query["max_results"])]
                more = page[-1] if len(page) < len(names) else None
                return 200, {"tables": [tables[name] for name in page], "next_page_token": more}
            case (("GET" | "DELETE"), ["tables", full]):
                catalog, schema, name = full.split(".")
                tables = self.schemas.get((catalog, schema), {})
                if name not in tables:
                    return 404, _error("TABLE_NOT_FOUND", f"Table not found: {full}")
                return 200, tables[name] if method == "GET" else tables.pop(name)
        return 404, _error("NOT_FOUND", path)

    def _create(self, body: Any) -> tuple[int, Any]:
        tables = self.schemas.get((body["catalog_name"], body["schema_name"]))
        if tables is None:
            return 404, _error("SCHEMA_NOT_FOUND", "Schema not found")
        if not _NAME.fullmatch(body["name"]):
            return 400, _error("INVALID_ARGUMENT", "invalid name")
        if body["name"] in tables:
            return 400, _error("TABLE_ALREADY_EXISTS", f"Table already exists: {body['name']}")
        if any(_COLUMN - column.keys() for column in body["columns"]):
            return 400, _error("INVALID_ARGUMENT", "a column lacks a field")
        if self.refused_columns & {column["name"] for column in body["columns"]}:
            return 400, _error("INVALID_ARGUMENT", "Unsupported type")
        tables[body["name"]] = {**body, "table_id": str(uuid.uuid4())}
        return 200, tables[body["name"]]


def _error(code: str, message: str) -> dict[str, str]:
    return {"error_code": code, "message": message}
