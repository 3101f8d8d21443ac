"""S3 over real HTTP: moto's application, made atomic, and with faults on demand.

Run as a program it serves until its standard input closes. moto checks conditions without a lock and never answers 409:
here requests take turns, and of conditional puts of one key that overlap, the later ones are answered with 409 as S3
does.
"""

from __future__ import annotations

import io
import json
import os
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from typing import Any

KEY = "test-access-key-7361"
SECRET = "test-secret-never-shown-9f2c"
_CONTROL = "/_control"
PAGE = 400
"""How many keys the server lists in one answer. S3 lists 1,000."""
_PARTS = 10
_IGNORED = {
    "ignore_conditions": ("HTTP_IF_MATCH", "HTTP_IF_NONE_MATCH"),
    "ignore_if_match": ("HTTP_IF_MATCH",),
    "ignore_range": ("HTTP_RANGE",),
}


class S3Server:
    """The server's interface for tests, a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> S3Server:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "MOTO_S3_DEFAULT_MAX_KEYS": str(PAGE)},
        )
        assert self._process.stdout is not None
        port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def storage_options(self, **more: object) -> dict[str, object]:
        return {
            "key": KEY,
            "secret": SECRET,
            "endpoint_url": self.url,
            "client_kwargs": {"region_name": "us-east-1"},
            **more,
        }

    def create_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=30).close()

    def fault(
        self,
        kind: str,
        *,
        times: int = 1,
        method: str = "PUT",
        key: str = "",
        code: str = "",
        message: str = "",
        body: str = "",
        headers: Mapping[str, str] | None = None,
        seconds: float = 0,
    ) -> None:
        """Let the next `times` requests of the method whose raw path holds `key` fail.

        - `answer`: `code` is "<status> <S3 code>", nothing is done; `body` replaces the error document, and `headers`
          are added
        - `drop_before`, `drop_after`: the connection is closed without an answer; nothing was done, or all
        - `hang_after`: done, and answered only after `seconds`
        - `cut`: the connection is closed halfway through the answer
        - `slow`: the body comes in ten parts, over `seconds`
        - `ignore_conditions`, `ignore_if_match`, `ignore_range`: the headers have no effect
        """
        fault = {"kind": kind, "times": times, "method": method, "key": key, "code": code, "message": message}
        self._control("POST", {**fault, "body": body, "headers": dict(headers or {}), "seconds": seconds})

    def clear(self) -> None:
        self._control("DELETE", {})

    def delay(self, seconds: float) -> None:
        """Let every answer come so many seconds later, until the next `clear`, as over a distance."""
        self._control("PUT", {"delay": seconds})

    def round_trips(self) -> int:
        """Count the requests since the last `clear` that waited for one another.

        That is the longest chain in which each request came after the answer to the one before.
        """
        count, answered = 0, 0.0
        for begin, end in sorted(self._control("GET", {})["spans"], key=lambda span: span[1]):
            if begin >= answered:
                count, answered = count + 1, end
        return count

    def requests(self) -> list[str]:
        """ "METHOD raw-path status" of every request since the last `clear`."""
        lines: list[str] = self._control("GET", {})["seen"]
        return lines

    def held(self) -> list[int]:
        """Return the clients' ports of requests that `hang_after` holds now."""
        ports: list[int] = self._control("GET", {})["held"]
        return ports

    def _control(self, method: str, body: dict[str, object]) -> Any:
        request = urllib.request.Request(self.url + _CONTROL, data=json.dumps(body).encode(), method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Faulty:
    """WSGI middleware: takes turns, answers 409, and does what `S3Server.fault` asked for."""

    def __init__(self, application: Application) -> None:
        self._application = application
        self._turn = threading.Lock()
        self._state = threading.Lock()
        self._under_way: set[str] = set()
        self._faults: list[dict[str, Any]] = []
        self._seen: list[str] = []
        self._spans: list[tuple[float, float]] = []
        """When each request came, and when its answer went."""
        self._delay = 0.0
        self._held: list[int] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        begin = time.monotonic()
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        method, path = environ["REQUEST_METHOD"], environ["REQUEST_URI"]
        if path == _CONTROL:
            return self._control(method, json.loads(body), start_response)
        environ["wsgi.input"] = io.BytesIO(body)
        fault = self._take(method, path)
        kind = fault["kind"] if fault else ""
        for header in _IGNORED.get(kind, ()):
            environ.pop(header, None)
        status, headers, content = self._answer(fault, environ, method, path)
        time.sleep(self._delay)
        with self._state:
            self._seen.append(f"{method} {path} {status.split()[0]}")
            self._spans.append((begin, time.monotonic()))
        if kind in ("drop_after", "drop_before"):
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        if fault is not None and kind == "hang_after":
            self._hold(environ, fault["seconds"])
        start_response(status, headers)
        if kind == "cut":
            return _cut(content, environ["werkzeug.socket"])
        return _slow(content, fault["seconds"]) if fault is not None and kind == "slow" else [content]

    def _answer(
        self, fault: dict[str, Any] | None, environ: dict[str, Any], method: str, path: str
    ) -> tuple[str, Any, bytes]:
        if fault is not None and fault["kind"] == "drop_before":
            return "000", [], b""
        if fault is not None and fault["kind"] == "answer":
            status, _, code = fault["code"].partition(" ")
            status, headers, content = _error(status, code, fault["message"], method, fault["body"])
            return status, [*headers, *fault["headers"].items()], content
        conditional = method == "PUT" and ("HTTP_IF_MATCH" in environ or "HTTP_IF_NONE_MATCH" in environ)
        if conditional:
            with self._state:
                if path in self._under_way:
                    return _error(
                        "409", "ConditionalRequestConflict", "a conflicting conditional operation is under way", method
                    )
                self._under_way.add(path)
        try:
            answered: list[Any] = []
            with self._turn:
                parts = self._application(environ, lambda status, headers, _=None: answered.extend((status, headers)))
                content = b"".join(parts)
            return answered[0], answered[1], content
        finally:
            if conditional:
                with self._state:
                    self._under_way.discard(path)

    def _hold(self, environ: dict[str, Any], seconds: float) -> None:
        """Wait until these seconds are over, or the client has gone."""
        port = environ["REMOTE_PORT"]
        with self._state:
            self._held.append(port)
        select.select([environ["werkzeug.socket"]], [], [], seconds)  # nothing but its end is to be read now
        with self._state:
            self._held.remove(port)

    def _take(self, method: str, path: str) -> dict[str, Any] | None:
        with self._state:
            for fault in self._faults:
                if fault["times"] > 0 and fault["method"] in ("", method) and fault["key"] in path:
                    fault["times"] -= 1
                    return fault
        return None

    def _control(self, method: str, body: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._state:
            if method == "POST":
                self._faults.append(body)
            if method == "PUT":
                self._delay = body["delay"]
            if method == "DELETE":
                self._faults.clear()
                self._seen.clear()
                self._spans.clear()
                self._delay = 0.0
            content = json.dumps({"seen": self._seen, "spans": self._spans, "held": self._held}).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
        return [content]


def _cut(content: bytes, connection: socket.socket) -> Iterable[bytes]:
    yield content[: len(content) // 2]
    connection.shutdown(socket.SHUT_RDWR)


def _slow(content: bytes, seconds: float) -> Iterable[bytes]:
    size = len(content) // _PARTS + 1
    for begin in range(0, len(content), size):
        time.sleep(seconds / _PARTS)
        yield content[begin : begin + size]


def _error(status: str, code: str, message: str, method: str, body: str = "") -> tuple[str, Any, bytes]:
    text = (
        body or f'<?xml version="1.0" encoding="UTF-8"?><Error><Code>{code}</Code><Message>{message}</Message></Error>'
    )
    content = b"" if method == "HEAD" else text.encode()
    return f"{status} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(content)))], content


def _serve() -> None:
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = _Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)
    print(server.server_port, flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    # Standard input ends when the tests' process has died.
    sys.stdin.buffer.read()


if __name__ == "__main__":
    _serve()
