"""Recomputing: whether the code that asks is a second run, for hooks and functions with side effects."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

# follows the context, so that work handed to a worker thread knows it too
_recomputing: ContextVar[bool] = ContextVar("recomputing", default=False)


def is_recomputing() -> bool:
    """Whether the caller runs for a second time: in a layer of a planned model, or in a recompute function.

    Example:
        >>> is_recomputing()
        False
    """
    return _recomputing.get()


@contextmanager
def recomputing() -> Iterator[None]:
    """Run the body as a second run.

    Example:
        >>> with recomputing():
        ...     is_recomputing()
        True
    """
    token = _recomputing.set(True)
    try:
        yield
    finally:
        _recomputing.reset(token)
