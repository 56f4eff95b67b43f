"""Page files: the files of the dashboard, read once at start-up; no path of a request ever reaches the disk."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".md": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
}
_PACKED = ("text/", "application/", "image/svg")
_WORTHWHILE = 1000  # bytes


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent."""

    content: bytes
    packed: bytes | None  # by gzip, where that is worth it
    kind: str
    digest: str

    @property
    def etag(self) -> str:
        """What a browser knows it by."""
        return f'"{self.digest}"'


def read_pages(folder: Traversable | None = None) -> dict[str, PageFile]:
    """Every file below ``folder`` by its path; of files whose type we do not know, none.

    Example:
        >>> sorted(read_pages(files("model_checkpoint.api.pages")))
        []
    """
    top = files("model_checkpoint.api").joinpath("web") if folder is None else folder
    return dict(_below(top, "")) if top.is_dir() else {}


def _below(folder: Traversable, prefix: str) -> list[tuple[str, PageFile]]:
    found: list[tuple[str, PageFile]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _below(one, f"{prefix}/{one.name}")
        elif (kind := _TYPES.get(f".{one.name.rpartition('.')[2]}")) is not None:
            found.append((f"{prefix}/{one.name}", page_file(one.read_bytes(), kind)))
    return found


def page_file(content: bytes, kind: str) -> PageFile:
    """A file with what is sent of it."""
    packed = None
    if kind.startswith(_PACKED) and len(content) > _WORTHWHILE:
        packed = gzip.compress(content, 6, mtime=0)
    return PageFile(content, packed, kind, hashlib.sha256(content).hexdigest()[:20])
