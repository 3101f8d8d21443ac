"""The app of the pages, and its addresses."""

from __future__ import annotations

import hmac
import logging
import secrets
import traceback
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from lake_core.errors import AccessDenied, LakeError, NotFound, StoreUnavailable
from lake_core.lake.errors import Conflict, DatasetNotFound, LakeNotFound, RefNotFound, SessionNotFound
from lake_core.report.refusals import refusal_row
from lake_core.store.read_only import ReadOnlyStore
from lake_core.ui.actions import action_page
from lake_core.ui.arrays import picture
from lake_core.ui.commit import commit_page
from lake_core.ui.compare import compare_dataset_page, compare_file_page, compare_page
from lake_core.ui.data import data_page, file_page
from lake_core.ui.dataset import dataset_page, row_page
from lake_core.ui.errors import NoSuchPage, ReadOnlyPages, RefusedRequest
from lake_core.ui.guard import Guard
from lake_core.ui.history import history_page
from lake_core.ui.home import home_page
from lake_core.ui.merge import merge_page
from lake_core.ui.page import Page, json_text, render
from lake_core.ui.query import query_page, result_file
from lake_core.ui.sessions import session_page, sessions_page
from lake_core.ui.settings import without_secrets
from lake_core.ui.upkeep import upkeep_page
from lake_core.ui.visit import Site, Visit

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.types import ASGIApp

    from lake_core.lake import Lake
    from lake_core.ui.settings import PageSettings

    Handler = Callable[[Visit], Page | Response]

_LOG = logging.getLogger(__name__)
_LARGEST_FORM = 64 << 10
_PAGES: dict[str, Handler] = {
    "/": home_page,
    "/history": history_page,
    "/commit/{ref}": commit_page,
    "/data": data_page,
    "/file/{path:path}": file_page,
    "/dataset/{path:path}": dataset_page,
    "/row/{path:path}": row_page,
    "/picture/{path:path}": picture,
    "/compare": compare_page,
    "/compare/dataset": compare_dataset_page,
    "/compare/file": compare_file_page,
    "/merge": merge_page,
    "/sql": query_page,
    "/sql/result.{kind}": result_file,
    "/sessions": sessions_page,
    "/session/{id}": session_page,
    "/upkeep": upkeep_page,
    "/act/{kind}": action_page,
}


def create_app(lake: Lake, settings: PageSettings) -> ASGIApp:
    """Return the app that serves a lake. The guard is outside of all, so that its headers are on every answer."""
    site = Site(_only_read(lake) if settings.writes else lake, lake, settings, secrets.token_urlsafe(32))
    routes: list[Any] = [
        Route(path, _endpoint(site, handler), methods=["GET", "POST"] if handler is action_page else ["GET"])
        for path, handler in _PAGES.items()
    ]
    routes.append(Mount("/static", StaticFiles(packages=[("lake_core.ui", "static")])))

    async def refused(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        return _error(Visit(site, request.query_params, {}), NoSuchPage("there is no page at this address"), status)

    return Guard(Starlette(routes=routes, exception_handlers={HTTPException: refused}), settings)


def _only_read(lake: Lake) -> Lake:
    """Open a lake again, so that nothing can be written to it."""
    repository = lake.repository
    return type(lake).open(ReadOnlyStore(repository.root), clock=repository.clock if repository.given_clock else None)


def _endpoint(site: Site, handler: Handler) -> Callable[[Request], Any]:
    async def run(request: Request) -> Response:
        form = None
        if request.method == "POST":
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > _LARGEST_FORM:
                    return Response("The form is too large.\n", 413, media_type="text/plain")
            form = dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        visit = Visit(site, request.query_params, request.path_params, form)
        return await run_in_threadpool(_answer, visit, handler)

    return run


def _answer(visit: Visit, handler: Handler) -> Response:
    try:
        given, token = visit.form.get("form_token", ""), visit.site.form_token
        if visit.is_order and not hmac.compare_digest(given.encode(), token.encode()):
            raise RefusedRequest("the form is not of this server, or of an earlier start of it: open its page again")
        visit.begin()
        answer = handler(visit)
        return answer if isinstance(answer, Response) else _response(visit, answer)
    except LakeError as error:
        return _error(visit, error, _status(error))
    except OSError as error:
        return _error(visit, StoreUnavailable(f"the store does not answer: {type(error).__name__}"), 503)
    except ValueError as error:
        return _error(visit, LakeError(str(error)), 400)
    except Exception as error:
        _LOG.error("%s", without_secrets(traceback.format_exc()))
        message = f"this page failed by {type(error).__name__}: the log of the server has more"
        return _error(visit, LakeError(message), 500)


def _response(visit: Visit, page: Page) -> Response:
    if visit.get("format") == "json":
        if page.json is None:
            raise NoSuchPage("this page has no JSON: no command shows the same")
        return Response(json_text(page.json, is_data=page.is_data), page.status, media_type="application/json")
    common = {
        "site": visit.site,
        "settings": visit.settings,
        "lake_url": without_secrets(visit.lake.url),
        "lake_name": visit.lake.url.rstrip("/").rpartition("/")[2] or "lake",
        "query": visit.query,
        "form_token": visit.site.form_token,
        "has_json": page.has_json or page.json is not None,
        "ref_names": _ref_names(visit),
    }
    return HTMLResponse(render(page, common), page.status, headers=dict(page.headers))


def _ref_names(visit: Visit) -> list[str]:
    """Return the names that a field for a ref offers."""
    try:
        names = [*visit.refs.branches(), *visit.refs.tags()]
    except (LakeError, OSError):
        return []
    return names[:200]


def _status(error: LakeError) -> int:
    if isinstance(error, RefNotFound | DatasetNotFound | SessionNotFound | NotFound | NoSuchPage | LakeNotFound):
        return 404
    if isinstance(error, Conflict):
        return 409
    if isinstance(error, RefusedRequest | ReadOnlyPages | AccessDenied):
        return 403
    return 503 if isinstance(error, StoreUnavailable) else 400


def _error(visit: Visit, error: LakeError, status: int) -> Response:
    if visit.get("format") == "json":
        return Response(json_text(refusal_row(error)), status, media_type="application/json")
    page = Page("error.html", {"message": str(error), "kind": type(error).__name__, "status": status}, None, status)
    return _response(visit, page)
