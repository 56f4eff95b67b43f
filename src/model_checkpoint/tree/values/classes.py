"""Classes: dataclasses, namedtuples and enums, recorded by name and fields, found again without importing anything."""

from __future__ import annotations

import dataclasses
import inspect
import sys
from collections.abc import Sequence
from enum import Enum, Flag
from functools import cached_property
from types import BuiltinFunctionType
from typing import Any

from model_checkpoint.errors import ClassUnavailable, ManifestInvalid
from model_checkpoint.name_lists import some_of
from model_checkpoint.tree.nodes.located_error import no_codec
from model_checkpoint.tree.nodes.names import brief

_MOST_BITS = 14_000  # of a number that a class may have lost since; Python writes no longer one in digits


def label(cls: type) -> str:
    """Return how a class is recorded: ``module:qualified.name``."""
    return f"{cls.__module__}:{cls.__qualname__}"


def is_namedtuple(cls: type) -> bool:
    """Tell whether ``cls`` was made by namedtuple or NamedTuple."""
    fields = getattr(cls, "_fields", None)
    return issubclass(cls, tuple) and isinstance(fields, tuple) and all(isinstance(f, str) for f in fields)


def fields_of(cls: type) -> list[str]:
    """Return the field names of a dataclass or namedtuple."""
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    return list(getattr(cls, "_fields", ()))


def dataclass_values(value: Any) -> list[tuple[str, Any]]:
    """Return the fields of a dataclass instance; refuse what a restore could not bring back."""
    names = fields_of(type(value))
    unset = [name for name in names if not hasattr(value, name)]
    extra = [
        name
        for name in getattr(value, "__dict__", {})
        if name not in names and not isinstance(getattr(type(value), name, None), cached_property)
    ]
    if unset or extra:
        kind = "fields that are not set" if unset else "attributes that are no fields"
        raise no_codec(type(value), f"the dataclass {type(value).__qualname__} has {kind}: {some_of(unset or extra)}")
    return [(name, getattr(value, name)) for name in names]


class Resolver:
    """Finds recorded classes among those the caller gave and those already imported."""

    def __init__(self, types: Sequence[type] = ()) -> None:
        self._given = {label(cls): cls for cls in types} | {cls.__qualname__: cls for cls in types}

    def find(self, recorded: str, hint: type | None = None) -> type:
        """Return the class recorded as ``module:name``; ``hint`` is the class of the live object in its place."""
        module, _, name = recorded.partition(":")
        if hint is not None and hint.__qualname__ == name:
            return hint
        given = self._given.get(recorded) or self._given.get(name)
        found = given or _loaded(module, name)
        if found is None:
            raise ClassUnavailable(
                f"class {recorded}: not at hand, and a load imports nothing. Import {module or 'its module'} first, "
                f"or pass types=[{name.rpartition('.')[2]}]."
            )
        return found

    def record(self, recorded: str, names: Sequence[str], *, hint: type | None = None) -> type:
        """Return a dataclass or namedtuple whose fields are exactly ``names``."""
        cls = self.find(recorded, hint)
        if not _is_record(cls):
            raise ManifestInvalid(
                f"class {recorded}: no dataclass or namedtuple that can be made from its fields. Pass types=[...] with "
                "the class as it was; else the manifest is damaged, run `mckpt verify`."
            )
        actual = fields_of(cls)
        if actual != list(names):
            raise ClassUnavailable(
                f"class {recorded}: its fields changed, the checkpoint has {some_of(names)}, the class has "
                f"{some_of(actual)}. "
                "Pass types=[...] with a class that has the saved fields, or register a codec."
            )
        return cls

    def member(self, recorded: str, name: str | None, *, value: Any) -> Enum:
        """Return the member of an enum that has the recorded name and value."""
        cls = self.find(recorded)
        if not issubclass(cls, Enum):
            raise ClassUnavailable(f"class {recorded}: saved as an enum, now it is none. Pass types=[...].")
        _refuse_impossible(cls, recorded, name, value)
        member = cls.__members__.get(name or "")
        if member is None and issubclass(cls, Flag) and isinstance(value, int):
            member = _flags(cls, value)
        if member is None or (value is not None and not _is_same(member.value, value)):
            now = "gone" if member is None else brief(member.value)
            raise ClassUnavailable(
                f"enum {recorded}: member {name} was saved with value {brief(value)}, now it is {now}. "
                "Pass types=[...] with the enum as it was."
            )
        return member


def _refuse_impossible(cls: type[Enum], recorded: str, name: str | None, value: Any) -> None:
    """Raise for what no member of any enum can have been, however the class has changed since."""
    if cls.__module__ == "enum" and not cls.__members__:
        odd = "is a base of enums and has no members"
    elif name is None and type(value) is not int:
        odd = f"a member without a name is a number, got {brief(value)}"
    elif type(value) is int and value.bit_length() > _MOST_BITS and not _has(cls, name, value):
        odd = f"a number of {value.bit_length()} bits is the value of no member"
    else:
        return
    raise ManifestInvalid(f"enum {recorded}: {odd}. The manifest is damaged; load another step.")


def _has(cls: type[Enum], name: str | None, value: Any) -> bool:
    member = cls.__members__.get(name or "")
    return member is not None and _is_same(member.value, value)


def _is_same(one: Any, other: Any) -> bool:
    """Compare values of exactly one plain type; other types may answer a comparison with anything."""
    return type(one) is type(other) and bool(one == other)


def _flags(cls: type[Flag], value: int) -> Enum | None:
    try:
        return cls(value) if cls.__members__ else None
    except Exception:  # noqa: BLE001 - an enum's own _missing_ may raise anything
        return None


def _loaded(module: str, name: str) -> type | None:
    """Look a class up in a module that is already imported; a module that waits to be loaded goes on waiting."""
    place: Any = sys.modules.get(module)
    for part in name.split("."):
        look = type if issubclass(type(place), type) else object  # isinstance would ask the module for its class
        try:
            place = look.__getattribute__(place, "__dict__").get(part)
        except AttributeError:
            return None
    return place if isinstance(place, type) else None


def _is_record(cls: type) -> bool:
    """Tell whether instances can be made from fields alone, without running any code of the class."""
    if issubclass(cls, tuple):
        return is_namedtuple(cls)
    of_builtin = any(isinstance(vars(base).get("__new__"), BuiltinFunctionType) for base in cls.__mro__[:-1])
    return dataclasses.is_dataclass(cls) and not of_builtin and not inspect.isabstract(cls)


def build(cls: type, names: Sequence[str], values: Sequence[Any]) -> Any:
    """Make an instance of a checked class from its fields; neither ``__init__`` nor ``__post_init__`` runs."""
    if issubclass(cls, tuple):
        return tuple.__new__(cls, values)
    made = object.__new__(cls)
    try:
        for name, value in zip(names, values, strict=True):
            object.__setattr__(made, name, value)
    except Exception as error:  # a field may be a property whose setter raises anything
        raise ClassUnavailable(
            f"class {label(cls)}: its field {name} does not take the saved value ({type(error).__name__}: {error}). "
            "Register a codec for it.",
            inner_exception=error,
        ) from error
    return made
