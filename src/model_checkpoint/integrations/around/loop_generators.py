"""Loop generators: those that bodies draw from, though the run was given none of them.

They lie in names that the bodies use, in what these hold, and in the objects that are trained. What cannot be set back
is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from model_checkpoint.integrations.feeding.generators.held_generators import (
    RUNNING,
    SPAWNING,
    UNSEARCHED,
    UNSETTABLE,
    in_class,
    is_own_class,
    search,
)
from model_checkpoint.integrations.feeding.generators.seeding import set_back, states_of

_MOST_PARTS = 1 << 15
_MOST_OF_OTHERS = 1 << 12  # an object of a library may lead to all that the library knows
_HINDERED = {
    RUNNING: "holds an iterator, and nobody saves how far it is: give what it comes from to the run (data={...}), or "
    "make it in every body",
    SPAWNING: "holds a SeedSequence, and nobody saves how many it has spawned: spawn them before the loop",
    UNSETTABLE: "draws from a random.SystemRandom, which nobody can set: use a random.Random",
    UNSEARCHED: "has too many parts to look for generators in all of them",
}


class LoopGenerators:
    """Generators by the name they are found under.

    Example:
        >>> import random
        >>> found = LoopGenerators({"noise": (one := random.Random(3)), "steps": [1, 2]}, besides=())
        >>> taken, first = states_by_name(found.now({"noise": one}, besides=())), one.random()
        >>> found.set_back(taken)
        []
        >>> one.random() == first
        True
    """

    def __init__(
        self, names: Mapping[str, Any], *, besides: Iterable[Any], before: LoopGenerators | None = None
    ) -> None:
        self.found: dict[str, list[Any]] = {}
        self._home: dict[int, str] = {}
        if before is not None:  # another loop of the same program may have other names for them
            self.found, self._home = before.found, before._home
        found, self.doubts = _found_in(names, besides)
        self.found = self._at_home(found)
        self._home = {id(one): name for name, several in self.found.items() for one in several}

    def made_since(self, now: Mapping[str, list[Any]]) -> list[str]:
        """What is to be said of names that hold more generators than where the loop began."""
        return [
            f"`{name}` has got a generator since the loop began, so a resumed run begins with a new one: make it "
            "before the loop"
            for name, several in now.items()
            if len(several) > len(self.found.get(name, ()))
        ]

    def now(self, names: Mapping[str, Any], *, besides: Iterable[Any]) -> dict[str, list[Any]]:
        """Those that the names hold now, each under the name it had where the loop began."""
        if not names:  # the loop was left
            return self.found
        return self._at_home(_found_in(names, besides)[0])

    def _at_home(self, found: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        """Each under the name it was known by, and in that order."""
        sorted_in: dict[str, list[Any]] = {}
        for name, several in found.items():
            for one in several:
                sorted_in.setdefault(self._home.get(id(one), name), []).append(one)
        return {name: self._in_order(name, several) for name, several in sorted_in.items()}

    def _in_order(self, name: str, several: list[Any]) -> list[Any]:
        order = [id(one) for one in self.found.get(name, ())]
        return sorted(several, key=lambda one: order.index(id(one)) if id(one) in order else len(order))

    def set_back(self, saved: Mapping[str, Any]) -> list[str]:
        """Set all of them back; what is to be said where others are there now."""
        reasons = []
        for name in dict.fromkeys([*saved, *self.found]):
            here, kinds = self.found.get(name, []), saved.get(name, {"kinds": []})["kinds"]
            if kinds[: len(here)] != _kinds(here) or (kinds and not here):
                reasons.append(
                    f"`{name}` was saved with the generators {_told(kinds)}, now it has {_told(_kinds(here))}: make "
                    "it before the loop as it was"
                )
            elif here:
                set_back(here, saved[name]["states"][: len(here)])
                for one, spawned in zip(here, saved[name]["spawned"], strict=False):
                    if spawned > _spawned(one):
                        _seeds_of(one).spawn(spawned - _spawned(one))
        return reasons


def states_by_name(found: Mapping[str, list[Any]]) -> dict[str, Any]:
    """Generators as they are, as plain data and arrays."""
    return {
        name: {"kinds": _kinds(several), "states": states_of(several), "spawned": [_spawned(one) for one in several]}
        for name, several in found.items()
    }


def _spawned(generator: Any) -> int:
    """How many generators it has spawned, which is in no state."""
    return getattr(_seeds_of(generator), "n_children_spawned", 0)


def _seeds_of(generator: Any) -> Any:
    return getattr(getattr(generator, "bit_generator", generator), "seed_seq", None)


def _found_in(names: Mapping[str, Any], besides: Iterable[Any]) -> tuple[dict[str, list[Any]], list[str]]:
    """The generators under each name, each once; what else is to be said of the names."""
    known = {id(one): one for one in besides}
    found: dict[str, list[Any]] = {}
    doubts: list[str] = []
    for name, value in names.items():
        most = _MOST_PARTS if hasattr(type(value), "named_modules") or is_own_class(type(value)) else _MOST_OF_OTHERS
        several, hindered = search(list(_roots(value)), known, most=most)
        if several:
            found[name] = several
        told = (one for one in hindered if one is not UNSEARCHED or is_own_class(type(value)))
        doubts += [f"`{name}`, which the loop uses, {_HINDERED[one]}" for one in told]
    return found, doubts


def _roots(value: Any) -> Iterator[Any]:
    """Where to begin: with a class of the program, at what its objects share and its functions name."""
    if not isinstance(value, type):
        yield value
    elif is_own_class(value):
        functions, shared = in_class(value)
        yield from functions
        yield from (names.get(name) for names, name in shared)


def _kinds(generators: Iterable[Any]) -> list[str]:
    return [_kind(one) for one in generators]


def _kind(generator: Any) -> str:
    name = type(generator).__name__
    if isinstance(generator, np.random.Generator):
        return f"{name}({type(generator.bit_generator).__name__})"
    return name


def _told(kinds: Iterable[str]) -> str:
    return ", ".join(kinds) or "none"
