"""Locations of virtual chunks: absolute URLs whose paths are percent-encoded, as icechunk stores them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from lake_core.icechunk.errors import InvalidVirtualReference

_LOCATION = re.compile(r"([a-z][a-z0-9+.-]*)://([^/]*)(?:/(.*))?", re.DOTALL)
_SCHEMES = ("s3", "gs", "gcs", "az", "abfs", "azure", "tigris", "file", "http", "https", "memory")
_PLAIN = re.compile(
    r"([a-z][a-z0-9]*)://([A-Za-z0-9.-]*)/((?:[A-Za-z0-9_][A-Za-z0-9_.=-]*/)*[A-Za-z0-9_][A-Za-z0-9_.=-]*)"
)
"""Most locations, which are in their normal form."""
_WEB = ("http", "https")
_NOT_IN_AUTHORITY = re.compile(r"[\s\x00-\x1f\x7f%?#\\]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_TO_ENCODE = re.compile(r"%(?![0-9A-Fa-f]{2})|[^!$-;=@-\[\]^_a-z|~%]")
"""What icechunk encodes in a path, and `\\`, which it takes for a slash in some."""
_SECRET = re.compile(
    r"(?<=[?&])((?:[a-z0-9-]*[_-])?(?:sig|signature|credential|(?:security-)?token|api_?key|password|secret))=[^&]*",
    re.IGNORECASE,
)
"""A parameter of a query that lets whoever knows it read the object: a signature, or a key."""
_CREDENTIALS = re.compile(r"(?<=://)[^/]*@")


@dataclass(frozen=True, slots=True)
class Location:
    """The location of an object."""

    scheme: str
    authority: str
    """The bucket or host. Files have none."""
    key: str
    """The path of the object without the first slash, decoded: for a file, its path."""
    url: str
    """The location in its normal form."""

    @property
    def name(self) -> str:
        """Return the location with the path decoded, which prefixes of containers are compared with."""
        return f"{self.scheme}://{self.authority}/{self.key}"


def new_location(text: str) -> Location:
    """Return the location of a new reference.

    `.`, `..` and empty parts of the path are resolved. Characters that a URL's path cannot hold are encoded, also `#`,
    and `?` where the scheme has no queries. So names without `%` can be given as they are, and others encoded.
    `file:/path` is `file:///path` (RFC 8089).

    Raises InvalidVirtualReference, also for control characters, which icechunk cannot read, and for signed URLs.
    """
    if isinstance(text, str) and text.startswith("file:/") and not text.startswith("file://"):
        text = "file://" + text.removeprefix("file:")
    location = _parse(text, resolve=True)
    if location.scheme in _WEB and _SECRET.search(location.url):
        raise InvalidVirtualReference(
            f"the location {_shown(text)} is signed, and whoever reads the repository could use the "
            "signature: leave it out, and authorize the container with the headers that its server wants"
        )
    if _CONTROL.search(location.key):
        raise InvalidVirtualReference(f"the location {_shown(text)} has a control character in its path")
    return location


def stored_location(text: str) -> Location:
    """Return the location of a stored reference. Its path is decoded once.

    Parts that are `.`, `..` or empty are resolved in paths of files. In keys of buckets, icechunk 2 stores them for
    keys that have such parts, which no store here can read.

    Raises InvalidVirtualReference.
    """
    return _parse(text, resolve=text.startswith("file:") if isinstance(text, str) else False)


def without_secrets(text: str) -> str:
    """Return a location as messages show it: without credentials and signatures, which others may have stored."""
    return _SECRET.sub(r"\1=…", _CREDENTIALS.sub("…@", text))


def _shown(text: str) -> str:
    return repr(without_secrets(text)[:200])


def decoded_prefix(url_prefix: str) -> str:
    """Return the prefix of a container as `Location.name` begins with it."""
    return unquote(url_prefix) if "%" in url_prefix else url_prefix


def _parse(text: str, *, resolve: bool) -> Location:
    plain = _PLAIN.fullmatch(text) if isinstance(text, str) else None
    if plain is not None:
        scheme, authority, path = plain.groups()
        if scheme in _SCHEMES and bool(authority) != (scheme == "file"):
            return Location(scheme, authority, path, text)
    match = _LOCATION.fullmatch(text) if isinstance(text, str) else None
    if match is None or match.group(1) not in _SCHEMES:
        raise InvalidVirtualReference(
            f"the location of a virtual chunk must be an absolute URL ({', '.join(_SCHEMES[:4])}, …), "
            f"not {_shown(str(text))}"
        )
    scheme, authority, path = match.group(1), match.group(2), match.group(3) or ""
    query = ""
    if scheme in _WEB:
        path, mark, query = path.partition("?")
        query = mark + query
    authority = _checked_authority(scheme, authority, text)
    parts: list[str] = []
    for part in path.split("/"):
        if part in ("", ".", "..") and not resolve:
            raise InvalidVirtualReference(
                f"the location {_shown(text)} has the part {part!r}, so its object has a key that cannot "
                "be read: copy the object to a key without empty parts, '.' and '..'"
            )
        if part == "..":
            if not parts:
                raise InvalidVirtualReference(f"the location {_shown(text)} leads above its root")
            parts.pop()
        elif part not in ("", "."):
            _check_part(scheme, part, text)
            parts.append(part)
    if not parts:
        raise InvalidVirtualReference(f"the location {_shown(text)} names no object")
    try:
        encoded = _encoded("/".join(parts))
        key = unquote(encoded, errors="strict") if "%" in encoded else encoded
        query = _encoded(query, also="?")
    except UnicodeError:
        raise InvalidVirtualReference(f"the path of the location {_shown(text)} is not UTF-8") from None
    return Location(scheme, authority, key, f"{scheme}://{authority}/{encoded}{query}")


def _checked_authority(scheme: str, authority: str, text: str) -> str:
    if "@" in authority:
        raise InvalidVirtualReference(
            "the location of a virtual chunk must not hold credentials: authorize its container instead"
        )
    if scheme == "file":
        if authority not in ("", "localhost"):
            raise InvalidVirtualReference(
                f"the location {_shown(text)} is a file of the host {authority[:100]!r}: write file:///… "
                "for a file that this host can read"
            )
        return ""
    if not authority or _NOT_IN_AUTHORITY.search(authority):
        raise InvalidVirtualReference(f"the location {_shown(text)} names no bucket or host")
    return authority


def _check_part(scheme: str, part: str, text: str) -> None:
    """Raise InvalidVirtualReference for a part of a path that is several, or another one, once it is decoded."""
    decoded = unquote(part)
    pieces = re.split(r"[/\\]", decoded) if scheme in _WEB else decoded.split("/")
    if "\0" in decoded or not {"", ".", ".."}.isdisjoint(pieces):
        raise InvalidVirtualReference(
            f"the location {_shown(text)} has an encoded '.', '..', empty part or NUL in its path"
        )


def _encoded(path: str, also: str = "") -> str:
    return _TO_ENCODE.sub(lambda match: match.group() if match.group() in also else quote(match.group(), safe=""), path)
