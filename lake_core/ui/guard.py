"""What every request passes: the host, the token, the origin; and the headers that every response gets."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from lake_core.ui.settings import PageSettings

COOKIE = "lake_token"
"""The beginning of the cookie's name. The port follows: browsers send cookies to all ports of a host."""

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
"""No script, style or picture but the server's own; no frame; nothing that a proxy keeps."""


class Guard:
    """Refuses requests that another page or another machine may have caused.

    - The host must be one by which the server may be called: a name that was pointed at this machine is refused.
    - With a token, it must come with the address once, and afterwards as a cookie that no other page can use.
    - Requests of other pages are refused, but for a link that a person follows. A POST must come from a page of this
      server.
    """

    def __init__(self, app: ASGIApp, settings: PageSettings) -> None:
        self._app, self._settings = app, settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refusal = self._refusal(scope)
        app = self._app if refusal is None else refusal
        await app(scope, receive, send_with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._settings.allows_host(hosts[0]):
            return PlainTextResponse(
                "This server is not known by that name. Open it by the address that `lake ui` printed, or name the "
                "host with --allow-host.\n",
                421,
            )
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return PlainTextResponse("Only GET, HEAD and POST are answered.\n", 405)
        site = headers.get("sec-fetch-site", "none")
        if site in ("cross-site", "same-site") and headers.get("sec-fetch-mode") != "navigate":
            return PlainTextResponse("Another page may not read this one.\n", 403)
        if scope["method"] == "POST":
            origin = headers.get("origin")
            if origin is None or origin.split("://")[-1] != hosts[0] or site in ("cross-site", "same-site"):
                return PlainTextResponse("A form of another page may not act here.\n", 403)
        return self._token_refusal(scope, headers)

    def _token_refusal(self, scope: Scope, headers: Headers) -> ASGIApp | None:
        token = self._settings.token
        if token is None:
            return None
        query = QueryParams(scope["query_string"])
        given = query.get("token")
        if given is not None and scope["method"] == "GET" and _is_equal(given, token):
            rest = "&".join(
                part for part in scope["query_string"].decode("latin-1").split("&") if not part.startswith("token=")
            )
            response = RedirectResponse("/" + quote(scope["path"].lstrip("/")) + (f"?{rest}" if rest else ""), 303)
            # Lax, so that a link from another site, such as Dagster's, is followed. Forms are checked by their origin.
            response.set_cookie(_cookie_name(headers), token, httponly=True, samesite="lax", path="/")
            return response
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        cookie = cookie_parser(headers.get("cookie", "")).get(_cookie_name(headers), "")
        if _is_equal(cookie, token) or _is_equal(bearer, token):
            return None
        return PlainTextResponse("Open the address with its token, as `lake ui` printed it.\n", 401)


def _cookie_name(headers: Headers) -> str:
    port = headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdigit() else COOKIE


def _is_equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(), token.encode())
