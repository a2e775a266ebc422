"""`hapvr serve`: a page and a REST API for a library."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from hapvr.cli.options import Device, LibraryFolder
from hapvr.cli.terminal import show
from hapvr.errors import ConfigError
from hapvr.server.settings import LogFormat, ServerSettings


def serve(
    library: LibraryFolder,
    host: Annotated[
        str, typer.Option(help="The address to listen on; to serve other machines, give a token.")
    ] = ServerSettings.host,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port to listen on; 0 takes a free one.")
    ] = ServerSettings.port,
    root: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="A folder that clients may add videos from. Files of indexed videos are served even if they lie "
            "outside the roots. Repeatable.",
        ),
    ] = None,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="HAPVR_TOKEN", help="A secret that clients must send, of 16 characters or more.", show_envvar=True
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further host name of this server, such as that of a proxy. Repeatable."),
    ] = None,
    secure_cookie: Annotated[
        bool,
        typer.Option("--secure-cookie", help="Send the login cookie over HTTPS only: for use behind a proxy with TLS."),
    ] = False,
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions",
            help="Let the page move files of duplicates to the trash of this machine, or replace them by links; "
            "each time after a preview, and with a way back.",
        ),
    ] = False,
    move_to: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="With --allow-actions: let the page move them there, too.")
    ] = None,
    device: Device = ServerSettings.device,
    max_upload: Annotated[
        float, typer.Option(help="Size of an upload at most, in MiB.")
    ] = ServerSettings.max_upload_bytes / 2**20,
    keep_uploads: Annotated[float, typer.Option(help="Minutes that an upload is kept after its last use.")] = (
        ServerSettings.keep_uploads_s / 60
    ),
    max_connections_per_client: Annotated[
        int,
        typer.Option(min=1, help="Open connections of one address at most; raise it for a proxy on another machine."),
    ] = ServerSettings.max_connections_per_client,
    max_requests_per_s: Annotated[
        float, typer.Option(help="Requests a second of one address at most; raise it for a proxy on another machine.")
    ] = ServerSettings.max_requests_per_s,
    max_searches_at_once: Annotated[
        int, typer.Option(min=1, help="Searches that run at a time, each in a process of half a GB.")
    ] = ServerSettings.max_searches_at_once,
    log_format: Annotated[
        str, typer.Option(metavar="json|text", help="How the server logs to stderr, one line for each event.")
    ] = ServerSettings.log_format,
    folder: Annotated[
        Path | None, typer.Option(help="The folder for uploads and pictures; a temporary one if not given.")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the address as JSON.")] = False,
) -> None:
    """Serve a page and a REST API for a library: hapvr serve library --root ~/Videos."""
    from hapvr.server.app import run

    if not 0 < max_upload < 2**40:
        raise ConfigError(f"--max-upload must be a number of MiB above 0, got {max_upload:g}.")
    if not 0 < keep_uploads < 2**40:
        raise ConfigError(f"--keep-uploads must be a number of minutes above 0, got {keep_uploads:g}.")
    settings = ServerSettings(
        host=host,
        port=port,
        token=token or None,
        roots=tuple(root or ()),
        allowed_hosts=tuple(allow_host or ()),
        secure_cookie=secure_cookie,
        allow_actions=allow_actions,
        move_to=move_to,
        device=device,
        max_upload_bytes=round(max_upload * 2**20),
        max_uploads_bytes=max(ServerSettings.max_uploads_bytes, 4 * round(max_upload * 2**20)),
        keep_uploads_s=keep_uploads * 60,
        max_connections=max(ServerSettings.max_connections, max_connections_per_client),
        max_connections_per_client=max_connections_per_client,
        max_requests_per_s=max_requests_per_s,
        log_format=cast("LogFormat", log_format),
        max_searches_at_once=max_searches_at_once,
        folder=folder,
    )

    def announce(address: str) -> None:
        text = f"serving at {address} (Ctrl-C ends it)"
        show(as_json, {"address": address}, lambda: typer.echo(text, err=True))

    run(library, settings, open_page=open_page, announce=announce)
