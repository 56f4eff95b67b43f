"""Surroundings: what stands around a loop, looked at where it begins and where it saves, never in between."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from types import CodeType
from typing import Any

from model_checkpoint.integrations.around.calling_frames import names_around
from model_checkpoint.integrations.around.loop_generators import LoopGenerators, states_by_name
from model_checkpoint.integrations.around.module_modes import ModuleModes

NOT_SAVED = "the loop draws from generators of its own, which this version saves and the one that saved did not"


class Surroundings:
    """The objects that are trained and the names that the bodies use; ``besides`` is known to others.

    Example:
        >>> around = Surroundings({"model": [5]})
        >>> for _ in range(1): around.look(besides=())
        >>> around.take(besides=()), around.doubts
        ({'generators': {}, 'modes': {...}}, [])
    """

    def __init__(self, objects: Mapping[str, Any] | None = None, *, besides: Iterable[Any] = ()) -> None:
        self._objects = {f"{name}=": one for name, one in (objects or {}).items()}
        self._besides, self._follows = list(besides), objects is not None
        self._codes: tuple[CodeType, ...] = ()
        self._names: tuple[str, ...] = ()  # those that were there where the loop began
        self._generators = LoopGenerators({}, besides=())
        self._modes: ModuleModes | None = None  # of the first loop
        self.doubts: list[str] = []
        self.is_known = not self._follows

    def look(self, *, besides: Iterable[Any]) -> None:
        """A loop begins here."""
        self.is_known = True
        if not self._follows:
            return
        self._codes, names = names_around()
        self._names = tuple(names)
        known = self._all_besides(besides)
        self._generators = LoopGenerators({**self._objects, **names}, besides=known, before=self._generators)
        self._modes = self._modes or ModuleModes(self._objects)
        self.doubts = self._generators.doubts

    def take(self, *, besides: Iterable[Any]) -> dict[str, Any]:
        """All that is to be saved of it; nothing before a loop has begun."""
        if self._modes is None:
            return {}
        generators = self._generators.now(self._now(), besides=self._all_besides(besides))
        self.doubts = self._generators.made_since(generators)
        return {"generators": states_by_name(generators), "modes": self._modes.take()}

    def _now(self) -> dict[str, Any]:
        """The names as they are now; none where the loop was left."""
        codes, names = names_around(self._codes)
        if not codes:
            return {}
        return self._objects | {name: names[name] for name in self._names if name in names}

    def set_back(self, saved: Mapping[str, Any] | None) -> list[str]:
        """Be as it was; what is to be said of what is not."""
        if self._modes is None or not saved:  # by an earlier version, or before a loop began
            return [NOT_SAVED] if saved is None and self._generators.found else []
        return self._generators.set_back(saved["generators"]) + self._modes.set_back(saved["modes"])

    def _all_besides(self, more: Iterable[Any]) -> list[Any]:
        known = (one() if isinstance(one, weakref.ref) else one for one in self._besides)
        return [*known, *more]
