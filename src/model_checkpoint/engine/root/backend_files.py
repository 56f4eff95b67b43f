"""Backend files: what a manifest says of the files that a storage backend wrote, believed only if it can be so."""

from __future__ import annotations

import os

import msgspec

from model_checkpoint.errors import ManifestInvalid
from model_checkpoint.manifest import Manifest, unpack


class BackendFiles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a manifest says of the files of a backend."""

    backend: str
    file: str  # what it was told to write
    paths: dict[str, str]  # how each file of the checkpoint was called by the backend
    empty: tuple[str, ...] = ()  # its files without a byte


def files_of_backend(manifest: Manifest, where: str) -> BackendFiles:
    """Believe nothing: a path that leaves its folder is refused before anything is made."""
    try:
        inside = msgspec.convert(unpack(manifest.tree), BackendFiles)
    except (msgspec.ValidationError, ValueError, TypeError) as error:
        raise _invalid(where, f"says of its backend what cannot be read ({error})") from error
    if sorted(inside.paths) != sorted(record.name for record in manifest.extras):
        raise _invalid(where, "names other files of its backend than it has digests of")
    for path in (inside.file, *inside.paths.values(), *inside.empty):
        parts = path.split("/")
        if not path or os.path.isabs(path) or any(part in ("", ".", "..") for part in parts) or "\0" in path:
            raise _invalid(where, f"names a file {path[:200]!r} outside of its folder")
    return inside


def _invalid(where: str, what: str) -> ManifestInvalid:
    return ManifestInvalid(f"{where}: the manifest {what}. It is damaged or hostile; load another step.", where)
