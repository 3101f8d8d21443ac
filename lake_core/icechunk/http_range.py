"""Ranges of objects on web servers."""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import fsspec
from fsspec.asyn import sync

from lake_core.icechunk.errors import VirtualChunkError
from lake_core.icechunk.location import without_secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

_REDIRECTS = (301, 302, 303, 307, 308)
_MOST_REDIRECTS = 5


@dataclass(frozen=True, slots=True)
class HttpRange:
    """The bytes of a range, and the object that they are of as the same answer describes it."""

    data: bytes
    etag: str | None
    last_modified: datetime | None


def read_http_range(
    url: str, start: int, end: int, options: Mapping[str, Any], may_follow: Callable[[str], bool]
) -> HttpRange:
    """Return the bytes [start, end) of an object, or those of them that it has.

    Args:
        url: The URL of the object.
        start: The first byte.
        end: The byte after the last. There must be at least one.
        options: Those of fsspec's HTTP file system.
        may_follow: Whether a URL to which the server redirects may be read.

    Raises:
        VirtualChunkError: There is no such object, the server redirects elsewhere, or it serves no ranges.
    """
    try:
        filesystem = fsspec.filesystem("http", **options)
    except ImportError:
        raise VirtualChunkError(
            "web servers are read by aiohttp, which is not installed: install it with `pip install aiohttp`"
        ) from None
    answer: HttpRange = sync(filesystem.loop, _read, filesystem, url, start, end, may_follow)
    return answer


async def _read(filesystem: Any, url: str, start: int, end: int, may_follow: Callable[[str], bool]) -> HttpRange:
    session = await filesystem.set_session()
    settings = dict(filesystem.kwargs)
    # Compressed, the bytes would be those of another range.
    headers = {**settings.pop("headers", {}), "Range": f"bytes={start}-{end - 1}", "Accept-Encoding": "identity"}
    target = url
    for _ in range(_MOST_REDIRECTS + 1):
        request = session.get(filesystem.encode_url(target), headers=headers, **{**settings, "allow_redirects": False})
        async with request as response:
            if response.status not in _REDIRECTS:
                return await _range(response, url, start, end)
            target = urljoin(target, response.headers.get("Location", ""))
            if not may_follow(target):
                raise VirtualChunkError(
                    f"the server of {without_secrets(url)} redirects to a location outside of the virtual chunk "
                    "container, which is not followed: refer to the object where it is"
                )
    raise VirtualChunkError(f"the server of {without_secrets(url)} redirects more than {_MOST_REDIRECTS} times")


async def _range(response: Any, url: str, start: int, end: int) -> HttpRange:
    status, length = response.status, end - start
    if status == 200 and start:
        raise VirtualChunkError(
            f"the server of {without_secrets(url)} does not serve ranges of objects: copy the object elsewhere"
        )
    if status == 206 and not response.headers.get("Content-Range", "").startswith(f"bytes {start}-"):
        raise VirtualChunkError(
            f"the server of {without_secrets(url)} answers with another range than it was asked for"
        )
    if status == 416:  # The object ends before the range.
        length = 0
    elif status not in (200, 206):
        raise VirtualChunkError(f"{without_secrets(url)} cannot be read: its server answers with the status {status}")
    data = bytearray()
    if length:
        async for part in response.content.iter_any():
            data += part
            if len(data) >= length:
                break
    return HttpRange(bytes(data[:length]), response.headers.get("ETag"), _date(response.headers.get("Last-Modified")))


def _date(text: str | None) -> datetime | None:
    try:
        return None if text is None else parsedate_to_datetime(text)
    except ValueError:
        return None
