"""Gatekeeper: admission, limits and the headers of every answer, in one piece of ASGI around all routers."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

from model_checkpoint.api.gate.admission import Admission, Refusal, RequestHead
from model_checkpoint.api.gate.body_guard import Message, Receive, Send, read_body, replayed
from model_checkpoint.api.rate_limits import RateLimiter

log = logging.getLogger("model_checkpoint.api")

REQUESTS, WRONG_TOKENS = 6000, 60  # of one client in any minute
CSP = "; ".join(
    (
        "default-src 'self'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_HEADERS = {
    "content-security-policy": CSP,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}


class Gatekeeper:
    """Lets in what may ask; everything else gets its refusal here, before any router sees it."""

    def __init__(self, app: Any, admission: Admission) -> None:
        self.app, self._admission = app, admission
        self._limits = RateLimiter()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._answer(scope, receive, send)
        else:  # nobody here speaks websockets
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        head, client = _head(scope), (scope.get("client") or ("local",))[0]
        guarded = _Headed(send, head)
        refused = self._too_many(client) or self._admission.refusal(head)
        if refused is None and head.method in ("POST", "PUT", "PATCH", "DELETE"):
            body = await read_body(receive)
            if body is None:
                return
            if isinstance(body, Refusal):
                refused = body
            else:
                receive = replayed(body, receive)
        if refused is not None:
            guessing = refused.status == 401 and "authorization" in head.headers
            wait = self._limits.wait(("wrong token", client), limit=WRONG_TOKENS) if guessing else 0.0
            await _refuse(_too_many(wait) if wait else refused, guarded)
            return
        try:
            await self.app(scope, receive, guarded)
        except Exception:  # whatever it was, the client learns that we failed and nothing of what we are
            log.exception("%s %s: failed", head.method, head.path)
            if not guarded.begun:
                await _refuse(Refusal(500, "ServerFailed", "the server failed; its log says why."), guarded)

    def _too_many(self, client: str) -> Refusal | None:
        wait = self._limits.wait(("all", client), limit=REQUESTS)
        return _too_many(wait) if wait else None


def _too_many(wait: float) -> Refusal:
    return Refusal(429, "TooManyRequests", f"wait for {math.ceil(wait)} seconds.")


class _Headed:
    """Sends with the headers every answer has."""

    def __init__(self, send: Send, head: RequestHead) -> None:
        self._send, self._is_api = send, head.is_api
        self.begun = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.begun = True
            own = {name for name, _ in message.get("headers", ())}
            extra = _HEADERS | ({"cache-control": "no-store"} if self._is_api else {})
            added = [(k.encode(), v.encode()) for k, v in extra.items() if k.encode() not in own]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await self._send(message)


async def _refuse(refused: Refusal, send: _Headed) -> None:
    body = json.dumps(
        {"error": refused.message, "code": refused.code, "at": None, "length": None, "suggestion": None}
    ).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if refused.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if refused.status in (408, 413):  # what is left of the body is not read
        headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _head(scope: Message) -> RequestHead:
    headers: dict[str, str] = {}
    for name, value in scope["headers"]:
        key = name.decode("latin-1").lower()
        # of a header that is sent twice the first counts, but two hosts are none
        headers[key] = "" if key == "host" and key in headers else headers.get(key, value.decode("latin-1"))
    raw = scope.get("raw_path") or scope["path"].encode("latin-1", "replace")
    return RequestHead(
        method=scope["method"],
        path=scope["path"],
        raw_path=raw.decode("latin-1"),
        query=scope.get("query_string", b"").decode("latin-1"),
        headers=headers,
    )
