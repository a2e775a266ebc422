"""`hapvr serve`: a page and a REST API for a library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer


def serve(
    library: Annotated[Path, typer.Argument(metavar="LIBRARY", help="The folder of the library.")],
    host: Annotated[str, typer.Option(help="The address to listen on; another than this machine's needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")] = 8787,
    root: Annotated[
        list[Path] | None, typer.Option(help="A folder whose videos may be added from the page; may be given again.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(envvar="HAPVR_TOKEN", help="What clients must show.", show_envvar=True)
    ] = None,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name that clients may call it by; may be given again.")
    ] = None,
    secure_cookie: Annotated[
        bool, typer.Option("--secure-cookie", help="The login cookie is for HTTPS only: behind a proxy with TLS.")
    ] = False,
    max_upload: Annotated[float, typer.Option(help="Megabytes of an upload.")] = 2048.0,
    keep_uploads: Annotated[float, typer.Option(help="Minutes that an upload is kept after its last use.")] = 60.0,
    connections_per_client: Annotated[
        int,
        typer.Option(
            min=1, help="Connections of one address; raise it where a proxy on another machine speaks for many."
        ),
    ] = 64,
    search_slots: Annotated[int, typer.Option(min=1, help="Searches that are worked on at a time.")] = 2,
    folder: Annotated[
        Path | None, typer.Option(help="Where uploads and pictures are kept; a temporary folder if not given.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve a page and a REST API for a library: hapvr serve library --root ~/Videos."""
    from hapvr.errors import ConfigError
    from hapvr.server.app import run
    from hapvr.server.settings import ServerSettings

    if not 0 < max_upload < 2**40:
        raise ConfigError(f"--max-upload must be a number of MiB above 0, got {max_upload:g}.")
    settings = ServerSettings(
        host=host,
        port=port,
        token=token or None,
        roots=tuple(root or ()),
        allowed_hosts=tuple(allow_host or ()),
        secure_cookie=secure_cookie,
        max_upload=round(max_upload * 2**20),
        uploads_bytes=max(ServerSettings.uploads_bytes, 4 * round(max_upload * 2**20)),
        keep_uploads_s=keep_uploads * 60,
        connections=max(ServerSettings.connections, connections_per_client),
        connections_per_client=connections_per_client,
        search_slots=search_slots,
        folder=folder,
    )
    run(library, settings, open_page=open_page, announce=lambda address: _announce(address, as_json))


def _announce(address: str, as_json: bool) -> None:
    typer.echo(
        json.dumps({"address": address}) if as_json else f"serving at {address} (Ctrl-C ends it)", err=not as_json
    )
