"""Event stream: the changes as server-sent events; a listener that was away gets what it missed."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator

from starlette.concurrency import run_in_threadpool

from model_checkpoint.api.errors import TooManyAtOnce
from model_checkpoint.api.live.changes import EVERY, ChangeLog

MOST_LISTENERS = 32
_SILENCE = 15.0  # seconds after which a comment is sent, so that nobody takes the line for dead


class EventHub:
    """Everybody who listens to one log."""

    def __init__(self, changes: ChangeLog) -> None:
        self._changes, self._listeners = changes, 0
        self._ending = False

    def end(self) -> None:
        """Let all listeners go: the server ends."""
        self._ending = True

    def start_after(self, last_event_id: str) -> int:
        """The number to go on behind; -1 if it is of another server or forgotten, so that a reset is told."""
        if not last_event_id:
            return self._changes.last
        boot, _, number = last_event_id.partition("-")
        known = boot == self._changes.boot and number.isdecimal() and len(number) < 18
        return int(number) if known else -1

    def admit(self) -> None:
        """See to it that there is room for one more listener.

        Raises:
            TooManyAtOnce: There are enough.
        """
        if self._listeners >= MOST_LISTENERS:
            raise TooManyAtOnce(f"{MOST_LISTENERS} pages listen already. Close one, or ask again later.")

    async def stream(self, number: int, seconds: float | None) -> AsyncIterator[bytes]:
        """Messages, at most one in a quarter of a second; ends after ``seconds``, if given."""
        self._listeners += 1
        try:
            end = None if seconds is None else time.monotonic() + seconds
            spoken = time.monotonic()
            yield f"retry: 2000\nid: {self._changes.boot}-{max(number, 0)}\n\n".encode()
            while not self._ending:
                await run_in_threadpool(self._changes.refresh)
                found, number = self._changes.after(number)
                if found:
                    data = json.dumps({"changes": [one.to_dict() for one in found]}, separators=(",", ":"))
                    yield f"id: {self._changes.boot}-{number}\ndata: {data}\n\n".encode()
                    spoken = time.monotonic()
                elif time.monotonic() - spoken > _SILENCE:
                    yield b": still here\n\n"
                    spoken = time.monotonic()
                if end is not None and time.monotonic() >= end:
                    return
                await asyncio.sleep(EVERY)
        finally:
            self._listeners -= 1
