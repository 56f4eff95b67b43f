"""Matcher: a saved tree is laid over live objects; first every difference is found, later the values flow.

Matching changes nothing. It leaves three things to do once the bytes are there: copies of arrays that could not be
read in place, loads of objects through their own ``load_state_dict``, and assignments of plain values.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from model_checkpoint.errors import CheckpointException, PartlyLoaded, StructureMismatch
from model_checkpoint.manifest import Node
from model_checkpoint.name_lists import some_of
from model_checkpoint.state import ShardTarget, Target
from model_checkpoint.tree.arrays.frameworks import finder, object_kind
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.nodes.names import join, segment
from model_checkpoint.tree.nodes.walk import ABSENT, ARRAYS, MAPPINGS, array_nodes, leaves, tag_of
from model_checkpoint.tree.restoring.destinations import Assign
from model_checkpoint.tree.restoring.live_specs import aligned, live_parameter_names
from model_checkpoint.tree.restoring.matching import Make, Matching, ObjectLoad
from model_checkpoint.tree.restoring.stateful_objects import match_object
from model_checkpoint.tree.values.classes import fields_of, is_namedtuple
from model_checkpoint.tree.values.codecs import codec_of
from model_checkpoint.tree.values.standard_codecs import Codec

_SHOWN = 10


class Matcher(Matching):
    """Matches one saved tree with one live state."""

    @property
    def targets(self) -> dict[int, Target | ShardTarget]:
        """Live memory that takes verified bytes directly, by stored array."""
        return self.destinations.targets

    def start(self, tree: Node) -> Make:
        """Match everything or raise; the function returned gives the filled live objects."""
        array_nodes(tree)  # refuses a container of the wrong form
        into = self.live.into
        tree = aligned(tree, self.live)
        self.parameter_names = live_parameter_names(self.live)
        make = self.match(tree, into, "")
        if not self.problems:
            self.problems.extend(self.destinations.settle())
        if self.problems:
            more = len(self.problems) - _SHOWN
            lines = "\n".join(f"  {problem}" for problem in self.problems[:_SHOWN])
            raise StructureMismatch(
                f"into: the checkpoint does not fit the live objects, nothing was changed.\n{lines}"
                + (f"\n  and {more} more" if more > 0 else "")
                + "\nLoad without into= to see what was saved, or choose with parts= and rename=."
            )
        return make if make is not None else lambda: into

    def match(self, node: Node, live: Any, name: str) -> Make | None:
        """Lay ``node`` over ``live``; None if ``live`` stays in its place, else what makes its successor."""
        if node == ABSENT:
            return None
        cls = type(live)
        if live is None:
            return self.fresh(node, name)
        try:
            find = finder(cls)
        except LocatedError as error:
            return self.problem(name, error.what)
        if find is not None:
            if isinstance(node, list) and tag_of(node) in ARRAYS:
                return self.destinations.match(node, live, name, find)
            return self.problem(name, f"live it is a {cls.__qualname__}, saved was {_what(node)}")
        kind = object_kind(cls)
        if kind is not None:
            match_object(self, node, live, name=name, kind=kind)
            return None
        codec = codec_of(cls)
        if codec is not None and codec.fill is not None:
            return self._fill(node, live, name, codec)
        return self._match_plain(node, live, name)

    def _fill(self, node: Node, live: Any, name: str, codec: Codec) -> Make | None:
        """Lay the saved value of a codec over a live one, which stays in its place."""
        if not isinstance(node, list) or node[:2] != ["x", codec.name]:
            return self.problem(name, f"live it is a {type(live).__qualname__}, saved was {_what(node)}")
        make, fill = self.fresh(node[2], name), codec.fill
        if make is not None and fill is not None:
            load = ObjectLoad(
                name, make=make, apply=lambda saved: fill(live, saved), present=lambda: codec.encode(live)
            )
            self.loads.append(load)
        return None

    def _match_plain(self, node: Node, live: Any, name: str) -> Make | None:
        if isinstance(live, dict):
            return self._mapping(node, live, name)
        if type(live) is list:
            return self._list(node, live, name)
        if type(live) is tuple or is_namedtuple(type(live)):
            return self._tuple(node, live, name)
        if dataclasses.is_dataclass(live) and tag_of(node) == "dc":
            return self._dataclass(node, live, name)
        if tag_of(node) in ARRAYS and not isinstance(live, (bytes, bytearray)):
            return self.problem(name, f"saved as an array, live it is a {type(live).__qualname__}")
        return self.fresh(node, name)

    def _assign(self, put: Callable[[Any], None], make: Make | None) -> None:
        if make is not None:
            self.destinations.assigns.append(Assign(put, make))

    def _mapping(self, node: Node, live: dict[Any, Any], name: str) -> Make | None:
        while isinstance(node, list) and tag_of(node) in ("m", "x"):  # what was a mapping with a class of its own
            node = node[3] if node[0] == "m" else node[2]
        if not isinstance(node, list) or tag_of(node) not in MAPPINGS:
            return self.problem(name, f"live it is a {type(live).__qualname__}, saved was {_what(node)}")
        if not live:
            self._assign(live.update, self.fresh(node, name))
            return None
        saved = self.saved_items(node)
        named: dict[str, Node] | None = None
        for key, (place, value) in zip(live, self.live.items(live, name) or (), strict=True):
            item = saved.get(key, ABSENT)
            if item == ABSENT and isinstance(key, str) and "." in key:
                named = dict(leaves(node)) if named is None else named
                item = named.get(key, ABSENT)
            make = self.match(item, value, place)
            if make is not None:
                self._assign(partial(live.__setitem__, key), make)
        return None

    def _list(self, node: Node, live: list[Any], name: str) -> Make | None:
        if not isinstance(node, list) or tag_of(node) != "l":
            return self.problem(name, f"live it is a list, saved was {_what(node)}")
        if len(node[1]) != len(live):
            if not all(_is_atom(item) for item in live):
                return self.problem(name, f"saved with {len(node[1])} items, live it has {len(live)}")
            self._assign(_replacer(live), self.fresh(node, name))
            return None
        for i, item in enumerate(node[1]):
            self._assign(partial(live.__setitem__, i), self.match(item, live[i], join(name, str(i))))
        return None

    def _tuple(self, node: Node, live: tuple[Any, ...], name: str) -> Make | None:
        items = node[-1] if isinstance(node, list) and tag_of(node) in ("t", "nt") else None
        if not isinstance(items, list):
            return self.problem(name, f"live it is a {type(live).__qualname__}, saved was {_what(node)}")
        if len(items) != len(live):
            if all(_is_atom(item) for item in live):
                return self.fresh(node, name)
            return self.problem(name, f"saved with {len(items)} items, live it has {len(live)}")
        labels = [segment(f) for f in fields_of(type(live))] or [str(i) for i in range(len(live))]
        makes = [
            self.match(item, value, join(name, part)) for item, value, part in zip(items, live, labels, strict=True)
        ]
        if not any(makes):
            return None
        return lambda: tuple.__new__(
            type(live), [value if make is None else make() for make, value in zip(makes, live, strict=True)]
        )

    def _dataclass(self, node: Any, live: Any, name: str) -> Make | None:
        names = fields_of(type(live))
        if names != node[2]:
            return self.problem(
                name, f"saved with fields {some_of(node[2])}, {type(live).__qualname__} has {some_of(names)}"
            )
        for field, item in zip(names, node[3], strict=True):
            make = self.match(item, getattr(live, field), join(name, segment(field)))
            self._assign(_attribute(live, field), make)
        return None

    def finish(self, make: Make) -> Any:
        """Apply everything; with ``atomic`` a failing ``load_state_dict`` undoes those before it."""
        self.builder.finish(self.targets)
        self._build()
        values: Iterable[tuple[Assign, Any]] = ((assign, assign.make()) for assign in self.destinations.assigns)
        made = make() if self.atomic else None
        if self.atomic:  # else one by one, so that an array goes when its successor is there
            values = list(values)
            for load in self.loads:
                load.remember()
        self._load_objects()
        self.destinations.land()
        for assign, value in values:
            assign.put(value)
        return made if self.atomic else make()

    def _build(self) -> None:
        """Build all plain values: what a codec of the caller's refuses is refused before an object changes."""
        try:
            for make in self.made:
                make()
        except CheckpointException as error:
            replaced = self.destinations.direct_names()
            if not replaced:
                raise
            raise PartlyLoaded(
                f"{error.message} {len(replaced)} arrays were replaced before. "
                "Load again with atomic=True to change all or nothing.",
                replaced=replaced,
                inner_exception=error,
            ) from error

    def _load_objects(self) -> None:
        done: list[ObjectLoad] = []
        for load in self.loads:
            try:
                load.run()
            except Exception as error:  # a user's load_state_dict may raise anything
                raise self._failed(load, done, error) from error
            done.append(load)

    def _failed(self, load: ObjectLoad, done: list[ObjectLoad], error: Exception) -> CheckpointException:
        if self.atomic:
            return _undone(load, done, error)
        replaced = [*self.destinations.direct_names(), *(one.name for one in done)]
        return PartlyLoaded(
            f"{load.name}: load_state_dict failed ({error}) after {len(replaced)} leaves and objects were replaced. "
            "Load again with atomic=True to change all or nothing.",
            replaced=replaced,
            partial=[load.name],
            inner_exception=error,
        )


def _undone(load: ObjectLoad, done: list[ObjectLoad], error: Exception) -> CheckpointException:
    """Bring every object back to what it was, and say which did not let itself be brought back."""
    stuck = []
    for one in [load, *reversed(done)]:
        try:
            one.undo()
        except Exception:  # noqa: BLE001 - a user's load_state_dict may raise anything; the others go back still
            stuck.append(one.name)
    what = f"{load.name}: load_state_dict failed ({error})."
    if not stuck:
        return StructureMismatch(f"{what} The live objects are as before.")
    return PartlyLoaded(
        f"{what} It failed again for the earlier state of {some_of(stuck)}, which may be changed in part; all else "
        "is as before. Make a new object before you load again.",
        partial=stuck,
        inner_exception=error,
    )


def _what(node: Node) -> str:
    words = {"d": "a dict", "k": "a dict", "o": "an OrderedDict", "l": "a list", "t": "a tuple", "nt": "a namedtuple"}
    words |= {"dc": "a dataclass", "a": "an array", "v": "an array", "x": "a value of a codec"}
    tag = tag_of(node)
    if tag == "m" and isinstance(node, list):
        return f"an object ({node[2]})"
    return words.get(tag, "a plain value")


def _is_atom(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str, bytes))


def _attribute(live: Any, field: str) -> Callable[[Any], None]:
    return lambda value: object.__setattr__(live, field, value)


def _replacer(live: list[Any]) -> Callable[[Any], None]:
    return lambda value: live.__setitem__(slice(None), value)
