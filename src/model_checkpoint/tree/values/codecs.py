"""Codecs: what other types become in a tree, and how they come back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import msgspec

from model_checkpoint.errors import ClassUnavailable, UnsupportedType
from model_checkpoint.tree.values.standard_codecs import STANDARD, StandardCodec


class Codec(msgspec.Struct, frozen=True, kw_only=True):
    """How one class is saved: under which name, as what, how it is made again, and how a live one is filled."""

    cls: type
    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    fill: Callable[[Any, Any], None] | None = None


def _of_standard(one: StandardCodec) -> Codec:
    return Codec(cls=one.cls, name=one.name, encode=one.encode, decode=one.decode, fill=one.fill)


_BY_NAME: dict[str, Codec] = {one.name: _of_standard(one) for one in STANDARD}
_BY_TYPE: dict[type, Codec] = {codec.cls: codec for codec in _BY_NAME.values() if codec.cls is not defaultdict}
_GENERATORS = "numpy.random."  # what their names, and the modules of their classes, begin with


def register_codec(
    cls: type,
    encode: Callable[[Any], Any],
    decode: Callable[[Any], Any],
    *,
    fill: Callable[[Any, Any], None] | None = None,
    name: str | None = None,
) -> None:
    """Teach the library to save values of exactly type ``cls``.

    For ``torch.Tensor`` and ``numpy.ndarray`` the codec is asked only for those that have no plain form (sparse,
    quantized, object arrays).

    Args:
        cls: The class; subclasses need codecs of their own.
        encode: Turns a value into anything that can be saved.
        decode: Turns that back into a value.
        fill: Writes what ``encode`` gave into a live value; without it a load into= puts a new value in its place.
        name: Recorded in the checkpoint; must stay the same as long as checkpoints live. Default: module and class.

    Example:
        >>> from fractions import Fraction
        >>> register_codec(Fraction, lambda f: (f.numerator, f.denominator), lambda pair: Fraction(*pair))
    """
    if not isinstance(cls, type) or not all(map(callable, (encode, decode, fill or encode))):
        raise UnsupportedType(
            f"register_codec: takes a class and two callables, got {cls!r}, {encode!r}, {decode!r}. "
            "Pass the class itself, a function to plain data, and one back."
        )
    _learn_generators(cls.__module__)
    label = name or f"{cls.__module__}.{cls.__qualname__}"
    other = _BY_NAME.get(label)
    if other is not None and (other.cls.__module__, other.cls.__qualname__) != (cls.__module__, cls.__qualname__):
        raise UnsupportedType(
            f"register_codec: the name {label!r} belongs to {other.cls.__qualname__}, got {cls.__qualname__}. "
            "Choose another name=."
        )
    codec = Codec(cls=cls, name=label, encode=encode, decode=decode, fill=fill)
    _BY_TYPE[cls] = _BY_NAME[label] = codec


def codec_of(cls: type) -> Codec | None:
    """Return the codec of exactly ``cls``, or None."""
    found = _BY_TYPE.get(cls)
    if found is None and cls.__module__.startswith(_GENERATORS):
        _learn_generators(cls.__module__)
        return _BY_TYPE.get(cls)
    return found


def codec_named(name: str) -> Codec:
    """Return the codec recorded as ``name``."""
    _learn_generators(name)
    if name not in _BY_NAME:
        raise ClassUnavailable(
            f"codec {name}: the checkpoint needs it and it is not registered. Import the module that calls "
            "register_codec for it, or load without it (parts=)."
        )
    return _BY_NAME[name]


def _learn_generators(name: str) -> None:
    """Learn how NumPy's generators are saved when the first is met: most states have none, and they take importing."""
    if not name.startswith(_GENERATORS):
        return
    from model_checkpoint.tree.values.numpy_generators import NUMPY_GENERATORS

    for codec in map(_of_standard, NUMPY_GENERATORS):
        if codec.name not in _BY_NAME:
            _BY_NAME[codec.name] = _BY_TYPE[codec.cls] = codec
