"""Object keys: where everything lies below the prefix of an object store.

``checkpoints/<name>/<file>`` is a file, at its final place from its first byte and invisible without
``checkpoints/<name>/manifest.json``. A file whose name lacks the attempt id is kept as ``<file>~<attempt>``, so that no
two attempts ever write one key. A manifest of no bytes says that the checkpoint was deleted: objects cannot be removed
on condition everywhere, but they can be replaced on condition. The files of a deleted version stay where they are, and
beside them ``manifest.json~<number>~<salt>``, its manifest, and ``files.json~<number>~<salt>``, which are its files.
``.staging/<attempt>.lease`` says who is at work, ``.staging/<attempt>.verdict`` what many ranks have decided, with
the token of a deletion in place of the attempt; ``.trash/<token>/<file>`` was replaced by a repair, or deleted by a
version that made copies; ``.sidecars/<key>`` are pins, tags, notes and the like.
"""

from __future__ import annotations

import re

from model_checkpoint.storage.contract.names import MANIFEST, TrashToken

CHECKPOINTS, STAGING, TRASH, SIDECARS = "checkpoints", ".staging", ".trash", ".sidecars"
LEASE, CLOCK, VERDICT = ".lease", ".clock", ".verdict"
RECORD = "files.json"

_DELETED = re.compile(r"(manifest\.json|files\.json)~(\d{1,20})~([0-9a-f]{16})")
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


def verdict_key(attempt: str) -> str:
    """The key that says what becomes of an attempt of many ranks."""
    return f"{STAGING}/{attempt}{VERDICT}"


def deleted_key(token: TrashToken, kind: str) -> str:
    """The key of the manifest, or of the record of the files, of a deleted version."""
    return file_key(token.name, f"{kind}~{token.nanoseconds}~{token.salt}")


def deletion_of(name: str, stored: str) -> tuple[TrashToken, str] | None:
    """Which deleted version of ``name`` an object tells of, and whether it is its manifest or its record.

    Example:
        >>> token, kind = deletion_of("step-1", "manifest.json~7~00000000000000ff")
        >>> str(token), kind, deletion_of("step-1", "files.json~a1")
        ('step-1~7~00000000000000ff', 'manifest.json', None)
    """
    match = _DELETED.fullmatch(stored)
    return match and (TrashToken(name=name, nanoseconds=int(match[2]), salt=match[3]), match[1])


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


def random_ids(stored: str) -> frozenset[str]:
    """The ids, as the engine makes them, that a stored file's name carries."""
    return frozenset(_RANDOM.findall(stored))
