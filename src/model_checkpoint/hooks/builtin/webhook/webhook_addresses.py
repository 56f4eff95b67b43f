"""Webhook addresses: where a notification may go.

A URL from a configuration must not make this machine talk to its own network: names are resolved once, every address is
looked at, and the connection goes to the one that was looked at.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from model_checkpoint.hooks.errors import DeliveryFailed, UrlForbidden


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTarget:
    """A checked URL, in the parts a connection needs. Its text hides the path, which may hold a token."""

    secure: bool
    host: str
    port: int
    path: str
    private_network: bool

    def __str__(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.host}:{self.port}/..."


def target_of(url: str, *, private_network: bool) -> WebhookTarget:
    """Take a URL apart; ``private_network`` also allows http and addresses that are not public.

    Raises:
        UrlForbidden: another scheme, a password in the URL, no host, or an address that is not public.

    Example:
        >>> str(target_of("https://hooks.example.com/T0/secret", private_network=False))
        'https://hooks.example.com:443/...'
        >>> target_of("http://169.254.169.254/latest", private_network=False)
        Traceback (most recent call last):
        ...
        model_checkpoint.hooks.errors.UrlForbidden: http://169.254.169.254/...: a webhook is https, got http. ...
    """
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise UrlForbidden(f"{parts.scheme}://{parts.hostname}/...: the port is no number from 0 to 65535.") from None
    where = f"{parts.scheme}://{parts.hostname}/..."
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UrlForbidden(f"{where}: a webhook is an https URL with a host.")
    if parts.scheme == "http" and not private_network:
        raise UrlForbidden(
            f"{where}: a webhook is https, got http. private_network=True allows both, in your own network."
        )
    if parts.username is not None or parts.password is not None:
        raise UrlForbidden(f"{where}: no user or password in the URL; receivers know us by the signature.")
    if any(ord(letter) <= 32 or ord(letter) == 127 for letter in url):
        raise UrlForbidden(f"{where}: spaces and control characters have no place in a URL.")
    secure = parts.scheme == "https"
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    target = WebhookTarget(
        secure=secure,
        host=parts.hostname,
        port=port or (443 if secure else 80),
        path=path,
        private_network=private_network,
    )
    if not private_network:
        _refuse_private(target, _literal(parts.hostname))
    return target


def resolve(target: WebhookTarget) -> list[str]:
    """The addresses of a target, each allowed; connect to one of these, never to the name again.

    Raises:
        UrlForbidden: one of them is not public.
        DeliveryFailed: the name is not known just now.
    """
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DeliveryFailed(f"{target}: the name could not be resolved: {error}", passing=True) from error
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    if not target.private_network:
        for address in addresses:
            _refuse_private(target, ipaddress.ip_address(address.partition("%")[0]))
    return addresses


def _literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _refuse_private(target: WebhookTarget, address: ipaddress.IPv4Address | ipaddress.IPv6Address | None) -> None:
    if address is None:
        return
    inner = getattr(address, "ipv4_mapped", None) or address
    if not inner.is_global or inner.is_multicast:
        raise UrlForbidden(
            f"{target}: {address} is no public address. private_network=True allows it, in your own network."
        )
