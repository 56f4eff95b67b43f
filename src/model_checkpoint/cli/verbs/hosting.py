"""Hosting: the dashboard and the REST interface."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from model_checkpoint.cli.verbs.verb_arguments import DatabaseOption


def serve(
    roots: Annotated[list[str], typer.Argument(metavar="ROOT...", help="Roots, or folders of roots.")],
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; others than you need 0.0.0.0.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="NUMBER", min=0, max=65535, help="0 takes a free one.")] = 0,
    token: Annotated[
        str,
        typer.Option(
            "--token", metavar="WORD", envvar="MCKPT_TOKEN", help="What a caller must show; by default a new one."
        ),
    ] = "",
    browser: Annotated[
        bool, typer.Option("--browser/--no-browser", help="Open the dashboard, or only say where.")
    ] = True,
    read_only: Annotated[bool, typer.Option("--read-only", help="Let nobody change anything.")] = False,
    database: DatabaseOption = "",
) -> None:
    """Serve the dashboard and the REST interface.

    Until Ctrl-C; to this machine alone unless --host says otherwise, and only to who has the token.
    """
    from model_checkpoint.cli.verbs.extras import brought

    serving = brought("model_checkpoint.api.serving", "server")
    serving.serve(
        roots,
        host=host,
        port=port,
        token=token or None,
        open_browser=browser,
        database_url=database or None,
        read_only=read_only,
        tell=partial(print, flush=True),  # whoever reads the address from a pipe waits for it
    )
