"""Requests to servers whose answers are JSON. Failures that may pass are tried again."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError

from lake_core.backoff import Backoff

if TYPE_CHECKING:
    from collections.abc import Mapping

_TRIES = 4
_BACKOFF = Backoff(0.5, 8.0)
_AGAIN = frozenset({429, 500, 502, 503, 504})
_SECONDS = 60.0
_MOST_BYTES = 64 << 20


class HttpRefusal(Exception):
    """The server refused a request. Callers turn it into an error of their own."""

    def __init__(self, status: int, reason: str, code: str = "") -> None:
        super().__init__(f"{status} {reason}".rstrip())
        self.status = status
        self.code = code
        """The server's own word for the error, if it has one."""


class HttpFailure(Exception):
    """The server did not answer, or only with errors that may pass. The request may have been done."""


class NoJson(Exception):
    """The server answered with something other than JSON."""


@dataclass(frozen=True, slots=True)
class JsonServer:
    """A server, and what every request to it says."""

    endpoint: str
    """The URL that the paths of requests follow."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def ask(self, method: str, path: str, body: object = None, *, is_read: bool = True) -> Any:
        """Send a request, and return its answer; None if it is not read.

        Raises HttpRefusal, HttpFailure, NoJson. A redirect is refused, as it would send credentials elsewhere.
        """
        headers = {"Content-Type": "application/json", "Accept": "application/json", **self.headers}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoint + path, data, headers, method=method)
        for tries in range(1, _TRIES + 1):
            try:
                with _OPENER.open(request, timeout=_SECONDS) as answer:
                    text = answer.read(_MOST_BYTES)
                return json.loads(text) if is_read else None
            except HTTPError as error:
                reason, code = _reason(error)
                failure = f"{error.code} {reason}".rstrip()
                if error.code not in _AGAIN:
                    raise HttpRefusal(error.code, reason, code) from None
            except (URLError, HTTPException, OSError) as error:
                failure = f"cannot be reached: {getattr(error, 'reason', error)}"
            except ValueError:
                raise NoJson(f"the answer to {method} {path} is not JSON") from None
            if tries < _TRIES:
                _BACKOFF.wait(tries)
        raise HttpFailure(failure)


def _reason(error: HTTPError) -> tuple[str, str]:
    """Return what the server says about an error, and its own word for it."""
    try:
        body = json.loads(error.read(1 << 16))
        return str(body["message"])[:500], str(body.get("error_code") or "")
    except (ValueError, KeyError, TypeError, AttributeError, OSError, HTTPException):
        return str(error.reason or ""), ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Treats redirects as errors."""

    def redirect_request(self, *_: Any) -> None:
        return None


_OPENER = urllib.request.build_opener(_NoRedirect)
