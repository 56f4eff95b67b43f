"""Endpoints: which handler answers which path and method, by what rules; wrong rules are refused at once."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from model_checkpoint.api.exchange import APIRequest
from model_checkpoint.errors import OptionInvalid

Handler = Callable[[APIRequest], Any]

METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
SAFE_METHODS = ("GET", "HEAD")  # that change nothing, so an answer may be used again
_PATH = re.compile(r"/|(/([A-Za-z0-9._~-]+|\{[A-Za-z_][A-Za-z0-9_]*\}))+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """One path, who answers it and by what rules; a part of the path in braces matches anything.

    Example:
        >>> endpoint = Endpoint(path="/runs/{run}", handler=lambda request: request.path_params["run"])
        >>> endpoint.match("/runs/a"), endpoint.match("/runs")
        ({'run': 'a'}, None)
    """

    path: str
    handler: Handler
    methods: tuple[str, ...] = ("GET",)
    rate_limit: int | None = None  # requests of one client to this endpoint, a minute
    cache_ttl: float | None = None  # seconds that an answer to a GET may be used again
    requires_auth: bool = False
    description: str = ""

    def match(self, path: str) -> dict[str, str] | None:
        """The open parts of a path that this endpoint answers; None if it does not."""
        own, asked = self.path.strip("/").split("/"), path.strip("/").split("/")
        if len(own) != len(asked):
            return None
        found: dict[str, str] = {}
        for part, given in zip(own, asked, strict=True):
            if part.startswith("{") and given:
                found[part[1:-1]] = given
            elif part != given:
                return None
        return found

    @property
    def openness(self) -> int:
        """How many parts of the path are open: the endpoint with the fewest answers first."""
        return self.path.count("{")

    def to_dict(self) -> dict[str, Any]:
        """Its rules as plain values."""
        return {
            "path": self.path,
            "methods": list(self.methods),
            "rate_limit": self.rate_limit,
            "cache_ttl": self.cache_ttl,
            "requires_auth": self.requires_auth,
            "description": self.description,
        }


def endpoint_problems(config: Mapping[str, Any], *, has_auth: bool) -> list[str]:
    """All that is wrong with the rules of an endpoint.

    Example:
        >>> endpoint_problems({"path": "runs", "handler": print}, has_auth=False)
        ["path is 'runs', expected /words or /{names} without a slash at the end"]
    """
    path, handler = config.get("path"), config.get("handler")
    checks = {
        f"unknown settings {', '.join(sorted(map(str, config.keys() - _SETTINGS)))}": not config.keys() - _SETTINGS,
        f"path is {path!r}, expected /words or /{{names}} without a slash at the end": isinstance(path, str)
        and bool(_PATH.fullmatch(path)),
        "the handler cannot be called": callable(handler),
        "the handler is a coroutine; write a plain function": not inspect.iscoroutinefunction(handler),
        f"methods are {config.get('methods')!r}, expected some of {', '.join(METHODS)}": _are_methods(
            config.get("methods", ("GET",))
        ),
        f"rate_limit is {config.get('rate_limit')!r}, expected a whole number above 0": _is_above_zero(
            config.get("rate_limit"), (int,)
        ),
        f"cache_ttl is {config.get('cache_ttl')!r}, expected seconds above 0": _is_above_zero(
            config.get("cache_ttl"), (int, float)
        ),
        "requires_auth, but the API was given no authenticate=": has_auth or not config.get("requires_auth"),
    }
    return [problem for problem, fine in checks.items() if not fine]


_SETTINGS = set(Endpoint.__dataclass_fields__)


def _are_methods(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and bool(value) and set(value) <= set(METHODS)


def _is_above_zero(value: Any, kinds: tuple[type[int] | type[float], ...]) -> bool:
    return value is None or (isinstance(value, kinds) and not isinstance(value, bool) and bool(value > 0))


class EndpointTable:
    """The endpoints of one API.

    Example:
        >>> table = EndpointTable()
        >>> table.add(Endpoint(path="/runs/{run}", handler=print))
        >>> table.find("/runs/a")[0].path
        '/runs/{run}'
    """

    def __init__(self) -> None:
        self._endpoints: dict[str, list[Endpoint]] = {}

    def add(self, endpoint: Endpoint) -> None:
        """Add an endpoint; one whose path and method are taken is refused."""
        others = self._endpoints.get(_shape(endpoint.path), [])
        taken = {method for other in others for method in other.methods} & set(endpoint.methods)
        if taken:
            raise OptionInvalid(f"{', '.join(sorted(taken))} {endpoint.path}: is answered already. Remove that first.")
        self._endpoints[_shape(endpoint.path)] = [*others, endpoint]

    def remove(self, path: str) -> bool:
        """Remove all endpoints of a path; whether there were any."""
        return self._endpoints.pop(_shape(path), None) is not None

    def find(self, path: str) -> list[Endpoint]:
        """The endpoints of the one path that matches best, one or more by method; none if nothing matches."""
        plain = self._endpoints.get(path.rstrip("/") or "/")
        if plain is not None:
            return plain
        matching = [group for group in self._endpoints.values() if group[0].match(path) is not None]
        return min(matching, key=lambda group: group[0].openness, default=[])

    def all(self) -> list[Endpoint]:
        """Every endpoint, by path."""
        return [endpoint for _, group in sorted(self._endpoints.items()) for endpoint in group]


def _shape(path: str) -> str:
    """A path without the names of its open parts, by which two paths are the same."""
    return re.sub(r"\{[^}]*\}", "{}", path)
