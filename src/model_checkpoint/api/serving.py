"""Serving: a socket, a token, the application behind its gate, and an orderly end."""

from __future__ import annotations

import secrets
import socket
import threading
import webbrowser
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from model_checkpoint.api.errors import ServerExtraMissing
from model_checkpoint.errors import OptionInvalid

_GRACE = 3  # seconds for answers under way when the server ends
_MOST_CONNECTIONS = 256
Tell = Callable[[str], None]


def serve(
    roots: Sequence[str],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    open_browser: bool = False,
    database_url: str | None = None,
    read_only: bool = False,
    tell: Tell = lambda line: None,
) -> None:
    """Serve the API and the dashboard until the process is told to end.

    Args:
        roots: Roots, folders of roots, catalog files or database URLs.
        host: The address to listen at; by default only this machine reaches it.
        port: 0 takes a free one.
        token: What a request for data must bring; None makes one, an empty one needs none, on this machine alone.
        open_browser: Open the dashboard.
        database_url: A catalog beside what is found below ``roots``.
        read_only: Change nothing.
        tell: Is told the address, token included, and the end.

    Raises:
        ServerExtraMissing: FastAPI or uvicorn is not installed.
        CheckpointNotFound: There is no such folder.
        OptionInvalid: An address that others reach was asked for without a token.
    """
    from model_checkpoint.api.gate.admission import Admission, hosts_of, is_loopback

    if token == "" and not is_loopback(host):
        raise OptionInvalid(f"{host}: others can reach it, so a token is needed. Leave token= out, and one is made.")
    _require_server()
    import uvicorn

    from model_checkpoint.api.application import make_app
    from model_checkpoint.api.library.served_places import said
    from model_checkpoint.api.library.shelves import Library

    secret = secrets.token_urlsafe(24) if token is None else token
    with listening_socket(host, port) as bound:
        library = Library(roots, database_url=database_url, read_only=read_only)
        app = make_app(library, Admission(hosts=hosts_of(host), token=secret))
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=_GRACE,
            timeout_keep_alive=15,
            limit_concurrency=_MOST_CONNECTIONS,
            http="h11",  # what else may be installed knows no limit of headers
            h11_max_incomplete_event_size=32 << 10,
            ws="none",
            lifespan="on",
        )
        address = address_of(host, bound.getsockname()[1], secret)
        tell(f"serving {said(roots or [database_url or ''])} at {address}")
        if open_browser:
            threading.Timer(0.5, webbrowser.open, [address]).start()

        class Server(uvicorn.Server):
            def handle_exit(self, sig: int, frame: Any) -> None:
                app.app.state.services.hub.end()  # else it would wait for whoever listens
                super().handle_exit(sig, frame)

        with suppress(KeyboardInterrupt):  # raised once more when all is in order
            Server(config).run(sockets=[bound])
    tell("ended")


def _require_server() -> None:
    try:
        import fastapi
        import uvicorn
    except ImportError as error:
        raise ServerExtraMissing(
            f"the server needs {error.name}, which is not installed. Run: pip install 'model-checkpoint[server]'"
        ) from error
    del fastapi, uvicorn


def listening_socket(host: str, port: int) -> socket.socket:
    """A socket that listens at the address; 0 takes a free port.

    Example:
        >>> with listening_socket("127.0.0.1", 0) as bound:
        ...     bound.getsockname()[1] > 0
        True

    Raises:
        OptionInvalid: The address cannot be had.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((host, port))
        bound.listen(_MOST_CONNECTIONS)  # who comes before the server is up waits, and is not turned away
    except OSError as error:
        bound.close()
        raise OptionInvalid(
            f"{host}:{port}: cannot be listened at ({error.strerror}). Choose another port, or 0 for a free one."
        ) from error
    bound.set_inheritable(True)
    return bound


def address_of(host: str, port: int, token: str) -> str:
    """Where the dashboard is; the token stands behind the #, which browsers send to nobody.

    Example:
        >>> address_of("127.0.0.1", 8000, "secret")
        'http://127.0.0.1:8000/#token=secret'
    """
    shown = (
        "127.0.0.1" if host in ("0.0.0.0", "") else "[::1]" if host == "::" else f"[{host}]" if ":" in host else host
    )
    return f"http://{shown}:{port}/{f'#token={token}' if token else ''}"
