"""The errors of pages."""

from __future__ import annotations

from lake_core.errors import LakeError


class MissingPages(LakeError):
    """The libraries that serve pages are not installed. Install the extra `page`."""


class NoSuchPage(LakeError):
    """There is no page at this address."""


class InvalidRequest(LakeError):
    """A parameter of a page has a value that it cannot have."""


class RefusedRequest(LakeError):
    """A request may come from another page, or from someone without the token. Nothing was done."""


class ReadOnlyPages(LakeError):
    """The pages only read. Start them with `lake ui --write` to act on sessions, branches and tags."""
