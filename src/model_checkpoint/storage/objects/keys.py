"""Object keys: where everything lies below the prefix of an object store.

``checkpoints/<name>/<file>`` is a file, at its final place from its first byte and invisible without
``checkpoints/<name>/manifest.json``. A file whose name lacks the attempt id is kept as ``<file>~<attempt>``, so that no
two attempts ever write one key. A manifest of no bytes says that the checkpoint was deleted: objects cannot be removed
on condition everywhere, but they can be replaced on condition.
``.staging/<attempt>.lease`` says who is at work; ``.trash/<token>/<file>`` was deleted.
"""

from __future__ import annotations

import re

from model_checkpoint.storage.contract.names import MANIFEST, TrashToken

CHECKPOINTS, STAGING, TRASH = "checkpoints", ".staging", ".trash"
LEASE, CLOCK = ".lease", ".clock"

_RANDOM = re.compile(r"(?<![0-9A-Za-z])[0-9a-f]{32}(?![0-9A-Za-z])")


def file_key(name: str, stored: str) -> str:
    """The key of a stored file of a checkpoint."""
    return f"{CHECKPOINTS}/{name}/{stored}"


def manifest_key(name: str) -> str:
    """The key whose object makes the checkpoint be."""
    return file_key(name, MANIFEST)


def lease_key(attempt: str) -> str:
    """The key that says who is at work on an attempt."""
    return f"{STAGING}/{attempt}{LEASE}"


def trash_key(token: TrashToken | str, stored: str) -> str:
    """The key of a file of a deleted checkpoint."""
    return f"{TRASH}/{token}/{stored}"


def stored_name(file: str, attempt: str) -> str:
    """What a file of an attempt is called in the store: unlike any file of another attempt.

    Example:
        >>> stored_name("r0-0-a1.bin", "a1"), stored_name("index.json", "a1")
        ('r0-0-a1.bin', 'index.json~a1')
    """
    return file if is_of(file, attempt) else f"{file}~{attempt}"


def plain_name(stored: str, home: str) -> str | None:
    """What a stored file is called by people; None if it belongs to another attempt than ``home``.

    Example:
        >>> plain_name("index.json~a1", "a1"), plain_name("index.json~a1", "a2"), plain_name("x", "a2")
        ('index.json', None, 'x')
    """
    file, mark, attempt = stored.partition("~")
    return file if not mark or attempt == home else None


def is_of(stored: str, attempt: str) -> bool:
    """Whether a stored file's name carries the attempt id, as a word of its own.

    Example:
        >>> is_of("x-12", "12"), is_of("x-12", "2")
        (True, False)
    """
    return re.search(rf"(?<![0-9A-Za-z]){re.escape(attempt)}(?![0-9A-Za-z])", stored) is not None


def has_random_id(stored: str) -> bool:
    """Whether a stored file's name carries an id as the engine makes them."""
    return _RANDOM.search(stored) is not None
