"""Class memo: what was found out about classes, of the caller's own only as long as they live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar
from weakref import WeakKeyDictionary

_LASTING = frozenset(("builtins", "collections", "numpy", "torch", "jax", "jaxlib", "tensorflow"))
_T = TypeVar("_T")


class ClassMemo(Generic[_T]):
    """Remembers what ``find`` says of a class.

    Example:
        >>> told = ClassMemo(lambda cls: cls.__name__)
        >>> told(int), told(int)
        ('int', 'int')
    """

    def __init__(self, find: Callable[[type], _T]) -> None:
        self._find = find
        self._lasting: dict[type, _T] = {}  # classes that live as long as their library; the quick way
        self._others: WeakKeyDictionary[type, _T] = WeakKeyDictionary()

    def __call__(self, cls: type) -> _T:
        """Return what is known of ``cls``."""
        if cls in self._lasting:
            return self._lasting[cls]
        if cls in self._others:
            return self._others[cls]
        told = self._find(cls)
        (self._lasting if cls.__module__.partition(".")[0] in _LASTING else self._others)[cls] = told
        return told
