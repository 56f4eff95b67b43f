"""Names: what a checkpoint, a file, an attempt and a deleted checkpoint may be called.

A name that could leave its folder, hide, or mislead a person is refused before it reaches the medium.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from model_checkpoint.errors import CheckpointNotFound, UnsafeName
from model_checkpoint.storage.contract.host import Moment

MANIFEST = "manifest.json"
MANIFEST_DRAFT = "manifest.tmp"
REPLACED_MANIFEST = "manifest.replaced"  # in the trash, where it makes no checkpoint

_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ATTEMPT = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TOKEN = re.compile(r"([A-Za-z0-9._-]{1,128})~(\d{1,20})~(?:(\d{1,9})\.([0-9a-f]{0,8})\.(\d{1,12})~)?([0-9a-f]{16})")
_DOTS = (".", "..")


def is_name(name: str) -> bool:
    """Whether ``name`` may stand for a checkpoint or a file.

    Example:
        >>> is_name("step-00000100"), is_name("../x")
        (True, False)
    """
    return _NAME.fullmatch(name) is not None and name not in _DOTS


def check_name(name: str, where: str) -> str:
    """Return ``name``, or raise :class:`UnsafeName`.

    Example:
        >>> check_name("r0-0.safetensors", "runs/a")
        'r0-0.safetensors'
    """
    if is_name(name):
        return name
    raise UnsafeName(
        f"{where}: the name {name[:160]!r} is not safe, expected 1 to 128 of A-Z a-z 0-9 . _ - and not '.' or '..'. "
        "Rename it; if it stands in a manifest, that manifest is damaged or hostile.",
        where,
    )


def check_attempt(attempt: str, where: str) -> str:
    """Return ``attempt``, or raise :class:`UnsafeName`: it names a folder and is part of file names."""
    if _ATTEMPT.fullmatch(attempt):
        return attempt
    raise UnsafeName(
        f"{where}: the attempt id {attempt[:160]!r} is not safe, expected 1 to 64 of A-Z a-z 0-9 _ -. "
        "Use a fresh random hexadecimal id for each attempt.",
        where,
    )


def check_new_file(file: str, taken: Iterable[str], where: str) -> str:
    """Return ``file`` if it may join the names ``taken``; two names a Mac would mix up are refused."""
    check_name(file, where)
    if file.casefold() in {MANIFEST, MANIFEST_DRAFT, *(name.casefold() for name in taken)}:
        raise UnsafeName(
            f"{where}: the file name {file!r} is reserved, or differs from another one only in case. "
            "Give each file of an attempt a name of its own.",
            where,
            file=file,
        )
    return file


class TrashToken(msgspec.Struct, frozen=True, kw_only=True):
    """The key of something in the trash: what it was called and when it was put there.

    The wall clock of whoever put it there may be wrong, so a store that has no clock of its own also writes down the
    ``order`` of deletion, and the time since a ``boot``, which does not jump.

    Example:
        >>> TrashToken.parse("step-1~1700000000000000000~00000000000000ff").name
        'step-1'
        >>> TrashToken.parse("step-1~1700000000000000000~7.1f2e3d4c.86400000~00000000000000ff").order
        7
    """

    name: str
    nanoseconds: int
    salt: str
    order: int = 0
    boot: str = ""  # the first eight digits of its id
    milliseconds: int = 0  # since that boot

    @classmethod
    def fresh(cls, name: str, *, order: int = 0, moment: Moment | None = None) -> TrashToken:
        """A key nobody has used."""
        salt = os.urandom(8).hex()
        if moment is None:
            return cls(name=name, nanoseconds=time.time_ns(), salt=salt)
        return cls(
            name=name,
            nanoseconds=moment.wall,
            salt=salt,
            order=order,
            boot=_short(moment.boot),
            milliseconds=int(moment.since_boot * 1000),
        )

    @classmethod
    def find(cls, text: str) -> TrashToken | None:
        """Read a key; None if ``text`` is none."""
        return _read_token(text) if "~" in text else None

    @classmethod
    def parse(cls, text: str, where: str = "trash") -> TrashToken:
        """Read a key; raise :class:`CheckpointNotFound` if ``text`` is none."""
        token = cls.find(text)
        if token is None:
            raise CheckpointNotFound(
                f"{where}: {text[:200]!r} is no key of the trash. List what can be brought back with `mckpt trash`.",
                where,
            )
        return token

    @property
    def deleted(self) -> float:
        """When it was put there, unix time by the clock of whoever did it."""
        return self.nanoseconds / 1e9

    @property
    def rank(self) -> tuple[int, int]:
        """Sorts deletions by their order; those without one come first, by their time."""
        return self.order, self.nanoseconds

    def age(self, now: Moment) -> float | None:
        """Seconds since it was put there; None if another boot did that, so that nobody can be sure."""
        return msgspec.structs.replace(now, boot=_short(now.boot)).since(self.boot, self.milliseconds / 1000)

    def __str__(self) -> str:
        steady = f"{self.order}.{self.boot}.{self.milliseconds}~" if self.order or self.boot else ""
        return f"{self.name}~{self.nanoseconds}~{steady}{self.salt}"


@lru_cache(maxsize=4096)  # each deletion looks at all that is in the trash
def _read_token(text: str) -> TrashToken | None:
    match = _TOKEN.fullmatch(text)
    if match is None or match[1] in _DOTS:
        return None
    name, nanoseconds, order, boot, milliseconds, salt = match.groups()
    return TrashToken(
        name=name,
        nanoseconds=int(nanoseconds),
        salt=salt,
        order=int(order or 0),
        boot=boot or "",
        milliseconds=int(milliseconds or 0),
    )


def _short(boot: str) -> str:
    return boot.replace("-", "")[:8]
