"""fake-gcs-server, and before it the part of Google's XML API that it leaves out.

The server keeps the objects, their generations and its preconditions; it offers those by the JSON API alone. Clients of
the XML API are answered here by asking that one. What gcsfs asks by the JSON API is passed on.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit
from xml.sax.saxutils import escape

from tests.clouds.servers import CloudServer, executable, free_port, running

_METADATA = "x-goog-meta-"
_JSON_API = ("/storage/v1/", "/download/storage/v1/")
_CODES = {404: "NoSuchKey", 412: "PreconditionFailed", 416: "InvalidRange", 304: "NotModified"}


@contextmanager
def fake_gcs(folder: Path) -> Iterator[CloudServer]:
    """Run the server with an empty bucket `lake`."""
    program, port = executable("FAKE_GCS_SERVER"), free_port()
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"]
    with running(command, port, folder / "fake-gcs-server.log"):
        backend = f"http://127.0.0.1:{port}"
        body = json.dumps({"name": "lake"}).encode()
        request = urllib.request.Request(f"{backend}/storage/v1/b", body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=30).close()
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_XMLHandler,), {"backend": backend}))
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            endpoint = f"http://127.0.0.1:{server.server_address[1]}"
            yield CloudServer("gs", {"endpoint_url": endpoint, "token": "anon"}, {"STORAGE_EMULATOR_HOST": endpoint})
        finally:
            server.shutdown()
            server.server_close()


class _XMLHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend: str

    def do_PUT(self) -> None:
        bucket, name = self._object()
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        metadata = {
            header.lower().removeprefix(_METADATA): value
            for header, value in self.headers.items()
            if header.lower().startswith(_METADATA)
        }
        boundary = uuid.uuid4().hex
        described = json.dumps({"name": name, "metadata": metadata}).encode()
        body = b"".join(
            (
                f"--{boundary}\r\nContent-Type: application/json\r\n\r\n".encode() + described,
                f"\r\n--{boundary}\r\nContent-Type: application/octet-stream\r\n\r\n".encode() + data,
                f"\r\n--{boundary}--\r\n".encode(),
            )
        )
        query = {"uploadType": "multipart", **self._condition()}
        answer = self._ask(
            "POST",
            f"/upload/storage/v1/b/{bucket}/o?{urlencode(query)}",
            body,
            {"Content-Type": f"multipart/related; boundary={boundary}"},
        )
        if answer is not None:
            self._reply(200, b"", _headers(json.loads(answer[1])))

    def do_DELETE(self) -> None:
        bucket, name = self._object()
        if self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}") is not None:
            self._reply(204, b"", {})

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        if self.path.startswith(_JSON_API):
            return self._pass_on()
        parts = urlsplit(self.path)
        if parts.path.strip("/").count("/") == 0:
            return self._list(
                parts.path.strip("/"), {name: values[0] for name, values in parse_qs(parts.query).items()}
            )
        bucket, name = self._object()
        path = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}"
        described = self._ask("GET", path)
        if described is None:
            return None
        headers = _headers(json.loads(described[1]))
        if "Range" in self.headers and headers["x-goog-stored-content-length"] == "0":
            # The server would state a range of no bytes, which Google does not.
            return self._refuse(416)
        requested = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        answer = self._ask("GET", f"{path}?alt=media", None, requested)
        if answer is not None:
            status, data, given = answer
            ranged = {"Content-Range": given["Content-Range"]} if "Content-Range" in given else {}
            self._reply(status, data, {**headers, **ranged})
        return None

    def _pass_on(self) -> None:
        headers = {"Range": self.headers["Range"]} if "Range" in self.headers else {}
        answer = self._ask("GET", self.path, None, headers)
        if answer is not None:
            status, data, given = answer
            names = ("Content-Type", "Content-Range", "X-Goog-Hash")
            self._reply(status, data, {name: given[name] for name in names if name in given})

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        names = {"prefix": "prefix", "delimiter": "delimiter", "continuation-token": "pageToken"}
        asked = {theirs: query[ours] for ours, theirs in names.items() if ours in query}
        after = query.get("start-after", "")
        if after:
            asked["startOffset"] = after
        asked["maxResults"] = query.get("max-keys", "1000")
        answer = self._ask("GET", f"/storage/v1/b/{bucket}/o?{urlencode(asked)}")
        if answer is None:
            return
        page = json.loads(answer[1])
        # The JSON API begins at the offset, the XML API behind it.
        items = "".join(
            f"<Contents><Key>{escape(item['name'])}</Key><LastModified>{item['updated']}</LastModified>"
            f"<ETag>{escape(_tag(item))}</ETag><Size>{item['size']}</Size></Contents>"
            for item in page.get("items", ())
            if item["name"] > after
        )
        folders = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>" for folder in page.get("prefixes", ())
        )
        token = page.get("nextPageToken")
        following = f"<NextContinuationToken>{escape(token)}</NextContinuationToken>" if token else ""
        body = f"<?xml version='1.0'?><ListBucketResult>{items}{folders}{following}</ListBucketResult>"
        self._reply(200, body.encode(), {"Content-Type": "application/xml"})

    def _object(self) -> tuple[str, str]:
        bucket, _, name = urlsplit(self.path).path.lstrip("/").partition("/")
        return bucket, unquote(name)

    def _condition(self) -> dict[str, str]:
        generation = self.headers.get("x-goog-if-generation-match")
        return {} if generation is None else {"ifGenerationMatch": generation}

    def _ask(
        self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
    ) -> tuple[int, bytes, Any] | None:
        """Ask the server. An error is passed on, as the XML API words it, and None is returned."""
        request = urllib.request.Request(self.backend + path, body, headers or {}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            self._refuse(error.code)
        return None

    def _refuse(self, status: int) -> None:
        code = _CODES.get(status, "InternalError")
        text = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._reply(status, text.encode(), {"Content-Type": "application/xml"})

    def _reply(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        length = headers.get("x-goog-stored-content-length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def _tag(item: dict[str, Any]) -> str:
    return '"' + item["etag"].strip('"') + '"'


def _headers(item: dict[str, Any]) -> dict[str, str]:
    modified = datetime.fromisoformat(item["updated"])
    return {
        "ETag": _tag(item),
        "Last-Modified": format_datetime(modified.replace(microsecond=0), usegmt=True),
        "x-goog-generation": str(item["generation"]),
        "x-goog-stored-content-length": str(item["size"]),
        **{_METADATA + name: value for name, value in (item.get("metadata") or {}).items()},
    }
