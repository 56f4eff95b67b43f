"""Admission: what a request must be to be let in, asked of its head alone; pure."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

MOST_QUERY, MOST_PATH, MOST_BODY = 8 << 10, 2 << 10, 64 << 10
_CHANGING = ("POST", "PUT", "PATCH", "DELETE")
_METHODS = ("GET", "HEAD", "OPTIONS", *_CHANGING)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestHead:
    """The head of one request."""

    method: str
    path: str
    raw_path: str  # as it came, before anybody decoded it
    query: str
    headers: Mapping[str, str] = field(hash=False)  # by lower-case names

    @property
    def is_api(self) -> bool:
        """Whether it asks for data, which needs a token, and not for a page."""
        return self.path == "/api" or self.path.startswith("/api/")


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not let in."""

    status: int
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """By whom and how a server may be asked.

    Args:
        hosts: Names and addresses the server answers to, without ports; ``*`` any address, never any name.
        token: What a request for data must bring; empty if none.

    Example:
        >>> admission = Admission(hosts=frozenset({"127.0.0.1"}), token="secret")
        >>> head = RequestHead(method="GET", path="/api/runs", raw_path="/api/runs", query="",
        ...                    headers={"host": "evil.example"})
        >>> admission.refusal(head).code
        'HostNotAllowed'
    """

    hosts: frozenset[str]
    token: str

    def refusal(self, head: RequestHead) -> Refusal | None:
        """Why it is not let in; None if it is."""
        checks = (self._length, self._host, self._origin, self._token, self._method, self._content, self._ranges)
        return next((found for check in checks if (found := check(head)) is not None), None)

    def _length(self, head: RequestHead) -> Refusal | None:
        if len(head.query) > MOST_QUERY or len(head.raw_path) > MOST_PATH:
            return Refusal(414, "AddressTooLong", f"an address has at most {MOST_QUERY} characters behind the ?.")
        return None

    def _host(self, head: RequestHead) -> Refusal | None:
        host = name_of(head.headers.get("host", ""))
        if host in self.hosts or ("*" in self.hosts and _is_address(host)):
            return None
        return Refusal(403, "HostNotAllowed", "this server does not answer to that name. Use the address it printed.")

    def _origin(self, head: RequestHead) -> Refusal | None:
        """Pages of others may not ask: neither with a script nor with a form."""
        origin, site = head.headers.get("origin"), head.headers.get("sec-fetch-site", "")
        own = f"//{head.headers.get('host', '')}"
        foreign = origin is not None and origin not in (f"http:{own}", f"https:{own}")
        if foreign or (site in ("cross-site", "same-site") and head.is_api):
            return Refusal(403, "OriginNotAllowed", "a page of another origin may not ask this server.")
        return None

    def _token(self, head: RequestHead) -> Refusal | None:
        if not self.token or not head.is_api:
            return None
        kind, _, given = head.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), self.token.encode()):
            return None
        return Refusal(401, "TokenNeeded", "send the token that the server printed: Authorization: Bearer <token>.")

    def _method(self, head: RequestHead) -> Refusal | None:
        allowed = _METHODS if head.is_api else ("GET", "HEAD")
        return (
            None if head.method in allowed else Refusal(405, "MethodNotAllowed", f"{head.method} is not answered here.")
        )

    def _content(self, head: RequestHead) -> Refusal | None:
        if head.method not in _CHANGING:
            return None
        length = head.headers.get("content-length", "0")
        if not length.isdecimal():
            return Refusal(400, "LengthInvalid", "Content-Length is no number.")
        if len(length) > len(str(MOST_BODY)) or int(length) > MOST_BODY:
            return Refusal(413, "BodyTooLarge", f"a body has at most {MOST_BODY} bytes.")
        kind = head.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":  # a form of a foreign page cannot send this
            return Refusal(415, "JsonNeeded", "send Content-Type: application/json, also with an empty body.")
        return None

    def _ranges(self, head: RequestHead) -> Refusal | None:
        if head.headers.get("range", "").count(",") >= 1:
            return Refusal(416, "RangesNotAnswered", "several ranges at once are not answered.")
        return None


def name_of(host: str) -> str:
    """A host without its port.

    Example:
        >>> name_of("localhost:8000"), name_of("[::1]:8000"), name_of("::1")
        ('localhost', '::1', '::1')
    """
    text = host.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def hosts_of(bound: str) -> frozenset[str]:
    """What a server bound to an address answers to.

    Example:
        >>> sorted(hosts_of("127.0.0.1"))
        ['127.0.0.1', '::1', 'localhost']
    """
    loopback = {"127.0.0.1", "::1", "localhost"}
    if bound in ("0.0.0.0", "::", ""):
        import socket

        return frozenset({*loopback, "*", socket.gethostname().lower()})
    return frozenset({*loopback, bound.lower()} if is_loopback(bound) else {bound.lower()})


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it.

    Example:
        >>> is_loopback("127.0.0.1"), is_loopback("0.0.0.0")
        (True, False)
    """
    if host == "localhost":
        return True
    return _is_address(host) and ipaddress.ip_address(host).is_loopback
