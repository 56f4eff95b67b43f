"""Locate: from a path or URL to the store that keeps it."""

from __future__ import annotations

import os
import re

from model_checkpoint.errors import CheckpointException, ExceptionType, OptionInvalid, UnsupportedType
from model_checkpoint.storage.contract.store import Store
from model_checkpoint.storage.local.store import LocalStore

SCHEMES = ("s3", "gs", "az")  # of buckets
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


class UnknownScheme(CheckpointException, ValueError):
    """A URL begins with a scheme no store answers to."""

    default_type = ExceptionType.STORAGE_ERROR


Root = str | os.PathLike[str] | Store


def open_store(root: Root) -> Store:
    """Return the store of ``root``: a path, a URL (``memory://``, ``s3://``, ``gs://``, ``az://``), or a store itself.

    Nothing is created or read yet.

    ``~`` at the beginning of a path is the home folder, as in a shell.

    Example:
        >>> open_store("memory://example").url
        'memory://example'
        >>> open_store("ftp://host/x")
        Traceback (most recent call last):
        model_checkpoint.storage.locate.UnknownScheme: ftp://host/x: unknown scheme 'ftp', expected a path or ...
    """
    if isinstance(root, LocalStore):
        return root
    if isinstance(root, (str, os.PathLike)):
        return _named(os.fspath(root))
    from model_checkpoint.storage.memory import InMemoryStore  # who saves to a disk does without

    if isinstance(root, (InMemoryStore, Store)):  # to look at every part of the contract takes longer
        return root
    raise UnsupportedType(f"a root is a path, a URL or a store, got {root!r}")


def _named(text: str) -> Store:
    if not text:
        raise OptionInvalid("the root is an empty path; write '.' for the current folder")
    if "\0" in text:
        raise OptionInvalid(f"the root {text!r} has a zero byte in it, which no path has. Check where it comes from.")
    match = _SCHEME.match(text)
    if match is None:
        return LocalStore(os.path.expanduser(text))
    if match[1] in SCHEMES:
        from model_checkpoint.storage.objects.store import ObjectStore

        return ObjectStore(text)
    from model_checkpoint.storage.memory import SCHEME as MEMORY
    from model_checkpoint.storage.memory import InMemoryStore

    if text.startswith(MEMORY):
        return InMemoryStore(text)
    raise UnknownScheme(
        f"{text}: unknown scheme {match[1]!r}, expected a path or {MEMORY}name, "
        f"{', '.join(f'{scheme}://bucket/prefix' for scheme in SCHEMES)}. "
        "Write a path without a scheme to save to a disk.",
        text,
    )
