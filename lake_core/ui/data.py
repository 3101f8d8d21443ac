"""The pages of a ref's folders and plain files."""

from __future__ import annotations

import base64
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from lake_core.errors import InvalidKey, NotFound
from lake_core.report.entries import entries
from lake_core.ui.page import Page, url

if TYPE_CHECKING:
    from starlette.responses import Response

    from lake_core.ui.visit import Revision, Visit

_PAGE = 200
_SHOWN_BYTES = 256 << 10
_BLOCK = 8 << 20
_MOST_BESIDE = 10_000
"""The most entries of a folder among which a file is looked for by its name without the extension."""


def data_page(visit: Visit) -> Page:
    """List the folders, datasets and files of a ref under a prefix, or the datasets whose paths have a word."""
    revision = visit.at()
    prefix = visit.get("prefix").strip("/")
    word = visit.get("q").casefold()
    number = visit.number("page", 1, 1, 1_000_000)
    first = (number - 1) * _PAGE
    if word:
        records = sorted(revision.state.datasets().values(), key=lambda record: record.path)
        matching = ({"kind": each.format, "name": each.path} for each in records if word in each.path.casefold())
        rows = list(islice(matching, first, first + _PAGE + 1))
    else:
        rows = list(islice(entries(revision.state, prefix, visit.flag("recursive")), first, first + _PAGE + 1))
    if not rows and prefix and number == 1:
        raise NotFound(f"there is nothing at {prefix!r} in {revision.label}", key=prefix)
    parts = prefix.split("/") if prefix else []
    return Page(
        "data.html",
        {
            "revision": revision,
            "prefix": prefix,
            "crumbs": [(part, "/".join(parts[: place + 1])) for place, part in enumerate(parts)],
            "rows": [row | {"short": _below(row["name"], prefix)} for row in rows[:_PAGE]],
            "word": visit.get("q"),
            "number": number,
            "has_more": len(rows) > _PAGE,
            "total": len(revision.state.datasets()),
        },
        rows[:_PAGE],
    )


def _below(name: str, prefix: str) -> str:
    return name[len(prefix) + 1 :] if prefix and name.startswith(f"{prefix}/") and name != prefix else name


def address_of_files(revision: Revision, path: str) -> str | None:
    """Return the page of the plain file at a path, or of the folder there; None if there is neither.

    Links of orchestrators name a file also without its extension.
    """
    state = revision.state
    if state.exists(path):
        return url(f"/file/{path}", at=revision.text)
    if next(iter(entries(state, path, False)), None) is not None:
        return url("/data", at=revision.text, prefix=path)
    beside = islice(entries(state, path.rpartition("/")[0], False), _MOST_BESIDE)
    named = [row["name"] for row in beside if row["kind"] == "file" and row["name"].startswith(f"{path}.")]
    return url(f"/file/{named[0]}", at=revision.text) if len(named) == 1 else None


def file_page(visit: Visit) -> Page | Response:
    """Show the beginning of a plain file, or send it."""
    revision = visit.at()
    key = visit.path["path"]
    record = revision.state.datasets().get(key)
    if record is not None:
        raise InvalidKey(f"{key!r} is a dataset, not a plain file", key=key)
    meta = revision.state.head(key)
    if visit.flag("download"):
        return _download(visit, key, meta.size)
    data = bytes(revision.state.get(key, 0, min(meta.size, _SHOWN_BYTES)))
    text: str | None
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        text = data[: error.start].decode() if meta.size > len(data) and error.start > len(data) - 4 else None
    body: Any = None
    if visit.get("format") == "json":
        whole = bytes(revision.state.get(key))
        content = {"text": text} if text is not None else {"base64": base64.b64encode(whole).decode()}
        if text is not None:
            content = {"text": whole.decode()}
        body = {"key": key, "ref": revision.text, "size": meta.size} | content
    return Page(
        "file.html",
        {
            "revision": revision,
            "key": key,
            "meta": meta,
            "content": text,
            "bytes_shown": len(data),
            "hex": None if text is not None else data[:512].hex(" "),
        },
        body,
    )


def _download(visit: Visit, key: str, size: int) -> Response:
    from starlette.responses import StreamingResponse

    state = visit.at().state
    name = quote(key.rpartition("/")[2], safe="")

    def blocks() -> Any:
        for start in range(0, size, _BLOCK):
            yield bytes(state.get(key, start, min(size, start + _BLOCK)))

    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}", "Content-Length": str(size)}
    return StreamingResponse(blocks(), media_type="application/octet-stream", headers=headers)
