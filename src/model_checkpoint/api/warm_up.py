"""First look: what the first visitor would wait for, done while the browser is still starting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from starlette.routing import BaseRoute

from model_checkpoint.api.answers.run_answers import RunPage
from model_checkpoint.api.library.shelves import Library
from model_checkpoint.api.reading.run_lines import RunsWanted, list_runs


def look_ahead(routes: Iterable[BaseRoute], library: Library, read_pages: Callable[[], object]) -> None:
    """Take a first look in the background; nobody waits for it, also at the end."""
    work = (tuple(routes), library, read_pages)
    threading.Thread(target=_look, args=work, daemon=True, name="mckpt-first-look").start()


def _look(routes: Iterable[BaseRoute], library: Library, read_pages: Callable[[], object]) -> None:
    with suppress(Exception):  # whoever asks is told what is wrong
        read_pages()
        for route in routes:
            route.matches({"type": "http", "method": "GET", "path": "/", "headers": []})  # puts its parameters together
        RunPage.model_validate(list_runs(library, RunsWanted(sort="status"))).model_dump_json()
