"""Names: the path of a value as one dotted text, unique in its state.

Plain string keys and positions stay as they are and are joined by dots. Whatever could be taken for something else
is escaped: ``%XX`` is a byte of UTF-8 (a dot inside a key, ``%``, control characters), and ``%`` with a small letter
opens a key that is no string (``%i1`` is the integer 1).
"""

from __future__ import annotations

import base64
import json
import re
import reprlib
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from urllib.parse import unquote_to_bytes

from model_checkpoint.manifest import Node
from model_checkpoint.manifest.scalars import unpack_number

ROOT = "%r"  # the name of a state that is itself one leaf
_EMPTY = "%_"
_LONGEST = 200  # bytes; file formats and people have limits
_RESERVED = "__metadata__"  # a safetensors header keeps its remarks under this name
_WRAPPERS = re.compile(r"^(?:(?:module|_orig_mod)\.)+|(?<=\.)_orig_mod\.")
_SHORT = reprlib.Repr()  # a key may be nested or long without end
_SHORT.maxlevel, _SHORT.maxstring, _SHORT.maxother, _SHORT.maxlong = 4, 120, 120, 120


def escape(text: str, keep: str = "") -> str:
    """Return ``text`` without dots, ``%`` and unprintable characters, except those in ``keep``.

    Example:
        >>> escape("a.b"), escape("50%"), escape("")
        ('a%2Eb', '50%25', '%_')
    """
    if text.isascii() and text.isprintable() and "%" not in text and "." not in text and text:
        return text
    if not text:
        return _EMPTY
    return "".join(c if (c not in "%." and c.isprintable()) or c in keep else _percent(c) for c in text)


def _percent(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogatepass"))


def unescape(segment: str) -> str:
    """Return the string key that :func:`escape` made ``segment`` of."""
    return "" if segment == _EMPTY else unquote_to_bytes(segment).decode("utf-8", "surrogatepass")


def dotted(key: str) -> str:
    """Return the name of a key whose dots are meant as path dots, as in a module's state_dict."""
    if stay_dotted((key,)):
        return key
    return ".".join(escape(part) for part in key.split("."))


def stay_dotted(keys: Iterable[str]) -> bool:
    """Tell whether all keys are the names that :func:`dotted` would give them; of many that is asked at once.

    Example:
        >>> stay_dotted(["h.0.weight", "bias"]), stay_dotted(["bias", "h..weight"])
        (True, False)
    """
    text = f".{'.|.'.join(keys)}."
    return text.isascii() and text.isprintable() and "%" not in text and ".." not in text


def undotted(name: str) -> str:
    """Return the key that :func:`dotted` made ``name`` of."""
    return ".".join(unescape(part) for part in name.split("."))


def segment(key: Node) -> str:
    """Return the name of a dict key, given as its node.

    Example:
        >>> segment("lr"), segment(1), segment(None), segment(["f", "0x1.8p+0"])
        ('lr', '%i1', '%n', '%f1%2E5')
    """
    if isinstance(key, str):
        return escape(key)
    if key is None:
        return "%n"
    if isinstance(key, bool):
        return f"%b{key}"
    if isinstance(key, int):
        return f"%i{key}"
    with suppress(ValueError, OverflowError):  # a damaged key has a name all the same
        match key:
            case ["i", str()]:
                return f"%i{unpack_number(key)}"
            case ["f", str()]:
                return f"%f{escape(repr(unpack_number(key)))}"
            case ["b", str(data)]:
                return f"%x{base64.b64decode(data, validate=True).hex()}"
    return f"%j{escape(json.dumps(key, separators=(',', ':')))}"


def join(prefix: str, part: str) -> str:
    """Return the name of ``part`` under ``prefix``."""
    return f"{prefix}.{part}" if prefix else part


def final(name: str) -> str:
    """Return ``name`` as it is written: never empty, never reserved, never longer than 200 bytes."""
    if 0 < len(name) <= _LONGEST // 4 and name != _RESERVED:
        return name
    if not name:
        return ROOT
    if name == _RESERVED:
        return f"%5F{name[1:]}"
    data = name.encode("utf-8")
    if len(data) <= _LONGEST:
        return name
    head = data[: _LONGEST - 40].decode("utf-8", "ignore")
    return f"{head.rpartition('%')[0] if '%' in head[-3:] else head}%h{blake2b(data, digest_size=16).hexdigest()}"


def strip_wrappers(name: str) -> str:
    """Return a parameter's name without what DDP and ``torch.compile`` put into it.

    Example:
        >>> strip_wrappers("module._orig_mod.encoder._orig_mod.weight")
        'encoder.weight'
    """
    return _WRAPPERS.sub("", name)


def brief(value: object) -> str:
    """Return the repr of any value, shortened where it is nested or long without end.

    Example:
        >>> brief("a"), brief(10**5000)
        ("'a'", 'an integer of 16610 bits')
    """
    try:
        return _SHORT.repr(value)
    except ValueError:  # Python refuses to print integers beyond 4300 digits
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__qualname__}"


def shown(keys: list[object]) -> str:
    """Return a path for people: ``model.layers[3].fn``.

    Example:
        >>> shown(["model", "layers", 3, "fn"]), shown([])
        ('model.layers[3].fn', 'state')
    """
    text = "".join(f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{brief(key)}]" for key in keys)
    return text.removeprefix(".") or "state"
