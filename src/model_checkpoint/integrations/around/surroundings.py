"""Surroundings: what stands around a loop, looked at where it begins and where it saves, never in between."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Mapping
from types import CodeType
from typing import Any

from model_checkpoint.integrations.around.calling_frames import names_around
from model_checkpoint.integrations.around.carried_values import CarriedValues, only_read
from model_checkpoint.integrations.around.hidden_values import hidden_values
from model_checkpoint.integrations.around.loop_generators import LoopGenerators, states_by_name
from model_checkpoint.integrations.around.module_modes import ModuleModes

UNSEEN = (
    "something that the loop uses lets nobody look at it ({}), so that nobody knows whether what stands around the "
    "loop is as it was: let it be read, or keep it out of the loop"
)
NOT_SAVED = "the loop draws from generators of its own, which this version saves and the one that saved did not"


class Surroundings:
    """The objects that are trained and the names that the bodies use; ``besides`` is known to others.

    Example:
        >>> around = Surroundings({"model": [5]})
        >>> for _ in range(1): around.look(besides=())
        >>> around.take(besides=()), around.doubts
        ({'generators': {}, 'modes': {...}, 'carried': '{}'}, [])
    """

    def __init__(self, objects: Mapping[str, Any] | None = None, *, besides: Iterable[Any] = ()) -> None:
        self._objects = {f"{name}=": one for name, one in (objects or {}).items()}
        self._besides, self._follows = list(besides), objects is not None
        self._data = [one for one in self._besides if not isinstance(one, weakref.ref)]
        self._codes: tuple[CodeType, ...] = ()
        self._read: frozenset[str] = frozenset()
        self._names: tuple[str, ...] = ()  # those that were there where the loop began
        self._carried: CarriedValues | None = None
        self._generators = LoopGenerators({}, besides=())
        self._modes: ModuleModes | None = None  # of the first loop
        self.doubts: list[str] = []
        self.is_known = not self._follows

    def look(self, *, besides: Iterable[Any]) -> None:
        """A loop begins here."""
        self.is_known = True
        if not self._follows:
            return
        try:
            self._look(besides)
        except Exception as error:  # noqa: BLE001  # an object of the program may refuse; that ends no training
            self._give_up(error)

    def _look(self, besides: Iterable[Any]) -> None:
        self._codes, names, read = names_around()
        self._names, self._read = tuple(names), read
        known = self._all_besides(besides)
        self._generators = LoopGenerators({**self._objects, **names}, besides=known, before=self._generators)
        self._carried = CarriedValues(self._objects, self._values(names, known))
        self._modes = self._modes or ModuleModes(self._objects)
        self.doubts = self._generators.doubts

    def take(self, *, besides: Iterable[Any]) -> dict[str, Any]:
        """All that is to be saved of it; nothing before a loop has begun."""
        if self._modes is None or self._carried is None:
            return {}
        try:
            return self._take(self._modes, self._carried, besides)
        except Exception as error:  # noqa: BLE001  # as above
            return self._give_up(error)

    def _take(self, modes: ModuleModes, carried: CarriedValues, besides: Iterable[Any]) -> dict[str, Any]:
        names, known = self._now(), self._all_besides(besides)
        generators = self._generators.now({**self._objects, **names} if names else {}, besides=known)
        self.doubts = self._generators.made_since(generators)
        return {
            "generators": states_by_name(generators),
            "modes": modes.take(),
            "carried": json.dumps(carried.changed(self._values(names, known))),
        }

    def _give_up(self, error: Exception) -> dict[str, Any]:
        """Look no further, and say so; nothing is to be saved then."""
        self._carried = self._modes = None
        self._follows = False
        self.doubts = [UNSEEN.format(f"{type(error).__name__}: {error}")]
        return {}

    def _now(self) -> dict[str, Any]:
        """The names as they are now; none where the loop was left."""
        names = names_around(self._codes).values
        return {name: names[name] for name in self._names if name in names}

    def _values(self, names: Mapping[str, Any], known: Iterable[Any]) -> dict[str, Any]:
        """What bodies may hand on to the next."""
        others = {id(one) for one in known}
        values = {name: one for name, one in only_read(names, self._read).items() if id(one) not in others}
        return hidden_values([*self._data, *self._objects.values()]) | values

    def set_back(self, saved: Mapping[str, Any] | None) -> list[str]:
        """Be as it was; what is to be said of what is not."""
        if self._modes is None or self._carried is None or not saved:  # by an earlier version, or before a loop began
            return [NOT_SAVED] if saved is None and self._generators.found else []
        reasons = self._generators.set_back(saved["generators"]) + self._modes.set_back(saved["modes"])
        return reasons + self._carried.differences(json.loads(saved["carried"]))

    def _all_besides(self, more: Iterable[Any]) -> list[Any]:
        known = (one() if isinstance(one, weakref.ref) else one for one in self._besides)
        return [*known, *more]
