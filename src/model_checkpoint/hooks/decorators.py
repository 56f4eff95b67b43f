"""Decorators: mark a function or method as a hook, and change how it behaves. All of them take ``async def`` too."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from model_checkpoint.hooks.errors import HookInvalid
from model_checkpoint.hooks.values.hook_context import HookContext
from model_checkpoint.hooks.values.hook_event import HookEvent, HookPriority, event_named

F = TypeVar("F", bound=Callable[..., Any])
_LOG = logging.getLogger(__name__)
_MARK = "__hook_mark__"


@dataclass(frozen=True, slots=True)
class HookMark:
    """How a marked function wants to be registered; ``None`` leaves a choice to its object."""

    events: tuple[HookEvent, ...]
    priority: HookPriority | None = None
    timeout: float | None = None
    async_execution: bool | None = None


def mark_of(handler: object) -> HookMark | None:
    """The mark of a function or method, if it has one.

    Example:
        >>> mark_of(print) is None
        True
    """
    mark = getattr(handler, _MARK, None)
    return mark if isinstance(mark, HookMark) else None


def hook_handler(
    events: Collection[HookEvent | str],
    priority: HookPriority | None = None,
    timeout: float | None = None,
    async_execution: bool | None = None,
) -> Callable[[F], F]:
    """Mark a function or method as a hook of these events; ``register_hook`` finds the mark.

    Example:
        >>> from model_checkpoint.hooks import HookEvent, HookManager, hook_handler
        >>> @hook_handler([HookEvent.AFTER_CHECKPOINT_SAVE])
        ... def tell(context):
        ...     return f"saved {context.checkpoint_id}"
        >>> manager = HookManager()
        >>> manager.register_hook(tell)
        'tell'
        >>> manager.fire_hook("after_checkpoint_save", checkpoint_id="c-1").results
        {'tell': 'saved c-1'}
    """
    if isinstance(events, (str, HookEvent)):
        raise HookInvalid(f"hook_handler: events are a list, got {events!r}. Write [{events!r}].")
    mark = HookMark(tuple(event_named(event) for event in events), priority, timeout, async_execution)

    def decorate(handler: F) -> F:
        setattr(handler, _MARK, mark)
        return handler

    return decorate


def async_hook_handler(
    events: Collection[HookEvent | str], priority: HookPriority | None = None, timeout: float | None = None
) -> Callable[[F], F]:
    """Mark a function or method as a hook that nobody waits for.

    Example:
        >>> from model_checkpoint.hooks import HookManager, async_hook_handler
        >>> heard = []
        >>> @async_hook_handler(["after_checkpoint_save"], timeout=60)
        ... def upload(context):
        ...     heard.append(context.checkpoint_id)
        >>> with HookManager() as manager:
        ...     _ = manager.register_hook(upload)
        ...     result = manager.fire_hook("after_checkpoint_save", checkpoint_id="c-1")
        >>> result.background, heard
        (('upload',), ['c-1'])
    """
    return hook_handler(events, priority, timeout, async_execution=True)


def conditional_hook(condition: Callable[[HookContext], bool]) -> Callable[[F], F]:
    """Call the hook only when ``condition`` holds; otherwise its run is recorded as skipped.

    Example:
        >>> from model_checkpoint.hooks import HookContext, conditional_hook
        >>> @conditional_hook(lambda context: context.get("step", 0) > 10)
        ... def late(context):
        ...     return "late"
        >>> late(HookContext(data={"step": 11})), late(HookContext())
        ('late', {'skipped': True})
    """

    def around(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        return call() if condition(args[-1]) else {"skipped": True}

    async def around_async(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        return await call() if condition(args[-1]) else {"skipped": True}

    return _wrapping(around, around_async)


def retry_on_failure(max_retries: int = 3, delay: float = 1.0) -> Callable[[F], F]:
    """Try again up to ``max_retries`` times after an error, and wait ``delay`` seconds, then twice as long each time.

    Example:
        >>> from model_checkpoint.hooks import retry_on_failure
        >>> tries = []
        >>> @retry_on_failure(max_retries=2, delay=0.0)
        ... def flaky(context):
        ...     tries.append(context)
        ...     return 1 / (len(tries) - 1)
        >>> flaky("context"), len(tries)
        (1.0, 2)
    """
    if max_retries < 0 or delay < 0:
        raise HookInvalid(f"retry_on_failure: got max_retries={max_retries}, delay={delay}; neither may be negative.")
    waits = [delay * 2**n for n in range(max_retries)]

    def around(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        for wait in waits:
            try:
                return call()
            except Exception as error:  # noqa: BLE001  # a hook may raise anything; the last try raises it to the manager
                _LOG.info("a hook failed with %r and is tried again in %.3g s", error, wait)
                time.sleep(wait)
        return call()

    async def around_async(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        for wait in waits:
            try:
                return await call()
            except Exception as error:  # noqa: BLE001  # as above
                _LOG.info("a hook failed with %r and is tried again in %.3g s", error, wait)
                await asyncio.sleep(wait)
        return await call()

    return _wrapping(around, around_async)


def transform_result(transformer: Callable[[Any], Any]) -> Callable[[F], F]:
    """Hand what the hook returns through ``transformer``.

    Example:
        >>> from model_checkpoint.hooks import transform_result
        >>> @transform_result(lambda updates: {"context_updates": updates})
        ... def note(context):
        ...     return {"note": "warm-up done"}
        >>> note("context")
        {'context_updates': {'note': 'warm-up done'}}
    """

    def around(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        return transformer(call())

    async def around_async(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        return transformer(await call())

    return _wrapping(around, around_async)


def benchmark_hook(name: str | None = None, *, keep: int = 1000) -> Callable[[F], F]:
    """Keep the seconds of the last ``keep`` calls in the function's ``timings``, and log each at DEBUG.

    Example:
        >>> from model_checkpoint.hooks import benchmark_hook
        >>> @benchmark_hook("validation")
        ... def validate(context):
        ...     return True
        >>> validate("context"), len(validate.timings)
        (True, 1)
    """

    def decorate(handler: F) -> F:
        timings: deque[float] = deque(maxlen=keep)
        label = name or getattr(handler, "__name__", type(handler).__name__)

        def note(began: float) -> None:
            timings.append(time.perf_counter() - began)
            _LOG.debug("hook %s took %.3f ms", label, timings[-1] * 1e3)

        def around(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
            began = time.perf_counter()
            try:
                return call()
            finally:
                note(began)

        async def around_async(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
            began = time.perf_counter()
            try:
                return await call()
            finally:
                note(began)

        wrapped: F = _wrapping(around, around_async)(handler)
        wrapped.timings = timings  # type: ignore[attr-defined]  # an attribute of the function, as documented
        return wrapped

    return decorate


def suppress_errors(default_return: Any = None) -> Callable[[F], F]:
    """Log what the hook raises at WARNING and return ``default_return`` in its place.

    Example:
        >>> from model_checkpoint.hooks import suppress_errors
        >>> @suppress_errors(default_return=True)
        ... def optional(context):
        ...     raise ConnectionError("nobody there")
        >>> optional("context")
        True
    """

    def around(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        try:
            return call()
        except Exception as error:  # noqa: BLE001  # suppressing anything is what was asked for, and it is logged
            _LOG.warning("a hook failed and its error was suppressed: %r", error)
            return default_return

    async def around_async(call: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        try:
            return await call()
        except Exception as error:  # noqa: BLE001  # as above
            _LOG.warning("a hook failed and its error was suppressed: %r", error)
            return default_return

    return _wrapping(around, around_async)


def _wrapping(around: Callable[..., Any], around_async: Callable[..., Any]) -> Callable[[F], F]:
    """Put one of the two around a handler, whichever is of its kind; marks below and above stay."""

    def decorate(handler: F) -> F:
        if iscoroutinefunction(handler):

            @wraps(handler)
            async def wrapped_async(*args: Any) -> Any:
                return await around_async(lambda: handler(*args), args)

            return wrapped_async  # type: ignore[return-value]  # the same signature, as wraps says

        @wraps(handler)
        def wrapped(*args: Any) -> Any:
            return around(lambda: handler(*args), args)

        return wrapped  # type: ignore[return-value]  # as above

    return decorate
