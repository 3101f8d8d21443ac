"""`lake ui`: pages of the lake in a browser."""

from __future__ import annotations

from contextlib import suppress

import click

from lake_core.cli.context import Context, command
from lake_core.ui.server import check_installed, serve, settings_for
from lake_core.ui.settings import PageSettings


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=7117, show_default=True, help="0 takes any free port.")
@click.option("--write", "writes", is_flag=True, help="Let pages publish, abandon, merge, revert, and change refs.")
@click.option("--allow-host", "allowed", multiple=True, help="Another name of this server; may be repeated.")
@click.option("--dagster-url", help="Where Dagster shows its runs, such as http://localhost:3000.")
@command
def ui(context: Context, host: str, port: int, writes: bool, allowed: tuple[str, ...], dagster_url: str | None) -> None:
    """Serve pages of the lake: branches, commits, differences and rows.

    They only read, unless --write is given. An address that other machines reach needs the token that is printed.
    """
    check_installed()
    lake = context.open(read_only=not writes)
    if dagster_url is not None and not dagster_url.startswith(("http://", "https://")):
        raise click.UsageError(f"--dagster-url must begin with http:// or https://, not {dagster_url!r}")
    settings = settings_for(
        host, PageSettings(writes=writes, dagster_url=(dagster_url or "").rstrip("/") or None), allowed
    )
    mode = "pages may write" if settings.writes else "read-only"

    def tell(address: str) -> None:
        context.output.show({"url": address, "lake": lake.url, "writes": writes}, f"{lake.url} ({mode}): {address}")

    try:
        with suppress(KeyboardInterrupt):  # Ctrl+C is how the server ends
            serve(lake, host, port, settings, tell)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror or error}") from None
