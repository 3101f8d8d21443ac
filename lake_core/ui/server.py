"""The server of the pages."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import sys
from dataclasses import replace
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING

from lake_core.ui.errors import MissingPages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lake_core.lake import Lake
    from lake_core.ui.settings import PageSettings


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def settings_for(host: str, settings: PageSettings, allowed: Sequence[str]) -> PageSettings:
    """Return the settings for an address: what is not loopback needs a token, and may be called by its own name."""
    names = {*settings.hosts, *(name.lower() for name in allowed)}
    if is_loopback(host):
        return replace(settings, hosts=frozenset({*names, host.strip("[]")}))
    any_address = host in ("0.0.0.0", "::", "")
    names |= {host.strip("[]").lower(), socket.gethostname().lower()}
    token = settings.token or secrets.token_urlsafe(24)
    return replace(settings, token=token, hosts=frozenset(names), any_address=any_address)


def serve(lake: Lake, host: str, port: int, settings: PageSettings, tell: Callable[[str], None]) -> None:
    """Serve pages until the process is interrupted. `tell` is called with the address once it is open.

    Raises MissingPages if a library is missing, and OSError if the port is taken.
    """
    check_installed()
    import uvicorn

    leave_pandas_out()
    from lake_core.ui.app import create_app

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(128)  # before the address is told: whoever reads it may come at once
        shown = f"[{host.strip('[]')}]" if ":" in host else host
        token = "" if settings.token is None else f"?token={settings.token}"
        tell(f"http://{shown}:{listener.getsockname()[1]}/{token}")
        config = uvicorn.Config(
            create_app(lake, settings), log_level="warning", access_log=False, server_header=False, lifespan="off"
        )
        uvicorn.Server(config).run(sockets=[listener])


def leave_pandas_out() -> None:
    """Keep pyarrow from importing pandas, which takes more memory than all else that the pages load.

    At the first list that it converts, pyarrow looks once whether pandas is there, to know its objects. No page has
    any. A format of somebody else's that asks pyarrow for a data frame still gets one: pyarrow looks again then.
    """
    import pyarrow as pa

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas(MetaPathFinder):
    """Answers that pandas is not installed."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def check_installed() -> None:
    """Raise MissingPages if a library that serves pages is not installed."""
    try:
        import jinja2
        import starlette
        import uvicorn
    except ImportError as error:
        raise MissingPages(f"`lake ui` needs {error.name}: install it with `pip install 'lake-orch[page]'`") from None
    del jinja2, starlette, uvicorn
