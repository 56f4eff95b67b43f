"""Recomputing: whether the code that asks is a second run, for hooks and functions with side effects."""

from __future__ import annotations

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


class recomputing:  # used like a function; as a generator it would be a tenth of what a region costs
    """Run the body as a second run.

    Example:
        >>> with recomputing():
        ...     is_recomputing()
        True
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _recomputing.set(True)

    def __exit__(self, *error: object) -> None:
        _recomputing.reset(self._token)
