"""Values: scalars that live in the tree itself, as nodes and back, each with its exact type."""

from __future__ import annotations

import base64
import binascii
import decimal
import uuid
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np

from model_checkpoint.errors import CheckpointException, ManifestInvalid
from model_checkpoint.manifest import Node
from model_checkpoint.manifest.scalars import pack_number, unpack_number
from model_checkpoint.tree.nodes.located_error import LocatedError
from model_checkpoint.tree.values.numpy_dtypes import from_name, of_numpy

LONG_BYTES = 4096  # longer byte strings are stored like arrays


def text(value: str) -> Node:
    """Return a string as node; what UTF-8 cannot say (lone surrogates) is kept as bytes."""
    if value.isascii():
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return ["u", _b64(value.encode("utf-8", "surrogatepass"))]
    return value


def _b64(data: bytes | bytearray) -> str:
    return base64.b64encode(data).decode("ascii")


def _zone(zone: Any) -> Node:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset = zone.utcoffset(None)
        named = repr(zone) != repr(timezone(offset))
        return ["timezone", _delta(offset), text(zone.tzname(None)) if named else None]
    if type(zone) is ZoneInfo and zone.key is not None:
        return ["zone", zone.key]
    raise LocatedError(f"cannot save the time zone {zone!r}. Use datetime.timezone or a named zoneinfo.ZoneInfo.")


def _delta(value: timedelta) -> Node:
    return ["timedelta", value.days, value.seconds, value.microseconds]


def _clock(tag: str) -> Callable[[Any], Node]:
    return lambda value: [tag, value.replace(tzinfo=None).isoformat(), _zone(value.tzinfo), value.fold]


def pack_numpy(value: np.generic[Any]) -> Node:
    """Return a NumPy scalar as node."""
    array = np.asarray(value)
    return ["np", of_numpy(array.dtype).name, _b64(array.tobytes())]


PACKERS: dict[type, Callable[[Any], Node]] = {
    type(None): lambda value: None,
    bool: lambda value: value,
    int: pack_number,
    float: pack_number,
    str: text,
    complex: lambda value: ["c", value.real.hex(), value.imag.hex()],
    date: lambda value: ["date", value.isoformat()],
    time: _clock("time"),
    datetime: _clock("datetime"),
    timedelta: _delta,
    timezone: _zone,
    ZoneInfo: _zone,
    np.dtype: lambda value: ["npdtype", of_numpy(value).name],
    decimal.Decimal: lambda value: ["decimal", str(value)],
    uuid.UUID: lambda value: ["uuid", value.hex],
    range: lambda value: ["range", *map(pack_number, (value.start, value.stop, value.step))],
}


def pack_bytes(value: bytes | bytearray) -> Node:
    """Return a short byte string as node."""
    return ["b" if type(value) is bytes else "B", _b64(value)]


def _stamp(node: list[Any]) -> datetime:
    moment = datetime.fromisoformat(node[1])
    return moment.replace(tzinfo=unpack_value(node[2]), fold=int(node[3]))


def _scalar(node: list[Any]) -> Any:
    dtype = from_name(node[1])
    data = base64.b64decode(node[2], validate=True)
    if len(data) != dtype.itemsize:
        raise ValueError(f"{len(data)} bytes for {dtype.itemsize}")
    if dtype.itemsize == 0:  # an empty text
        return np.zeros((), dtype)[()]
    return np.frombuffer(data, np.uint8).view(dtype)[0]


UNPACKERS: dict[str, Callable[[list[Any]], Any]] = {
    "f": unpack_number,
    "i": unpack_number,
    "u": lambda node: base64.b64decode(node[1], validate=True).decode("utf-8", "surrogatepass"),
    "b": lambda node: base64.b64decode(node[1], validate=True),
    "B": lambda node: bytearray(base64.b64decode(node[1], validate=True)),
    "c": lambda node: complex(float.fromhex(node[1]), float.fromhex(node[2])),
    "date": lambda node: date.fromisoformat(node[1]),
    "time": lambda node: time.fromisoformat(node[1]).replace(tzinfo=unpack_value(node[2]), fold=int(node[3])),
    "datetime": _stamp,
    "timedelta": lambda node: timedelta(int(node[1]), int(node[2]), int(node[3])),
    "timezone": lambda node: timezone(unpack_value(node[1]), *([] if node[2] is None else [unpack_value(node[2])])),
    "zone": lambda node: ZoneInfo(node[1]),
    "np": _scalar,
    "npdtype": lambda node: from_name(node[1]),
    "decimal": lambda node: decimal.Decimal(node[1]),
    "uuid": lambda node: uuid.UUID(node[1]),
    "range": lambda node: range(*map(_integer, node[1:4])),
}


def _integer(node: Node) -> int:
    number = unpack_number(node)
    if type(number) is not int:
        raise ValueError(f"{number} is no integer")
    return number


def unpack_value(node: Node) -> Any:
    """Give back the value of an atomic node.

    Example:
        >>> unpack_value(PACKERS[complex](1 - 2j)), unpack_value(PACKERS[timedelta](timedelta(hours=1)))
        ((1-2j), datetime.timedelta(seconds=3600))
    """
    if not isinstance(node, list):
        return node
    try:
        return UNPACKERS[node[0]](node)
    except CheckpointException:
        raise
    except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, OSError, binascii.Error) as error:
        raise ManifestInvalid(f"tree: {str(node)[:80]} is no value ({error}). Run `mckpt verify`.") from error
