"""Fault proxy: a small HTTP proxy that spoils one chosen request, to see what a store makes of it.

Put it between a client and a server; it counts requests, and at one index resets the connection, answers an error,
cuts or flips bytes, loses the reply, never answers, or sends the request twice. Everything else passes untouched.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

_LIMIT = 1 << 20  # of one header block
_HANG_SECONDS = 600.0


class Spoil(Enum):
    """What can happen to one request."""

    RESET = "reset"  # the connection is cut before the server hears of it
    ERROR_500 = "500"
    ERROR_503 = "503"
    TRUNCATED = "truncated"  # half of the answer's body, then the connection is cut
    FLIPPED = "flipped"  # one byte differs: of the request's body, or of the answer's if there is none
    LOST_REPLY = "lost reply"  # the server did it, nobody hears of it
    HANG = "hang"  # no answer ever
    DUPLICATE = "duplicate"  # the server gets it twice


Event = Spoil | Callable[[], object]  # what happens to a request, or before it


@dataclass(slots=True, kw_only=True)
class _Message:
    """A request or an answer, whole."""

    first: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def encode(self, body: bytes | None = None) -> bytes:
        """The message on the wire, with its own length even when ``body`` is shorter."""
        lines = [self.first, *(f"{key}: {value}" for key, value in self.headers)]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (self.body if body is None else body)


class FaultProxy:
    """A proxy in front of ``endpoint``; a context manager.

    ``arm`` chooses the request to spoil, counted from then on; ``script`` says what happens to each one of a kind.
    Instead of being spoiled a request can wait for a call to end. ``rewrite`` may change the headers of every request.
    """

    def __init__(self, endpoint: str, *, rewrite: Callable[[str, str], str | None] | None = None) -> None:
        self._server = urlsplit(endpoint).netloc
        self._rewrite = rewrite
        self._lock = threading.Lock()
        self._count, self._index = 0, -1
        self._event: Event | None = None
        self._script: deque[Event | None] = deque()
        self._chosen: Callable[[str], bool] = str.isspace
        self.seen: list[str] = []  # request lines since arming
        self._open = self.busiest = 0  # requests under way, and the most there were since arming
        self._serving: set[asyncio.Task[Any] | None] = set()  # the loop itself keeps no task alive
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="fault-proxy", daemon=True)
        self._listening = threading.Event()
        self.endpoint = ""

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._listening.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def arm(self, event: Event | None = None, index: int = -1) -> None:
        """Let ``event`` happen to the ``index``-th request from now on; nothing without one.

        What an event calls must not come by here.
        """
        with self._lock:
            self._count, self._event = 0, event
            self._index = -1 if event is None else index
            self._script.clear()
            self.seen = []
            self.busiest = self._open

    def script(self, events: Iterable[Event | None], chosen: Callable[[str], bool]) -> None:
        """Let each of ``events`` happen to one request whose line is ``chosen``, in order; None lets it pass."""
        self.arm()
        with self._lock:
            self._script.extend(events)
            self._chosen = chosen

    @property
    def struck(self) -> bool:
        """Whether the chosen request has come."""
        with self._lock:
            return 0 <= self._index < self._count

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LIMIT))
        self.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        self._listening.set()
        try:
            self._loop.run_forever()
        finally:
            server.close()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.current_task())
        try:
            with suppress(asyncio.CancelledError):  # the proxy ends
                await self._talk(reader, writer)
        finally:
            self._serving.discard(asyncio.current_task())

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (request := await _receive(reader)) is not None:
                if not await self._handle(request, writer):
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client went away
        finally:
            await _close(writer)

    async def _handle(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        """Pass one request on, or spoil it; False if the connection is over."""
        if self._rewrite is not None:
            kept = [(key, self._rewrite(key, value)) for key, value in request.headers]
            request.headers = [(key, value) for key, value in kept if value is not None]
        event = self._next(request.first)
        try:
            if isinstance(event, Spoil):
                return await _SPOILS[event](self, request, writer)
            if event is not None:
                await self._loop.run_in_executor(None, event)
            await _send(writer, (await self._forward(request)).encode())
            return True
        finally:
            with self._lock:
                self._open -= 1

    def _next(self, line: str) -> Event | None:
        with self._lock:
            event = self._event if self._count == self._index else None
            if self._script and self._chosen(line):
                event = self._script.popleft()
            self._count += 1
            self._open += 1
            self.busiest = max(self.busiest, self._open)
            self.seen.append(line)
        return event

    async def _forward(self, request: _Message) -> _Message:
        host, _, port = self._server.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=_LIMIT)
        try:
            await _send(writer, request.encode())
            answer = await _receive(reader, bodyless=request.first.startswith("HEAD "))
        finally:
            await _close(writer)
        if answer is None:
            raise ConnectionResetError("the server closed the connection")
        return answer

    # --- the ways to spoil -------------------------------------------------------------------------------------------

    async def _reset(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        _cut(writer)
        return False

    async def _error(self, request: _Message, writer: asyncio.StreamWriter, *, status: str) -> bool:
        body = b"<Error><Code>SlowDown</Code><Message>spoiled</Message></Error>"
        head = f"HTTP/1.1 {status} Spoiled\r\nContent-Type: application/xml\r\nContent-Length: {len(body)}\r\n\r\n"
        await _send(writer, head.encode() + (b"" if request.first.startswith("HEAD ") else body))
        return not request.first.startswith("HEAD ")

    async def _truncated(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        answer = await self._forward(request)
        whole = answer.encode()
        await _send(writer, whole[: len(whole) - max(1, len(answer.body) // 2)])
        return False

    async def _flipped(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        if request.body:
            request.body = _flip(request.body)
            answer = await self._forward(request)
        else:
            answer = await self._forward(request)
            answer.body = _flip(answer.body)
        await _send(writer, answer.encode())
        return True

    async def _lost_reply(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        await self._forward(request)
        _cut(writer)
        return False

    async def _hang(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        await asyncio.sleep(_HANG_SECONDS)
        return False

    async def _duplicate(self, request: _Message, writer: asyncio.StreamWriter) -> bool:
        await self._forward(request)
        await _send(writer, (await self._forward(request)).encode())
        return True


_Handler = Callable[[FaultProxy, _Message, asyncio.StreamWriter], Coroutine[Any, Any, bool]]

_SPOILS: dict[Spoil, _Handler] = {
    Spoil.RESET: FaultProxy._reset,
    Spoil.ERROR_500: partial(FaultProxy._error, status="500"),
    Spoil.ERROR_503: partial(FaultProxy._error, status="503"),
    Spoil.TRUNCATED: FaultProxy._truncated,
    Spoil.FLIPPED: FaultProxy._flipped,
    Spoil.LOST_REPLY: FaultProxy._lost_reply,
    Spoil.HANG: FaultProxy._hang,
    Spoil.DUPLICATE: FaultProxy._duplicate,
}


async def _receive(reader: asyncio.StreamReader, *, bodyless: bool = False) -> _Message | None:
    """Read one whole message; None at the end of the connection. A chunked body becomes one with a length."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip("\r\n").split("\r\n")
    headers = [(key, value.strip()) for key, _, value in (line.partition(":") for line in lines)]
    message = _Message(first=first, headers=headers, body=b"")
    if first.startswith("HTTP/") and first.split(" ")[1] == "100":
        return await _receive(reader, bodyless=bodyless)
    if message.header("transfer-encoding").lower() == "chunked":
        message.body = await _read_chunked(reader)
        message.headers = [(k, v) for k, v in headers if k.lower() != "transfer-encoding"]
        message.headers.append(("Content-Length", str(len(message.body))))
    elif not bodyless and (length := message.header("content-length")):
        message.body = await reader.readexactly(int(length))
    return message


async def _read_chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    await reader.readuntil(b"\r\n")
    return body


async def _send(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(data)
    await writer.drain()


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(OSError):
        await writer.wait_closed()


def _cut(writer: asyncio.StreamWriter) -> None:
    """End a connection the hard way."""
    raw = writer.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.close()


def _flip(body: bytes) -> bytes:
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :] if body else body
