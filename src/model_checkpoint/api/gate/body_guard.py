"""Body guard: a body that is no larger and no slower than we take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from model_checkpoint.api.gate.admission import MOST_BODY, Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

SLOWEST = 10.0  # seconds for a whole body


async def read_body(receive: Receive, *, seconds: float = SLOWEST) -> bytes | Refusal | None:
    """The whole body; why it is not taken; None if whoever sent it is gone."""
    body, more = b"", True
    try:
        async with asyncio.timeout(seconds):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return None
                body += message.get("body", b"")
                more = message.get("more_body", False)
                if len(body) > MOST_BODY:
                    return Refusal(413, "BodyTooLarge", f"a body has at most {MOST_BODY} bytes.")
    except TimeoutError:
        return Refusal(408, "BodyTooSlow", f"a body arrives within {seconds:.0f} seconds.")
    return body


def replayed(body: bytes, receive: Receive) -> Receive:
    """The body once more, for who reads it behind us; then whatever comes."""
    sent = False

    async def again() -> Message:
        nonlocal sent
        if sent:
            return await receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
