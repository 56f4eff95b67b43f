"""BaseAPI: endpoints, middleware, limits, caching and statistics of an API, without any server.

A server hands each request to :meth:`BaseAPI.process_request` and sends what comes back; so does a test, or a program
that wants the answers for itself. A method of a subclass that takes one ``request`` is an endpoint by its name.
"""

from __future__ import annotations

import inspect
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Protocol

from model_checkpoint.api.endpoints import SAFE_METHODS, Endpoint, EndpointTable, Handler, endpoint_problems
from model_checkpoint.api.exchange import APIRequest, APIResponse, ErrorCode, RequestRefused
from model_checkpoint.api.rate_limits import RateLimiter
from model_checkpoint.errors import OptionInvalid
from model_checkpoint.performance.lru import LRUCache
from model_checkpoint.performance.operation_monitor import OperationMonitor

log = logging.getLogger("model_checkpoint.api")

Next = Callable[[APIRequest], APIResponse]
Middleware = Callable[[APIRequest, Next], APIResponse]
Authenticate = Callable[[APIRequest], object]  # whoever is asking, or something false for nobody

CLIENT_LIMIT = 100  # requests of one client, a minute


class Hooks(Protocol):
    """What is told of requests; a result that is false before one cancels it."""

    def fire_hook(self, event: Any, context: Any = None, **data: Any) -> object:
        """Tell the hooks of an event."""
        ...


class BaseAPI:
    """An API to build on; works as it is, with no argument.

    Example:
        >>> class CustomAPI(BaseAPI):
        ...     def custom_endpoint(self, request):
        ...         return {"hello": request.params.get("name", "nobody")}
        >>> api = CustomAPI()
        >>> api.process_request({"path": "/custom_endpoint", "params": {"name": "you"}}).data
        {'hello': 'you'}
        >>> api.process_request({"path": "/missing"}).error.value
        'ENDPOINT_NOT_FOUND'
    """

    def __init__(
        self,
        name: str = "api",
        version: str = "1.0.0",
        enable_hooks: bool = True,
        *,
        hook_manager: Hooks | None = None,
        authenticate: Authenticate | None = None,
        rate_limit: int | None = CLIENT_LIMIT,
        cache_size: int = 1000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if rate_limit is not None and rate_limit < 1:
            raise OptionInvalid(f"api: rate_limit is {rate_limit}, expected 1 or more, or None for no limit.")
        self.name, self.version, self.rate_limit = name, version, rate_limit
        self.hook_manager = hook_manager if enable_hooks else None
        self._authenticate, self._clock, self._started = authenticate, clock, clock()
        self._endpoints, self._middleware = EndpointTable(), list[Middleware]()
        self._limits = RateLimiter(clock=clock)
        self._cache = LRUCache(cache_size, isolate=True, clock=clock)
        self._monitor = OperationMonitor(clock=clock)
        for path, handler in _own_endpoints(self):
            self.register_endpoint(path, handler, methods=("GET", "POST"))

    # building --------------------------------------------------------------------------------------------------------

    def register_endpoint(self, path: str, handler: Handler, **rules: Any) -> Endpoint:
        """Let ``handler`` answer ``path``; ``rules`` are those of :class:`Endpoint`.

        Raises:
            OptionInvalid: something is wrong with the rules, or path and method are taken; nothing was registered.

        Example:
            >>> api = BaseAPI()
            >>> _ = api.register_endpoint("/runs/{run}", lambda request: request.path_params, cache_ttl=5)
            >>> api.process_request({"path": "/runs/a"}).data
            {'run': 'a'}
        """
        config = {"path": path, "handler": handler, **rules}
        problems = self.validate_endpoint_config(config)
        if problems:
            raise OptionInvalid(f"endpoint {path}: {'; '.join(problems)}. Nothing was registered.")
        endpoint = Endpoint(**{**config, "methods": tuple(config.get("methods", ("GET",)))})
        self._endpoints.add(endpoint)
        return endpoint

    def unregister_endpoint(self, path: str) -> bool:
        """Answer that path no more; whether it was answered."""
        return self._endpoints.remove(path)

    def validate_endpoint_config(self, config: Mapping[str, Any]) -> list[str]:
        """All that is wrong with the rules of an endpoint; nothing if they can be registered."""
        return endpoint_problems(config, has_auth=self._authenticate is not None)

    def add_middleware(self, middleware: Middleware) -> None:
        """Put a function around all handlers: it is given the request and what comes next; the first is outermost.

        Example:
            >>> api = BaseAPI()
            >>> api.add_middleware(lambda request, following: following(request))
        """
        if not callable(middleware):
            raise OptionInvalid(f"middleware: {middleware!r} cannot be called.")
        self._middleware.append(middleware)

    # answering -------------------------------------------------------------------------------------------------------

    def process_request(self, request: APIRequest | Mapping[str, Any]) -> APIResponse:
        """Answer one request; never raises, whatever a handler does.

        A handler returns the data of the answer, or an :class:`APIResponse`; None is an answer without content.
        """
        start = self._clock()
        name = "unknown"
        try:
            asked = _as_request(request)
            name, response = self._answer(asked)
        except RequestRefused as error:
            response = APIResponse.refused(error.code, str(error))
        except Exception as error:  # a server must outlive every request
            log.exception("%s: a request failed in the API itself", self.name)
            response = APIResponse.refused(ErrorCode.INTERNAL_ERROR, f"{type(error).__name__}: {error}")
        self._monitor.record(name, max(0.0, self._clock() - start), failed=not response.success)
        return response

    def _answer(self, request: APIRequest) -> tuple[str, APIResponse]:
        """The name under which the request is counted, and the answer."""
        self._limit("*", request, self.rate_limit)
        matching = self._endpoints.find(request.path)
        if not matching:
            return "unknown", APIResponse.refused(ErrorCode.ENDPOINT_NOT_FOUND, f"{request.path}: nothing answers it.")
        endpoint = next((one for one in matching if request.method in one.methods), None)
        if endpoint is None:
            allowed = sorted({method for one in matching for method in one.methods})
            message = f"{request.path}: answers {', '.join(allowed)}, not {request.method}."
            return matching[0].path, APIResponse.refused(ErrorCode.METHOD_NOT_ALLOWED, message)
        name = f"{request.method} {endpoint.path}"
        try:
            return name, self._allowed(endpoint, replace(request, path_params=endpoint.match(request.path) or {}))
        except RequestRefused as error:
            return name, APIResponse.refused(error.code, str(error))

    def _allowed(self, endpoint: Endpoint, request: APIRequest) -> APIResponse:
        """Answer a request that has an endpoint, if all rules allow it."""
        self._limit(endpoint.path, request, endpoint.rate_limit)
        if endpoint.requires_auth and not (self._authenticate and self._authenticate(request)):
            raise RequestRefused(f"{request.path}: who is asking is not known.", code=ErrorCode.UNAUTHORIZED)
        if self._fire("before_api_request", request=request) is False:
            raise RequestRefused(f"{request.path}: a hook cancelled it.", code=ErrorCode.REQUEST_CANCELLED)
        response = self._cached(endpoint, request)
        self._fire("after_api_request", request=request, response=response)
        return response

    def _limit(self, what: str, request: APIRequest, limit: int | None) -> None:
        wait = 0.0 if limit is None else self._limits.wait((what, request.client), limit=limit)
        if wait:
            raise RequestRefused(
                f"{request.client}: more than {limit} requests in a minute. Try again in {wait:.0f} seconds.",
                code=ErrorCode.RATE_LIMIT_EXCEEDED,
            )

    def _fire(self, event: str, **data: Any) -> bool:
        """Tell the hooks; False if one of them said no."""
        if self.hook_manager is None:
            return True
        result = self.hook_manager.fire_hook(event, **data)
        return result is None or bool(result)

    def _cached(self, endpoint: Endpoint, request: APIRequest) -> APIResponse:
        if endpoint.cache_ttl is None or request.method not in SAFE_METHODS:
            return self._through_middleware(endpoint, request)
        who = request.client if endpoint.requires_auth else ""  # what one may see, another may not
        key = (request.method, request.path, json.dumps(request.params, sort_keys=True, default=repr), who)
        known: APIResponse | None = self._cache.get(key)
        if known is not None:
            return replace(known, cached=True)
        response = self._through_middleware(endpoint, request)
        if response.success:
            self._cache.set(key, response, endpoint.cache_ttl)
        return response

    def _through_middleware(self, endpoint: Endpoint, request: APIRequest) -> APIResponse:
        def innermost(asked: APIRequest) -> APIResponse:
            return _handled(endpoint.handler, asked)

        following: Next = innermost
        for middleware in reversed(self._middleware):
            following = _wrapped(middleware, following)
        return following(request)

    # telling ---------------------------------------------------------------------------------------------------------

    def get_api_info(self) -> dict[str, Any]:
        """Name, version and all endpoints with their rules."""
        return {
            "name": self.name,
            "version": self.version,
            "rate_limit": self.rate_limit,
            "hooks": self.hook_manager is not None,
            "middleware": len(self._middleware),
            "endpoints": [endpoint.to_dict() for endpoint in self._endpoints.all()],
        }

    def get_statistics(self) -> dict[str, Any]:
        """How many requests there were and failed, how long each endpoint took, and what the cache saved."""
        stats, cache = self._monitor.all_stats(), self._cache.stats()
        return {
            "requests": sum(one.count for one in stats.values()),
            "errors": sum(one.failures for one in stats.values()),
            "cache": {"hits": cache.hits, "misses": cache.misses, "items": cache.items},
            "endpoints": {
                name: {"requests": one.count, "errors": one.failures, "mean": one.mean, **one.percentiles()}
                for name, one in stats.items()
            },
        }

    def health_check(self) -> dict[str, Any]:
        """Whether it answers, since when, and how much."""
        stats = self.get_statistics()
        return {
            "status": "healthy",
            "name": self.name,
            "version": self.version,
            "uptime_seconds": self._clock() - self._started,
            "endpoints": len(self._endpoints.all()),
            "requests": stats["requests"],
            "errors": stats["errors"],
        }

    def clear_cache(self) -> int:
        """Forget all answers; how many there were."""
        return self._cache.clear()

    def reset_statistics(self) -> None:
        """Begin counting anew."""
        self._monitor.reset()


def _own_endpoints(api: BaseAPI) -> Iterator[tuple[str, Handler]]:
    """The methods of a subclass that take one ``request``, each under its name."""
    for name in dir(type(api)):
        function = None if name.startswith("_") or hasattr(BaseAPI, name) else inspect.getattr_static(api, name)
        if inspect.isfunction(function) and list(inspect.signature(function).parameters)[1:] == ["request"]:
            yield f"/{name}", getattr(api, name)


def _as_request(request: APIRequest | Mapping[str, Any]) -> APIRequest:
    if isinstance(request, APIRequest):
        return replace(request, method=request.method.upper())
    try:
        made = APIRequest(**request)
        return replace(made, method=made.method.upper())
    except (TypeError, AttributeError) as error:
        raise RequestRefused(
            f"not a request: {error}. A request has a path, and may have a method and params."
        ) from None


def _handled(handler: Handler, request: APIRequest) -> APIResponse:
    try:
        data = handler(request)
    except RequestRefused:
        raise
    except Exception as error:
        log.exception("%s %s: the handler failed", request.method, request.path)
        raise RequestRefused(f"{type(error).__name__}: {error}", code=ErrorCode.HANDLER_ERROR) from error
    if isinstance(data, APIResponse):
        return data
    return APIResponse(data=data, status_code=204 if data is None else 200)


def _wrapped(middleware: Middleware, following: Next) -> Next:
    def call(request: APIRequest) -> APIResponse:
        try:
            response = middleware(request, following)
        except RequestRefused:
            raise
        except Exception as error:
            log.exception("%s %s: a middleware failed", request.method, request.path)
            raise RequestRefused(f"{type(error).__name__}: {error}", code=ErrorCode.MIDDLEWARE_ERROR) from error
        if not isinstance(response, APIResponse):
            raise RequestRefused(
                f"a middleware returned {type(response).__name__}, expected the response of what comes next.",
                code=ErrorCode.MIDDLEWARE_ERROR,
            )
        return response

    return call
