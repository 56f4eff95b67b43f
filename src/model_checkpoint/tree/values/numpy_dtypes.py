"""NumPy dtypes by logical name, both ways: numbers, times, texts, records, and the ml_dtypes family."""

from __future__ import annotations

import json
import platform
import re
import sys
from functools import cache, lru_cache
from typing import Any

import numpy as np

from model_checkpoint.errors import ManifestInvalid, UnsupportedType
from model_checkpoint.tree.nodes.located_error import no_codec
from model_checkpoint.tree.values.dtypes import DType, number, raw, ticks

PLATFORM = f"{platform.machine()}-{sys.byteorder}-{np.dtype(np.longdouble).itemsize}"

_TIME = re.compile(r"(datetime64|timedelta64)(\[[0-9]*(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)(/[0-9]+)?\])?")
_TEXT = re.compile(r"([<>]U|\|S|\|V)[0-9]{1,9}")
_OWN_NUMBERS = {np.dtype(code).name for code in "?bBhHiIlLqQefdFD"}
_LONG = {"longdouble": np.longdouble, "clongdouble": np.clongdouble}


@cache
def _extra() -> dict[str, np.dtype[Any]]:
    """What NumPy itself does not have, by name; most states have none of it."""
    import ml_dtypes

    kinds = {name: kind for name, kind in vars(ml_dtypes).items() if isinstance(kind, type)}
    return {name: np.dtype(kind) for name, kind in kinds.items() if issubclass(kind, np.generic)}


@lru_cache(maxsize=4096)
def of_numpy(dtype: np.dtype[Any]) -> DType:
    """Return the logical dtype of a NumPy dtype.

    Example:
        >>> of_numpy(np.dtype(">f4")).name, of_numpy(np.dtype("U3")).stored
        ('>float32', 'U8')
    """
    if dtype.hasobject or dtype.kind == "T":
        raise no_codec(np.ndarray, f"cannot save an array of dtype {dtype}: it holds Python objects")
    if dtype.names is not None:
        return raw(_record_name(dtype), dtype.itemsize)
    if dtype.kind in "US" or dtype.type is np.void:
        return raw(dtype.str, dtype.itemsize)
    if dtype.type in (np.longdouble, np.clongdouble) and dtype.itemsize not in (8, 16 * (dtype.kind == "c")):
        return _long(dtype)
    return _numeric(dtype)


def _numeric(dtype: np.dtype[Any]) -> DType:
    name = dtype.name
    known = ticks(name) if dtype.kind in "mM" else number(name)
    if known is None:
        if _extra().get(name) != dtype:
            raise no_codec(np.ndarray, f"cannot save an array of dtype {dtype}")
        return raw(name, dtype.itemsize)
    if dtype.isnative:
        return known
    return DType(f">{name}", known.itemsize, known.stored, known.alignment, known.tail, swapped=True)


def _long(dtype: np.dtype[Any]) -> DType:
    name = "longdouble" if dtype.kind == "f" else "clongdouble"
    if not dtype.isnative:
        raise no_codec(np.ndarray, f"cannot save an array of dtype {dtype}: long doubles of foreign byte order")
    return raw(f"{name}@{PLATFORM}", dtype.itemsize)


def _record_name(dtype: np.dtype[Any]) -> str:
    try:
        text = "record:" + json.dumps(np.lib.format.dtype_to_descr(dtype), separators=(",", ":"))
        exact = from_name(text) == dtype
    except (TypeError, ValueError, ManifestInvalid):
        exact = False
    if not exact:
        raise no_codec(np.ndarray, f"cannot save an array of dtype {dtype}: its layout has no portable description")
    return text


@lru_cache(maxsize=4096)
def from_name(name: str) -> np.dtype[Any]:
    """Return the NumPy dtype of a logical name as it stands in a manifest, which is not trusted."""
    plain = name.removeprefix(">")
    if name.startswith("record:"):
        return _record(name)
    if plain in _LONG or "@" in plain:
        return _long_named(name)
    if _TIME.fullmatch(plain) or _TEXT.fullmatch(name) or number(plain) is not None:
        dtype = _named(name if _TEXT.fullmatch(name) else plain)
        return dtype.newbyteorder(">") if name.startswith(">") else dtype
    if name in _extra():
        return _extra()[name]
    raise UnsupportedType(f"dtype {name}: NumPy cannot hold it. Load with the framework that saved it.")


def _named(name: str) -> np.dtype[Any]:
    if name not in _OWN_NUMBERS and number(name) is not None and name in _extra():
        return _extra()[name]
    try:
        return np.dtype(name)
    except (TypeError, ValueError, OverflowError) as error:
        raise UnsupportedType(f"dtype {name}: NumPy cannot hold it. Load with the framework that saved it.") from error


def _long_named(name: str) -> np.dtype[Any]:
    kind, _, where = name.partition("@")
    if kind not in _LONG or where != PLATFORM:
        raise UnsupportedType(
            f"dtype {name}: long doubles were saved on {where or 'an unknown platform'}, this is {PLATFORM}. "
            "Load them there and save them as float64."
        )
    return np.dtype(_LONG[kind])


def _record(name: str) -> np.dtype[Any]:
    try:
        dtype = np.lib.format.descr_to_dtype(_tuples(json.loads(name.removeprefix("record:"))))
    except (TypeError, ValueError, LookupError, OverflowError, AttributeError, RecursionError) as error:
        raise ManifestInvalid(f"dtype {name[:80]}: no record dtype ({error}). Run `mckpt verify`.") from error
    if dtype.hasobject:  # its bytes would be taken for addresses
        raise ManifestInvalid(f"dtype {name[:80]}: holds Python objects, as no save writes. Run `mckpt verify`.")
    return dtype


def _tuples(descr: Any, depth: int = 0) -> Any:
    """Undo what JSON did to a dtype description: fields are tuples in a list."""
    if isinstance(descr, str):
        return descr
    if not isinstance(descr, list) or depth > 32:
        raise ValueError("not a description")
    return [_field(field, depth + 1) for field in descr]


def _field(field: Any, depth: int) -> tuple[Any, ...]:
    name, kind, *shape = field
    label = tuple(name) if isinstance(name, list) else name
    return (label, _tuples(kind, depth), *(tuple(side) for side in shape))
